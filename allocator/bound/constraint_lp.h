/* constraint_lp.h: shortest paths under many limits at once: the Lagrangian bound, by column generation;
 * private to allocator/. */
#ifndef TANDEM_ALLOCATOR_CONSTRAINT_LP_H
#define TANDEM_ALLOCATOR_CONSTRAINT_LP_H

#include "allocator/bound/plan_dag.h"

typedef struct tandem_constraint_lp {
    int n_row;
    /* [n_row × n_task_set] ≥ 0; a path's sum in row r, task set 0 included, may be limit[r] at most */
    int64_t *weight;
    int64_t *limit; /* [n_row] */
} tandem_constraint_lp;

/* Weight of a path in row r. */
int64_t tandem_constraint_lp_usage(const tandem_constraint_lp *constraints, const tandem_plan_dag *plan_dag,
                                   int r, const int *choice);

/* tandem_constraint_lp_bound: the largest Lagrangian bound over multipliers of all rows: that of a linear
 * program over the paths, in which paths (columns) are generated as shortest paths under the program's dual
 * prices, and the program is solved by GLPK.
 *   bound      [out] no path within all rows has less sensitivity; INFINITY: there is none
 *   multiplier [out] [n_row] sensitivity for each unit of the row's weight; all 0: no row binds
 *   sensitivity       [in, out] of the best path within all rows; replaced, with choice[n_layer], where a
 *                     column is better
 * Source: Dantzig, Wolfe, Operations Research 8 (1960). Cost: some tens of shortest paths and small programs.
 * TANDEM_NO_MEMORY. */
tandem_status tandem_constraint_lp_bound(double *bound, double *multiplier, double *sensitivity, int *choice,
                                         const tandem_constraint_lp *constraints,
                                         const tandem_plan_dag *plan_dag, tandem_error *error);

#endif
