/* fit_spreads.c: the intervals of what was left out of a fit (constant_fit.h). */
#include <math.h>

#include "tools/fit_data.h"

/* The share of sorted errors that are at most `half`. */
static double share_within(const double *sorted, size_t n, double half)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (sorted[middle] <= half)
            low = middle + 1;
        else
            high = middle;
    }
    return (double)low / (double)n;
}

/* How far the cell that is furthest from it is from 80 %. */
static double worst_cover(const spread_cells *cells, double half)
{
    double worst = 0;
    for (int c = 0; c < cells->n; c++)
        worst = fmax(worst, fabs(share_within(cells->error[c], cells->n_row[c], half) - 0.8));
    return worst;
}

/* The half-width with which every cell holds a share as near to 80 % as it can. */
static double level_half_width(const spread_cells *cells)
{
    double best = 0, least = INFINITY;
    for (int step = 0; step <= 1000; step++) {
        const double half = 0.005 * pow(400, step / 1000.0), worst = worst_cover(cells, half);
        if (worst < least) least = worst, best = half;
    }
    return best;
}

void fit_add_spread_cell(spread_cells *cells, double *error, size_t n)
{
    if (n < FIT_MIN_SPREAD_ROWS || cells->n == FIT_MAX_SPREAD_CELLS) return;
    const double median = tandem_median(error, n); /* sorts */
    double *const about = error + n;
    for (size_t i = 0; i < n; i++) about[i] = fabs(error[i] - median), error[i] = fabs(error[i]);
    cells->own[cells->n] = tandem_median(about, n) / 0.6745;
    (void)tandem_median(error, n); /* sorts */
    cells->error[cells->n] = error;
    cells->n_row[cells->n++] = n;
}

/* The interval that suits all cells, and of it what is a shape's own: the spread within a middling cell. The
 * rest is shared. */
tandem_spread fit_spread_of_cells(spread_cells *cells)
{
    const double z80 = 1.2816, all = level_half_width(cells) / z80,
                 own = fmin(all, tandem_median(cells->own, (size_t)cells->n));
    return (tandem_spread){.n_cell = cells->n, .own = own, .shared = sqrt(all * all - own * own)};
}
