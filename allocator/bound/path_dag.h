/* path_dag.h: a network laid out for passes under given limits: what the solvers of solve.h share; private to
 * them.
 *
 * Costs are time and bytes, those of them whose limit can bind. They are reduced: from each arc's cost the
 * least that any path through its start needs from there is taken, and what is needed behind it is added; so
 * costs are ≥ 0, a path's costs are what it spends beyond the least, and `slack` is what it may spend. All
 * are whole numbers below 2^53, so sums of them are exact in doubles. Arcs that no path within a limit can
 * take are left out, and so are states that none reaches. */
#ifndef TANDEM_ALLOCATOR_PATH_DAG_H
#define TANDEM_ALLOCATOR_PATH_DAG_H

#include <math.h>

#include "allocator/bound/solve.h"

enum { TANDEM_N_PATH_COST = 2 };

/* fmin without a call of the library: a pass has millions of them. */
static inline double tandem_min_f64(double a, double b) { return a < b ? a : b; }

typedef struct tandem_path_dag {
    const tandem_plan_dag *plan_dag;
    const tandem_limits *limits;
    int n_layer, n_state, n_arc;
    int is_feasible;                   /* 0: no path keeps each limit for itself; there are no arcs then */
    int n_cost;                        /* limits that can bind */
    int cost_kind[TANDEM_N_PATH_COST]; /* 0: time, 1: bytes */
    int *layer_start;                  /* [n_layer + 2] as tandem_plan_dag.state_start */
    int *arc_start;                    /* [n_state + 1] */
    int *to, *plan_arc;                /* [n_arc]; origin: number of the arc in the network */
    int *state_number;                 /* [n_state] room for tandem_path_dag_drop_arcs */
    double *sensitivity;               /* [n_arc] */
    double *cost[TANDEM_N_PATH_COST];  /* [n_arc]; all 0 from n_cost on */
    double reduced_limit[TANDEM_N_PATH_COST];
    double max_sensitivity; /* no path has more */
    /* 1 − what rounding may add to a sum of sensitivities and multiplied costs, relatively */
    double rounding_factor;
} tandem_path_dag;

/* `paths` need not be initialised; after an error there is nothing to close. */
tandem_status tandem_path_dag_open(tandem_path_dag *paths, const tandem_plan_dag *plan_dag,
                                   const tandem_limits *limits, tandem_error *error);
void tandem_path_dag_close(tandem_path_dag *paths); /* an all-zero one is fine */
/* Leaves out the arcs with drop[arc] ≠ 0, and what no path takes any more. drop is overwritten. */
void tandem_path_dag_drop_arcs(tandem_path_dag *paths, unsigned char *drop);

/* potential[n_state]: the least Σ (sensitivity + multiplier · cost) from a state to the end; next[n_state]:
 * its first arc, the lowest of equal ones, −1 at the end. */
void tandem_path_dag_shortest(const tandem_path_dag *paths, const double multiplier[TANDEM_N_PATH_COST],
                              double *potential, int *next);

/* The best path found so far. */
typedef struct tandem_best_path {
    double sensitivity; /* INFINITY: none */
    int *arc;           /* [n_layer] numbers of the network */
} tandem_best_path;
/* Takes arc[n_layer] (numbers of the network) for the best where it is within the limits and better. */
void tandem_best_path_offer(tandem_best_path *best, const tandem_path_dag *paths, const int *arc);
/* Fills in sensitivity, time_ns, bytes and choice. */
void tandem_best_path_report(const tandem_best_path *best, const tandem_plan_dag *plan_dag,
                             const tandem_limits *limits, tandem_solution *solution);

/* tandem_path_dag_dual: the best multipliers, see tandem_solve_lagrange; paths met are offered to `best`.
 * *bound: INFINITY: there is no path within the limits. *passes is increased. */
tandem_status tandem_path_dag_dual(const tandem_path_dag *paths, double multiplier[TANDEM_N_PATH_COST],
                                   double *bound, tandem_best_path *best, int64_t *passes,
                                   tandem_error *error);

/* --- Bounds of what is still to come -------------------------------------------------------------------- */

/* Several multipliers at once: a state deep in the network, or a path that has spent more than others, has
 * other best ones than the whole. Arrays of [n_state × TANDEM_N_MULTIPLIER_SET] are row-major. */
enum { TANDEM_N_MULTIPLIER_SET = 8 };
typedef struct tandem_completion_bound {
    double multiplier[TANDEM_N_MULTIPLIER_SET][TANDEM_N_PATH_COST];
    double *potential;   /* least Σ (sensitivity + multiplier · cost) to the end, rounding taken off */
    int *next;           /* the first arc of that path, −1 at the end */
    double *sensitivity; /* of that path */
    double *spent[TANDEM_N_PATH_COST];    /* by that path */
    double *min_cost[TANDEM_N_PATH_COST]; /* [n_state] least cost to the end */
    /* [n_state × (sets + costs)] room for tandem_completion_bound_prune */
    double *prefix_cost;
} tandem_completion_bound;

/* Around the multipliers of the dual. Filled. An all-zero one may be closed; after an error there is nothing
 * to close. */
tandem_status tandem_completion_bound_open(tandem_completion_bound *completion, const tandem_path_dag *paths,
                                           const double multiplier[TANDEM_N_PATH_COST], tandem_error *error);
void tandem_completion_bound_close(tandem_completion_bound *completion);
/* Anew, after the paths were reduced or with other multipliers of the dual. */
void tandem_completion_bound_fill(tandem_completion_bound *completion, const tandem_path_dag *paths,
                                  const double multiplier[TANDEM_N_PATH_COST]);
/* Leaves out of the paths, and of the completion, what no path within the limits with less sensitivity than
 * `target` takes. drop[n_arc]: room. */
void tandem_completion_bound_prune(tandem_completion_bound *completion, tandem_path_dag *paths, double target,
                                   unsigned char *drop);

/* No path within the limits that comes to state s with this sensitivity, having spent so much, has less
 * sensitivity; INFINITY: none is within the limits. */
static inline double tandem_completion_bound_at(const tandem_completion_bound *completion,
                                                const tandem_path_dag *paths, int s, double sensitivity,
                                                const double spent[TANDEM_N_PATH_COST])
{
    const double *const potential = &completion->potential[(size_t)s * TANDEM_N_MULTIPLIER_SET];
    const double left0 = paths->reduced_limit[0] - spent[0], left1 = paths->reduced_limit[1] - spent[1];
    /* what rounding adds to it is less than `keep` takes where the sum is positive, and only then it counts
     * */
    double max_cost = 0;
    if (left0 < completion->min_cost[0][s] || left1 < completion->min_cost[1][s]) return INFINITY;
    for (int k = 0; k < TANDEM_N_MULTIPLIER_SET; k++) {
        const double *const multiplier = completion->multiplier[k];
        const double rest = potential[k] - (multiplier[0] * left0 + multiplier[1] * left1);
        max_cost = rest > max_cost ? rest : max_cost;
    }
    return sensitivity * paths->rounding_factor + max_cost;
}

#endif
