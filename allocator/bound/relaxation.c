/* relaxation.c: the limits of relaxation.h as weights of task sets, and the search for the interval with the
 * smallest bound. */
#include "allocator/bound/relaxation.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/problem.h"
#include "allocator/bound/constraint_lp.h"

static const double rounding = 1e-11; /* exceeds the relative error of a sum of products of doubles */
enum { ROUNDING_NS = 2 };             /* a replayed step is rounded to ns, the sum of its parts is not */

static const tandem_step *class_step(const tandem_relaxation *r)
{
    return tandem_replayer_step(r->problem->replayer, r->c);
}

static tandem_status relaxation_no_memory(const tandem_relaxation *r, tandem_error *error)
{
    return tandem_no_memory(error, "to bound the plans of model %s (%d choices)", r->problem->graph->model,
                            r->plan_dag ? r->plan_dag->n_layer : 0);
}

/* --- Terms ---------------------------------------------------------------------------------------------- */

/* Moments of a step: see relaxation.h. Updates, except the last bucket's, follow all work. */
static int64_t end_of_work(const tandem_step *step) { return (int64_t)step->options.n_micro * step->n_task; }
static int64_t end_of_step(const tandem_step *step) { return end_of_work(step) + 1; }
static int64_t in_last_micro_step(const tandem_step *step, int task)
{
    return (int64_t)(step->options.n_micro - 1) * step->n_task + task;
}

/* The moment at which the task first runs. */
static int64_t first_moment(const tandem_step *step, int task)
{
    if (tandem_task_wraps_iteration(step, task)) return -1;
    return step->task[task].kind == TANDEM_TASK_UPDATE ? end_of_work(step) : task;
}

/* How often a task that first runs at `first_at` runs before `moment`. */
static int64_t count_runs_before(const tandem_step *step, int64_t first_at, int64_t moment)
{
    const int64_t end = end_of_work(step);
    if (first_at < 0 || first_at >= end) return first_at < moment;
    if (moment <= first_at) return 0;
    return moment >= end ? step->options.n_micro : moment / step->n_task + (first_at < moment % step->n_task);
}

static void cost_task_variants(tandem_relaxation *r, const tandem_contention *contention)
{
    const tandem_plan_dag *plan_dag = r->plan_dag;
    const tandem_replayer *replayer = r->problem->replayer;
    for (int k = 0; k < plan_dag->task_set_start[plan_dag->n_task_set]; k++) {
        const tandem_task_variant *entry = &plan_dag->task_variant[k];
        const int64_t alone = tandem_replayer_variant_ns(replayer, r->c, entry->task, entry->variant, 0);
        const int64_t contended = tandem_replayer_variant_ns(replayer, r->c, entry->task, entry->variant, 1);
        r->first_moment[k] = first_moment(class_step(r), entry->task);
        r->contended_ns[k] =
            contention->is_always_contended || contention->is_on_shared_node ? contended : alone;
        r->min_ns[k] = contention->is_always_contended                      ? contended
                       : contention->is_on_shared_node && contended < alone ? contended
                                                                            : alone;
    }
}

static void find_interval_cuts(tandem_relaxation *r)
{
    const tandem_step *step = class_step(r);
    int before = -1;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task_kind kind = step->task[t].kind;
        const int is_backward = kind == TANDEM_TASK_WGRAD || kind == TANDEM_TASK_DGRAD;
        if (!is_backward || step->task[t].op == before) continue;
        before = step->task[t].op;
        r->cut_task[r->n_cut++] = t;
    }
}

/* --- Opening -------------------------------------------------------------------------------------------- */

tandem_status tandem_relaxation_open(tandem_relaxation *out, const tandem_allocation_problem *problem, int c,
                                     const unsigned *allowed, tandem_error *error)
{
    tandem_relaxation r = {
        .problem = problem, .c = c, .limit_bytes = tandem_allocation_limit_bytes(problem, c)};
    tandem_contention contention;
    tandem_status status =
        tandem_plan_dag_open(&r.plan_dag, problem->replayer, c, allowed, problem->sensitivity[c], error);
    if (status != TANDEM_OK) return status;
    const size_t n_task_variant = (size_t)r.plan_dag->task_set_start[r.plan_dag->n_task_set] + 1;
    const size_t n_task_set = (size_t)r.plan_dag->n_task_set;
    r.contended_ns = malloc(n_task_variant * sizeof *r.contended_ns);
    r.min_ns = malloc(n_task_variant * sizeof *r.min_ns);
    r.first_moment = malloc(n_task_variant * sizeof *r.first_moment);
    r.cut_task = malloc(((size_t)class_step(&r)->n_task + 1) * sizeof *r.cut_task);
    r.time_ns = malloc(n_task_set * sizeof *r.time_ns);
    r.after_ns = malloc(n_task_set * sizeof *r.after_ns);
    if (!r.contended_ns || !r.min_ns || !r.first_moment || !r.cut_task || !r.time_ns || !r.after_ns) {
        tandem_relaxation_close(&r);
        return relaxation_no_memory(&(tandem_relaxation){.problem = problem}, error);
    }
    tandem_replayer_contention(problem->replayer, c, &contention);
    cost_task_variants(&r, &contention);
    find_interval_cuts(&r);
    const tandem_memory *memory = tandem_replayer_memory(problem->replayer, c);
    r.fixed_bytes = memory->weights + memory->gradients + memory->optimizer;
    *out = r;
    return TANDEM_OK;
}

void tandem_relaxation_close(tandem_relaxation *r)
{
    free(r->after_ns);
    free(r->time_ns);
    free(r->cut_task);
    free(r->first_moment);
    free(r->min_ns);
    free(r->contended_ns);
    tandem_plan_dag_close(r->plan_dag);
    *r = (tandem_relaxation){0};
}

uint64_t tandem_relaxation_arena_limit(const tandem_relaxation *r)
{
    if (!r->limit_bytes) return UINT64_MAX;
    return r->limit_bytes > r->fixed_bytes ? r->limit_bytes - r->fixed_bytes : 0;
}

/* --- Weights of an interval ----------------------------------------------------------------------------- */

/* time_ns: contended times of the tasks before moment `first`, minimum times of the others; after_ns: minimum
 * times of the tasks from `last` on. Tasks from `end` on count in neither. */
static void weigh_task_sets(tandem_relaxation *r, int64_t first, int64_t last, int64_t end)
{
    const tandem_plan_dag *plan_dag = r->plan_dag;
    const tandem_step *step = class_step(r);
    const int64_t contended_end = first < end ? first : end, before = last < end ? last : end;
    for (int b = 0; b < plan_dag->n_task_set; b++) {
        int64_t time = 0, after = 0;
        for (int k = plan_dag->task_set_start[b]; k < plan_dag->task_set_start[b + 1]; k++) {
            const int64_t n = count_runs_before(step, r->first_moment[k], end),
                          n_contended = count_runs_before(step, r->first_moment[k], contended_end);
            time += n_contended * r->contended_ns[k] + (n - n_contended) * r->min_ns[k];
            after += (n - count_runs_before(step, r->first_moment[k], before)) * r->min_ns[k];
        }
        r->time_ns[b] = time;
        r->after_ns[b] = (uint64_t)after;
    }
}

/* How long classes can compute while the last bucket is on the wire: updates of the other buckets. */
static double other_updates_ns(const tandem_relaxation *r)
{
    const tandem_replayer *replayer = r->problem->replayer;
    double sum = 0;
    for (int c = 0; c < tandem_replayer_cluster(replayer)->n_class; c++) {
        const tandem_step *step = tandem_replayer_step(replayer, c);
        tandem_contention contention;
        tandem_replayer_contention(replayer, c, &contention);
        for (int b = 0; b < step->n_bucket; b++) {
            const int t = step->bucket[b].update_task;
            if (tandem_task_wraps_iteration(step, t)) continue;
            const double alone = (double)tandem_replayer_variant_ns(replayer, c, t, 0, 0);
            sum += contention.comm_slowdown *
                   fmax(alone, (double)tandem_replayer_variant_ns(replayer, c, t, 0, 1));
        }
    }
    return sum;
}

/* Minimum time of bucket b on the wire; the last bucket meets little computation. */
static double min_wire_ns(const tandem_relaxation *r, int b)
{
    double idle, loaded;
    tandem_replayer_bucket_ns(r->problem->replayer, b, &idle, &loaded);
    if (loaded >= idle) return idle;
    return b == class_step(r)->n_bucket - 1 ? fmax(loaded, idle - other_updates_ns(r) * (idle / loaded - 1))
                                            : loaded;
}

/* What the target leaves for the work until bucket `anchor` is ready. */
static int64_t work_limit_ns(const tandem_relaxation *r, int anchor, int64_t target_ns)
{
    tandem_contention contention;
    double rest = 0;
    tandem_replayer_contention(r->problem->replayer, r->c, &contention);
    for (int b = 0; b < class_step(r)->n_bucket; b++) {
        double idle, loaded;
        tandem_replayer_bucket_ns(r->problem->replayer, b, &idle, &loaded);
        const double wire = min_wire_ns(r, b);
        rest += b < anchor ? fmin((1 - 1 / contention.comm_slowdown) * loaded, wire) : wire;
    }
    return target_ns - (int64_t)floor(rest) + ROUNDING_NS;
}

/* The moment at which bucket `anchor` is ready. */
static int64_t anchor_end(const tandem_relaxation *r, int anchor)
{
    const tandem_step *step = class_step(r);
    return anchor == step->n_bucket - 1 ? end_of_work(step)
                                        : in_last_micro_step(step, step->bucket[anchor].reduce_task);
}

/* Contended time of the tasks that begin the iteration. */
static int64_t leading_work_ns(const tandem_relaxation *r)
{
    const tandem_step *step = class_step(r);
    int64_t sum = 0;
    for (int t = step->bucket[0].update_task - 1; t < step->n_task; t++)
        if (tandem_task_wraps_iteration(step, t))
            sum += tandem_replayer_variant_ns(r->problem->replayer, r->c, t, 0, 1);
    return sum;
}

/* Intervals end at one of n_interval_end moments; interval_end gives moment k. */
static int n_interval_end(const tandem_relaxation *r)
{
    return r->n_cut * class_step(r)->options.n_micro + 2;
}
static int64_t interval_end(const tandem_relaxation *r, int k)
{
    const tandem_step *step = class_step(r);
    if (k == 0) return r->min_contended_ns > leading_work_ns(r) ? 0 : -1;
    if (k == n_interval_end(r) - 1) return end_of_work(step);
    return (int64_t)((k - 1) / r->n_cut) * step->n_task + r->cut_task[(k - 1) % r->n_cut];
}

tandem_limits tandem_relaxation_limits(tandem_relaxation *r, int64_t target_ns)
{
    const int last_bucket = class_step(r)->n_bucket - 1;
    weigh_task_sets(r, interval_end(r, 0), end_of_work(class_step(r)), anchor_end(r, last_bucket));
    return (tandem_limits){.time_ns = r->time_ns,
                           .time_limit_ns = work_limit_ns(r, last_bucket, target_ns),
                           .bytes = r->limit_bytes ? r->plan_dag->bytes : NULL,
                           .byte_limit = tandem_relaxation_arena_limit(r)};
}

/* --- Extremes ------------------------------------------------------------------------------------------- */

tandem_status tandem_relaxation_contended_ns(int64_t *ns, const tandem_relaxation *r, tandem_error *error)
{
    double value;
    tandem_relaxation *scratch = (tandem_relaxation *)r; /* every use overwrites its weights */
    const int64_t end = end_of_work(class_step(r));
    weigh_task_sets(scratch, end, end, end);
    const tandem_limits limits = {
        .time_ns = r->time_ns, .time_limit_ns = INT64_MAX, .byte_limit = UINT64_MAX};
    const tandem_status status = tandem_solve_shortest(&value, NULL, r->plan_dag, &limits, 0, 1, 0, error);
    if (status == TANDEM_OK) *ns = (int64_t)value;
    return status;
}

/* --- Rows: every limit on the plans of an interval ------------------------------------------------------ */

typedef struct switch_interval {
    int first, last; /* of interval_end */
    double bound;
    int is_exact; /* all rows were used */
} switch_interval;

typedef struct row_weights {
    int64_t *per_task_set; /* [n_task_set] */
    int64_t limit;
} row_weights;

typedef struct bound_search {
    tandem_relaxation *r;
    int64_t target_ns;
    uint64_t byte_limit; /* UINT64_MAX where memory cannot bind */
    double tolerance;
    tandem_effort *work;
    int *choice;                       /* [n_layer] scratch */
    row_weights first_row, second_row; /* rows or weighted sums of rows */
    tandem_constraint_lp constraints;  /* all rows */
    double *multiplier;                /* [n_relaxation_row] */
} bound_search;

/* Rows 0 … n_bucket − 1 limit the work until a bucket is ready. These follow: work after the interval, all
 * work of a step, memory. */
enum { ROW_AFTER, ROW_ALL, ROW_MEMORY, N_EXTRA_ROW };
static int n_relaxation_row(const bound_search *b) { return class_step(b->r)->n_bucket + N_EXTRA_ROW; }

/* A shortest path looks at every arc. */
static void spend_passes(const bound_search *b, int64_t n_pass)
{
    const tandem_plan_dag *plan_dag = b->r->plan_dag;
    tandem_effort_spend(b->work, n_pass * plan_dag->arc_start[plan_dag->state_start[plan_dag->n_layer]]);
}

/* Puts the row's weights into r->after_ns. 0: it does not bind in this interval. */
static int load_row(const bound_search *b, const switch_interval *i, int row, uint64_t *limit)
{
    tandem_relaxation *r = b->r;
    const int n_bucket = class_step(r)->n_bucket, kind = row - n_bucket,
              anchor = kind < 0 ? row : n_bucket - 1;
    const int64_t first = interval_end(r, i->first), last = interval_end(r, i->last);
    int64_t limit_ns = work_limit_ns(r, anchor, b->target_ns);
    if (kind == ROW_MEMORY) {
        memcpy(r->after_ns, r->plan_dag->bytes, (size_t)r->plan_dag->n_task_set * sizeof *r->after_ns);
        *limit = b->byte_limit;
        return b->byte_limit < UINT64_MAX;
    }
    if (kind == ROW_AFTER) {
        if (last == end_of_work(class_step(r))) return 0;
        weigh_task_sets(r, first, last, anchor_end(r, anchor));
        limit_ns -= r->min_contended_ns;
    } else if (kind == ROW_ALL) { /* an iteration may begin late and alone */
        weigh_task_sets(r, -1, -1, end_of_step(class_step(r)));
        limit_ns = b->target_ns + ROUNDING_NS;
    } else {
        weigh_task_sets(r, first, -1, anchor_end(r, anchor));
        for (int k = 0; k < r->plan_dag->n_task_set; k++) r->after_ns[k] = (uint64_t)r->time_ns[k];
    }
    *limit = limit_ns > 0 ? (uint64_t)limit_ns : 0;
    return 1;
}

/* Copies the row in r->after_ns. */
static void copy_row(const bound_search *b, row_weights *to, uint64_t limit)
{
    for (int k = 0; k < b->r->plan_dag->n_task_set; k++) to->per_task_set[k] = (int64_t)b->r->after_ns[k];
    to->limit = (int64_t)limit;
}

/* One or two limits (second NULL); the second is copied to r->after_ns. */
static tandem_limits make_limits(const bound_search *b, const row_weights *first, const row_weights *second)
{
    tandem_limits limits = {
        .time_ns = first->per_task_set, .time_limit_ns = first->limit, .byte_limit = UINT64_MAX};
    if (!second) return limits;
    for (int k = 0; k < b->r->plan_dag->n_task_set; k++)
        b->r->after_ns[k] = (uint64_t)second->per_task_set[k];
    limits.bytes = b->r->after_ns;
    limits.byte_limit = (uint64_t)second->limit;
    return limits;
}

/* Fills b->constraints with all rows of the interval. */
static void copy_all_rows(bound_search *b, const switch_interval *i)
{
    const size_t n_task_set = (size_t)b->r->plan_dag->n_task_set;
    b->constraints.n_row = 0;
    for (int row = 0; row < n_relaxation_row(b); row++) {
        uint64_t limit;
        if (!load_row(b, i, row, &limit)) continue;
        row_weights to = {.per_task_set = b->constraints.weight + (size_t)b->constraints.n_row * n_task_set};
        copy_row(b, &to, limit);
        b->constraints.limit[b->constraints.n_row++] = to.limit;
    }
}

/* The sum of rows first … end − 1, weighted by their multipliers and scaled by the largest one. It is rounded
 * such that a path within all of the rows is within their sum. */
static void join_rows(const bound_search *b, row_weights *to, int first, int end)
{
    const size_t n_task_set = (size_t)b->r->plan_dag->n_task_set;
    double max_multiplier = 0, limit = 0;
    for (int r = first; r < end; r++) max_multiplier = fmax(max_multiplier, b->multiplier[r]);
    for (size_t k = 0; k < n_task_set; k++) {
        double sum = 0;
        for (int r = first; r < end && max_multiplier > 0; r++)
            sum +=
                b->multiplier[r] / max_multiplier * (double)b->constraints.weight[(size_t)r * n_task_set + k];
        to->per_task_set[k] = (int64_t)floor(sum * (1 - rounding));
    }
    for (int r = first; r < end && max_multiplier > 0; r++)
        limit += b->multiplier[r] / max_multiplier * (double)b->constraints.limit[r];
    to->limit = (int64_t)ceil(limit * (1 + rounding));
}

/* Splits the rows in two halves of about equal weight in the bound; returns the first row of the second half.
 * */
static int split_rows(const bound_search *b)
{
    double all = 0, sum = 0;
    int r = 0;
    for (int k = 0; k < b->constraints.n_row; k++) all += b->multiplier[k] * (double)b->constraints.limit[k];
    while (r < b->constraints.n_row && sum + b->multiplier[r] * (double)b->constraints.limit[r] <= all / 2)
        sum += b->multiplier[r] * (double)b->constraints.limit[r], r++;
    return r;
}

/* The row that the path exceeds by the largest share; −1 = none. */
static int find_max_exceeded(const bound_search *b, const int *choice)
{
    int worst = -1;
    double worst_share = 0;
    for (int r = 0; r < b->constraints.n_row; r++) {
        const double limit = (double)b->constraints.limit[r];
        const double share =
            ((double)tandem_constraint_lp_usage(&b->constraints, b->r->plan_dag, r, choice) - limit) /
            (limit + 1);
        if (share <= worst_share) continue;
        worst = r;
        worst_share = share;
    }
    return worst;
}

/* --- Intervals ------------------------------------------------------------------------------------------ */

static void raise_interval_bound(switch_interval *i, double bound)
{
    if (bound > i->bound) i->bound = bound;
}

/* Bounds by two rows: work until the last bucket is ready, and work after the interval. */
static tandem_status bound_by_two_rows(bound_search *b, switch_interval *i, tandem_error *error)
{
    const int n_bucket = class_step(b->r)->n_bucket;
    tandem_solution solution = {.choice = NULL};
    uint64_t limit = 0;
    (void)load_row(b, i, n_bucket - 1, &limit);
    copy_row(b, &b->first_row, limit);
    const int is_bounded = load_row(b, i, n_bucket + ROW_AFTER, &limit);
    if (is_bounded) copy_row(b, &b->second_row, limit);
    const tandem_limits limits = make_limits(b, &b->first_row, is_bounded ? &b->second_row : NULL);
    const tandem_status status = tandem_solve_lagrange(&solution, NULL, b->r->plan_dag, &limits, error);
    spend_passes(b, solution.labels);
    if (status == TANDEM_OK) raise_interval_bound(i, solution.lower_bound);
    return status;
}

/* Bounds by all rows: first by the linear program, then exactly by the weighted sums of two halves of the
 * rows, then by the sum of all rows and one row that the found path exceeds. Prefers a path within all rows.
 * */
static tandem_status bound_by_all_rows(bound_search *b, switch_interval *i, tandem_solution *out,
                                       tandem_error *error)
{
    enum { MAX_ROUNDS = 4 };
    const size_t n_task_set = (size_t)b->r->plan_dag->n_task_set, n_layer = (size_t)b->r->plan_dag->n_layer;
    double bound, within = INFINITY;
    copy_all_rows(b, i);
    int n_column = 0;
    tandem_status status = tandem_constraint_lp_bound(&bound, b->multiplier, &within, out->choice, &n_column,
                                                      &b->constraints, b->r->plan_dag, error);
    if (status != TANDEM_OK) return status;
    spend_passes(b, n_column);
    tandem_effort_spend(b->work,
                        n_column * (TANDEM_EFFORT_COLUMN + b->constraints.n_row * (int64_t)n_task_set));
    raise_interval_bound(i, bound);
    out->sensitivity = within;
    const int middle = split_rows(b);
    join_rows(b, &b->first_row, 0, middle);
    join_rows(b, &b->second_row, middle, b->constraints.n_row);
    for (int round = 0; round < MAX_ROUNDS; round++) {
        tandem_solution solution = {.choice = b->choice, .sensitivity = INFINITY};
        const tandem_limits limits = make_limits(b, &b->first_row, &b->second_row);
        status = tandem_solve_exact(&solution, b->r->plan_dag, &limits, INFINITY, b->tolerance,
                                    b->work->left / TANDEM_EFFORT_LABEL, error);
        if (status != TANDEM_OK) break;
        tandem_effort_spend(b->work, solution.labels * TANDEM_EFFORT_LABEL);
        raise_interval_bound(i, solution.lower_bound);
        i->is_exact = 1;
        out->proven = solution.proven;
        if (solution.sensitivity == INFINITY) break;
        const int row = find_max_exceeded(b, b->choice);
        if (row < 0 ? solution.sensitivity < out->sensitivity : within == INFINITY) {
            out->sensitivity = solution.sensitivity;
            memcpy(out->choice, b->choice, n_layer * sizeof *b->choice);
        }
        if (row < 0) break;
        join_rows(b, &b->second_row, 0, b->constraints.n_row);
        memcpy(b->first_row.per_task_set, b->constraints.weight + (size_t)row * n_task_set,
               n_task_set * sizeof *b->first_row.per_task_set);
        b->first_row.limit = b->constraints.limit[row];
    }
    return status;
}

static int find_min_bound(const switch_interval *list, int n)
{
    int min = 0;
    for (int k = 1; k < n; k++)
        if (list[k].bound < list[min].bound) min = k;
    return min;
}

/* Halves interval `at`; appends the second half to the list. */
static tandem_status halve_interval(bound_search *b, switch_interval *list, int *n, int at,
                                    tandem_error *error)
{
    const switch_interval whole = list[at];
    const int middle = (whole.first + whole.last) / 2;
    list[at] = (switch_interval){whole.first, middle, whole.bound, 0};
    list[*n] = (switch_interval){middle, whole.last, whole.bound, 0};
    tandem_status status = bound_by_two_rows(b, &list[at], error);
    if (status == TANDEM_OK) status = bound_by_two_rows(b, &list[*n], error);
    (*n)++;
    return status;
}

static tandem_status bound_all_intervals(bound_search *b, tandem_solution *solution, tandem_error *error)
{
    const tandem_relaxation *r = b->r;
    switch_interval *list = malloc((size_t)n_interval_end(r) * sizeof *list);
    if (!list) return relaxation_no_memory(r, error);
    int n = 1, at = 0;
    tandem_status status = TANDEM_OK;
    list[0] = (switch_interval){0, n_interval_end(r) - 1, -INFINITY, 0};
    while (status == TANDEM_OK && !list[at].is_exact && list[at].bound < INFINITY && b->work->left > 0) {
        if (r->min_contended_ns > 0 && list[at].last - list[at].first > 1)
            status = halve_interval(b, list, &n, at, error);
        else
            status = bound_by_all_rows(b, &list[at], solution, error);
        at = find_min_bound(list, n);
    }
    solution->lower_bound = list[at].bound;
    solution->proven = list[at].is_exact && solution->proven;
    free(list);
    return status;
}

/* Whether the sum of the largest bytes of each layer exceeds the limit: otherwise memory cannot bind. */
static int can_memory_bind(const tandem_plan_dag *plan_dag, uint64_t byte_limit)
{
    uint64_t max = plan_dag->bytes[0];
    for (int l = 0; l < plan_dag->n_layer; l++) {
        uint64_t max_of_layer = 0;
        const int first = plan_dag->arc_start[plan_dag->state_start[l]];
        const int end = plan_dag->arc_start[plan_dag->state_start[l + 1]];
        for (int a = first; a < end; a++)
            if (plan_dag->bytes[plan_dag->arc[a].task_set] > max_of_layer)
                max_of_layer = plan_dag->bytes[plan_dag->arc[a].task_set];
        max += max_of_layer;
    }
    return max > byte_limit;
}

tandem_status tandem_relaxation_bound(tandem_solution *out, tandem_relaxation *r, int64_t target_ns,
                                      uint64_t byte_limit, double tolerance, tandem_effort *work,
                                      tandem_error *error)
{
    bound_search b = {.r = r,
                      .target_ns = target_ns,
                      .byte_limit = can_memory_bind(r->plan_dag, byte_limit) ? byte_limit : UINT64_MAX,
                      .tolerance = tolerance,
                      .work = work};
    tandem_solution solution = {.choice = out->choice, .sensitivity = INFINITY};
    const size_t n_task_set = (size_t)r->plan_dag->n_task_set, n_rows = (size_t)n_relaxation_row(&b);
    int64_t *scratch = malloc(((2 + n_rows) * n_task_set + n_rows) * sizeof *scratch);
    b.choice = malloc(((size_t)r->plan_dag->n_layer + 1) * sizeof *b.choice);
    b.multiplier = malloc(n_rows * sizeof *b.multiplier);
    tandem_status status = TANDEM_OK;
    if (!scratch || !b.choice || !b.multiplier) {
        status = relaxation_no_memory(r, error);
    } else {
        b.first_row.per_task_set = scratch;
        b.second_row.per_task_set = scratch + n_task_set;
        b.constraints.weight = scratch + 2 * n_task_set;
        b.constraints.limit = scratch + (2 + n_rows) * n_task_set;
        status = bound_all_intervals(&b, &solution, error);
    }
    free(b.multiplier);
    free(b.choice);
    free(scratch);
    if (status == TANDEM_OK) *out = solution;
    return status;
}
