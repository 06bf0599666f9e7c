/* nearby.c: what tasks near to one took, about what their form gives: kernel regression of Nadaraya and
 * Watson over logarithms of shapes.
 *
 *   r = Σ wᵢ rᵢ / (Σ wᵢ + floor),   wᵢ = nᵢ exp(−dᵢ² / 2h²)
 *
 * and, where rows are to agree, once more with weights wᵢ / (1 + (rᵢ − r)² / agreement²), of Cauchy's
 * distribution: a row that found its operands in another level of the cache than its neighbours says little.
 *
 * h is the width or, where rows lie apart, half the distance of the k-th nearest: so many rows always count.
 * Far from all rows r falls to 0, by exp(−d₁² / 2·reach²) of the nearest: there the form holds alone. */
#include <math.h>

#include "predictor/form.h"

enum { MAX_NEAREST = 16, AGREE_TIMES = 3, MAX_WIDTHS = 40 /* where a weight is 0 in double */ };

static double square_between(const double *a, const double *b)
{
    double square = 0;
    for (int k = 0; k < TANDEM_N_SHAPE; k++) square += (a[k] - b[k]) * (a[k] - b[k]);
    return square;
}

/* Keeps the smallest in ascending order. */
static void keep_nearest(double *nearest, int n, double square)
{
    if (!(square < nearest[n - 1])) return;
    int k = n - 1;
    for (; k > 0 && nearest[k - 1] > square; k--) nearest[k] = nearest[k - 1];
    nearest[k] = square;
}

/* The mean of residuals about `expected`, with less weight for those that are far from it. */
static double mean_residual(const tandem_nearby *rows, size_t n, const tandem_nearby_rule *rule,
                            const double *at, double variance, double expected)
{
    double sum = 0, weights = rule->floor;
    for (size_t i = 0; i < n; i++) {
        const double square = square_between(rows[i].shape, at);
        if (square > MAX_WIDTHS * MAX_WIDTHS * variance) continue;
        double weight = rows[i].weight * exp(-square / (2 * variance));
        if (!isnan(expected)) weight /= 1 + pow((rows[i].residual - expected) / rule->agreement, 2);
        sum += weight * rows[i].residual;
        weights += weight;
    }
    return weights > 0 ? sum / weights : 0;
}

double tandem_nearby_residual(const tandem_nearby *rows, size_t n, const tandem_nearby_rule *rule,
                              const double at[TANDEM_N_SHAPE])
{
    double nearest[MAX_NEAREST], variance = rule->width * rule->width;
    const int k = rule->n_nearest < MAX_NEAREST ? rule->n_nearest : MAX_NEAREST;
    for (int i = 0; i < MAX_NEAREST; i++) nearest[i] = INFINITY;
    for (size_t i = 0; i < n && k > 0; i++) keep_nearest(nearest, k, square_between(rows[i].shape, at));
    if (k > 0 && isfinite(nearest[k - 1])) variance = fmax(variance, nearest[k - 1] / 4);
    double residual = mean_residual(rows, n, rule, at, variance, NAN);
    for (int i = 0; i < AGREE_TIMES && rule->agreement > 0; i++)
        residual = mean_residual(rows, n, rule, at, variance, residual);
    return k > 0 ? residual * exp(-nearest[0] / (2 * rule->reach * rule->reach)) : residual;
}
