/* whole_plan.c: what a plan does as a whole, from replicates in which all its operators are rounded at once.
 *
 * More samples: sampled.c, with a class's plan in the place of an operator. So noise of operators that adds
 * up, or cancels, counts as it is.
 * Loss: within the rounding less in fp32, of the same batches and weights.
 * Across: |E d|/|E g|. Along E g it is the bias of sampled.c, which has a sign; E d that points elsewhere
 * leads away from the descent, and is not seen there. |Σ f·E d| ≤ Σ f·|E d| of classes with the parts f.
 * Stability: E|d|² of a step is Var d + |E d|², and E|g|² is |E g|² + Var g. */
#include <math.h>

#include "tandem/advanced/predictor.h"

/* The part of the samples that runs a row, in whichever cell, and that cell; 0: none. */
static double share_of_row(int *cell, const double *share, int row)
{
    const int n = TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    for (int k = row * n; k < (row + 1) * n; k++)
        if (share[k] > 0) {
            *cell = k;
            return share[k];
        }
    return 0;
}

/* The mean over all pairs of what replicates have of pairs with others (sampled.c), without replicate
 * left_out; < 0: of all. */
static double mean_of_pairs(const double *of_replicate, int n, int left_out)
{
    double mean = 0;
    for (int r = 0; r < n; r++) mean += of_replicate[r] / n;
    return left_out < 0 ? mean : (n * mean - 2 * of_replicate[left_out]) / (n - 2);
}

/* |E d| and |E g|² of training point a, by the shares of rows. Means over pairs may come out negative. */
static double mean_error(double *gradient, const tandem_estimate *estimate, const double *share, int a,
                         int left_out)
{
    const int n = estimate->n_replicate;
    double square[TANDEM_MAX_REPLICATE] = {0}, sum = 0;
    for (int r = 0; r < n; r++) square[r] = estimate->gradient[a * n + r].mean_square;
    *gradient = mean_of_pairs(square, n, left_out);
    for (int row = 0; row < estimate->n_op; row++) {
        int cell = 0;
        const double part = share_of_row(&cell, share, row);
        if (part <= 0) continue;
        for (int r = 0; r < n; r++) square[r] = tandem_estimate_errors(estimate, a, cell)[r].mean_square;
        sum += part * sqrt(fmax(mean_of_pairs(square, n, left_out), 0));
    }
    return sum;
}

/* |E d|/|E g|, the mean over points. */
static double across_without(const tandem_estimate *estimate, const double *share, int left_out)
{
    double sum = 0;
    for (int a = 0; a < estimate->n_point; a++) {
        double square = 0;
        const double error = mean_error(&square, estimate, share, a, left_out);
        sum += (square > 0 ? error / sqrt(square) : NAN) / estimate->n_point;
    }
    return sum;
}

static void find_across(tandem_whole_plan *to, const tandem_estimate *estimate, const double *share,
                        const tandem_sensitivity_step *step)
{
    const int n = estimate->n_replicate;
    const double c = (double)estimate->batch / (double)step->global_batch;
    double without[TANDEM_MAX_REPLICATE] = {0}, mean_share = 0; /* |E d|² of E|g|² */
    for (int a = 0; a < estimate->n_point; a++) {
        double variance = 0, square = 0;
        const double error = mean_error(&square, estimate, share, a, -1);
        for (int r = 0; r < n; r++) variance += estimate->gradient[a * n + r].variance / n;
        mean_share += error * error / (c * variance + fmax(square, 0)) / estimate->n_point;
    }
    for (int r = 0; r < n; r++) without[r] = across_without(estimate, share, r);
    /* |E g| may be lost without some replicate */
    to->across = isfinite(to->samples.bias) ? across_without(estimate, share, -1) : NAN;
    to->across_half = tandem_jackknife_half(without, n);
    const double of_step = fmax(to->samples.noise, 0) + mean_share;
    to->stability = of_step > 0 ? 1 / sqrt(3 * of_step) : INFINITY;
}

static void find_loss_rise(tandem_whole_plan *to, const tandem_estimate *estimate, const double *share,
                           const double *loss_rise)
{
    const int n = estimate->n_replicate;
    double of_replicate[TANDEM_MAX_REPLICATE] = {0}, without[TANDEM_MAX_REPLICATE], mean = 0;
    for (int a = 0; a < estimate->n_point; a++)
        for (int row = 0; row < estimate->n_op; row++) {
            int cell = 0;
            const double part = share_of_row(&cell, share, row) / estimate->n_point;
            for (int r = 0; r < n && part > 0; r++)
                of_replicate[r] += part * loss_rise[(a * estimate->n_op + row) * n + r];
        }
    for (int r = 0; r < n; r++) mean += of_replicate[r] / n;
    for (int r = 0; r < n; r++) without[r] = (n * mean - of_replicate[r]) / (n - 1);
    to->loss_rise = mean;
    to->loss_rise_half = tandem_jackknife_half(without, n);
}

tandem_status tandem_estimate_whole_plan(tandem_whole_plan *to, const tandem_estimate *estimate,
                                         const double *share, const double *loss_rise,
                                         const tandem_sensitivity_step *step, tandem_error *error)
{
    tandem_whole_plan whole = {.across = 0};
    const tandem_status status = tandem_estimate_sensitivity(&whole.samples, estimate, share, step, error);
    if (status != TANDEM_OK) return status;
    find_across(&whole, estimate, share, step);
    find_loss_rise(&whole, estimate, share, loss_rise);
    *to = whole;
    return TANDEM_OK;
}
