/* labels.c: the minimum sensitivity within the limits, by label setting.
 *
 * A label is a partial path: its sensitivity and what it has spent. Of two labels at one state, one that is
 * not better in anything is dominated: each of its completions also completes the other, at no more
 * sensitivity. Doubles keep their order when the same is added to both, so this holds to the last bit. The
 * search goes layer by layer. It drops labels whose completion bound is not below the best path known. It
 * completes each label that stays by the paths that give the bounds, which finds better paths early.
 *
 * The first sweep keeps few labels per layer, those with the smallest bounds. Where that drops a label,
 * nothing is proven beyond the smallest dropped bound, and a wider sweep follows. Before each sweep, arcs
 * that cannot improve the best path are removed and the bounds are recomputed. */
#include "allocator/bound/path_dag.h"
#include "base/reserve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    COSTS = TANDEM_N_PATH_COST,
    FIRST_WIDTH = 256,
    MAX_WIDTH = 1 << 18, /* labels in a layer */
    MAX_TRACES = 1 << 23 /* labels in all layers; only their arcs are kept */
};

typedef struct label {
    double sensitivity, spent[COSTS], bound;
    int arc;    /* its last arc; −1 at the start */
    int parent; /* trace of the label before its last arc */
} label;

typedef struct trace {
    int parent, plan_arc;
} trace;

typedef struct label_list {
    label *label;
    size_t n, capacity;
} label_list;

typedef struct label_search {
    tandem_path_dag paths;
    tandem_completion_bound completion;
    tandem_best_path best;
    double cutoff, tolerance;
    double lower_bound;         /* proven */
    int64_t n_made, max_labels; /* labels made, and allowed */
    int is_spent;               /* no more are allowed */
    unsigned char *drop;        /* [n_arc] */
    int *from;                  /* [n_arc] the state an arc leaves */
    int *incoming_arc;          /* [n_arc] arcs by target state */
    int *incoming_start;        /* [n_state + 1] */
    int *path;                  /* [n_layer] */
    size_t *label_start;        /* [n_state + 1] labels of each state in `now` */
    /* of a layer, of the next layer, of a state; scratch of merging */
    label_list now, next, arrived, spare;
    size_t *run, n_run, run_capacity; /* starts of the sorted runs in `arrived` */
    double *scratch;                  /* bounds, or a staircase */
    size_t scratch_capacity;
    trace *trace;
    size_t n_trace, trace_capacity;
    double dropped_bound; /* smallest bound of the labels that a sweep had no room for */
    tandem_error *error;
} label_search;

static double label_target(const label_search *s)
{
    return fmin(s->cutoff, s->best.sensitivity * (1 - s->tolerance));
}

/* --- Growing -------------------------------------------------------------------------------------------- */

static tandem_status reserve_room(label_search *s, void *array, size_t *capacity, size_t n, size_t size)
{
    return tandem_reserve(array, capacity, n, size) ? TANDEM_OK
                                                    : tandem_no_memory(s->error, "for %zu labels", n);
}

static tandem_status reserve_labels(label_search *s, label_list *l, size_t n)
{
    return reserve_room(s, &l->label, &l->capacity, n, sizeof *l->label);
}

/* --- Too many labels ----------------------------------------------------------------------------------- */

/* The k-th smallest of n values (quickselect); reorders them. */
static double select_kth(double *value, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        const double pivot = value[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (value[i] < pivot) i++;
            while (value[j] > pivot) j--;
            if (i >= j) break;
            const double swapped = value[i];
            value[i++] = value[j];
            value[j--] = swapped;
        }
        if (k <= j)
            high = j;
        else
            low = j + 1;
    }
    return value[k];
}

/* Keeps the `width` labels with the smallest bounds, in their order. */
static tandem_status keep_lowest_bounds(label_search *s, label_list *l, size_t width)
{
    if (l->n <= width) return TANDEM_OK;
    const tandem_status status = reserve_room(s, &s->scratch, &s->scratch_capacity, l->n, sizeof *s->scratch);
    if (status != TANDEM_OK) return status;
    for (size_t i = 0; i < l->n; i++) s->scratch[i] = l->label[i].bound;
    const double edge = select_kth(s->scratch, l->n, width);
    size_t below = 0, n = 0;
    for (size_t i = 0; i < l->n; i++) below += l->label[i].bound < edge;
    for (size_t i = 0, at_edge = below; i < l->n; i++) {
        if (l->label[i].bound < edge || (l->label[i].bound == edge && at_edge < width)) {
            at_edge += l->label[i].bound == edge;
            l->label[n++] = l->label[i];
        }
    }
    l->n = n;
    s->dropped_bound = fmin(s->dropped_bound, edge);
    return TANDEM_OK;
}

/* --- Labels of one state -------------------------------------------------------------------------------- */

static int label_before(const label *a, const label *b)
{
    if (a->sensitivity != b->sensitivity) return a->sensitivity < b->sensitivity;
    if (a->spent[0] != b->spent[0]) return a->spent[0] < b->spent[0];
    return a->spent[1] < b->spent[1];
}

/* Sorts `arrived` by merging its runs in pairs. */
static tandem_status merge_runs(label_search *s)
{
    const tandem_status status = reserve_labels(s, &s->spare, s->arrived.n);
    if (status != TANDEM_OK) return status;
    while (s->n_run > 1) {
        size_t n_run = 0, out = 0;
        for (size_t k = 0; k < s->n_run; k += 2) {
            const label *const at = s->arrived.label;
            size_t i = s->run[k], j = k + 1 < s->n_run ? s->run[k + 1] : s->arrived.n;
            const size_t middle = j, end = k + 2 < s->n_run ? s->run[k + 2] : s->arrived.n;
            s->run[n_run++] = out;
            while (i < middle && j < end)
                s->spare.label[out++] = label_before(&at[j], &at[i]) ? at[j++] : at[i++];
            while (i < middle) s->spare.label[out++] = at[i++];
            while (j < end) s->spare.label[out++] = at[j++];
        }
        const label_list merged = {.label = s->spare.label, .n = s->arrived.n, .capacity = s->spare.capacity};
        s->spare = (label_list){.label = s->arrived.label, .capacity = s->arrived.capacity};
        s->arrived = merged;
        s->n_run = n_run;
    }
    return TANDEM_OK;
}

/* stair[*n_stair]: the labels so far, ascending in the first cost and descending in the second. Whether one
 * of them costs no more of either than `l`; otherwise adds l. */
static int is_covered(double (*stair)[COSTS], size_t *n_stair, const label *l)
{
    size_t low = 0, high = *n_stair;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (stair[middle][0] <= l->spent[0])
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && stair[low - 1][1] <= l->spent[1]) return 1;
    while (high < *n_stair && stair[high][1] >= l->spent[1]) high++;
    if (low > 0 && stair[low - 1][0] == l->spent[0]) low--;
    memmove(&stair[low + 1], &stair[high], (*n_stair - high) * sizeof *stair);
    *n_stair = low + 1 + (*n_stair - high);
    stair[low][0] = l->spent[0];
    stair[low][1] = l->spent[1];
    return 0;
}

/* Removes the labels of `arrived`, sorted by sensitivity, that an earlier one dominates. */
static tandem_status remove_dominated(label_search *s)
{
    size_t n = 0, n_stair = 0;
    double min = INFINITY;
    if (s->paths.n_cost == 2) {
        const tandem_status status =
            reserve_room(s, &s->scratch, &s->scratch_capacity, 2 * (s->arrived.n + 1), sizeof *s->scratch);
        if (status != TANDEM_OK) return status;
    }
    for (size_t i = 0; i < s->arrived.n; i++) {
        const label *const l = &s->arrived.label[i];
        if (s->paths.n_cost == 2 ? is_covered((double(*)[COSTS])s->scratch, &n_stair, l) : l->spent[0] >= min)
            continue;
        min = l->spent[0];
        s->arrived.label[n++] = *l;
    }
    s->arrived.n = n;
    return TANDEM_OK;
}

static tandem_status sort_and_prune(label_search *s)
{
    const tandem_status status = merge_runs(s);
    return status == TANDEM_OK ? remove_dominated(s) : status;
}

/* Adds the labels that reach a state by one arc as a sorted run of `arrived`. */
static tandem_status extend_by_arc(label_search *s, int arc, const label *from, size_t n, double target)
{
    const tandem_path_dag *const paths = &s->paths;
    const int to = paths->to[arc], first_trace = (int)(s->n_trace - s->now.n);
    tandem_status status = reserve_labels(s, &s->arrived, s->arrived.n + n);
    if (status == TANDEM_OK)
        status = reserve_room(s, &s->run, &s->run_capacity, s->n_run + 1, sizeof *s->run);
    if (status != TANDEM_OK) return status;
    const size_t begin = s->arrived.n;
    for (size_t i = 0; i < n; i++) {
        label *const made = &s->arrived.label[s->arrived.n];
        made->sensitivity = from[i].sensitivity + paths->sensitivity[arc];
        made->spent[0] = from[i].spent[0] + paths->cost[0][arc];
        made->spent[1] = from[i].spent[1] + paths->cost[1][arc];
        made->bound = tandem_completion_bound_at(&s->completion, paths, to, made->sensitivity, made->spent);
        made->arc = arc;
        made->parent = first_trace + (int)(&from[i] - s->now.label);
        s->arrived.n += made->bound < target;
    }
    s->n_made += (int64_t)n;
    if (s->arrived.n > begin) s->run[s->n_run++] = begin;
    return TANDEM_OK;
}

/* --- Paths ---------------------------------------------------------------------------------------------- */

/* Offers the path that begins with a label of layer l and ends with the completion of multiplier set k. */
static void offer_completed(label_search *s, int l, const label *begin, int k)
{
    int state = s->paths.to[begin->arc];
    s->path[l - 1] = s->paths.plan_arc[begin->arc];
    for (int layer = l - 2, at = begin->parent; layer >= 0; layer--, at = s->trace[at].parent)
        s->path[layer] = s->trace[at].plan_arc;
    for (int layer = l; layer < s->paths.n_layer; layer++) {
        const int arc = s->completion.next[(size_t)state * TANDEM_N_MULTIPLIER_SET + (size_t)k];
        s->path[layer] = s->paths.plan_arc[arc];
        state = s->paths.to[arc];
    }
    tandem_best_path_offer(&s->best, &s->paths, s->path);
}

static void complete_label(label_search *s, int l, const label *begin)
{
    const tandem_completion_bound *const c = &s->completion;
    const size_t at = (size_t)s->paths.to[begin->arc] * TANDEM_N_MULTIPLIER_SET;
    for (int k = 0; k < TANDEM_N_MULTIPLIER_SET; k++) {
        const size_t set = at + (size_t)k;
        if (begin->sensitivity + c->sensitivity[set] < s->best.sensitivity &&
            begin->spent[0] + c->spent[0][set] <= s->paths.reduced_limit[0] &&
            begin->spent[1] + c->spent[1][set] <= s->paths.reduced_limit[1])
            offer_completed(s, l, begin, k);
    }
}

/* --- From layer to layer -------------------------------------------------------------------------------- */

static int are_labels_spent(label_search *s)
{
    s->is_spent |= s->n_made >= s->max_labels;
    return s->is_spent;
}

/* Appends the labels of one state of layer l to `next`, from those of the layer before. */
static tandem_status visit_state(label_search *s, int l, int state, size_t width)
{
    tandem_status status = TANDEM_OK;
    s->arrived.n = s->n_run = 0;
    for (int k = s->incoming_start[state]; k < s->incoming_start[state + 1] && status == TANDEM_OK; k++) {
        const int arc = s->incoming_arc[k], from = s->from[arc];
        if (are_labels_spent(s)) return TANDEM_OK;
        const size_t begin = s->label_start[from], n = s->label_start[from + 1] - begin;
        status = extend_by_arc(s, arc, s->now.label + begin, n, label_target(s));
        if (status == TANDEM_OK && s->arrived.n > 4 * width + n) {
            status = sort_and_prune(s);
            if (status == TANDEM_OK) status = keep_lowest_bounds(s, &s->arrived, width);
        }
    }
    if (status == TANDEM_OK) status = sort_and_prune(s);
    if (status == TANDEM_OK) status = reserve_labels(s, &s->next, s->next.n + s->arrived.n);
    if (status != TANDEM_OK) return status;
    for (size_t i = 0; i < s->arrived.n; i++) {
        complete_label(s, l, &s->arrived.label[i]);
        s->next.label[s->next.n++] = s->arrived.label[i];
    }
    return s->next.n > 2 * width ? keep_lowest_bounds(s, &s->next, width) : TANDEM_OK;
}

/* Makes `next`, of layer l, the current layer, and keeps the arcs of its labels. */
static tandem_status label_advance(label_search *s, int l)
{
    const tandem_status status =
        reserve_room(s, &s->trace, &s->trace_capacity, s->n_trace + s->next.n, sizeof *s->trace);
    if (status != TANDEM_OK) return status;
    const label_list advanced = s->next;
    s->next = s->now;
    s->now = advanced;
    size_t i = 0;
    for (int state = s->paths.layer_start[l]; state < s->paths.layer_start[l + 1]; state++) {
        s->label_start[state] = i;
        for (; i < s->now.n && s->paths.to[s->now.label[i].arc] == state; i++)
            s->trace[s->n_trace++] =
                (trace){.parent = s->now.label[i].parent, .plan_arc = s->paths.plan_arc[s->now.label[i].arc]};
    }
    s->label_start[s->paths.layer_start[l + 1]] = i;
    return TANDEM_OK;
}

/* Sorts arcs by target state. */
static void find_incoming_arcs(label_search *s)
{
    const tandem_path_dag *const paths = &s->paths;
    int *const start = s->incoming_start;
    memset(start, 0, ((size_t)paths->n_state + 1) * sizeof *start);
    for (int a = 0; a < paths->n_arc; a++) start[paths->to[a] + 1]++;
    for (int state = 0; state < paths->n_state; state++) start[state + 1] += start[state];
    for (int state = 0; state < paths->n_state; state++)
        for (int a = paths->arc_start[state]; a < paths->arc_start[state + 1]; a++) {
            s->from[a] = state;
            s->incoming_arc[start[paths->to[a]]++] = a;
        }
    memmove(start + 1, start, (size_t)paths->n_state * sizeof *start);
    start[0] = 0;
}

/* One pass over the layers with at most max_width labels each. s->dropped_bound: what remains possible. */
static tandem_status sweep_layers(label_search *s, size_t max_width)
{
    tandem_status status = reserve_labels(s, &s->now, 1);
    if (status == TANDEM_OK) status = reserve_room(s, &s->trace, &s->trace_capacity, 1, sizeof *s->trace);
    if (status != TANDEM_OK) return status;
    find_incoming_arcs(s);
    s->now.label[0] = (label){.arc = -1, .parent = -1};
    s->trace[0] = (trace){.parent = -1, .plan_arc = -1};
    s->now.n = s->n_trace = 1;
    s->label_start[0] = 0;
    s->label_start[1] = 1;
    s->dropped_bound = INFINITY;
    for (int l = 1; l <= s->paths.n_layer && status == TANDEM_OK && s->now.n > 0; l++) {
        const size_t room_left = (MAX_TRACES - s->n_trace) / (size_t)(s->paths.n_layer - l + 1);
        const size_t width = max_width < room_left ? max_width : room_left;
        s->next.n = 0;
        for (int state = s->paths.layer_start[l]; state < s->paths.layer_start[l + 1] && status == TANDEM_OK;
             state++)
            status = visit_state(s, l, state, width);
        if (s->is_spent) {
            for (size_t i = 0; i < s->now.n; i++)
                s->dropped_bound = fmin(s->dropped_bound, s->now.label[i].bound);
            break;
        }
        if (status == TANDEM_OK) status = keep_lowest_bounds(s, &s->next, width);
        if (status == TANDEM_OK) status = label_advance(s, l);
    }
    return status;
}

/* --- The search ----------------------------------------------------------------------------------------- */

static int is_proven(const label_search *s) { return s->lower_bound >= label_target(s); }

/* Removes arcs that cannot improve the best path, as long as that improves the bounds of the others. */
static tandem_status tighten_bounds(label_search *s, double multiplier[COSTS])
{
    for (int round = 0; round < 4 && !is_proven(s); round++) {
        const int before = s->paths.n_arc;
        double bound = 0;
        tandem_completion_bound_prune(&s->completion, &s->paths, label_target(s), s->drop);
        if (!s->paths.is_feasible) {
            s->lower_bound = label_target(s);
            break;
        }
        if (round > 0 && s->paths.n_arc > before / 4 * 3) {
            tandem_completion_bound_fill(&s->completion, &s->paths, multiplier);
            break;
        }
        const tandem_status status =
            tandem_path_dag_dual(&s->paths, multiplier, &bound, &s->best, &s->n_made, s->error);
        if (status != TANDEM_OK) return status;
        s->lower_bound = fmax(s->lower_bound, fmin(bound, label_target(s)));
        tandem_completion_bound_fill(&s->completion, &s->paths, multiplier);
    }
    return TANDEM_OK;
}

static tandem_status open_label_search(label_search *s, tandem_error *error)
{
    const size_t n_arc = (size_t)s->paths.n_arc, n_state = (size_t)s->paths.n_state;
    s->best.arc = malloc(((size_t)s->paths.n_layer + 1) * sizeof *s->best.arc);
    s->path = malloc(((size_t)s->paths.n_layer + 1) * sizeof *s->path);
    s->drop = malloc(n_arc + 1);
    s->from = malloc((n_arc + 1) * sizeof *s->from);
    s->incoming_arc = malloc((n_arc + 1) * sizeof *s->incoming_arc);
    s->incoming_start = malloc((n_state + 1) * sizeof *s->incoming_start);
    s->label_start = malloc((n_state + 2) * sizeof *s->label_start);
    if (s->best.arc && s->path && s->drop && s->from && s->incoming_arc && s->incoming_start &&
        s->label_start)
        return TANDEM_OK;
    return tandem_no_memory(error, "to search %d states", s->paths.n_state);
}

static void close_label_search(label_search *s)
{
    free(s->trace);
    free(s->scratch);
    free(s->run);
    free(s->spare.label);
    free(s->arrived.label);
    free(s->next.label);
    free(s->now.label);
    free(s->label_start);
    free(s->incoming_start);
    free(s->incoming_arc);
    free(s->from);
    free(s->drop);
    free(s->path);
    free(s->best.arc);
    tandem_completion_bound_close(&s->completion);
    tandem_path_dag_close(&s->paths);
}

static tandem_status search_by_width(label_search *s)
{
    double multiplier[COSTS];
    tandem_status status =
        tandem_path_dag_dual(&s->paths, multiplier, &s->lower_bound, &s->best, &s->n_made, s->error);
    if (status == TANDEM_OK && !is_proven(s))
        status = tandem_completion_bound_open(&s->completion, &s->paths, multiplier, s->error);
    for (size_t width = FIRST_WIDTH; status == TANDEM_OK && !is_proven(s) && !s->is_spent; width *= 8) {
        status = tighten_bounds(s, multiplier);
        if (status != TANDEM_OK || is_proven(s)) break;
        status = sweep_layers(s, width);
        if (status == TANDEM_OK)
            s->lower_bound = fmax(s->lower_bound, fmin(s->dropped_bound, label_target(s)));
        if (width >= MAX_WIDTH) break;
    }
    return status;
}

tandem_status tandem_solve_exact(tandem_solution *solution, const tandem_plan_dag *plan_dag,
                                 const tandem_limits *limits, double cutoff, double tolerance,
                                 int64_t max_labels, tandem_error *error)
{
    label_search s = {.best.sensitivity = INFINITY,
                      .cutoff = cutoff,
                      .tolerance = tolerance,
                      .lower_bound = INFINITY,
                      .max_labels = max_labels,
                      .error = error};
    tandem_status status = tandem_path_dag_open(&s.paths, plan_dag, limits, error);
    if (status != TANDEM_OK) return status;
    if (s.paths.is_feasible) {
        status = open_label_search(&s, error);
        if (status == TANDEM_OK) status = search_by_width(&s);
    }
    if (status == TANDEM_OK) {
        tandem_best_path_report(&s.best, plan_dag, limits, solution);
        solution->proven = is_proven(&s);
        solution->lower_bound =
            solution->proven && s.lower_bound < INFINITY ? label_target(&s) : s.lower_bound;
        solution->labels = s.n_made;
    }
    close_label_search(&s);
    return status;
}
