/* solve.h: shortest paths through a plan DAG under limits; private to allocator/.
 *
 * Each solver minimises sensitivity subject to Σ time ≤ time_limit_ns and Σ bytes ≤ byte_limit, task set 0
 * included, whose sensitivity is 0. The sensitivity of a path is the sum over its arcs in the order of the
 * layers, in doubles; every bound holds for that sum to the last bit. Another order may differ by n_layer ·
 * 2^-52 of it.
 *
 * Sensitivities lie in [0, 1e200]; an arc with another one (INFINITY, NAN) is never used. Times and bytes of
 * a path must stay below 2^53, else TANDEM_MALFORMED. Every answer depends on the input alone. */
#pragma once

#include "allocator/bound/plan_dag.h"

typedef struct tandem_limits {
    const int64_t *time_ns; /* [n_task_set] */
    int64_t time_limit_ns;  /* INT64_MAX = none */
    const uint64_t *bytes;  /* [n_task_set]; NULL = 0 everywhere */
    uint64_t byte_limit;    /* UINT64_MAX = none */
} tandem_limits;

typedef struct tandem_solution {
    double lower_bound; /* no path within the limits has less sensitivity; INFINITY: there is none */
    double sensitivity; /* of the best path found; INFINITY: none was found */
    int64_t time_ns;    /* of that path, task set 0 included; 0 where none was found */
    uint64_t bytes;
    /* [n_layer], the caller's, set before the call; NULL = not wanted; filled where one was found */
    int *choice;
    int proven;     /* the search is complete: see tandem_solve_exact */
    int64_t labels; /* work done: labels made; for tandem_solve_lagrange: shortest paths */
} tandem_solution;

/* tandem_solve_shortest: the path with the minimum Σ (sensitivity_weight·sensitivity + time_weight·time_ns +
 * byte_weight·bytes), without limits; weights ≥ 0. *value: that sum, task set 0 included; INFINITY where
 * there is no path. choice[n_layer], or NULL: filled where there is a path; of equal paths the one with the
 * lower choices. Cost: O(arcs). TANDEM_NO_MEMORY. */
tandem_status tandem_solve_shortest(double *value, int *choice, const tandem_plan_dag *plan_dag,
                                    const tandem_limits *limits, double sensitivity_weight,
                                    double time_weight, double byte_weight, tandem_error *error);

/* tandem_solve_lagrange: lower bound by Lagrangian relaxation of both limits: the maximum over λ, μ ≥ 0 of
 * the minimum (sensitivity + λ(time − limit) + μ(bytes − limit)), with the best path within the limits that
 * it met. multiplier[2], or NULL: λ (1/ns) and μ (1/byte) of the bound. proven: the path's sensitivity is
 * within 1e-9 of the bound, or there is no path. Arcs that no path within one of the limits uses are removed
 * first. The bound is that of a linear program over the paths: Geoffrion, Math. Programming Study 2 (1974).
 * Column generation solves it: Dantzig, Wolfe, Operations Research 8 (1960); to 1e-6 of the bound, or 64
 * shortest paths. Cost: 5 to 10 shortest paths where one limit binds, some tens for two. TANDEM_NO_MEMORY. */
tandem_status tandem_solve_lagrange(tandem_solution *solution, double multiplier[2],
                                    const tandem_plan_dag *plan_dag, const tandem_limits *limits,
                                    tandem_error *error);

/* tandem_solve_exact: the minimum sensitivity within the limits, by label setting with dominance, pruned by
 * completion bounds. It ignores paths that cannot be below `cutoff` (INFINITY = none), or below the best
 * found by more than the relative `tolerance` (0 = prove the optimum). proven: the search is complete: no
 * path has less than min(cutoff, (1 − tolerance) · sensitivity), and lower_bound is no less. So sensitivity
 * INFINITY with proven says that no path within the limits is below cutoff; lower_bound INFINITY, that there
 * is none at all. Otherwise `max_labels` were made, or the memory for labels (some 200 MB) ran out, and
 * lower_bound is what is proven. Cost: labels × log. TANDEM_NO_MEMORY. Source: labels and completion bounds:
 * Dumitrescu, Boland, Networks 42 (2003). */
tandem_status tandem_solve_exact(tandem_solution *solution, const tandem_plan_dag *plan_dag,
                                 const tandem_limits *limits, double cutoff, double tolerance,
                                 int64_t max_labels, tandem_error *error);

/* Paths within the limits in order of sensitivity, *without* dominance: for callers that test each path
 * against a condition that is not a sum. Sensitivities that agree to a relative 2^-30 may count as equal; of
 * equal paths the lower choices come first. So a later path may have less sensitivity than an earlier one, by
 * at most 2^-29 of it. Of paths of exactly the same sensitivity the lower choices come first. Where all
 * sensitivities are whole numbers with sums below 2^53, the order is exact. */
typedef struct tandem_enumeration tandem_enumeration;
/* Borrows `plan_dag`, `limits` and what they point to until it is closed. */
tandem_status tandem_enumeration_open(tandem_enumeration **enumeration, const tandem_plan_dag *plan_dag,
                                      const tandem_limits *limits, tandem_error *error);
void tandem_enumeration_close(tandem_enumeration *enumeration); /* NULL is fine */
/* tandem_enumeration_next: *sensitivity and choice[n_layer] of the next path; *sensitivity INFINITY: there
 * are no more. *sensitivity NAN, with TANDEM_OK: this call gave up after `max_labels`; the next call
 * continues there. The enumeration gives up for good after 2^22 labels in all (some 220 MB). *bound, or NULL:
 * no later path has less sensitivity. TANDEM_NO_MEMORY: outputs and enumeration are unchanged. */
tandem_status tandem_enumeration_next(tandem_enumeration *enumeration, double *sensitivity, int *choice,
                                      double *bound, int64_t max_labels, tandem_error *error);
int64_t tandem_enumeration_labels(const tandem_enumeration *enumeration); /* made so far */
