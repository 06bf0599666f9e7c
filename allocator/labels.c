/* labels.c: the least harm within the limits, by labels.
 *
 * A label is the beginning of a way: what harm it has, what it has spent. Of two at one state, the one that
 * is not better in anything is dominated: whatever follows it, follows the other at no more harm. (Sums of
 * doubles keep their order when the same is added to both, so this holds to the last bit.) Labels go from
 * layer to layer, all of one before the next; those whose bound says that they cannot lead to anything better
 * than the best way known are left out, and each that stays is completed by the ways behind the bounds: so
 * better ways are met all the time.
 *
 * First with few labels a layer, those with the least bounds: this finds good ways soon. Where some had to be
 * left out for that alone, nothing is proven beyond the least of their bounds; then again with more. Before
 * each time the arcs are left out that the best way known has made useless, and the bounds are made anew from
 * the rest. */
#include "allocator/ways.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    COSTS = TANDEM_WAYS_COSTS,
    FIRST_WIDTH = 256,
    MOST_WIDTH = 1 << 18,  /* labels in a layer */
    MOST_TRACES = 1 << 23, /* labels in all layers, of which only their arcs are kept */
    CLOCK_EVERY = 1 << 14  /* labels made between two looks at the clock */
};

typedef struct label {
    double sensitivity, spent[COSTS], bound;
    int arc;    /* by which it came; −1 at the start */
    int parent; /* number of its trace */
} label;

typedef struct trace {
    int parent, origin;
} trace;

typedef struct labels {
    label *at;
    size_t n, capacity;
} labels;

typedef struct search {
    tandem_ways ways;
    tandem_completion completion;
    tandem_best best;
    double cutoff, tolerance;
    double lower;                    /* proven */
    int64_t end_ns, made, looked_at; /* labels made in all, and when the clock was last looked at */
    int out_of_time;
    unsigned char *drop;              /* [n_arc] */
    int *from;                        /* [n_arc] the state an arc leaves */
    int *arrival;                     /* [n_arc] arcs, by the state they lead to */
    int *arrival_start;               /* [n_state + 1] */
    int *way;                         /* [n_layer] */
    size_t *label_start;              /* [n_state + 1] labels of the states of the last layer in `now` */
    labels now, next, here, spare;    /* of a layer, of the layer behind it, of a state; room to merge */
    size_t *run, n_run, run_capacity; /* where sorted runs begin in `here` */
    double *rank;                     /* room for bounds, or for a staircase */
    size_t rank_capacity;
    trace *trace;
    size_t n_trace, trace_capacity;
    double dropped; /* least bound of what was left out for want of room */
    tandem_error *error;
} search;

static double target_of(const search *s) { return fmin(s->cutoff, s->best.sensitivity * (1 - s->tolerance)); }

/* --- Room ----------------------------------------------------------------------------------------------- */

static tandem_status grow(void **array, size_t *capacity, size_t needed, size_t size, tandem_error *error)
{
    size_t wanted = *capacity ? *capacity : 256;
    if (needed <= *capacity) return TANDEM_OK;
    while (wanted < needed) wanted *= 2;
    void *const larger = realloc(*array, wanted * size);
    if (!larger) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %zu labels", wanted);
    *array = larger;
    *capacity = wanted;
    return TANDEM_OK;
}

static tandem_status grow_labels(labels *l, size_t needed, tandem_error *error)
{
    return grow((void **)&l->at, &l->capacity, needed, sizeof *l->at, error);
}

/* --- Where there are too many --------------------------------------------------------------------------- */

/* The k-th smallest of n values, which are put into another order. */
static double select_rank(double *value, size_t n, size_t k)
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

/* Keeps the `width` labels with the least bounds, in their order. */
static tandem_status narrow(search *s, labels *l, size_t width)
{
    if (l->n <= width) return TANDEM_OK;
    const tandem_status status = grow((void **)&s->rank, &s->rank_capacity, l->n, sizeof *s->rank, s->error);
    if (status != TANDEM_OK) return status;
    for (size_t i = 0; i < l->n; i++) s->rank[i] = l->at[i].bound;
    const double edge = select_rank(s->rank, l->n, width);
    size_t below = 0, n = 0;
    for (size_t i = 0; i < l->n; i++) below += l->at[i].bound < edge;
    for (size_t i = 0, at_edge = below; i < l->n; i++) {
        if (l->at[i].bound < edge || (l->at[i].bound == edge && at_edge < width)) {
            at_edge += l->at[i].bound == edge;
            l->at[n++] = l->at[i];
        }
    }
    l->n = n;
    s->dropped = fmin(s->dropped, edge);
    return TANDEM_OK;
}

/* --- Labels of one state -------------------------------------------------------------------------------- */

static int comes_before(const label *a, const label *b)
{
    if (a->sensitivity != b->sensitivity) return a->sensitivity < b->sensitivity;
    if (a->spent[0] != b->spent[0]) return a->spent[0] < b->spent[0];
    return a->spent[1] < b->spent[1];
}

/* Sorts `here` by merging its runs two by two. */
static tandem_status merge_runs(search *s)
{
    const tandem_status status = grow_labels(&s->spare, s->here.n, s->error);
    if (status != TANDEM_OK) return status;
    while (s->n_run > 1) {
        size_t n_run = 0, out = 0;
        for (size_t k = 0; k < s->n_run; k += 2) {
            const label *const at = s->here.at;
            size_t i = s->run[k], j = k + 1 < s->n_run ? s->run[k + 1] : s->here.n;
            const size_t middle = j, end = k + 2 < s->n_run ? s->run[k + 2] : s->here.n;
            s->run[n_run++] = out;
            while (i < middle && j < end)
                s->spare.at[out++] = comes_before(&at[j], &at[i]) ? at[j++] : at[i++];
            while (i < middle) s->spare.at[out++] = at[i++];
            while (j < end) s->spare.at[out++] = at[j++];
        }
        const labels merged = {.at = s->spare.at, .n = s->here.n, .capacity = s->spare.capacity};
        s->spare = (labels){.at = s->here.at, .capacity = s->here.capacity};
        s->here = merged;
        s->n_run = n_run;
    }
    return TANDEM_OK;
}

/* The labels so far, from the cheapest of the first cost on, as a staircase: each costs less of the second.
 * Whether one of them costs no more of either than `l`; else l becomes a step. */
static int covered(double (*stair)[COSTS], size_t *n_stair, const label *l)
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

/* Leaves the labels of `here`, which are sorted by harm, that none before them dominates. */
static tandem_status remove_dominated(search *s)
{
    size_t n = 0, n_stair = 0;
    double least = INFINITY;
    if (s->ways.n_cost == 2) {
        const tandem_status status =
            grow((void **)&s->rank, &s->rank_capacity, 2 * (s->here.n + 1), sizeof *s->rank, s->error);
        if (status != TANDEM_OK) return status;
    }
    for (size_t i = 0; i < s->here.n; i++) {
        const label *const l = &s->here.at[i];
        if (s->ways.n_cost == 2 ? covered((double(*)[COSTS])s->rank, &n_stair, l) : l->spent[0] >= least)
            continue;
        least = l->spent[0];
        s->here.at[n++] = *l;
    }
    s->here.n = n;
    return TANDEM_OK;
}

static tandem_status tidy(search *s)
{
    const tandem_status status = merge_runs(s);
    return status == TANDEM_OK ? remove_dominated(s) : status;
}

/* All labels that come to a state by one arc: a sorted run more in `here`. */
static tandem_status extend(search *s, int arc, const label *from, size_t n, double target)
{
    const tandem_ways *const ways = &s->ways;
    const int to = ways->to[arc], first_trace = (int)(s->n_trace - s->now.n);
    tandem_status status = grow_labels(&s->here, s->here.n + n, s->error);
    if (status == TANDEM_OK)
        status = grow((void **)&s->run, &s->run_capacity, s->n_run + 1, sizeof *s->run, s->error);
    if (status != TANDEM_OK) return status;
    const size_t begin = s->here.n;
    for (size_t i = 0; i < n; i++) {
        label *const made = &s->here.at[s->here.n];
        made->sensitivity = from[i].sensitivity + ways->sensitivity[arc];
        made->spent[0] = from[i].spent[0] + ways->cost[0][arc];
        made->spent[1] = from[i].spent[1] + ways->cost[1][arc];
        made->bound = tandem_completion_bound(&s->completion, ways, to, made->sensitivity, made->spent);
        made->arc = arc;
        made->parent = first_trace + (int)(&from[i] - s->now.at);
        s->here.n += made->bound < target;
    }
    s->made += (int64_t)n;
    if (s->here.n > begin) s->run[s->n_run++] = begin;
    return TANDEM_OK;
}

/* --- Ways ----------------------------------------------------------------------------------------------- */

/* The way that a label of layer l began, completed by set k of the bounds. */
static void offer(search *s, int l, const label *begin, int k)
{
    int state = s->ways.to[begin->arc];
    s->way[l - 1] = s->ways.origin[begin->arc];
    for (int layer = l - 2, at = begin->parent; layer >= 0; layer--, at = s->trace[at].parent)
        s->way[layer] = s->trace[at].origin;
    for (int layer = l; layer < s->ways.n_layer; layer++) {
        const int arc = s->completion.next[(size_t)state * TANDEM_COMPLETION_SETS + (size_t)k];
        s->way[layer] = s->ways.origin[arc];
        state = s->ways.to[arc];
    }
    tandem_best_offer(&s->best, &s->ways, s->way);
}

static void complete(search *s, int l, const label *begin)
{
    const tandem_completion *const c = &s->completion;
    const size_t at = (size_t)s->ways.to[begin->arc] * TANDEM_COMPLETION_SETS;
    for (int k = 0; k < TANDEM_COMPLETION_SETS; k++) {
        const size_t set = at + (size_t)k;
        if (begin->sensitivity + c->sensitivity[set] < s->best.sensitivity &&
            begin->spent[0] + c->spent[0][set] <= s->ways.slack[0] &&
            begin->spent[1] + c->spent[1][set] <= s->ways.slack[1])
            offer(s, l, begin, k);
    }
}

/* --- From layer to layer -------------------------------------------------------------------------------- */

static int is_out_of_time(search *s)
{
    if (s->made - s->looked_at >= CLOCK_EVERY) {
        s->looked_at = s->made;
        s->out_of_time = tandem_now_ns() >= s->end_ns;
    }
    return s->out_of_time;
}

/* The labels of one state of layer l, out of those of the layer before it, behind `next`. */
static tandem_status visit(search *s, int l, int state, size_t width)
{
    tandem_status status = TANDEM_OK;
    s->here.n = s->n_run = 0;
    for (int k = s->arrival_start[state]; k < s->arrival_start[state + 1] && status == TANDEM_OK; k++) {
        const int arc = s->arrival[k], from = s->from[arc];
        if (is_out_of_time(s)) return TANDEM_OK;
        const size_t begin = s->label_start[from], n = s->label_start[from + 1] - begin;
        status = extend(s, arc, s->now.at + begin, n, target_of(s));
        if (status == TANDEM_OK && s->here.n > 4 * width + n) {
            status = tidy(s);
            if (status == TANDEM_OK) status = narrow(s, &s->here, width);
        }
    }
    if (status == TANDEM_OK) status = tidy(s);
    if (status == TANDEM_OK) status = grow_labels(&s->next, s->next.n + s->here.n, s->error);
    if (status != TANDEM_OK) return status;
    for (size_t i = 0; i < s->here.n; i++) {
        complete(s, l, &s->here.at[i]);
        s->next.at[s->next.n++] = s->here.at[i];
    }
    return s->next.n > 2 * width ? narrow(s, &s->next, width) : TANDEM_OK;
}

/* The labels of `next`, which are of layer l, become those of `now`; their arcs are kept. */
static tandem_status step(search *s, int l)
{
    const tandem_status status =
        grow((void **)&s->trace, &s->trace_capacity, s->n_trace + s->next.n, sizeof *s->trace, s->error);
    if (status != TANDEM_OK) return status;
    const labels stepped = s->next;
    s->next = s->now;
    s->now = stepped;
    size_t i = 0;
    for (int state = s->ways.layer_start[l]; state < s->ways.layer_start[l + 1]; state++) {
        s->label_start[state] = i;
        for (; i < s->now.n && s->ways.to[s->now.at[i].arc] == state; i++)
            s->trace[s->n_trace++] =
                (trace){.parent = s->now.at[i].parent, .origin = s->ways.origin[s->now.at[i].arc]};
    }
    s->label_start[s->ways.layer_start[l + 1]] = i;
    return TANDEM_OK;
}

/* Arcs by where they lead. */
static void find_arrivals(search *s)
{
    const tandem_ways *const ways = &s->ways;
    int *const start = s->arrival_start;
    memset(start, 0, ((size_t)ways->n_state + 1) * sizeof *start);
    for (int a = 0; a < ways->n_arc; a++) start[ways->to[a] + 1]++;
    for (int state = 0; state < ways->n_state; state++) start[state + 1] += start[state];
    for (int state = 0; state < ways->n_state; state++)
        for (int a = ways->arc_start[state]; a < ways->arc_start[state + 1]; a++) {
            s->from[a] = state;
            s->arrival[start[ways->to[a]]++] = a;
        }
    memmove(start + 1, start, (size_t)ways->n_state * sizeof *start);
    start[0] = 0;
}

/* From the start to the end with at most so many labels in a layer. s->dropped: what remains possible. */
static tandem_status sweep(search *s, size_t most)
{
    tandem_status status = grow_labels(&s->now, 1, s->error);
    if (status == TANDEM_OK)
        status = grow((void **)&s->trace, &s->trace_capacity, 1, sizeof *s->trace, s->error);
    if (status != TANDEM_OK) return status;
    find_arrivals(s);
    s->now.at[0] = (label){.arc = -1, .parent = -1};
    s->trace[0] = (trace){.parent = -1, .origin = -1};
    s->now.n = s->n_trace = 1;
    s->label_start[0] = 0;
    s->label_start[1] = 1;
    s->dropped = INFINITY;
    for (int l = 1; l <= s->ways.n_layer && status == TANDEM_OK && s->now.n > 0; l++) {
        const size_t room = (MOST_TRACES - s->n_trace) / (size_t)(s->ways.n_layer - l + 1);
        const size_t width = most < room ? most : room;
        s->next.n = 0;
        for (int state = s->ways.layer_start[l]; state < s->ways.layer_start[l + 1] && status == TANDEM_OK;
             state++)
            status = visit(s, l, state, width);
        if (s->out_of_time) {
            for (size_t i = 0; i < s->now.n; i++) s->dropped = fmin(s->dropped, s->now.at[i].bound);
            break;
        }
        if (status == TANDEM_OK) status = narrow(s, &s->next, width);
        if (status == TANDEM_OK) status = step(s, l);
    }
    return status;
}

/* --- The search ----------------------------------------------------------------------------------------- */

static int is_done(const search *s) { return s->lower >= target_of(s); }

/* Leaves out arcs that cannot be part of anything better, as long as that makes the bounds of the rest
 * better. */
static tandem_status sharpen(search *s, double multiplier[COSTS])
{
    for (int round = 0; round < 4 && !is_done(s); round++) {
        const int before = s->ways.n_arc;
        double bound = 0;
        tandem_completion_prune(&s->completion, &s->ways, target_of(s), s->drop);
        if (!s->ways.possible) {
            s->lower = target_of(s);
            break;
        }
        if (round > 0 && s->ways.n_arc > before / 4 * 3) {
            tandem_completion_fill(&s->completion, &s->ways, multiplier);
            break;
        }
        const tandem_status status =
            tandem_ways_dual(&s->ways, multiplier, &bound, &s->best, &s->made, s->error);
        if (status != TANDEM_OK) return status;
        s->lower = fmax(s->lower, fmin(bound, target_of(s)));
        tandem_completion_fill(&s->completion, &s->ways, multiplier);
    }
    return TANDEM_OK;
}

static tandem_status open_search(search *s, tandem_error *error)
{
    const size_t n_arc = (size_t)s->ways.n_arc, n_state = (size_t)s->ways.n_state;
    s->best.arc = malloc(((size_t)s->ways.n_layer + 1) * sizeof *s->best.arc);
    s->way = malloc(((size_t)s->ways.n_layer + 1) * sizeof *s->way);
    s->drop = malloc(n_arc + 1);
    s->from = malloc((n_arc + 1) * sizeof *s->from);
    s->arrival = malloc((n_arc + 1) * sizeof *s->arrival);
    s->arrival_start = malloc((n_state + 1) * sizeof *s->arrival_start);
    s->label_start = malloc((n_state + 2) * sizeof *s->label_start);
    if (s->best.arc && s->way && s->drop && s->from && s->arrival && s->arrival_start && s->label_start)
        return TANDEM_OK;
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to search %d states", s->ways.n_state);
}

static void close_search(search *s)
{
    free(s->trace);
    free(s->rank);
    free(s->run);
    free(s->spare.at);
    free(s->here.at);
    free(s->next.at);
    free(s->now.at);
    free(s->label_start);
    free(s->arrival_start);
    free(s->arrival);
    free(s->from);
    free(s->drop);
    free(s->way);
    free(s->best.arc);
    tandem_completion_close(&s->completion);
    tandem_ways_close(&s->ways);
}

static tandem_status find_best(search *s)
{
    double multiplier[COSTS];
    tandem_status status = tandem_ways_dual(&s->ways, multiplier, &s->lower, &s->best, &s->made, s->error);
    if (status == TANDEM_OK && !is_done(s))
        status = tandem_completion_open(&s->completion, &s->ways, multiplier, s->error);
    for (size_t width = FIRST_WIDTH; status == TANDEM_OK && !is_done(s) && !s->out_of_time; width *= 8) {
        status = sharpen(s, multiplier);
        if (status != TANDEM_OK || is_done(s)) break;
        status = sweep(s, width);
        if (status == TANDEM_OK) s->lower = fmax(s->lower, fmin(s->dropped, target_of(s)));
        if (width >= MOST_WIDTH) break;
    }
    return status;
}

tandem_status tandem_solve_exact(tandem_solution *solution, const tandem_network *network,
                                 const tandem_limits *limits, double cutoff, double tolerance,
                                 double time_limit_s, tandem_error *error)
{
    const double most_ns = fmin(fmax(time_limit_s, 0), 1e9) * 1e9;
    search s = {.best.sensitivity = INFINITY,
                .cutoff = cutoff,
                .tolerance = tolerance,
                .lower = INFINITY,
                .end_ns = tandem_now_ns() + (int64_t)most_ns,
                .error = error};
    tandem_status status = tandem_ways_open(&s.ways, network, limits, error);
    if (status != TANDEM_OK) return status;
    if (s.ways.possible) {
        status = open_search(&s, error);
        if (status == TANDEM_OK) status = find_best(&s);
    }
    if (status == TANDEM_OK) {
        tandem_best_report(&s.best, network, limits, solution);
        solution->proven = is_done(&s);
        solution->lower_bound = solution->proven && s.lower < INFINITY ? target_of(&s) : s.lower;
        solution->labels = s.made;
    }
    close_search(&s);
    return status;
}
