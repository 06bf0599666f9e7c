/* own_rows.c: what a user's own rows say about others' rows of the same kernel.
 *
 * Others' rows are the mean function: the residual of an own row is log(measured / what they predict of it).
 * Residuals are normal with covariance
 *
 *   shared² + own² · exp(−distance / length)
 *
 * where `shared` is what the user's card has in common with itself and not with theirs (clocks, cooling,
 * libraries), and `own` how far a shape is from what near ones say. Both are known from the others' rows. So
 * one own row moves all shapes of its kernel by the share of it that is likely to be shared, and those near
 * to it by almost all of it; many decide what is shared (predictor/kriging.c). */
#include "predictor/own_rows.h"

#include <math.h>
#include <stdlib.h>

#include "base/grow.h"

/* Chosen with rows that were kept back (bench/own_rows.py). noise: over own². */
static const double own_length = 0.5, own_noise = 0.5, own_agreement = 0.3;
enum { OWN_TRUST = 2, MAX_OWN_ROWS = 1 << 16 };

tandem_status tandem_own_rows_add(tandem_own_rows *rows, const tandem_own_row *row, tandem_error *error)
{
    tandem_own_row *const more = tandem_grow(rows->row, &rows->room, rows->n, sizeof *more, MAX_OWN_ROWS);
    if (!more) return tandem_no_memory(error, "for measured times");
    rows->row = more;
    rows->row[rows->n++] = *row;
    rows->least = fmin(rows->least, row->residual);
    rows->most = fmax(rows->most, row->residual);
    return TANDEM_OK;
}

void tandem_own_rows_clear(tandem_own_rows *rows)
{
    free(rows->row);
    *rows = (tandem_own_rows){NULL};
}

/* Returns their number. */
static int take_nearest_own(tandem_kriged nearest[TANDEM_MAX_KRIGED], const tandem_own_rows *rows,
                            const float at[TANDEM_N_SHAPE])
{
    double squares[TANDEM_MAX_KRIGED];
    int n = 0;
    for (int i = 0; i < rows->n; i++) {
        const tandem_own_row *const row = &rows->row[i];
        double square = 0;
        for (int k = 0; k < TANDEM_N_SHAPE; k++) {
            const double apart = (double)(row->shape[k] - at[k]);
            square += apart * apart;
        }
        if (n == TANDEM_MAX_KRIGED && square >= squares[n - 1]) continue;
        int k = n < TANDEM_MAX_KRIGED ? n++ : n - 1;
        for (; k > 0 && squares[k - 1] > square; k--)
            squares[k] = squares[k - 1], nearest[k] = nearest[k - 1];
        squares[k] = square;
        nearest[k] = (tandem_kriged){row->shape, row->residual, row->weight, own_agreement};
    }
    return n;
}

tandem_own_answer tandem_own_rows_at(const tandem_own_rows *rows, const tandem_own_prior *prior,
                                     const float at[TANDEM_N_SHAPE])
{
    tandem_kriged nearest[TANDEM_MAX_KRIGED];
    const double ratio = prior->shared / prior->own, shared = ratio * ratio;
    const tandem_kriging_rule rule = {
        .length = own_length, .noise = own_noise, .n_trust = OWN_TRUST, .shared = shared};
    const int n = take_nearest_own(nearest, rows, at);
    double low = 0, high = 0, unknown;
    for (int i = 0; i < n; i++) low = fmin(low, nearest[i].residual), high = fmax(high, nearest[i].residual);
    const double residual = tandem_kriging_residual(&unknown, nearest, n, &rule, at);
    return (tandem_own_answer){fmin(high, fmax(low, residual)), sqrt(unknown / (1 + shared))};
}
