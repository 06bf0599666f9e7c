/* completion.c: bounds of what is still to come, for several multipliers at once; and what follows from them
 * for arcs. */
#include "allocator/ways.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = TANDEM_COMPLETION_SETS, COSTS = TANDEM_WAYS_COSTS };

/* Multiples of the dual's multipliers. The second half differs from the first where there are two. */
static const double factor[SETS][COSTS] = {{1, 1},       {0, 0},     {0.5, 0.5}, {2, 2},
                                           {0.75, 1.25}, {1.4, 0.7}, {0.25, 3},  {4, 0.2}};

tandem_status tandem_completion_open(tandem_completion *completion, const tandem_ways *ways,
                                     const double multiplier[COSTS], tandem_error *error)
{
    const size_t n_state = (size_t)ways->n_state, n = n_state * SETS;
    *completion = (tandem_completion){.potential = malloc(n * sizeof *completion->potential),
                                      .next = malloc(n * sizeof *completion->next),
                                      .sensitivity = malloc(n * sizeof *completion->sensitivity),
                                      .reach = malloc((n + n_state * COSTS) * sizeof *completion->reach)};
    int complete = completion->potential && completion->next && completion->sensitivity && completion->reach;
    for (int r = 0; r < COSTS; r++) {
        completion->spent[r] = malloc(n * sizeof *completion->spent[r]);
        completion->least[r] = malloc(n_state * sizeof *completion->least[r]);
        complete = complete && completion->spent[r] && completion->least[r];
    }
    if (complete) {
        tandem_completion_fill(completion, ways, multiplier);
        return TANDEM_OK;
    }
    tandem_completion_close(completion);
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to bound ways through %d states",
                            ways->n_state);
}

void tandem_completion_close(tandem_completion *completion)
{
    for (int r = 0; r < COSTS; r++) {
        free(completion->least[r]);
        free(completion->spent[r]);
    }
    free(completion->reach);
    free(completion->sensitivity);
    free(completion->next);
    free(completion->potential);
    *completion = (tandem_completion){0};
}

/* The potentials of state s from those behind it; not yet rounded down. */
static void fill_state(tandem_completion *completion, const tandem_ways *ways, int s)
{
    double *const potential = &completion->potential[(size_t)s * SETS];
    int *const next = &completion->next[(size_t)s * SETS];
    const int is_end = s == ways->n_state - 1;
    for (int r = 0; r < COSTS; r++) completion->least[r][s] = is_end ? 0 : INFINITY;
    for (int k = 0; k < SETS; k++) {
        potential[k] = is_end ? 0 : INFINITY;
        next[k] = -1;
    }
    for (int a = ways->arc_start[s]; a < ways->arc_start[s + 1]; a++) {
        const int to = ways->to[a];
        const double harm = ways->sensitivity[a], c0 = ways->cost[0][a], c1 = ways->cost[1][a];
        const double *const behind = &completion->potential[(size_t)to * SETS];
        for (int k = 0; k < SETS; k++) {
            const double *const multiplier = completion->multiplier[k];
            const double through = harm + (multiplier[0] * c0 + multiplier[1] * c1) + behind[k];
            next[k] = through < potential[k] ? a : next[k];
            potential[k] = through < potential[k] ? through : potential[k];
        }
        completion->least[0][s] = tandem_lesser(completion->least[0][s], c0 + completion->least[0][to]);
        completion->least[1][s] = tandem_lesser(completion->least[1][s], c1 + completion->least[1][to]);
    }
}

/* What the ways behind the potentials of state s come to. */
static void sum_state(tandem_completion *completion, const tandem_ways *ways, int s)
{
    for (size_t k = 0, at = (size_t)s * SETS; k < SETS; k++, at++) {
        const int a = completion->next[at];
        const size_t to = a < 0 ? 0 : (size_t)ways->to[a] * SETS + k;
        completion->sensitivity[at] = a < 0 ? 0 : ways->sensitivity[a] + completion->sensitivity[to];
        for (int r = 0; r < COSTS; r++)
            completion->spent[r][at] = a < 0 ? 0 : ways->cost[r][a] + completion->spent[r][to];
    }
}

void tandem_completion_fill(tandem_completion *completion, const tandem_ways *ways,
                            const double multiplier[COSTS])
{
    for (int k = 0; k < SETS; k++)
        for (int r = 0; r < COSTS; r++) completion->multiplier[k][r] = multiplier[r] * factor[k][r];
    for (int s = ways->n_state - 1; s >= 0; s--) {
        fill_state(completion, ways, s);
        sum_state(completion, ways, s);
    }
    for (size_t k = 0; k < (size_t)ways->n_state * SETS; k++)
        completion->potential[k] = completion->potential[k] * ways->keep - DBL_MIN;
}

/* The least it takes to come to the states behind s, and which of its arcs are of no use. */
static void prune_state(const tandem_completion *completion, const tandem_ways *ways, int s, double target,
                        unsigned char *drop)
{
    const double *const reach = &completion->reach[(size_t)s * SETS];
    double *const spent = completion->reach + (size_t)ways->n_state * SETS;
    for (int a = ways->arc_start[s]; a < ways->arc_start[s + 1]; a++) {
        const size_t to = (size_t)ways->to[a];
        double *const beyond = &completion->reach[to * SETS];
        const double *const behind = &completion->potential[to * SETS];
        double cost[COSTS];
        for (int r = 0; r < COSTS; r++) {
            cost[r] = spent[(size_t)s * COSTS + (size_t)r] + ways->cost[r][a];
            if (!(cost[r] + completion->least[r][to] <= ways->slack[r])) drop[a] = 1;
        }
        for (int k = 0; k < SETS && !drop[a]; k++) {
            const double *const m = completion->multiplier[k];
            const double here =
                reach[k] + (ways->sensitivity[a] + (m[0] * ways->cost[0][a] + m[1] * ways->cost[1][a]));
            const double granted = m[0] * ways->slack[0] + m[1] * ways->slack[1];
            if (here * ways->keep + behind[k] - granted >= target) drop[a] = 1;
        }
        if (drop[a]) continue;
        for (int k = 0; k < SETS; k++) {
            const double *const m = completion->multiplier[k];
            const double here =
                reach[k] + (ways->sensitivity[a] + (m[0] * ways->cost[0][a] + m[1] * ways->cost[1][a]));
            beyond[k] = tandem_lesser(beyond[k], here);
        }
        for (int r = 0; r < COSTS; r++)
            spent[to * COSTS + (size_t)r] = tandem_lesser(spent[to * COSTS + (size_t)r], cost[r]);
    }
}

void tandem_completion_prune(tandem_completion *completion, tandem_ways *ways, double target,
                             unsigned char *drop)
{
    const size_t n = (size_t)ways->n_state * (SETS + COSTS), at_start = (size_t)ways->n_state * SETS;
    for (size_t k = 0; k < n; k++) completion->reach[k] = INFINITY;
    for (size_t k = 0; k < SETS; k++) completion->reach[k] = 0;
    for (size_t r = 0; r < COSTS; r++) completion->reach[at_start + r] = 0;
    memset(drop, 0, (size_t)ways->n_arc);
    for (int s = 0; s < ways->n_state; s++) prune_state(completion, ways, s, target, drop);
    tandem_ways_reduce(ways, drop);
}
