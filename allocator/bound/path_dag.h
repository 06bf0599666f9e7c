/* path_dag.h: a plan DAG prepared for one pair of limits; shared by the solvers of solve.h, private to them.
 *
 * Costs are time and bytes, where their limits can bind. They are reduced: an arc's cost is what it adds to
 * the cheapest path through its start. So costs are ≥ 0, the sum over a path is what it spends beyond the
 * cheapest path, and `reduced_limit` is what it may spend. All are whole numbers below 2^53, so doubles hold
 * their sums exactly. Arcs that no path within a limit uses are removed, and so are unreachable states. */
#pragma once

#include <math.h>

#include "allocator/bound/solve.h"

enum { TANDEM_N_PATH_COST = 2 };

/* fmin() without its rules for NaN, which make it a library call: the solvers need millions of minima. */
static inline double tandem_min_f64(double a, double b) { return a < b ? a : b; }

typedef struct tandem_path_dag {
    const tandem_plan_dag *plan_dag;
    const tandem_limits *limits;
    int n_layer, n_state, n_arc;
    int is_feasible;                   /* 0: no path keeps one of the limits; there are no arcs then */
    int n_cost;                        /* limits that can bind */
    int cost_kind[TANDEM_N_PATH_COST]; /* 0: time, 1: bytes */
    int *layer_start;                  /* [n_layer + 2] as tandem_plan_dag.state_start */
    int *arc_start;                    /* [n_state + 1] */
    int *to, *plan_arc;                /* [n_arc] target state; arc of the plan DAG */
    int *state_number;                 /* [n_state] scratch of tandem_path_dag_drop_arcs */
    double *sensitivity;               /* [n_arc] */
    double *cost[TANDEM_N_PATH_COST];  /* [n_arc]; all 0 from n_cost on */
    double reduced_limit[TANDEM_N_PATH_COST];
    double max_sensitivity; /* no path has more */
    int is_whole;           /* all sensitivities are whole numbers, and all sums are exact */
    /* 1 − the relative rounding error of a sum of sensitivities and multiplied costs */
    double rounding_factor;
} tandem_path_dag;

/* `paths` need not be initialised, and need not be closed after an error. TANDEM_MALFORMED: see solve.h;
 * TANDEM_NO_MEMORY. */
tandem_status tandem_path_dag_open(tandem_path_dag *paths, const tandem_plan_dag *plan_dag,
                                   const tandem_limits *limits, tandem_error *error);
void tandem_path_dag_close(tandem_path_dag *paths); /* an all-zero one is fine */
/* Removes the arcs with drop[arc] ≠ 0, and the arcs and states that no path uses then. drop is overwritten.
 * */
void tandem_path_dag_drop_arcs(tandem_path_dag *paths, unsigned char *drop);

/* tandem_path_dag_shortest: potential[n_state]: the minimum Σ (sensitivity + multiplier · cost) from a state
 * to the end; next[n_state]: the first arc of that path, the lowest of equal ones, −1 at the end. Cost:
 * O(arcs). */
void tandem_path_dag_shortest(const tandem_path_dag *paths, const double multiplier[TANDEM_N_PATH_COST],
                              double *potential, int *next);

/* The best path found so far. */
typedef struct tandem_best_path {
    double sensitivity; /* INFINITY: none */
    int *arc;           /* [n_layer] of the plan DAG */
} tandem_best_path;
/* Keeps arc[n_layer] (of the plan DAG) where that path is within the limits and better. */
void tandem_best_path_offer(tandem_best_path *best, const tandem_path_dag *paths, const int *arc);
/* Fills in sensitivity, time_ns, bytes and choice of the solution. */
void tandem_best_path_report(const tandem_best_path *best, const tandem_plan_dag *plan_dag,
                             const tandem_limits *limits, tandem_solution *solution);

/* tandem_path_dag_dual: the best multipliers and the bound of tandem_solve_lagrange; offers the paths it
 * meets to `best`. *bound INFINITY: no path is within the limits. Adds to *passes. TANDEM_NO_MEMORY. */
tandem_status tandem_path_dag_dual(const tandem_path_dag *paths, double multiplier[TANDEM_N_PATH_COST],
                                   double *bound, tandem_best_path *best, int64_t *passes,
                                   tandem_error *error);

/* --- Completion bounds ---------------------------------------------------------------------------------- */

/* Bounds of every completion of a partial path, for several multipliers at once: the best multipliers of the
 * whole are not the best ones of a late state, or of a partial path that has spent more than others. Arrays
 * [n_state × TANDEM_N_MULTIPLIER_SET] are row-major. */
enum { TANDEM_N_MULTIPLIER_SET = 8 };
typedef struct tandem_completion_bound {
    double multiplier[TANDEM_N_MULTIPLIER_SET][TANDEM_N_PATH_COST];
    double *potential; /* minimum Σ (sensitivity + multiplier · cost) to the end, less the rounding error */
    int *next;         /* the first arc of that path, −1 at the end */
    double *sensitivity;                  /* of that path */
    double *spent[TANDEM_N_PATH_COST];    /* by that path */
    double *min_cost[TANDEM_N_PATH_COST]; /* [n_state] minimum cost to the end */
    /* [n_state × (sets + costs)] scratch of tandem_completion_bound_prune */
    double *prefix_cost;
} tandem_completion_bound;

/* Uses multiples of the dual's multipliers. An all-zero one may be closed, and need not be closed after an
 * error. TANDEM_NO_MEMORY. */
tandem_status tandem_completion_bound_open(tandem_completion_bound *completion, const tandem_path_dag *paths,
                                           const double multiplier[TANDEM_N_PATH_COST], tandem_error *error);
void tandem_completion_bound_close(tandem_completion_bound *completion);
/* Recomputes the bounds, after arcs were dropped or for other multipliers. */
void tandem_completion_bound_fill(tandem_completion_bound *completion, const tandem_path_dag *paths,
                                  const double multiplier[TANDEM_N_PATH_COST]);
/* Removes the arcs that no path within the limits with less sensitivity than `target` uses. drop[n_arc]:
 * scratch. */
void tandem_completion_bound_prune(tandem_completion_bound *completion, tandem_path_dag *paths, double target,
                                   unsigned char *drop);

/* A lower bound of the sensitivity of every path within the limits that reaches state s with this sensitivity
 * and spending; INFINITY: there is none. */
static inline double tandem_completion_bound_at(const tandem_completion_bound *completion,
                                                const tandem_path_dag *paths, int s, double sensitivity,
                                                const double spent[TANDEM_N_PATH_COST])
{
    const double *const potential = &completion->potential[(size_t)s * TANDEM_N_MULTIPLIER_SET];
    const double left0 = paths->reduced_limit[0] - spent[0], left1 = paths->reduced_limit[1] - spent[1];
    /* rounding_factor covers the rounding error where the sum is positive; otherwise the bound is 0 */
    double max_rest = 0;
    if (left0 < completion->min_cost[0][s] || left1 < completion->min_cost[1][s]) return INFINITY;
    for (int k = 0; k < TANDEM_N_MULTIPLIER_SET; k++) {
        const double *const multiplier = completion->multiplier[k];
        const double rest = potential[k] - (multiplier[0] * left0 + multiplier[1] * left1);
        max_rest = rest > max_rest ? rest : max_rest;
    }
    return sensitivity * paths->rounding_factor + max_rest;
}
