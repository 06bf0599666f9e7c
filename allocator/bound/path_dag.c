/* path_dag.c: shortest paths without limits, and the preparation of a plan DAG for the solvers with limits.
 * */
#include "allocator/bound/path_dag.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double max_exact_sum = 0x1p53; /* doubles hold whole numbers below it exactly */
static const double max_arc_sensitivity = 1e200;

/* --- Without limits ------------------------------------------------------------------------------------- */

tandem_status tandem_solve_shortest(double *value, int *choice, const tandem_plan_dag *plan_dag,
                                    const tandem_limits *limits, double sensitivity_weight,
                                    double time_weight, double byte_weight, tandem_error *error)
{
    const int end = plan_dag->state_start[plan_dag->n_layer + 1] - 1;
    double *const potential = malloc(((size_t)end + 1) * sizeof *potential);
    int *const next = calloc((size_t)end + 1, sizeof *next);
    tandem_status status = TANDEM_OK;
    if (!potential || !next) {
        status = tandem_no_memory(error, "for a path through %d states", end + 1);
        goto out;
    }
    const uint64_t *const bytes = limits->bytes;
    potential[end] = 0;
    for (int s = end - 1; s >= 0; s--) {
        potential[s] = INFINITY;
        for (int a = plan_dag->arc_start[s]; a < plan_dag->arc_start[s + 1]; a++) {
            const tandem_arc *const arc = &plan_dag->arc[a];
            if (!(arc->sensitivity >= 0 && arc->sensitivity <= max_arc_sensitivity)) continue;
            const double through =
                sensitivity_weight * arc->sensitivity + time_weight * (double)limits->time_ns[arc->task_set] +
                (bytes ? byte_weight * (double)bytes[arc->task_set] : 0) + potential[arc->to];
            if (through < potential[s]) {
                potential[s] = through;
                next[s] = a;
            }
        }
    }
    *value = potential[0] + time_weight * (double)limits->time_ns[0] +
             (bytes ? byte_weight * (double)bytes[0] : 0);
    for (int l = 0, s = 0; choice && l < plan_dag->n_layer && potential[0] < INFINITY; l++) {
        choice[l] = plan_dag->arc[next[s]].choice;
        s = plan_dag->arc[next[s]].to;
    }
out:
    free(next);
    free(potential);
    return status;
}

/* --- The layout ----------------------------------------------------------------------------------------- */

static double arc_cost(const tandem_limits *limits, int kind, int task_set)
{
    return kind == 0 ? (double)limits->time_ns[task_set] : (double)limits->bytes[task_set];
}

/* What the arcs may spend of a limit. A long double holds both types. */
static long double limit_left(const tandem_limits *limits, int kind)
{
    if (kind == 0) return (long double)limits->time_limit_ns - (long double)limits->time_ns[0];
    return (long double)limits->byte_limit - (long double)limits->bytes[0];
}

static void copy_arcs(tandem_path_dag *paths)
{
    const tandem_plan_dag *const plan_dag = paths->plan_dag;
    int n = 0;
    for (int s = 0; s < paths->n_state; s++) {
        const int begin = plan_dag->arc_start[s], end = plan_dag->arc_start[s + 1];
        paths->arc_start[s] = n;
        for (int a = begin; a < end; a++) {
            const tandem_arc *const arc = &plan_dag->arc[a];
            if (!(arc->sensitivity >= 0 && arc->sensitivity <= max_arc_sensitivity)) continue;
            paths->to[n] = arc->to;
            paths->plan_arc[n] = a;
            paths->sensitivity[n] = arc->sensitivity;
            for (int r = 0; r < TANDEM_N_PATH_COST; r++)
                paths->cost[r][n] =
                    r < paths->n_cost ? arc_cost(paths->limits, paths->cost_kind[r], arc->task_set) : 0;
            n++;
        }
    }
    paths->arc_start[paths->n_state] = n;
    paths->n_arc = n;
}

/* The bounds of whole numbers may be rounded up, and their sums are exact. */
static int has_whole_sensitivities(const tandem_path_dag *paths)
{
    for (int a = 0; a < paths->n_arc; a++)
        if (paths->sensitivity[a] != floor(paths->sensitivity[a])) return 0;
    return paths->max_sensitivity < max_exact_sum;
}

/* The sum over the layers of the largest absolute value of an arc. */
static double sum_layer_maxima(const tandem_path_dag *paths, const double *of)
{
    double sum = 0;
    for (int l = 0; l < paths->n_layer; l++) {
        double max_cost = 0;
        for (int a = paths->arc_start[paths->layer_start[l]]; a < paths->arc_start[paths->layer_start[l + 1]];
             a++)
            max_cost = fabs(of[a]) > max_cost ? fabs(of[a]) : max_cost;
        sum += max_cost;
    }
    return sum;
}

/* Minimum and maximum cost of a path from each state to the end; INFINITY and −INFINITY where there is none.
 * */
static void find_cost_extremes(const tandem_path_dag *paths, const double *cost, double *min_cost,
                               double *max_cost)
{
    for (int s = paths->n_state - 1; s >= 0; s--) {
        min_cost[s] = s == paths->n_state - 1 ? 0 : INFINITY;
        max_cost[s] = s == paths->n_state - 1 ? 0 : -INFINITY;
        for (int a = paths->arc_start[s]; a < paths->arc_start[s + 1]; a++) {
            min_cost[s] = tandem_min_f64(min_cost[s], cost[a] + min_cost[paths->to[a]]);
            max_cost[s] = -tandem_min_f64(-max_cost[s], -cost[a] - max_cost[paths->to[a]]);
        }
    }
}

/* Reduces the costs of the arcs; marks the arcs that no path within the limit uses. */
static void reduce_arc_costs(const tandem_path_dag *paths, int r, const double *min_cost, double *spent,
                             unsigned char *drop)
{
    double *const cost = paths->cost[r];
    for (int s = 0; s < paths->n_state; s++) spent[s] = s == 0 ? 0 : INFINITY;
    for (int s = 0; s < paths->n_state; s++)
        for (int a = paths->arc_start[s]; a < paths->arc_start[s + 1]; a++) {
            const int to = paths->to[a];
            if (!(spent[s] < INFINITY && min_cost[to] < INFINITY)) {
                drop[a] = 1;
                continue;
            }
            cost[a] += min_cost[to] - min_cost[s];
            if (spent[s] + cost[a] > paths->reduced_limit[r])
                drop[a] = 1;
            else
                spent[to] = tandem_min_f64(spent[to], spent[s] + cost[a]);
        }
}

/* Forgets a limit that every path keeps; the next cost takes its index. */
static void drop_unbound_cost(tandem_path_dag *paths, int r)
{
    double *const unused = paths->cost[r];
    for (int k = r; k + 1 < TANDEM_N_PATH_COST; k++) {
        paths->cost[k] = paths->cost[k + 1];
        paths->cost_kind[k] = paths->cost_kind[k + 1];
    }
    paths->cost[TANDEM_N_PATH_COST - 1] = unused;
    memset(unused, 0, (size_t)paths->n_arc * sizeof *unused);
    paths->n_cost--;
}

static tandem_status bind_path_limits(tandem_path_dag *paths, double *min_cost, double *max_cost,
                                      unsigned char *drop, tandem_error *error)
{
    for (int r = 0; r < paths->n_cost;) {
        const int kind = paths->cost_kind[r];
        if (sum_layer_maxima(paths, paths->cost[r]) >= max_exact_sum)
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "the %s of a plan may come to 2^53 or more, got up to %.3g; use a larger "
                                    "unit",
                                    kind == 0 ? "time" : "bytes", sum_layer_maxima(paths, paths->cost[r]));
        find_cost_extremes(paths, paths->cost[r], min_cost, max_cost);
        const long double left = limit_left(paths->limits, kind);
        if (min_cost[0] > left) paths->is_feasible = 0; /* also where there is no path at all */
        if (max_cost[0] <= left || !paths->is_feasible) {
            drop_unbound_cost(paths, r);
            continue;
        }
        paths->reduced_limit[r] = (double)(left - (long double)min_cost[0]);
        reduce_arc_costs(paths, r, min_cost, max_cost, drop);
        r++;
    }
    return TANDEM_OK;
}

void tandem_path_dag_close(tandem_path_dag *paths)
{
    for (int r = 0; r < TANDEM_N_PATH_COST; r++) free(paths->cost[r]);
    free(paths->sensitivity);
    free(paths->state_number);
    free(paths->plan_arc);
    free(paths->to);
    free(paths->arc_start);
    free(paths->layer_start);
    *paths = (tandem_path_dag){0};
}

static int allocate_path_dag(tandem_path_dag *paths, size_t n_arc)
{
    const size_t n_state = (size_t)paths->n_state, n_layer = (size_t)paths->n_layer;
    paths->layer_start = malloc((n_layer + 2) * sizeof *paths->layer_start);
    paths->arc_start = malloc((n_state + 1) * sizeof *paths->arc_start);
    paths->state_number = calloc(n_state, sizeof *paths->state_number);
    paths->to = malloc((n_arc + 1) * sizeof *paths->to);
    paths->plan_arc = malloc((n_arc + 1) * sizeof *paths->plan_arc);
    paths->sensitivity = malloc((n_arc + 1) * sizeof *paths->sensitivity);
    for (int r = 0; r < TANDEM_N_PATH_COST; r++)
        paths->cost[r] = malloc((n_arc + 1) * sizeof *paths->cost[r]);
    return paths->layer_start && paths->arc_start && paths->state_number && paths->to && paths->plan_arc &&
           paths->sensitivity && paths->cost[0] && paths->cost[1];
}

tandem_status tandem_path_dag_open(tandem_path_dag *paths, const tandem_plan_dag *plan_dag,
                                   const tandem_limits *limits, tandem_error *error)
{
    const int n_layer = plan_dag->n_layer, n_state = plan_dag->state_start[n_layer + 1];
    const size_t n_arc = (size_t)plan_dag->arc_start[n_state];
    tandem_status status = TANDEM_OK;
    *paths = (tandem_path_dag){
        .plan_dag = plan_dag, .limits = limits, .n_layer = n_layer, .n_state = n_state, .is_feasible = 1};
    double *const min_cost = calloc(2 * (size_t)n_state, sizeof *min_cost);
    unsigned char *const drop = calloc(n_arc + 1, 1);
    if (!allocate_path_dag(paths, n_arc) || !min_cost || !drop) {
        status = tandem_no_memory(error, "for paths through %d states and %zu arcs", n_state, n_arc);
        goto out;
    }
    memcpy(paths->layer_start, plan_dag->state_start, ((size_t)n_layer + 2) * sizeof *paths->layer_start);
    if (limits->time_limit_ns != INT64_MAX) paths->cost_kind[paths->n_cost++] = 0;
    if (limits->bytes && limits->byte_limit != UINT64_MAX) paths->cost_kind[paths->n_cost++] = 1;
    copy_arcs(paths);
    status = bind_path_limits(paths, min_cost, min_cost + n_state, drop, error);
    if (status != TANDEM_OK) goto out;
    if (!paths->is_feasible) memset(drop, 1, (size_t)paths->n_arc);
    tandem_path_dag_drop_arcs(paths, drop);
    paths->max_sensitivity = sum_layer_maxima(paths, paths->sensitivity) * (1 + (n_layer + 2) * DBL_EPSILON);
    paths->is_whole = has_whole_sensitivities(paths);
    /* n_layer sums of s + λc + μc, rounded four times each, and one sum over the layers before */
    paths->rounding_factor = 1 - (6 * n_layer + 32) * (DBL_EPSILON / 2);
out:
    free(drop);
    free(min_cost);
    if (status != TANDEM_OK) tandem_path_dag_close(paths);
    return status;
}

/* Marks in state_number the states on some path; drops the arcs on none. */
static void mark_used_states(const tandem_path_dag *paths, unsigned char *drop)
{
    int *const used = paths->state_number;
    for (int s = 0; s < paths->n_state; s++) used[s] = s == 0;
    for (int s = 0; s < paths->n_state; s++)
        for (int a = paths->arc_start[s]; a < paths->arc_start[s + 1]; a++) {
            if (!used[s])
                drop[a] = 1;
            else if (!drop[a])
                used[paths->to[a]] = 1;
        }
    for (int s = paths->n_state - 2; s >= 0; s--) {
        int leads_on = 0;
        for (int a = paths->arc_start[s]; a < paths->arc_start[s + 1]; a++) {
            if (!used[paths->to[a]]) drop[a] = 1;
            leads_on |= !drop[a];
        }
        if (!leads_on) used[s] = 0;
    }
}

void tandem_path_dag_drop_arcs(tandem_path_dag *paths, unsigned char *drop)
{
    int n_state = 0, n_arc = 0;
    mark_used_states(paths, drop);
    if (!paths->state_number[0] || !paths->state_number[paths->n_state - 1]) {
        paths->is_feasible = paths->n_arc = 0;
        return;
    }
    for (int l = 0; l <= paths->n_layer; l++) {
        const int begin = paths->layer_start[l], end = paths->layer_start[l + 1];
        paths->layer_start[l] = n_state;
        for (int s = begin; s < end; s++) paths->state_number[s] = paths->state_number[s] ? n_state++ : -1;
    }
    paths->layer_start[paths->n_layer + 1] = n_state;
    for (int s = 0; s < paths->n_state; s++) {
        if (paths->state_number[s] < 0) continue;
        const int begin = paths->arc_start[s], end = paths->arc_start[s + 1];
        paths->arc_start[paths->state_number[s]] = n_arc;
        for (int a = begin; a < end; a++) {
            if (drop[a]) continue;
            paths->to[n_arc] = paths->state_number[paths->to[a]];
            paths->plan_arc[n_arc] = paths->plan_arc[a];
            paths->sensitivity[n_arc] = paths->sensitivity[a];
            for (int r = 0; r < TANDEM_N_PATH_COST; r++) paths->cost[r][n_arc] = paths->cost[r][a];
            n_arc++;
        }
    }
    paths->arc_start[n_state] = n_arc;
    paths->n_state = n_state;
    paths->n_arc = n_arc;
}

void tandem_path_dag_shortest(const tandem_path_dag *paths, const double multiplier[TANDEM_N_PATH_COST],
                              double *potential, int *next)
{
    const double *const sensitivity = paths->sensitivity, *const c0 = paths->cost[0],
                        *const c1 = paths->cost[1];
    const double m0 = multiplier[0], m1 = multiplier[1];
    const int *const to = paths->to;
    potential[paths->n_state - 1] = 0;
    next[paths->n_state - 1] = -1;
    for (int s = paths->n_state - 2; s >= 0; s--) {
        const int end = paths->arc_start[s + 1];
        double min_cost = INFINITY;
        int first = -1;
        if (paths->n_cost < 2) {
            for (int a = paths->arc_start[s]; a < end; a++) {
                const double through = sensitivity[a] + m0 * c0[a] + potential[to[a]];
                first = through < min_cost ? a : first;
                min_cost = through < min_cost ? through : min_cost;
            }
        } else {
            for (int a = paths->arc_start[s]; a < end; a++) {
                const double through = sensitivity[a] + (m0 * c0[a] + m1 * c1[a]) + potential[to[a]];
                first = through < min_cost ? a : first;
                min_cost = through < min_cost ? through : min_cost;
            }
        }
        potential[s] = min_cost;
        next[s] = first;
    }
}

/* --- The best path found so far ------------------------------------------------------------------------- */

void tandem_best_path_offer(tandem_best_path *best, const tandem_path_dag *paths, const int *arc)
{
    const tandem_plan_dag *const plan_dag = paths->plan_dag;
    const tandem_limits *const limits = paths->limits;
    double sensitivity = 0;
    int64_t time_ns = limits->time_ns[0];
    uint64_t bytes = limits->bytes ? limits->bytes[0] : 0;
    for (int l = 0; l < paths->n_layer; l++) {
        const tandem_arc *const used = &plan_dag->arc[arc[l]];
        sensitivity += used->sensitivity;
        time_ns += limits->time_ns[used->task_set];
        if (limits->bytes) bytes += limits->bytes[used->task_set];
    }
    if (time_ns > limits->time_limit_ns || bytes > limits->byte_limit || sensitivity >= best->sensitivity)
        return;
    best->sensitivity = sensitivity;
    if (paths->n_layer) memcpy(best->arc, arc, (size_t)paths->n_layer * sizeof *arc);
}

void tandem_best_path_report(const tandem_best_path *best, const tandem_plan_dag *plan_dag,
                             const tandem_limits *limits, tandem_solution *solution)
{
    solution->sensitivity = best->sensitivity;
    solution->time_ns = 0;
    solution->bytes = 0;
    if (!(best->sensitivity < INFINITY)) return;
    solution->time_ns = limits->time_ns[0];
    if (limits->bytes) solution->bytes = limits->bytes[0];
    for (int l = 0; l < plan_dag->n_layer; l++) {
        const tandem_arc *const used = &plan_dag->arc[best->arc[l]];
        solution->time_ns += limits->time_ns[used->task_set];
        if (limits->bytes) solution->bytes += limits->bytes[used->task_set];
        if (solution->choice) solution->choice[l] = used->choice;
    }
}
