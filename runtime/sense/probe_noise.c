/* probe_noise.c: what rounding the kept numbers adds to a gradient: squares of errors, or their variances,
 * times those of D (sensing_probe.c). */
#include "runtime/sense/probe_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sense/probe_loops.h"
#include "tandem/advanced/format.h"

/* Gradients in f16 have a loss scale: the largest power of two, up to 2^16, at which none overflows. */
static float scale_of(tandem_format format, float amax)
{
    const tandem_format_row *row = tandem_format_get(format);
    if (row->scale != TANDEM_FORMAT_SCALE_LOSS || !(amax > 0)) return 1;
    return exp2f(fminf(16, floorf(log2f((float)tandem_format_largest(row) / amax))));
}

/* a of x + a·(Q(x) − x), where errors are magnified. */
static double error_scale_of(const probe_run *run) { return run->age->emulation->error_scale; }

/* The squares of errors, or their variances, into run->room; of nearest rounding the errors themselves. */
static int round_kept(probe_run *run, const float *x, int64_t n, tandem_format format, float range,
                      float scale)
{
    const int is_drawn = tandem_format_get(format)->rounding == TANDEM_ROUNDING_STOCHASTIC;
    float *room = run->room;
    if (scale != 1) probe_scale(room, x, scale, n);
    const tandem_format_cast cast = {.format = format,
                                     .x = scale == 1 ? x : room,
                                     .rows = 1,
                                     .columns = n,
                                     .range = range,
                                     .error_scale = error_scale_of(run)};
    run->status = is_drawn ? tandem_format_variance(room, NULL, &cast, &run->error)
                           : tandem_format_round(room, NULL, &cast, &run->error);
    const float magnified = (float)(cast.error_scale * cast.error_scale); /* variances are those of a = 1 */
    for (int64_t i = 0; is_drawn && magnified != 1 && i < n; i++) room[i] *= magnified;
    if (!is_drawn) probe_subtract(room, 1 / scale, x, n); /* scales are powers of two */
    return is_drawn;
}

static const probe_operator *probed_operator_of(const probe_run *run, int op)
{
    for (int k = 0; k < run->n_op; k++)
        if (run->operator[k].op == op) return &run->operator[k];
    return NULL;
}

static void add_read_errors(float *sum, probe_run *run, const probe_operator *of, tandem_format format);

/* Adds to sum what the kept result of an operator is off: by its own rounding, and by what a sum reads. */
static void add_result_error(float *sum, probe_run *run, const probe_operator *of, tandem_format format)
{
    const probe_kept_tensor *y = &of->kept[KEPT_Y];
    float *const error = calloc((size_t)y->n, sizeof *error);
    if (!error) {
        run->status = tandem_no_memory(&run->error, "for the errors of a result");
        return;
    }
    add_read_errors(error, run, of, format);
    probe_add(error, y->x, y->n);
    const tandem_format_cast cast = {.format = format,
                                     .x = error,
                                     .rows = 1,
                                     .columns = y->n,
                                     .range = y->amax[PROBE_OWN_RANGE],
                                     .error_scale = error_scale_of(run)};
    if (run->status == TANDEM_OK) run->status = tandem_format_round(error, NULL, &cast, &run->error);
    probe_add_difference(sum, error, y->x, y->n);
    free(error);
}

/* The errors of narrow results that a bias or a sum reads, added to sum, as long as its kept result. */
static void add_read_errors(float *sum, probe_run *run, const probe_operator *of, tandem_format format)
{
    const tandem_graph *graph = run->age->step->graph;
    const tandem_op *op = &graph->op[of->op];
    if (op->kind != TANDEM_OP_BIAS && op->kind != TANDEM_OP_ADD) return;
    for (int slot = 0; slot < tandem_op_row_get(op->kind)->n_input && run->status == TANDEM_OK; slot++) {
        const probe_operator *input = probed_operator_of(run, graph->view[op->input[slot]]);
        if (input && input->formats[PROBE_RESULT] >> format & 1 &&
            input->kept[KEPT_Y].n == of->kept[KEPT_Y].n)
            add_result_error(sum, run, input, format);
    }
}

/* B times the variance over samples of Σ e·D, of the kept ones. */
static double noise_of_samples(const float *e, const float *d, int64_t n_sample, int64_t each, int64_t batch)
{
    double sum = 0, square = 0;
    for (int64_t s = 0; s < n_sample; s++) {
        const double u = probe_product(e + s * each, d + s * each, each);
        sum += u;
        square += u * u;
    }
    return (double)batch * (square - sum * sum / (double)n_sample) / (double)(n_sample - 1);
}

/* What is rounded: x, or in a result with the errors of what it sums. */
static const float *rounded_numbers(probe_run *run, const probe_operator *of, int part,
                                    const probe_kept_tensor *x, tandem_format format)
{
    if (part != PROBE_RESULT) return x->x;
    memcpy(run->read, x->x, (size_t)x->n * sizeof *run->read);
    add_read_errors(run->read, run, of, format);
    return run->read;
}

int probe_makes_jumps(const probe_operator *of, int part)
{
    return of->is_before_jump && part != PROBE_GRADIENT;
}

/* Adds the noise of a tensor x of samples in a format, whose D is in run->difference. */
static void add_format_noise(probe_run *run, probe_operator *of, int part, const probe_kept_tensor *x,
                             tandem_format f, int k, float range)
{
    const int64_t batch = run->age->sensing->batch, n = x->n, kept = x->n_sample;
    const float scale = part == PROBE_GRADIENT ? scale_of(f, x->amax[PROBE_OWN_RANGE]) : 1;
    const int is_drawn = round_kept(run, rounded_numbers(run, of, part, x, f), n, f, range, scale);
    double square = 0, *const noise = &of->noise[k][part][f][run->batch];
    if (is_drawn) {
        *noise =
            probe_weighted_squares(&square, run->room, run->difference, n) * (double)batch / (double)kept;
    } else {
        *noise = noise_of_samples(run->room, run->difference, kept, n / kept, batch);
        if (probe_makes_jumps(of, part)) square = probe_product(run->room, run->room, n);
    }
    of->error_square[k][part][f] += 0.5 * square / (double)n;
}

/* Whether noise has to be summed with wide ranges, too: else it is the same. */
static int has_wide_range(const probe_run *run, const probe_kept_tensor *x, int format)
{
    return run->age->sensing->range_batch > 0 &&
           tandem_format_get((tandem_format)format)->scale == TANDEM_FORMAT_SCALE_TENSOR &&
           x->amax[PROBE_WIDE_RANGE] > x->amax[PROBE_OWN_RANGE];
}

void probe_add_noise(probe_run *run, probe_operator *of, int part, const probe_kept_tensor *x,
                     const float *above, const float *below, float range)
{
    const double span = 2 * run->step[run->batch];
    const int b = run->batch;
    if (x->n == 0 || run->status != TANDEM_OK) return;
    probe_difference(run->difference, above, below, (float)(1 / span), x->n);
    if (probe_makes_jumps(of, part) && part != PROBE_RESULT)
        of->mean_square[part] += 0.5 * probe_mean_square(x->x, x->n);
    for (int f = 0; f < TANDEM_N_FORMAT && run->status == TANDEM_OK; f++) {
        if (!(of->formats[part] >> f & 1)) continue;
        const double before = of->error_square[PROBE_OWN_RANGE][part][f];
        add_format_noise(run, of, part, x, (tandem_format)f, PROBE_OWN_RANGE,
                         range > 0 ? range : x->amax[PROBE_OWN_RANGE]);
        if (!(range > 0) && has_wide_range(run, x, f)) {
            add_format_noise(run, of, part, x, (tandem_format)f, PROBE_WIDE_RANGE, x->amax[PROBE_WIDE_RANGE]);
        } else {
            of->noise[PROBE_WIDE_RANGE][part][f][b] = of->noise[PROBE_OWN_RANGE][part][f][b];
            of->error_square[PROBE_WIDE_RANGE][part][f] +=
                of->error_square[PROBE_OWN_RANGE][part][f] - before;
        }
    }
}

void probe_add_weight_noise(probe_run *run, probe_operator *of)
{
    const int64_t n = of->n_kept_weight;
    const double all = n > 0 ? (double)of->n_weight / (double)n : 0;
    of->mean_square[PROBE_WEIGHT] = probe_mean_square(of->w, n);
    for (int f = 0; f < TANDEM_N_FORMAT && run->status == TANDEM_OK && n > 0; f++) {
        if (!(of->formats[PROBE_WEIGHT] >> f & 1)) continue;
        const int is_drawn = round_kept(run, of->w, n, (tandem_format)f, of->amax, 1);
        double sum[PROBE_N_PAIR_SUM];
        if (!is_drawn) probe_square(run->room, n);
        probe_pair_sums(sum, run->room, of->difference[0], of->difference[1], n);
        of->cross[f] = all * sum[PROBE_PAIR_CROSS];
        for (int k = 0; k < N_PROBE_RANGE; k++) { /* one weight for all batches */
            for (int b = 0; b < 2; b++) of->noise[k][PROBE_WEIGHT][f][b] = all * sum[PROBE_PAIR_FIRST + b];
            of->error_square[k][PROBE_WEIGHT][f] = sum[PROBE_PAIR_WEIGHT] / (double)n;
        }
    }
}
