/* rows.h: shortest ways under many limits at once: the Lagrangian bound, by column generation; private to
 * allocator/. */
#ifndef TANDEM_ALLOCATOR_ROWS_H
#define TANDEM_ALLOCATOR_ROWS_H

#include "allocator/network.h"

typedef struct tandem_rows {
    int n_row;
    /* [n_row × n_bundle] ≥ 0; a way's sum in row r, bundle 0 included, may be limit[r] at most */
    int64_t *weight;
    int64_t *limit; /* [n_row] */
} tandem_rows;

/* Weight of a way in row r. */
int64_t tandem_rows_length(const tandem_rows *rows, const tandem_network *network, int r, const int *choice);

/* tandem_rows_bound: the largest Lagrangian bound over multipliers of all rows: that of a linear program over
 * the ways, in which ways (columns) are generated as shortest ways under the program's dual prices, and the
 * program is solved by GLPK.
 *   bound      [out] no way within all rows has less harm; INFINITY: there is none
 *   multiplier [out] [n_row] harm for each unit of the row's weight; all 0: no row binds
 *   harm       [in, out] of the best way within all rows; replaced, with choice[n_layer], where a column is
 *              better
 * Source: Dantzig, Wolfe, Operations Research 8 (1960). Cost: some tens of shortest ways and small programs.
 * TANDEM_NO_MEMORY. */
tandem_status tandem_rows_bound(double *bound, double *multiplier, double *harm, int *choice,
                                const tandem_rows *rows, const tandem_network *network, tandem_error *error);

#endif
