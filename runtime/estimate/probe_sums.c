/* probe_sums.c: what rounding does to a gradient: from the kept numbers of tensors to the error of a cell
 * (estimate_probe.c has the derivation). */
#include <math.h>

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>

#include "runtime/estimate/probe_loops.h"
#include "tandem/advanced/probe.h"

/* --- Noise of a tensor ---------------------------------------------------------------------------------- */

/* Whether what a part rounds makes units after it switch. Else no mean square is read. */
static int part_makes_jumps(const tandem_probe_sums *sums, int part)
{
    return sums->is_before_jump && part != TANDEM_PROBE_GRADIENT;
}

void tandem_probe_add_square(tandem_probe_sums *sums, const tandem_probe_tensor *of)
{
    const double square = of->n > 0 ? tandem_probe_square(of->x, of->n) / (double)of->n : 0;
    if (of->part == TANDEM_PROBE_WEIGHT)
        sums->mean_square[of->part] = square;
    else if (part_makes_jumps(sums, of->part) && of->part != TANDEM_PROBE_RESULT)
        sums->mean_square[of->part] += 0.5 * square;
}

void tandem_probe_add_rate(tandem_probe_sums *sums, const float *difference, int64_t n)
{
    if (sums->is_before_jump && n > 0)
        sums->rate_square += 0.5 * (tandem_probe_square(difference, n) / (double)n);
}

/* Gradients in f16 have a loss scale: the largest power of two, up to 2^16, at which none overflows. */
static float loss_scale_of(tandem_format format, const tandem_probe_tensor *of)
{
    const tandem_format_row *row = tandem_format_get(format);
    if (of->part != TANDEM_PROBE_GRADIENT || row->scale != TANDEM_FORMAT_SCALE_LOSS || !(of->range > 0))
        return 1;
    return exp2f(fminf(16, floorf(log2f((float)tandem_format_largest(row) / of->range))));
}

static int draws_numbers(tandem_format format)
{
    return tandem_format_get(format)->rounding == TANDEM_ROUNDING_STOCHASTIC;
}

/* Of formats that draw the variances, else the errors themselves. */
static tandem_status round_to_errors(float *room, const tandem_probe_tensor *of, tandem_format format,
                                     tandem_error *error)
{
    const float scale = loss_scale_of(format, of);
    if (scale != 1) probe_scale(room, of->x, scale, of->n);
    const tandem_format_cast cast = {.format = format,
                                     .x = scale == 1 ? of->x : room,
                                     .rows = 1,
                                     .columns = of->n,
                                     .range = of->range,
                                     .error_scale = of->error_scale};
    const tandem_status status = draws_numbers(format) ? tandem_format_variance(room, NULL, &cast, error)
                                                       : tandem_format_round(room, NULL, &cast, error);
    const float magnified = (float)(of->error_scale * of->error_scale); /* variances are those of a = 1 */
    if (status != TANDEM_OK) return status;
    for (int64_t i = 0; draws_numbers(format) && magnified != 1 && i < of->n; i++) room[i] *= magnified;
    if (!draws_numbers(format)) probe_subtract(room, 1 / scale, of->x, of->n); /* scales are powers of two */
    return TANDEM_OK;
}

/* The batch's samples times the variance over samples of Σ e·D, of the kept ones. */
static double noise_of_samples(const float *e, const tandem_probe_tensor *of)
{
    const int64_t each = of->n / of->n_sample;
    double sum = 0, square = 0;
    for (int64_t s = 0; s < of->n_sample; s++) {
        const double u = probe_product(e + s * each, of->difference[0] + s * each, each);
        sum += u;
        square += u * u;
    }
    return (double)of->batch * (square - sum * sum / (double)of->n_sample) / (double)(of->n_sample - 1);
}

static void add_tensor_noise(tandem_probe_sums *sums, float *e, const tandem_probe_tensor *of,
                             tandem_format format)
{
    double square = 0, *const noise = &sums->noise[of->part][format][of->place];
    if (of->n_sample > 0 && !draws_numbers(format)) {
        *noise = noise_of_samples(e, of);
        if (part_makes_jumps(sums, of->part)) square = probe_product(e, e, of->n);
    } else {
        if (!draws_numbers(format)) probe_square_each(e, of->n);
        *noise = probe_weighted_squares(&square, e, of->difference[0], of->n) * of->share;
    }
    sums->error_square[of->part][format] += 0.5 * square / (double)of->n;
}

/* Both batches read one rounded weight. */
static void set_weight_noise(tandem_probe_sums *sums, float *e, const tandem_probe_tensor *of,
                             tandem_format format)
{
    double sum[PROBE_N_PAIR_SUM];
    if (!draws_numbers(format)) probe_square_each(e, of->n);
    probe_pair_sums(sum, e, of->difference[0], of->difference[1], of->n);
    for (int b = 0; b < 2; b++)
        sums->noise[TANDEM_PROBE_WEIGHT][format][b] = of->share * sum[PROBE_PAIR_FIRST + b];
    sums->cross[format] = of->share * sum[PROBE_PAIR_CROSS];
    sums->error_square[TANDEM_PROBE_WEIGHT][format] = sum[PROBE_PAIR_WEIGHT] / (double)of->n;
}

tandem_status tandem_probe_add_noise(tandem_probe_sums *sums, float *room, const tandem_probe_tensor *tensor,
                                     tandem_format format, tandem_error *error)
{
    if (tensor->n < 1) return TANDEM_OK;
    const tandem_status status = round_to_errors(room, tensor, format, error);
    if (status != TANDEM_OK) return status;
    if (tensor->part == TANDEM_PROBE_WEIGHT)
        set_weight_noise(sums, room, tensor, format);
    else
        add_tensor_noise(sums, room, tensor, format);
    return TANDEM_OK;
}

/* --- Jumps ---------------------------------------------------------------------------------------------- */

int tandem_probe_log_ratios(double *log_ratio, const tandem_probe_sums *sums)
{
    int n = 0;
    for (int i = 0; i < TANDEM_N_PROBE_PART * TANDEM_N_FORMAT; i++) {
        const double *noise = sums->noise[i / TANDEM_N_FORMAT][i % TANDEM_N_FORMAT];
        const int is_known = noise[0] > 0 && noise[1] > 0 && isfinite(noise[0]) && isfinite(noise[1]);
        if (part_makes_jumps(sums, i / TANDEM_N_FORMAT) && is_known)
            log_ratio[n++] = log(noise[0] / noise[1]);
    }
    return n;
}

double tandem_probe_jump_ratio(double *log_ratio, int n)
{
    if (n == 0) return 1;
    gsl_sort(log_ratio, 1, (size_t)n);
    return fmax(1, exp(gsl_stats_median_from_sorted_data(log_ratio, 1, (size_t)n)));
}

/* α: the part of the small step. */
static double share_of_small_step(const tandem_probe_sums *sums, int part, tandem_format f,
                                  const double step[2])
{
    const int other = part != TANDEM_PROBE_INPUT ? TANDEM_PROBE_INPUT
                      : sums->has_second         ? TANDEM_PROBE_SECOND
                                                 : TANDEM_PROBE_WEIGHT;
    const double first = 1 / step[0], last = 1 / step[1];
    const double by = part == TANDEM_PROBE_RESULT || !(sums->n_products > 0)
                          ? 1
                          : sums->n_products * sums->mean_square[other];
    const double moved = sqrt(by * sums->error_square[part][f]);
    if (!(moved > 0)) return 1;
    return (fmin(fmax(2 * sqrt(sums->rate_square) / moved, last), first) - last) / (first - last);
}

static double noise_of_part(const tandem_probe_sums *sums, int part, tandem_format f, const double step[2],
                            double q)
{
    const double *noise = sums->noise[part][f];
    if (!part_makes_jumps(sums, part)) return 0.5 * (noise[0] + noise[1]);
    const double small = share_of_small_step(sums, part, f, step);
    return 0.5 * (small * q + 1 - small) * (noise[0] / q + noise[1]);
}

/* --- Cells and gradients -------------------------------------------------------------------------------- */

void tandem_probe_add_error(tandem_estimated_error *error, const tandem_probe_sums *sums,
                            const tandem_format formats[TANDEM_N_PROBE_PART], const double step[2], double q)
{
    for (int part = 0; part < TANDEM_N_PROBE_PART; part++) {
        const tandem_format f = formats[part];
        if (f == TANDEM_N_FORMAT) continue;
        error->total += noise_of_part(sums, part, f, step, q);
        if (part != TANDEM_PROBE_WEIGHT) continue;
        if (draws_numbers(f))
            error->shared += sums->cross[f];
        else
            error->total -= sums->cross[f];
    }
}

/* A cast that overflows in some replicate has lost its gradient there. */
static void set_lost_errors(tandem_estimate *estimate, int point_index)
{
    static const double lost = 1e6; /* in gradients' mean squares */
    const int n = estimate->n_replicate, n_cell = estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    double largest = 0;
    for (int r = 0; r < n; r++) {
        const tandem_estimated_gradient *of = &estimate->gradient[point_index * n + r];
        largest = fmax(largest, of->variance + fabs(of->mean_square));
    }
    for (int i = 0; i < n_cell * n; i++) {
        tandem_estimated_error *of = &tandem_estimate_errors(estimate, point_index, i / n)[i % n];
        if (estimate->is_estimated[i / n] && !(isfinite(of->total) && isfinite(of->shared)))
            *of = (tandem_estimated_error){.total = lost * largest, .wide_total = lost * largest};
    }
}

void tandem_probe_set_gradients(tandem_estimate *estimate, int point_index, const float *sketch)
{
    const int n = estimate->n_replicate, size = TANDEM_PROBE_SKETCH;
    float all[TANDEM_PROBE_SKETCH] = {0};
    for (int b = 0; b < 2 * n; b++) probe_add(all, sketch + (size_t)b * TANDEM_PROBE_SKETCH, size);
    for (int r = 0; r < n; r++) {
        const float *one = sketch + (size_t)r * 2 * TANDEM_PROBE_SKETCH, *two = one + TANDEM_PROBE_SKETCH;
        const double same = probe_product(one, two, size),
                     own = tandem_probe_square(one, size) + tandem_probe_square(two, size),
                     with_all = probe_product(one, all, size) + probe_product(two, all, size);
        estimate->gradient[point_index * n + r] = (tandem_estimated_gradient){
            .variance = 0.5 * own - same, .mean_square = (with_all - own - 2 * same) / (4.0 * (n - 1))};
    }
    set_lost_errors(estimate, point_index);
}
