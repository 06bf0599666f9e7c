/* sampled.c: the sensitivity that follows from sampled errors of the gradient.
 *
 * Unit: more samples to the same loss, as a share. At held weights, g is the gradient of a batch, G its mean,
 * and d what a plan changes of it. A step along g makes the progress of one along G less what the noise of g
 * costs; by McCandlish et al. (arXiv:1812.06162, 2018), the samples to a loss grow as E|g|²/|G|². Noise of
 * the variance Var d comes on top of E|g|² = |G|² + Var g, so that φρ = Var d / E|g|² more samples are
 * needed (φ = Var g / E|g|², ρ = Var d / Var g). A mean E d that points against G takes
 * β = −⟨G, E d⟩/|G|² of the progress. Sensitivity: φρ + max(0, β), the mean over the points of a training.
 *
 * Which bias counts. A β of 0 that is known with the standard error s adds s/√(2π) = 0.4·s once it is clipped
 * at 0: to every operator, always upwards, and more to those that are known less. The noise, a mean of
 * squares, has no such term. So the bias of a cell counts where its own 95 % interval excludes 0, and is
 * otherwise left out of the value. It stays in the interval: its upper end has the bias of all cells, and
 * what that is not known to.
 *
 * Conversion. With B₀ samples estimated and B samples in a step, c = B₀/B:
 *   Var g          falls with the batch: c·V
 *   Var d          Its part from samples, S = E|d|² − ⟨d₁, d₂⟩, falls likewise: c·S. Its part from a weight
 *                  rounded at random, W = ⟨d₁, d₂⟩ − |E d|², does not: all samples and ranks read one rounded
 *                  weight. Each of m micro-steps rounds it again: W/m. Where weights round to nearest, the
 *                  error is the same in all steps: W = 0, and S = E|d|² − |E d|²
 *   E d, G         stay
 *
 * Ranges. A scale of a whole tensor follows from its largest number, which grows with the samples of a rank's
 * micro-step, and with it the noise: with its square where numbers are larger than a step, with itself where
 * they are smaller. So growth is estimated, not assumed: each replicate once more, with the ranges of K =
 * TANDEM_WIDE_RANGE times the samples, the same batches and draws. With b₀ samples in an estimated range, b
 * in that of a plan, and φ = ln(b/b₀)/ln K, the part of samples is
 *   φ ≥ 0   S + φ·(S_K − S): of normal tails the square of the largest of n numbers grows as ln n
 *   φ < 0   S²/(S − φ·(S_K − S)), as if it had grown alike up to b₀; as above where S_K ≤ S, by its error
 * Between b₀ and K·b₀ this interpolates, beyond it extrapolates. The part of weights stays: all batches read
 * one weight. Scales by row or block, and formats without a scale, have S_K = S.
 * A range also places the grid. Rounding to nearest, all samples of one range have errors in common that
 * other ranges have not: R = ⟨d₁, d₂⟩ − |E d|² of two batches with one range. That part of S does not fall
 * with the samples but with the ranges of a step, B/b: c·(S − R) + R·b/B. At random, errors have no mean:
 * R = 0.
 *
 * A class of ranks with the part f of the samples in a precision has f·c·S and f·β. Its weights' part would
 * be between f²·W and f·W, by how many classes round that weight alike; f·W is taken, the safe side.
 *
 * Noise that all-reduces add to the gradient of all samples has the variance φ_r·E|g|² (predictor.h), and is
 * φ_r in any metric. As the method's sensitivities are of operators, the first one carries it, in every
 * precision.
 *
 * What is left out: noise of different operators is taken as independent; operators that read one cast have
 * one draw, and are counted as if each had its own. A bias is that of the ranges that were estimated.
 *
 * Squares of means (|G|², |E d|², ⟨G, E d⟩) are means over pairs of replicates, so they have no floor, and
 * may come out negative. With U the mean over all pairs and u that over the pairs of one replicate of R,
 * U without this replicate is (R·U − 2u)/(R − 2). The interval is the jackknife's over replicates.
 *
 * Cost: two gradients per operator, precision, training point and replicate, three more where a tensor has a
 * scale, and two in fp32 per training point and replicate. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_cdf.h>

#include "predictor/methods.h"
#include "tandem/advanced/format.h"

/* The sums of a plan at one training point, over replicates. */
typedef struct sampled_sums {
    double variance, mean_square;                /* of the gradient */
    double total, shared, error_square, against; /* of its error; shared and error_square: drawn weights */
    double fixed_square;                         /* error_square where weights are not drawn */
    double counted;                              /* `against` of the cells whose bias differs from 0 */
} sampled_sums;

static void add_replicate(sampled_sums *sums, const sampled_sums *draw, double by)
{
    sums->variance += by * draw->variance;
    sums->mean_square += by * draw->mean_square;
    sums->total += by * draw->total;
    sums->shared += by * draw->shared;
    sums->error_square += by * draw->error_square;
    sums->against += by * draw->against;
    sums->fixed_square += by * draw->fixed_square;
    sums->counted += by * draw->counted;
}

typedef struct sampled_parts {
    double noise, bias, counted;
    int has_bias; /* |G|² came out positive */
} sampled_parts;

/* means: over the replicates, of pairs over all pairs. */
static sampled_parts parts_of_means(const sampled_sums *means, const tandem_estimate *estimate,
                                    const tandem_sensitivity_step *step)
{
    const double c = (double)estimate->batch / (double)step->global_batch;
    const double of_samples = means->total - means->shared - means->fixed_square,
                 of_weights = means->shared - means->error_square;
    const double square = c * means->variance + fmax(means->mean_square, 0);
    return (sampled_parts){.noise =
                               (c * of_samples + of_weights / step->n_micro) / square + step->gradient_noise,
                           .bias = means->against / means->mean_square,
                           .counted = means->counted / means->mean_square,
                           .has_bias = means->mean_square > 0 && !estimate->without_bias};
}

/* Means without replicate `left_out`; < 0: of all. */
static sampled_sums means_without(const sampled_sums *replicate, int n, int left_out)
{
    sampled_sums means = {0};
    for (int r = 0; r < n; r++) add_replicate(&means, &replicate[r], 1.0 / n);
    if (left_out < 0) return means;
    const sampled_sums *draw = &replicate[left_out];
    const double all = (double)n / (n - 1), own = 1.0 / (n - 1);
    const double pairs = (double)n / (n - 2), own_pairs = 2.0 / (n - 2);
    return (sampled_sums){.variance = all * means.variance - own * draw->variance,
                          .total = all * means.total - own * draw->total,
                          .shared = all * means.shared - own * draw->shared,
                          .mean_square = pairs * means.mean_square - own_pairs * draw->mean_square,
                          .error_square = pairs * means.error_square - own_pairs * draw->error_square,
                          .fixed_square = pairs * means.fixed_square - own_pairs * draw->fixed_square,
                          .against = pairs * means.against - own_pairs * draw->against,
                          .counted = pairs * means.counted - own_pairs * draw->counted};
}

/* replicate: [n_point × n_replicate] */
static sampled_parts parts_over_points(double at_point[TANDEM_MAX_TRAINING_POINT],
                                       const sampled_sums *replicate, const tandem_estimate *estimate,
                                       const tandem_sensitivity_step *step, int left_out)
{
    sampled_parts mean = {.has_bias = 1};
    for (int a = 0; a < estimate->n_point; a++) {
        const int n = estimate->n_replicate;
        const sampled_sums means = means_without(replicate + (size_t)a * (size_t)n, n, left_out);
        const sampled_parts parts = parts_of_means(&means, estimate, step);
        mean.noise += parts.noise / estimate->n_point;
        mean.has_bias = mean.has_bias && parts.has_bias;
        if (mean.has_bias) mean.bias += parts.bias / estimate->n_point;
        if (mean.has_bias) mean.counted += parts.counted / estimate->n_point;
        if (at_point) at_point[a] = parts.noise + (parts.has_bias ? fmax(parts.counted, 0) : 0);
    }
    if (!mean.has_bias) mean.bias = mean.counted = NAN;
    return mean;
}

double tandem_jackknife_half(const double *without, int n)
{
    double mean = 0, square = 0;
    for (int r = 0; r < n; r++) mean += without[r] / n;
    for (int r = 0; r < n; r++) square += (without[r] - mean) * (without[r] - mean);
    return gsl_cdf_tdist_Pinv(0.975, n - 1) * sqrt(square * (n - 1) / n);
}

/* Halves of the intervals of the parts, as parts; has_bias: of all means without one replicate. */
static sampled_parts halves_of_replicates(const sampled_sums *replicate, const tandem_estimate *estimate,
                                          const tandem_sensitivity_step *step)
{
    const int n = estimate->n_replicate;
    double noise[TANDEM_MAX_REPLICATE] = {0}, bias[TANDEM_MAX_REPLICATE] = {0},
           counted[TANDEM_MAX_REPLICATE] = {0};
    int has_bias = 1;
    for (int r = 0; r < n; r++) {
        const sampled_parts parts = parts_over_points(NULL, replicate, estimate, step, r);
        noise[r] = parts.noise;
        bias[r] = parts.bias;
        counted[r] = parts.counted;
        has_bias = has_bias && parts.has_bias;
    }
    return (sampled_parts){.noise = tandem_jackknife_half(noise, n),
                           .bias = has_bias ? tandem_jackknife_half(bias, n) : NAN,
                           .counted = has_bias ? tandem_jackknife_half(counted, n) : 0,
                           .has_bias = has_bias};
}

/* The bias is clipped at 0, and so is what its interval adds on either side. */
static void sensitivity_of_replicates(tandem_sensitivity_estimate *to, const sampled_sums *replicate,
                                      const tandem_estimate *estimate, const tandem_sensitivity_step *step)
{
    const sampled_parts all = parts_over_points(to->at_point, replicate, estimate, step, -1),
                        half = halves_of_replicates(replicate, estimate, step);
    const int has_bias = all.has_bias && half.has_bias;
    to->noise = all.noise;
    to->noise_half = half.noise;
    to->bias = has_bias ? all.bias : NAN;
    to->bias_half = has_bias ? half.bias : NAN;
    const double counted = has_bias ? fmax(all.counted, 0) : 0;
    const double below = has_bias ? counted - fmax(all.counted - half.counted, 0) : 0;
    const double highest = has_bias ? fmax(all.counted + half.counted, all.bias + half.bias) : 0;
    to->value = fmax(all.noise, 0) + counted;
    to->low = fmax(to->value - hypot(half.noise, below), 0);
    to->high = to->value + hypot(half.noise, fmax(highest - counted, 0));
}

int tandem_precision_draws_weights(tandem_precision precision)
{
    const tandem_format format = tandem_format_of_dtype(tandem_precision_get(precision)->forward);
    return format != TANDEM_N_FORMAT && tandem_format_get(format)->rounding == TANDEM_ROUNDING_STOCHASTIC;
}

/* What the part of samples takes of its growth S_K − S at a point: φ, and less where it is below 0. */
static double share_of_growth(const tandem_estimated_error *estimated, int n, int is_drawn, double phi)
{
    double samples = 0, growth = 0;
    for (int r = 0; r < n; r++) {
        samples += estimated[r].total - (is_drawn ? estimated[r].shared : estimated[r].mean_square);
        growth += estimated[r].wide_total - estimated[r].total;
        if (!is_drawn) growth -= estimated[r].wide_mean_square - estimated[r].mean_square;
    }
    if (phi >= 0 || growth <= 0) return phi;
    return samples > 0 ? phi * samples / (samples - phi * growth) : 0;
}

/* The replicates of a cell alone, [n_point × n_replicate], over those of the gradient, with the ranges of so
 * many samples; 0: of those that were estimated. */
static void fill_cell_sums(sampled_sums *alone, const tandem_estimate *estimate, int cell, double micro_batch)
{
    const int n = estimate->n_replicate,
              is_drawn = tandem_precision_draws_weights(
                  (tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION));
    const int converts = micro_batch > 0 && estimate->range_batch > 0;
    const double phi =
        converts ? log(micro_batch / (double)estimate->range_batch) / log(TANDEM_WIDE_RANGE) : 0;
    /* R, by what c·S leaves of it */
    const double more_ranges = converts && !is_drawn ? micro_batch / (double)estimate->batch - 1 : 0;
    for (int i = 0; i < estimate->n_point * n; i++) {
        const tandem_estimated_error *at_point = tandem_estimate_errors(estimate, i / n, cell),
                                     *of = &at_point[i % n];
        const double by = phi == 0 ? 0 : share_of_growth(at_point, n, is_drawn, phi),
                     more_total = by * (of->wide_total - of->total) + more_ranges * of->wide_shared,
                     more_mean =
                         by * (of->wide_mean_square - of->mean_square) + more_ranges * of->wide_mean_square;
        alone[i] = (sampled_sums){.variance = estimate->gradient[i].variance,
                                  .mean_square = estimate->gradient[i].mean_square,
                                  .total = of->total + more_total,
                                  .shared = is_drawn ? of->shared : 0,
                                  .error_square = is_drawn ? of->mean_square : 0,
                                  .fixed_square = is_drawn ? 0 : of->mean_square + more_mean,
                                  .against = of->against};
    }
}

/* Whether the interval of a cell's bias excludes 0. It does not depend on the step. */
static int is_bias_nonzero(const sampled_sums *alone, const tandem_estimate *estimate)
{
    const tandem_sensitivity_step step = {.global_batch = estimate->batch, .n_micro = 1};
    const sampled_parts all = parts_over_points(NULL, alone, estimate, &step, -1),
                        half = halves_of_replicates(alone, estimate, &step);
    return all.has_bias && half.has_bias && fabs(all.bias) > half.bias;
}

/* Adds the replicates of every cell with a share. alone: room for [n_point × n_replicate]. */
static tandem_status add_cells(sampled_sums *replicate, sampled_sums *alone, const tandem_estimate *estimate,
                               const double *share, const double *micro_batch, tandem_error *error)
{
    const int n_cell = estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    for (int cell = 0; cell < n_cell; cell++) {
        if (share[cell] == 0) continue;
        if (!estimate->is_estimated[cell])
            return tandem_error_set(
                error, TANDEM_MISSING, "operator %d has no estimate in precision %s",
                cell / TANDEM_N_AMP_DTYPE / TANDEM_N_PRECISION,
                tandem_precision_get((tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION))
                    ->name);
        fill_cell_sums(alone, estimate, cell, micro_batch ? micro_batch[cell] : 0);
        const int is_nonzero = is_bias_nonzero(alone, estimate);
        for (int i = 0; i < estimate->n_point * estimate->n_replicate; i++) {
            alone[i].variance = alone[i].mean_square = 0; /* the gradient is one for all cells */
            alone[i].counted = is_nonzero ? alone[i].against : 0;
            add_replicate(&replicate[i], &alone[i], share[cell]);
        }
    }
    return TANDEM_OK;
}

/* *replicate: [n_point × n_replicate], the sums of a plan, and room after them; the caller frees it. */
static tandem_status open_plan_sums(sampled_sums **replicate, const tandem_estimate *estimate,
                                    const double *share, const tandem_sensitivity_step *step,
                                    tandem_error *error)
{
    const int n = estimate->n_point * estimate->n_replicate;
    double variance = 0;
    if (step->global_batch < 1 || step->n_micro < 1)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "a sensitivity needs a step of 1 sample or more, and of 1 micro-step or more");
    sampled_sums *sums = calloc(2 * (size_t)n, sizeof *sums);
    if (!sums) return tandem_no_memory(error, "for the replicates of a sensitivity");
    for (int i = 0; i < n; i++) {
        sums[i].variance = estimate->gradient[i].variance;
        sums[i].mean_square = estimate->gradient[i].mean_square;
        variance += sums[i].variance;
    }
    tandem_status status = add_cells(sums, sums + n, estimate, share, step->micro_batch, error);
    if (status == TANDEM_OK && !(variance > 0))
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "the gradients of all batches are equal, so that they have no variance; "
                                  "estimate with data of more than one class");
    if (status == TANDEM_OK)
        *replicate = sums;
    else
        free(sums);
    return status;
}

tandem_status tandem_estimate_sensitivity(tandem_sensitivity_estimate *to, const tandem_estimate *estimate,
                                          const double *share, const tandem_sensitivity_step *step,
                                          tandem_error *error)
{
    sampled_sums *replicate = NULL;
    const tandem_status status = open_plan_sums(&replicate, estimate, share, step, error);
    if (status == TANDEM_OK) sensitivity_of_replicates(to, replicate, estimate, step);
    free(replicate);
    return status;
}

/* Whether the bias of a plan may count: it is known, and its interval does not lie below 0. */
static int has_counted_bias(const tandem_sensitivity_estimate *e) { return e->bias + e->bias_half > 0; }

static tandem_sensitivity_difference difference_of_replicates(const sampled_sums *more,
                                                              const sampled_sums *less,
                                                              const tandem_estimate *estimate,
                                                              const tandem_sensitivity_step *step)
{
    double noise[TANDEM_MAX_REPLICATE], bias[TANDEM_MAX_REPLICATE];
    tandem_sensitivity_estimate of_more = {0}, of_less = {0};
    sensitivity_of_replicates(&of_more, more, estimate, step);
    sensitivity_of_replicates(&of_less, less, estimate, step);
    for (int r = 0; r < estimate->n_replicate; r++) {
        const sampled_parts a = parts_over_points(NULL, more, estimate, step, r),
                            b = parts_over_points(NULL, less, estimate, step, r);
        noise[r] = a.noise - b.noise;
        bias[r] = a.bias - b.bias;
    }
    const int is_counted = has_counted_bias(&of_more) || has_counted_bias(&of_less);
    const double value = of_more.value - of_less.value,
                 half = hypot(tandem_jackknife_half(noise, estimate->n_replicate),
                              is_counted ? tandem_jackknife_half(bias, estimate->n_replicate) : 0);
    return (tandem_sensitivity_difference){value, value - half, value + half};
}

tandem_status tandem_estimate_compare(tandem_sensitivity_difference *difference,
                                      const tandem_estimate *estimate, const double *more,
                                      const tandem_sensitivity_step *step, const double *less,
                                      const tandem_sensitivity_step *step_of_less, tandem_error *error)
{
    sampled_sums *of_more = NULL, *of_less = NULL;
    tandem_status status = open_plan_sums(&of_more, estimate, more, step, error);
    if (status == TANDEM_OK) status = open_plan_sums(&of_less, estimate, less, step_of_less, error);
    if (status == TANDEM_OK) *difference = difference_of_replicates(of_more, of_less, estimate, step);
    free(of_less);
    free(of_more);
    return status;
}

/* --- The method ------------------------------------------------------------------------------------------
 * */

/* In percent, one operator at a time, clipped at 0: a plan's sensitivity is at most their sum. */
static tandem_status sampled_compute(double *sensitivity, const tandem_graph *graph,
                                     const tandem_estimate *estimate, const tandem_sensitivity_step *step,
                                     tandem_dtype amp_dtype, unsigned precisions, tandem_error *error)
{
    const size_t n_cell = (size_t)graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    double *const share = calloc(2 * (n_cell + 1), sizeof *share), *const micro_batch =
                                                                       share ? share + n_cell : NULL;
    const tandem_sensitivity_step without_noise = {
        .global_batch = step->global_batch, .n_micro = step->n_micro, .micro_batch = micro_batch};
    tandem_status status =
        share ? TANDEM_OK : tandem_no_memory(error, "for the shares of %d operators", graph->n_op);
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION && status == TANDEM_OK; i++) {
        const int op = i / TANDEM_N_PRECISION;
        const tandem_precision precision = (tandem_precision)(i % TANDEM_N_PRECISION);
        tandem_sensitivity_estimate of_operator = {0};
        sensitivity[i] = 0;
        if (precision == TANDEM_PRECISION_FP32 ||
            !(tandem_op_row_get(graph->op[op].kind)->precisions & 1u << precision))
            continue;
        const int cell = tandem_estimate_cell(op, precision, amp_dtype);
        if (!estimate->is_estimated[cell] && !(precisions >> precision & 1)) continue;
        if (!estimate->is_estimated[cell])
            status = tandem_error_set(
                error, TANDEM_MISSING,
                "operator '%s' of model %s has no estimate in %s; estimate it again with "
                "`tandem sensitivity --model %s --data DATA`",
                graph->op[op].name, graph->model, tandem_precision_get(precision)->name, graph->model);
        share[cell] = 1;
        micro_batch[cell] = (double)graph->batch;
        if (status == TANDEM_OK)
            status = tandem_estimate_sensitivity(&of_operator, estimate, share, &without_noise, error);
        share[cell] = 0;
        sensitivity[i] = 100 * of_operator.value;
    }
    int first = 0;
    while (first < graph->n_op && !tandem_op_is_adjustable(&graph->op[first])) first++;
    for (int p = 0; p < TANDEM_N_PRECISION && first < graph->n_op; p++)
        sensitivity[first * TANDEM_N_PRECISION + p] += 100 * step->gradient_noise;
    free(share);
    return status;
}

const tandem_sensitivity_method tandem_sensitivity_sampled = {
    .name = "sampled",
    .meaning = "more samples to the same loss in percent, from what the precision changes of real gradients",
    .unit = "%",
    .compute_estimated = sampled_compute,
};
