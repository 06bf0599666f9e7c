/* solve.h: shortest paths through a network under limits; private to allocator/.
 *
 * Each solver minimises sensitivity subject to Σ time ≤ time_limit_ns and Σ bytes ≤ byte_limit, task set 0
 * included, whose sensitivity is 0. The sensitivity of a path is the sum of its arcs' in the order of the
 * layers, as doubles add up; every bound holds for that sum to the last bit. Another order may differ by
 * n_layer · 2^-52 of it.
 *
 * Sensitivities lie in [0, 1e200]; an arc with another one (INFINITY, NAN) is never taken. Times and bytes of
 * a path must stay below 2^53: TANDEM_MALFORMED where they may not. Every answer depends on the input alone,
 * save where a time runs out. */
#ifndef TANDEM_ALLOCATOR_SOLVE_H
#define TANDEM_ALLOCATOR_SOLVE_H

#include "allocator/bound/plan_dag.h"

/* What a caller allows; 10 s where it says nothing, 0. */
static inline double tandem_time_limit_or_default(double time_limit_s)
{
    return time_limit_s > 0 ? time_limit_s : 10;
}

typedef struct tandem_limits {
    const int64_t *time_ns; /* [n_task_set] */
    int64_t time_limit_ns;  /* INT64_MAX = none */
    const uint64_t *bytes;  /* [n_task_set]; NULL = 0 everywhere */
    uint64_t byte_limit;    /* UINT64_MAX = none */
} tandem_limits;

typedef struct tandem_solution {
    double lower_bound; /* no path within the limits has less sensitivity; INFINITY: there is none at all */
    double sensitivity; /* of the best path found; INFINITY: none was found */
    int64_t time_ns;    /* of that path, task set 0 included; 0 where none was found */
    uint64_t bytes;
    /* [n_layer], the caller's, set before the call; NULL = not wanted; filled where one was found */
    int *choice;
    int proven;     /* nothing is left to look for: see tandem_solve_exact */
    int64_t labels; /* work done: labels made; of tandem_solve_lagrange: shortest paths */
} tandem_solution;

/* tandem_solve_shortest: the path with the least Σ (sensitivity_weight·sensitivity + time_weight·time_ns +
 * byte_weight·bytes), whatever the limits; weights ≥ 0. *value: that sum, task set 0 included; INFINITY where
 * no path is left. choice[n_layer] may be NULL; it is filled where there is a path. Of equal paths the one
 * with the lower choices. Cost: O(arcs). TANDEM_NO_MEMORY. */
tandem_status tandem_solve_shortest(double *value, int *choice, const tandem_plan_dag *plan_dag,
                                    const tandem_limits *limits, double sensitivity_weight,
                                    double time_weight, double byte_weight, tandem_error *error);

/* tandem_solve_lagrange: lower bound by Lagrangian relaxation of both limits: max over λ, μ ≥ 0 of the least
 * (sensitivity + λ(time − limit) + μ(bytes − limit)), with the best path within the limits that was met on
 * the way. multiplier[2]: λ (1/ns), μ (1/byte) of the bound; may be NULL. proven: the path's sensitivity is
 * the bound, but for 1e-9 of it, or there is none. Arcs that no path within one of the limits takes are left
 * out before. The bound is that of a linear program over the paths: Geoffrion, Math. Programming Study 2
 * (1974). It is solved by column generation: Dantzig, Wolfe, Operations Research 8 (1960); to 1e-6 of the
 * bound, or 64 shortest paths. Cost: some 5 to 10 shortest paths for one limit that binds, some tens for two.
 * TANDEM_NO_MEMORY. */
tandem_status tandem_solve_lagrange(tandem_solution *solution, double multiplier[2],
                                    const tandem_plan_dag *plan_dag, const tandem_limits *limits,
                                    tandem_error *error);

/* tandem_solve_exact: the least sensitivity within the limits, by labels with dominance, pruned by Lagrangian
 * bounds of what is still to come. A path is not looked for where it could not be better than `cutoff`
 * (INFINITY = none) or better than the best found by more than `tolerance` (relative, 0 = prove the optimum).
 * proven: the search came to its end: no path has less than min(cutoff, (1 − tolerance) · sensitivity), and
 * lower_bound is no less; so sensitivity INFINITY with proven says that no path within the limits has less
 * than cutoff, lower_bound INFINITY that there is none at all. Else `time_limit_s` or the memory for labels
 * (some 200 MB) ran out, and lower_bound is what is proven so far. Cost: labels × log. TANDEM_NO_MEMORY.
 * Source: labels and completion bounds: Dumitrescu, Boland, Networks 42 (2003). */
tandem_status tandem_solve_exact(tandem_solution *solution, const tandem_plan_dag *plan_dag,
                                 const tandem_limits *limits, double cutoff, double tolerance,
                                 double time_limit_s, tandem_error *error);

/* Paths within the limits in order of sensitivity, best first, *without* dominance: for whoever has to test
 * each one against something that is not a sum. Sensitivities that agree to a relative 2^-30 may count as
 * equal here, and of paths that do the lower choices come first: so a later path may have less sensitivity
 * than an earlier one, by at most 2^-29 of it; `bound` is never more than any path that is still to come. Of
 * paths of exactly the same sensitivity the lower choices come first. */
typedef struct tandem_enumeration tandem_enumeration;
/* Keeps `network` and `limits` (not only what they point to): they must live as long. */
tandem_status tandem_enumeration_open(tandem_enumeration **enumeration, const tandem_plan_dag *plan_dag,
                                      const tandem_limits *limits, tandem_error *error);
void tandem_enumeration_close(tandem_enumeration *enumeration); /* NULL is fine */
/* *sensitivity = INFINITY: there are no more; else choice[n_layer] is the next path. bound (may be NULL): no
 * path that is still to come has less sensitivity; also where this call gave up after `max_labels`
 * (TANDEM_OK, *sensitivity = NAN): the next call goes on there. It gives up for good where it has made 2^22
 * labels in all (some 220 MB). TANDEM_NO_MEMORY: outputs and enumeration are as before. */
tandem_status tandem_enumeration_next(tandem_enumeration *enumeration, double *sensitivity, int *choice,
                                      double *bound, int64_t max_labels, tandem_error *error);

#endif
