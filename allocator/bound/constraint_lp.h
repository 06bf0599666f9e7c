/* constraint_lp.h: the Lagrangian bound under any number of limits, by column generation with GLPK; private
 * to allocator/. For one or two limits lagrange.c finds the same bound some hundred times faster. */
#pragma once

#include "allocator/bound/plan_dag.h"

typedef struct tandem_constraint_lp {
    int n_row;
    int64_t *weight; /* [n_row × n_task_set] ≥ 0; a path's sum in row r, task set 0 included, is ≤ limit[r] */
    int64_t *limit; /* [n_row] */
} tandem_constraint_lp;

/* The sum of a path in row r. */
int64_t tandem_constraint_lp_usage(const tandem_constraint_lp *constraints, const tandem_plan_dag *plan_dag,
                                   int r, const int *choice);

/* tandem_constraint_lp_bound: the largest Lagrangian bound over multipliers of all rows. It is the optimum of
 * a linear program over the paths; its columns are shortest paths under the program's dual prices.
 *   bound        [out] no path within all rows has less sensitivity; INFINITY: there is none
 *   multiplier   [out] [n_row] sensitivity per unit of the row's weight; all 0: no row binds
 *   sensitivity  [in, out] of the best path within all rows; replaced, with choice[n_layer], by a better
 *                column
 *   n_column     [out] columns made: what the call costs
 * Source: Dantzig, Wolfe, Operations Research 8 (1960). Cost: some tens of shortest paths and of small
 * programs. TANDEM_NO_MEMORY. */
tandem_status tandem_constraint_lp_bound(double *bound, double *multiplier, double *sensitivity, int *choice,
                                         int *n_column, const tandem_constraint_lp *constraints,
                                         const tandem_plan_dag *plan_dag, tandem_error *error);
