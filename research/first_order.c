/* first_order.c: what the first order of a gradient's error adds to its noise.
 *
 * A step ε along ĝ = g + d makes the progress ε⟨G, E ĝ⟩ − ½ε²h·E|ĝ|², at a curvature h that is the same
 * everywhere. At the ε that is best for g it is less, to the first order in d, by the share
 *   (E|ĝ|² − E|g|²) / E|g|² + 2β = φ·(ρ + 2·Cov(g, d)/Var g + 2β)
 * so that as many more samples are needed: φ times what as much noise of a smaller batch costs. ρ alone takes
 * the error of a batch as independent of its gradient. That holds where g is linear in the rounded tensors. A
 * rounded forward pass smooths the loss, and so the gradients of single batches: the covariance is below 0.
 *
 * β divides by |G|². Where batches are mostly noise, |G|² is not distinguished from 0, and β is unknown: 2β
 * is left out.
 */
#include "research/exchange.h"

/* 1: |G|² is at least twice half of its interval. */
static int is_gradient_known(const tandem_estimated_gradient *of, int n)
{
    double without[TANDEM_MAX_REPLICATE] = {0}, sum = 0;
    for (int r = 0; r < n; r++) sum += of[r].mean_square;
    for (int r = 0; r < n; r++) without[r] = (sum - 2 * of[r].mean_square) / (n - 2);
    return sum / n >= 2 * tandem_jackknife_half(without, n);
}

/* left_out: a replicate; < 0: none. */
static double first_order_without(const tandem_estimate *estimate, int a, const double *own,
                                  const double *against, int has_bias, int left_out)
{
    const int n = estimate->n_replicate;
    const tandem_estimated_gradient *of = estimate->gradient + (size_t)a * (size_t)n;
    double variance = 0, product = 0, square = 0, opposed = 0;
    for (int r = 0; r < n; r++) {
        const double pairs = r == left_out ? -1 : 1; /* of a mean over pairs, a replicate is in two places */
        variance += r == left_out ? 0 : of[r].variance;
        product += r == left_out ? 0 : own[r];
        square += pairs * of[r].mean_square;
        opposed += pairs * against[r];
    }
    const int n_single = left_out < 0 ? n : n - 1, n_pair = left_out < 0 ? n : n - 2;
    const double covariance = product / n_single + opposed / n_pair;
    return 2 * covariance / (variance / n_single) + (has_bias ? 2 * opposed / square : 0);
}

double exchange_first_order(double *half, const tandem_estimate *estimate, int a, const double *share,
                            const double *own)
{
    const int n = estimate->n_replicate, n_cell = estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    const int has_bias = is_gradient_known(estimate->gradient + (size_t)a * (size_t)n, n);
    double against[TANDEM_MAX_REPLICATE] = {0}, without[TANDEM_MAX_REPLICATE] = {0};
    for (int cell = 0; cell < n_cell; cell++)
        for (int r = 0; r < n && share[cell] > 0; r++)
            against[r] += tandem_estimate_errors(estimate, a, cell)[r].against;
    for (int r = 0; r < n; r++) without[r] = first_order_without(estimate, a, own, against, has_bias, r);
    *half = tandem_jackknife_half(without, n);
    return first_order_without(estimate, a, own, against, has_bias, -1);
}
