/* completion_bound.c: lower bounds of every completion of a partial path, for several multipliers at once,
 * and the arcs that they rule out. */
#include "allocator/bound/path_dag.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { N_SET = TANDEM_N_MULTIPLIER_SET, COSTS = TANDEM_N_PATH_COST };

/* Multiples of the dual's multipliers. Those of the second half weigh two limits differently. */
static const double multiplier_factor[N_SET][COSTS] = {{1, 1},       {0, 0},     {0.5, 0.5}, {2, 2},
                                                       {0.75, 1.25}, {1.4, 0.7}, {0.25, 3},  {4, 0.2}};

tandem_status tandem_completion_bound_open(tandem_completion_bound *completion, const tandem_path_dag *paths,
                                           const double multiplier[COSTS], tandem_error *error)
{
    const size_t n_state = (size_t)paths->n_state, n = n_state * N_SET;
    *completion = (tandem_completion_bound){
        .potential = malloc(n * sizeof *completion->potential),
        .next = malloc(n * sizeof *completion->next),
        .sensitivity = malloc(n * sizeof *completion->sensitivity),
        .prefix_cost = malloc((n + n_state * COSTS) * sizeof *completion->prefix_cost)};
    int complete =
        completion->potential && completion->next && completion->sensitivity && completion->prefix_cost;
    for (int r = 0; r < COSTS; r++) {
        completion->spent[r] = malloc(n * sizeof *completion->spent[r]);
        completion->min_cost[r] = malloc(n_state * sizeof *completion->min_cost[r]);
        complete = complete && completion->spent[r] && completion->min_cost[r];
    }
    if (complete) {
        tandem_completion_bound_fill(completion, paths, multiplier);
        return TANDEM_OK;
    }
    tandem_completion_bound_close(completion);
    return tandem_no_memory(error, "to bound paths through %d states", paths->n_state);
}

void tandem_completion_bound_close(tandem_completion_bound *completion)
{
    for (int r = 0; r < COSTS; r++) {
        free(completion->min_cost[r]);
        free(completion->spent[r]);
    }
    free(completion->prefix_cost);
    free(completion->sensitivity);
    free(completion->next);
    free(completion->potential);
    *completion = (tandem_completion_bound){0};
}

/* The potentials of state s from those of its successors; not yet rounded down. */
static void fill_potentials(tandem_completion_bound *completion, const tandem_path_dag *paths, int s)
{
    double *const potential = &completion->potential[(size_t)s * N_SET];
    int *const next = &completion->next[(size_t)s * N_SET];
    const int is_end = s == paths->n_state - 1;
    for (int r = 0; r < COSTS; r++) completion->min_cost[r][s] = is_end ? 0 : INFINITY;
    for (int k = 0; k < N_SET; k++) {
        potential[k] = is_end ? 0 : INFINITY;
        next[k] = -1;
    }
    for (int a = paths->arc_start[s]; a < paths->arc_start[s + 1]; a++) {
        const int to = paths->to[a];
        const double sensitivity = paths->sensitivity[a], c0 = paths->cost[0][a], c1 = paths->cost[1][a];
        const double *const rest = &completion->potential[(size_t)to * N_SET];
        for (int k = 0; k < N_SET; k++) {
            const double *const multiplier = completion->multiplier[k];
            const double through = sensitivity + (multiplier[0] * c0 + multiplier[1] * c1) + rest[k];
            next[k] = through < potential[k] ? a : next[k];
            potential[k] = through < potential[k] ? through : potential[k];
        }
        completion->min_cost[0][s] =
            tandem_min_f64(completion->min_cost[0][s], c0 + completion->min_cost[0][to]);
        completion->min_cost[1][s] =
            tandem_min_f64(completion->min_cost[1][s], c1 + completion->min_cost[1][to]);
    }
}

/* Sensitivity and costs of the paths that give the potentials of state s. */
static void sum_completions(tandem_completion_bound *completion, const tandem_path_dag *paths, int s)
{
    for (size_t k = 0, at = (size_t)s * N_SET; k < N_SET; k++, at++) {
        const int a = completion->next[at];
        const size_t to = a < 0 ? 0 : (size_t)paths->to[a] * N_SET + k;
        completion->sensitivity[at] = a < 0 ? 0 : paths->sensitivity[a] + completion->sensitivity[to];
        for (int r = 0; r < COSTS; r++)
            completion->spent[r][at] = a < 0 ? 0 : paths->cost[r][a] + completion->spent[r][to];
    }
}

void tandem_completion_bound_fill(tandem_completion_bound *completion, const tandem_path_dag *paths,
                                  const double multiplier[COSTS])
{
    for (int k = 0; k < N_SET; k++)
        for (int r = 0; r < COSTS; r++)
            completion->multiplier[k][r] = multiplier[r] * multiplier_factor[k][r];
    for (int s = paths->n_state - 1; s >= 0; s--) {
        fill_potentials(completion, paths, s);
        sum_completions(completion, paths, s);
    }
    for (size_t k = 0; k < (size_t)paths->n_state * N_SET; k++)
        completion->potential[k] = completion->potential[k] * paths->rounding_factor - DBL_MIN;
}

/* Marks the arcs of s that no path below `target` uses; updates the minimum prefix costs of its successors.
 * */
static void prune_state(const tandem_completion_bound *completion, const tandem_path_dag *paths, int s,
                        double target, unsigned char *drop)
{
    const double *const prefix = &completion->prefix_cost[(size_t)s * N_SET];
    double *const spent = completion->prefix_cost + (size_t)paths->n_state * N_SET;
    for (int a = paths->arc_start[s]; a < paths->arc_start[s + 1]; a++) {
        const size_t to = (size_t)paths->to[a];
        double *const next_prefix = &completion->prefix_cost[to * N_SET];
        const double *const rest = &completion->potential[to * N_SET];
        double cost[COSTS];
        for (int r = 0; r < COSTS; r++) {
            cost[r] = spent[(size_t)s * COSTS + (size_t)r] + paths->cost[r][a];
            if (!(cost[r] + completion->min_cost[r][to] <= paths->reduced_limit[r])) drop[a] = 1;
        }
        for (int k = 0; k < N_SET && !drop[a]; k++) {
            const double *const m = completion->multiplier[k];
            const double here =
                prefix[k] + (paths->sensitivity[a] + (m[0] * paths->cost[0][a] + m[1] * paths->cost[1][a]));
            const double granted = m[0] * paths->reduced_limit[0] + m[1] * paths->reduced_limit[1];
            if (here * paths->rounding_factor + rest[k] - granted >= target) drop[a] = 1;
        }
        if (drop[a]) continue;
        for (int k = 0; k < N_SET; k++) {
            const double *const m = completion->multiplier[k];
            const double here =
                prefix[k] + (paths->sensitivity[a] + (m[0] * paths->cost[0][a] + m[1] * paths->cost[1][a]));
            next_prefix[k] = tandem_min_f64(next_prefix[k], here);
        }
        for (int r = 0; r < COSTS; r++)
            spent[to * COSTS + (size_t)r] = tandem_min_f64(spent[to * COSTS + (size_t)r], cost[r]);
    }
}

void tandem_completion_bound_prune(tandem_completion_bound *completion, tandem_path_dag *paths, double target,
                                   unsigned char *drop)
{
    const size_t n = (size_t)paths->n_state * (N_SET + COSTS), at_start = (size_t)paths->n_state * N_SET;
    for (size_t k = 0; k < n; k++) completion->prefix_cost[k] = INFINITY;
    for (size_t k = 0; k < N_SET; k++) completion->prefix_cost[k] = 0;
    for (size_t r = 0; r < COSTS; r++) completion->prefix_cost[at_start + r] = 0;
    memset(drop, 0, (size_t)paths->n_arc);
    for (int s = 0; s < paths->n_state; s++) prune_state(completion, paths, s, target, drop);
    tandem_path_dag_drop_arcs(paths, drop);
}
