/* sensing_probe.c: the noise that rounding puts into gradients, of all operators and precisions at once.
 *
 * The loss of a batch is L(w, x) with a tensor x that is cast. Rounding x by ξ changes the gradient by
 * (∂²L/∂w∂x)·ξ to first order. For a direction z of random signs in the optimizer's metric, E zzᵀ = 1, the
 * mean of (zᵀ(∂²L/∂w∂x)ξ)² over z is the square of that change. Mixed derivatives commute: it is the product
 * of ξ with
 *     D = (∂L/∂x(w + εz) − ∂L/∂x(w − εz)) / 2ε,
 * so that two gradients serve all casts and formats. What D is taken of, by what is rounded:
 *   input     the gradient that the operator returns for it; forward and weight gradient read one copy
 *   weight    the weight's gradient; forward and input gradient read one copy
 *   gradient  of the output: it enters all weight gradients below linearly, so D is that of the output
 *   result    the gradient of the output
 * A narrow result makes the operators behind it narrow that only depend on it: biases, norms, sums. Each
 * rounds its own result, and where its backward pass computes numbers, so that they differ from those that it
 * was given, its gradient. What only picks or moves numbers rounds nothing. A sum reads numbers that are on
 * the format's grid already, so that its errors are not drawn anew: a bias below half a step is lost as a
 * whole, the same in every token. So its error is that of rounding the sum of rounded numbers.
 *
 * Noise, by replicates of two batches with one z (predictor/sampled.c has the parts):
 *   drawn               Σ v·D², v: the variance of each element; of a weight, which both batches read, shared
 *                       between them: Σ v·D₁·D₂
 *   nearest, samples    The error e is known, and equal numbers of a sample have equal errors: a sample adds
 *                       u = Σ e·D. Samples are independent, so the noise of B of them is B times the variance
 *                       of u over samples. What all have in common is bias.
 *   nearest, a weight   Its error is that of all steps. Noise is what differs between batches: with the
 *                       numbers' errors independent, ½Σ e²·(D₁ − D₂)².
 *
 * Slopes that jump. Behind an operator a relu switches where a ∈ (−|δ|, 0): with probability f·E|δ|, f: the
 * density of a at 0, δ: what rounding moves it. That changes zᵀ∂L/∂w by c·ȧ (ȧ = ∂a/∂w·z), and the true
 * square is f·E|δ|·c²ȧ². D sees a switch with probability f·2ε|ȧ|, as c·δ/2ε: the square f·|ȧ|c²·Eδ²/2ε.
 * With δ and ȧ normal, of the deviations σ and s, both means are equal for
 *     2ε*·s = σ:
 * the step over which D is taken has to move what is behind as far as rounding does. Of two steps ε₁ < ε* <
 * ε₂, one a batch, the smooth part is in both and the jumps' part falls as 1/ε: α and 1 − α with α/ε₁ +
 * (1 − α)/ε₂ = 1/ε* give it at ε*: α·N₁ + (1 − α)·N₂, by the noises N at both steps. σ and s are taken at the
 * operator's output. A rounded gradient switches nothing, and neither does what has no relu or maximum behind
 * it: there both batches say the same, and (N₁ + N₂)/2 counts.
 *
 * So written, an operator of small errors (α = 1) has N₁ alone: one batch, that in which fewer units switch
 * and each counts for more. But how much of a noise is jumps is much the same for all that stands before
 * them. With the model's ratio q = N₁/N₂ either batch tells the noise at ε*, as N₁·(αq + 1 − α)/q and as
 * N₂·(αq + 1 − α). Their mean counts. q is the median over operators, parts and formats of the replicate,
 * and at least 1: noise at the smaller step cannot be less. What all operators of a batch have in common
 * cancels in it. Against `sampled` with 40 replicates this put operators of four models with relus into a
 * better order, by a tau of 0.04 to 0.12 in the mean of six draws; `tandem study rank` judges none of them.
 *
 * Sums run over the first samples of a batch, and over every so many numbers of a weight: a few thousand
 * each, which bounds memory and time. The kept numbers of the pass above, w + εz, wait for the one below, in
 * what the probe's smaller batch leaves of the training's memory.
 *
 * What is left out: bias. Sums of gradients that arrive over several edges. Of int8, that its backward pass
 * reads another copy of the weight. */
#include "cli/sensing_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>

#include "cli/probe_loops.h"
#include "tandem/advanced/format.h"

static const double small_step = 0x1p-10, large_step = 0x1p-6; /* of the weights' root mean square */
enum {
    KEPT_NUMBERS = 4096, /* of a tensor of samples, but */
    KEPT_SAMPLES = 2,    /* at the least */
    KEPT_WEIGHTS = 2048
};

enum { ABOVE, BELOW };
/* Of a whole batch of the training, and of up to TANDEM_WIDE_RANGE of them. */
enum { OWN_RANGE, WIDE_RANGE, N_PROBE_RANGE };
enum probe_part { PROBE_INPUT, PROBE_SECOND, PROBE_GRADIENT, PROBE_RESULT, PROBE_WEIGHT, N_PROBE_PART };

/* Of a tensor of samples: those that are kept. */
typedef struct kept_tensor {
    float *x; /* [n] */
    int64_t n, n_sample, capacity;
    int is_own;    /* else in the spare memory */
    int is_costly; /* the probe computes its gradient itself: no more samples than needed */
    float amax_of[TANDEM_WIDE_RANGE * PROBE_RANGE_BATCHES]; /* of the whole tensor, in the last batches */
    float amax[N_PROBE_RANGE];                              /* of these, as far as a range reaches */
} kept_tensor;

enum kept_kind { KEPT_X, KEPT_X2, KEPT_Y, KEPT_G, KEPT_DX, KEPT_DX2, N_KEPT };

typedef struct probe_operator {
    int op, is_adjustable, is_before_jump; /* a slope behind it jumps */
    int gradient_task;                     /* the first that reads the gradient of its output */
    unsigned formats[N_PROBE_PART];        /* that some cell asks for: bit f */
    kept_tensor kept[N_KEPT];
    /* every `stride`-th number of the weight */
    int64_t n_weight, stride, n_kept_weight;
    float *w, *w_above, *difference[2], amax;
    double mean_square[N_PROBE_PART]; /* of what is rounded, over both batches */
    double error_square[N_PROBE_RANGE][N_PROBE_PART][TANDEM_N_FORMAT]; /* mean, over both batches */
    double rate_square; /* of the output, by unit of ε: mean, over both batches */
    double noise[N_PROBE_RANGE][N_PROBE_PART][TANDEM_N_FORMAT][2], cross[TANDEM_N_FORMAT];
} probe_operator;

typedef struct probe_run {
    const probe_age *age;
    tandem_step *plan; /* a step program for the dtypes of one cell at a time */
    int n_op;
    probe_operator *operator;            /* [n_op] adjustable ones, and those that may depend on them */
    float *weight;                       /* of the executor, [n_flat] */
    double jump_ratio;                   /* q, of the replicate */
    double *log_ratio;                   /* room for the median */
    probe_direction direction, sketched; /* z, and what gradients are summed by */
    float *room, *difference, *read;     /* of the largest kept tensor */
    char *spare;                         /* memory of the training that its executor does not use meanwhile */
    uint64_t n_spare;
    int64_t room_size;
    double step[2]; /* of the two batches */
    int batch, place, n_batch_seen;
    tandem_status status;
    tandem_error error;
} probe_run;

/* --- Directions ----------------------------------------------------------------------------------------- */

/* Adds half of the last gradient to a sum of it. */
static void add_to_sketch(float *sketch, const probe_run *run)
{
    const probe_age *age = run->age;
    const float *const first = age->backend->executor_value(age->executor, TANDEM_PARAMETER(0), 1, NULL);
    probe_direction_project(sketch, PROBE_SKETCH, &run->sketched, 0.5F,
                            first - age->step->parameter_start[0]);
}

/* --- What is kept --------------------------------------------------------------------------------------- */

static int64_t count_kept_samples(const kept_tensor *of, int64_t batch, int64_t n)
{
    const int64_t fit = of->is_costly ? KEPT_SAMPLES : KEPT_NUMBERS / (n / batch),
                  kept = fit > KEPT_SAMPLES ? fit : KEPT_SAMPLES;
    return kept < batch ? kept : batch;
}

static void close_rooms(probe_run *run)
{
    free(run->room);
    free(run->difference);
    free(run->read);
}

/* run->room_size stays 0 where there is no memory. */
static void open_rooms(probe_run *run, int64_t n)
{
    run->room = malloc((size_t)n * sizeof *run->room);
    run->difference = malloc((size_t)n * sizeof *run->difference);
    run->read = malloc((size_t)n * sizeof *run->read);
    run->room_size = run->room && run->difference && run->read ? n : 0;
}

static void take_kept_memory(probe_run *run, kept_tensor *kept)
{
    const uint64_t bytes = ((uint64_t)kept->n * sizeof *kept->x + 63) / 64 * 64;
    if (kept->is_own) free(kept->x);
    kept->is_own = bytes > run->n_spare;
    kept->x = kept->is_own ? malloc(bytes) : (float *)(void *)run->spare;
    kept->capacity = kept->x ? kept->n : 0;
    if (kept->is_own) return;
    run->spare += bytes;
    run->n_spare -= bytes;
}

static float *keep_samples(probe_run *run, kept_tensor *kept, int64_t n)
{
    const int64_t batch = run->age->sensing->batch;
    if (n % batch != 0 || n < 1) { /* no tensor of samples */
        kept->n = 0;
        return NULL;
    }
    kept->n_sample = count_kept_samples(kept, batch, n);
    kept->n = kept->n_sample * (n / batch);
    if (kept->n > kept->capacity) take_kept_memory(run, kept);
    if (kept->n > run->room_size) {
        close_rooms(run);
        open_rooms(run, kept->n);
    }
    if (kept->x && run->room_size >= kept->n) return kept->x;
    run->status = tandem_no_memory(&run->error, "for the tensors of a probe");
    return NULL;
}

/* The batches that a range is of, after so many have been seen. */
static int batches_of_range(const probe_run *run, int range, int n_seen)
{
    const int n = run->age->n_range_batch * (range == WIDE_RANGE ? TANDEM_WIDE_RANGE : 1);
    return n < n_seen ? n : n_seen;
}

static void see_range(const probe_run *run, kept_tensor *kept, const float *x, int64_t n)
{
    const int place = run->n_batch_seen, ring = run->age->n_range_batch * TANDEM_WIDE_RANGE;
    kept->amax_of[place % ring] = probe_amax(x, n);
    for (int k = 0; k < N_PROBE_RANGE; k++) {
        kept->amax[k] = 0;
        for (int b = 0; b < batches_of_range(run, k, place + 1); b++)
            kept->amax[k] = fmaxf(kept->amax[k], kept->amax_of[(place - b) % ring]);
    }
}

static void keep_values(probe_run *run, kept_tensor *kept, const float *x, int64_t n, int has_range)
{
    float *to = keep_samples(run, kept, n);
    if (!to) return;
    memcpy(to, x, (size_t)kept->n * sizeof *to);
    if (has_range) see_range(run, kept, x, n);
}

static double mean_square_of(const float *x, int64_t n)
{
    return n > 0 ? probe_product(x, x, n) / (double)n : 0;
}

/* --- Sums ----------------------------------------------------------------------------------------------- */

/* Gradients in f16 have a loss scale: the largest power of two, up to 2^16, at which none overflows. */
static float scale_of(tandem_format format, float amax)
{
    const tandem_format_row *row = tandem_format_get(format);
    if (row->scale != TANDEM_FORMAT_SCALE_LOSS || !(amax > 0)) return 1;
    return exp2f(fminf(16, floorf(log2f((float)tandem_format_largest(row) / amax))));
}

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
                                     .error_scale = 1};
    run->status = is_drawn ? tandem_format_variance(room, NULL, &cast, &run->error)
                           : tandem_format_round(room, NULL, &cast, &run->error);
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
    const kept_tensor *y = &of->kept[KEPT_Y];
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
                                     .range = y->amax[OWN_RANGE],
                                     .error_scale = 1};
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
static const float *rounded_numbers(probe_run *run, const probe_operator *of, int part, const kept_tensor *x,
                                    tandem_format format)
{
    if (part != PROBE_RESULT) return x->x;
    memcpy(run->read, x->x, (size_t)x->n * sizeof *run->read);
    add_read_errors(run->read, run, of, format);
    return run->read;
}

/* Whether what a part of an operator rounds makes units behind it switch. Else no mean square is read. */
static int makes_jumps(const probe_operator *of, int part)
{
    return of->is_before_jump && part != PROBE_GRADIENT;
}

/* Adds the noise of a tensor x of samples in a format, whose D is in run->difference. */
static void add_format_noise(probe_run *run, probe_operator *of, int part, const kept_tensor *x,
                             tandem_format f, int k, float range)
{
    const int64_t batch = run->age->sensing->batch, n = x->n, kept = x->n_sample;
    const float scale = part == PROBE_GRADIENT ? scale_of(f, x->amax[OWN_RANGE]) : 1;
    const int is_drawn = round_kept(run, rounded_numbers(run, of, part, x, f), n, f, range, scale);
    double square = 0, *const noise = &of->noise[k][part][f][run->batch];
    if (is_drawn) {
        *noise =
            probe_weighted_squares(&square, run->room, run->difference, n) * (double)batch / (double)kept;
    } else {
        *noise = noise_of_samples(run->room, run->difference, kept, n / kept, batch);
        if (makes_jumps(of, part)) square = probe_product(run->room, run->room, n);
    }
    of->error_square[k][part][f] += 0.5 * square / (double)n;
}

/* Whether noise has to be summed with wide ranges, too: else it is the same. */
static int has_wide_range(const probe_run *run, const kept_tensor *x, int format)
{
    return run->age->sensing->range_batch > 0 &&
           tandem_format_get((tandem_format)format)->scale == TANDEM_FORMAT_SCALE_TENSOR &&
           x->amax[WIDE_RANGE] > x->amax[OWN_RANGE];
}

/* The noise of a tensor x of samples, whose D is above − below over the step. range: known; 0: its own. */
static void add_noise(probe_run *run, probe_operator *of, int part, const kept_tensor *x, const float *above,
                      const float *below, float range)
{
    const double span = 2 * run->step[run->batch];
    const int b = run->batch;
    if (x->n == 0 || run->status != TANDEM_OK) return;
    probe_difference(run->difference, above, below, (float)(1 / span), x->n);
    if (makes_jumps(of, part) && part != PROBE_RESULT)
        of->mean_square[part] += 0.5 * mean_square_of(x->x, x->n);
    for (int f = 0; f < TANDEM_N_FORMAT && run->status == TANDEM_OK; f++) {
        if (!(of->formats[part] >> f & 1)) continue;
        const double before = of->error_square[OWN_RANGE][part][f];
        add_format_noise(run, of, part, x, (tandem_format)f, OWN_RANGE,
                         range > 0 ? range : x->amax[OWN_RANGE]);
        if (!(range > 0) && has_wide_range(run, x, f)) {
            add_format_noise(run, of, part, x, (tandem_format)f, WIDE_RANGE, x->amax[WIDE_RANGE]);
        } else {
            of->noise[WIDE_RANGE][part][f][b] = of->noise[OWN_RANGE][part][f][b];
            of->error_square[WIDE_RANGE][part][f] += of->error_square[OWN_RANGE][part][f] - before;
        }
    }
}

/* The same of the weight, when both batches are through. */
static void add_weight_noise(probe_run *run, probe_operator *of)
{
    const int64_t n = of->n_kept_weight;
    const double all = n > 0 ? (double)of->n_weight / (double)n : 0;
    of->mean_square[PROBE_WEIGHT] = mean_square_of(of->w, n);
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

/* --- What tasks show ------------------------------------------------------------------------------------ */

/* g·W of the kept samples, where W lies transposed: of an operator whose input needs no gradient. */
static void compute_transposed_gradient(float *to, const float *g, const float *w, int64_t rows,
                                        int64_t depth, int64_t columns)
{
    memset(to, 0, (size_t)(rows * depth) * sizeof *to);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t l = 0; l < depth; l++) to[i * depth + l] += g[i * columns + j] * w[j * depth + l];
}

/* The same of a convolution: each output adds its gradient times the kernel to the window that it read. */
static void compute_kept_image_gradient(float *to, const tandem_op *op, const tandem_shape *in,
                                        const float *g, const float *w, int64_t samples)
{
    const tandem_shape *out = &op->shape;
    const int64_t height = in->dim[1], width = in->dim[2], depth = in->dim[3], columns = out->dim[3];
    memset(to, 0, (size_t)(samples * height * width * depth) * sizeof *to);
    for (int64_t o = 0; o < samples * out->dim[1] * out->dim[2]; o++) {
        const int64_t image = o / out->dim[2] / out->dim[1], top = o / out->dim[2] % out->dim[1] * op->stride,
                      left = o % out->dim[2] * op->stride;
        for (int64_t a = 0; a < (int64_t)op->kernel_h * op->kernel_w * depth; a++) {
            const int64_t y = top + a / depth / op->kernel_w - op->pad,
                          z = left + a / depth % op->kernel_w - op->pad;
            if (y < 0 || y >= height || z < 0 || z >= width) continue;
            float sum = 0;
            for (int64_t j = 0; j < columns; j++) sum += g[o * columns + j] * w[a * columns + j];
            to[((image * height + y) * width + z) * depth + a % depth] += sum;
        }
    }
}

/* The known bound of an input, which casts take in the place of its largest magnitude; 0: none. */
static float known_range(const tandem_graph *graph, const tandem_op *op, int slot)
{
    return tandem_op_row_get(graph->op[graph->view[op->input[slot]]].kind)->range;
}

static const float *value_of(const probe_run *run, int id)
{
    return run->age->backend->executor_value(run->age->executor, id, 0, NULL);
}

/* dx, of slot 0 or 1: kept above, and its noise added below. kept: [the kept numbers], or of all, `whole`. */
static void see_input_gradient(probe_run *run, probe_operator *of, int slot, const float *dx)
{
    const tandem_graph *graph = run->age->step->graph;
    kept_tensor *above = &of->kept[slot ? KEPT_DX2 : KEPT_DX];
    const kept_tensor *x = &of->kept[slot ? KEPT_X2 : KEPT_X];
    if (run->place == ABOVE)
        keep_values(run, above, dx, tandem_shape_elements(&graph->op[graph->op[of->op].input[slot]].shape),
                    0);
    else
        add_noise(run, of, slot ? PROBE_SECOND : PROBE_INPUT, x, above->x, dx,
                  known_range(graph, &graph->op[of->op], slot));
}

static void see_forward(probe_run *run, probe_operator *of, const float *y)
{
    const tandem_op *op = &run->age->step->graph->op[of->op];
    kept_tensor *kept = &of->kept[KEPT_Y];
    if (run->place == ABOVE) {
        keep_values(run, kept, y, tandem_shape_elements(&op->shape), 0);
        return;
    }
    add_noise(run, of, PROBE_GRADIENT, &of->kept[KEPT_G], kept->x, y, 0);
    if (of->is_before_jump && of->kept[KEPT_G].n > 0)
        of->rate_square += 0.5 * mean_square_of(run->difference, of->kept[KEPT_G].n);
    /* The result at the weights themselves: a bias that is moved by z would not be lost as it is there. */
    for (int64_t i = 0; i < kept->n; i++) kept->x[i] = 0.5F * (kept->x[i] + y[i]);
}

/* Of an operator whose input has no gradient: computed, of the kept samples. */
static void see_absent_gradient(probe_run *run, probe_operator *of, const float *g)
{
    const tandem_graph *graph = run->age->step->graph;
    const tandem_op *op = &graph->op[of->op];
    const tandem_shape *in = &graph->op[op->input[0]].shape;
    kept_tensor *above = &of->kept[KEPT_DX];
    const int64_t batch = run->age->sensing->batch, n = tandem_shape_elements(in),
                  samples = n % batch ? 0 : count_kept_samples(above, batch, n), each = n / batch;
    const float *w = value_of(run, TANDEM_PARAMETER(op->parameter[0]));
    if (samples == 0 || op->parameter[0] < 0) return;
    float *to = run->place == ABOVE ? keep_samples(run, above, n) : run->room;
    float *own = NULL;
    if (run->place == BELOW && to) to = own = malloc((size_t)(samples * each) * sizeof *own);
    if (!to) {
        run->status = tandem_no_memory(&run->error, "for the tensors of a probe");
        return;
    }
    if (op->kind == TANDEM_OP_LINEAR)
        (op->transpose_b ? compute_transposed_gradient
                         : probe_linear_gradient)(to, g, w, samples * each / tandem_shape_last(in),
                                                  tandem_shape_last(in), tandem_shape_last(&op->shape));
    else
        compute_kept_image_gradient(to, op, in, g, w, samples);
    if (run->place == BELOW) see_input_gradient(run, of, 0, to);
    free(own);
}

static void see_wgrad(probe_run *run, probe_operator *of, const tandem_task *task)
{
    const tandem_step *step = run->age->step;
    const tandem_op *op = &step->graph->op[of->op], *input = &step->graph->op[op->input[0]];
    const float *g = value_of(run, task->read[1]);
    const int64_t n_y = tandem_shape_elements(&op->shape);
    if (run->place == ABOVE) {
        keep_values(run, &of->kept[KEPT_G], g, n_y, 1);
        if (op->kind != TANDEM_OP_EMBEDDING)
            keep_values(run, &of->kept[KEPT_X], value_of(run, task->read[0]),
                        tandem_shape_elements(&input->shape), 1);
        if (op->parameter[0] < 0)
            keep_values(run, &of->kept[KEPT_X2],
                        value_of(run, tandem_value_activation(step, op->input[1], TANDEM_F32)),
                        tandem_shape_elements(&step->graph->op[op->input[1]].shape), 1);
    } else {
        add_noise(run, of, PROBE_RESULT, &of->kept[KEPT_Y], of->kept[KEPT_G].x, g, 0);
    }
    if (op->parameter[0] < 0) see_input_gradient(run, of, 1, value_of(run, task->write[0]));
    if (!input->needs_gradient && op->kind != TANDEM_OP_EMBEDDING) see_absent_gradient(run, of, g);
}

/* Of operators without products: the gradient of the output, at the first task that reads it. */
static void see_dependent_gradients(probe_run *run, int t)
{
    const tandem_step *step = run->age->step;
    for (int k = 0; k < run->n_op; k++) {
        probe_operator *of = &run->operator[k];
        if (of->is_adjustable || of->gradient_task != t || run->status != TANDEM_OK) continue;
        const float *g = value_of(run, tandem_value_gradient(step, of->op, TANDEM_F32));
        if (run->place == ABOVE)
            keep_values(run, &of->kept[KEPT_G], g, tandem_shape_elements(&step->graph->op[of->op].shape), 1);
        else
            add_noise(run, of, PROBE_RESULT, &of->kept[KEPT_Y], of->kept[KEPT_G].x, g, 0);
    }
}

static void observe_probe_task(void *context, const tandem_executor *executor, int t)
{
    probe_run *run = context;
    const tandem_task *task = &run->age->step->task[t];
    (void)executor;
    int k = 0;
    while (k < run->n_op && run->operator[k].op != task->op) k++;
    see_dependent_gradients(run, t);
    if (task->op < 0 || k == run->n_op || run->status != TANDEM_OK) return;
    probe_operator *of = &run->operator[k];
    if (task->kind == TANDEM_TASK_FORWARD) see_forward(run, of, value_of(run, task->write[0]));
    if (!of->is_adjustable) return;
    if (task->kind == TANDEM_TASK_DGRAD) see_input_gradient(run, of, 0, value_of(run, task->write[0]));
    if (task->kind == TANDEM_TASK_WGRAD) see_wgrad(run, of, task);
}

/* --- A replicate ---------------------------------------------------------------------------------------- */

static void see_weight_gradients(probe_run *run)
{
    const probe_age *age = run->age;
    for (int k = 0; k < run->n_op; k++) {
        probe_operator *of = &run->operator[k];
        const int p = age->step->graph->op[of->op].parameter[0];
        if (of->n_kept_weight == 0) continue;
        const float *g = age->backend->executor_value(age->executor, TANDEM_PARAMETER(p), 1, NULL);
        float *const to = run->place == ABOVE ? of->w_above : of->difference[run->batch];
        for (int64_t i = 0; i < of->n_kept_weight; i++) to[i] = g[i * of->stride];
        const float by = (float)(1 / (2 * run->step[run->batch]));
        for (int64_t i = 0; i < of->n_kept_weight && run->place == BELOW; i++)
            to[i] = (of->w_above[i] - to[i]) * by;
    }
}

static tandem_status sense_probe_batch(probe_run *run, int64_t index, float *sketch, tandem_error *error)
{
    const probe_age *age = run->age;
    tandem_status status = TANDEM_OK;
    for (run->place = ABOVE; run->place <= BELOW && status == TANDEM_OK; run->place++) {
        double loss = 0;
        probe_direction_move(&run->direction, run->weight,
                             (float)(run->place == ABOVE ? run->step[run->batch] : -run->step[run->batch]));
        status = age->backend->executor_step(age->executor, index, &loss, error);
        if (status == TANDEM_OK) add_to_sketch(sketch, run);
        if (status == TANDEM_OK) see_weight_gradients(run);
    }
    run->n_batch_seen++;
    if (status == TANDEM_OK && run->status != TANDEM_OK) {
        status = run->status;
        if (error) *error = run->error;
    }
    return status;
}

static double mean_square_of_weights(const probe_run *run)
{
    const tandem_step *step = run->age->step;
    double square = 0, n = 0;
    for (int p = 0; p < step->graph->n_parameter; p++) {
        const int64_t of = step->graph->parameter[p].elements;
        square += (double)of * mean_square_of(run->weight + step->parameter_start[p], of);
        n += (double)of;
    }
    return n > 0 ? square / n : 0;
}

/* --- Cells ---------------------------------------------------------------------------------------------- */

/* What a cell rounds each part to; TANDEM_N_FORMAT: not at all. */
typedef struct cell_formats {
    tandem_format of[N_PROBE_PART];
} cell_formats;

static tandem_format format_of_amp(const probe_run *run, tandem_dtype dtype, tandem_dtype amp_dtype)
{
    return run->age->emulation->format[dtype == TANDEM_AMP ? amp_dtype : dtype];
}

static cell_formats formats_of_cell(const probe_run *run, int cell)
{
    static const tandem_dtype amp_dtypes[TANDEM_N_AMP_DTYPE] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
    const tandem_dtype amp = amp_dtypes[cell % TANDEM_N_AMP_DTYPE];
    const tandem_precision precision = (tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION);
    const tandem_precision_row *row = tandem_precision_get(precision);
    const tandem_dtype product = tandem_precision_product_dtype(precision, TANDEM_F32);
    const int is_tf32 = product == TANDEM_TF32;
    const tandem_format forward = format_of_amp(run, is_tf32 ? product : row->forward, amp),
                        backward = format_of_amp(run, is_tf32 ? product : row->wgrad, amp);
    return (cell_formats){{[PROBE_INPUT] = forward,
                           [PROBE_SECOND] = forward,
                           [PROBE_WEIGHT] = forward,
                           [PROBE_GRADIENT] = backward,
                           [PROBE_RESULT] = format_of_amp(run, row->output, amp)}};
}

/* Whether the results of a kind are numbers that it read, or 0. */
static int picks_numbers(tandem_op_kind kind)
{
    static const tandem_op_kind picks[] = {
        TANDEM_OP_RELU,  TANDEM_OP_MAXPOOL,         TANDEM_OP_RESHAPE, TANDEM_OP_TRANSPOSE,
        TANDEM_OP_SLICE, TANDEM_OP_GATHER_LABELLED, TANDEM_OP_CONCAT,  TANDEM_OP_CONCAT_TOKEN};
    for (size_t k = 0; k < sizeof picks / sizeof *picks; k++)
        if (kind == picks[k]) return 1;
    return 0;
}

/* Whether results of a kind have a slope that jumps, as far as it is known. */
static int has_jump(tandem_op_kind kind)
{
    static const tandem_op_kind jumps[] = {
        TANDEM_OP_RELU, TANDEM_OP_MAXPOOL, TANDEM_OP_BATCHNORM_RELU, TANDEM_OP_BATCHNORM_ADD_RELU,
        TANDEM_OP_MAP,  TANDEM_OP_CALL,    TANDEM_OP_CALL_TRAINED};
    for (size_t k = 0; k < sizeof jumps / sizeof *jumps; k++)
        if (kind == jumps[k]) return 1;
    return 0;
}

static void find_jumps(probe_run *run, unsigned char *is_before)
{
    const tandem_graph *graph = run->age->step->graph;
    for (int i = graph->n_op - 1; i >= 0; i--)
        for (int k = graph->consumer_start[i]; k < graph->consumer_start[i + 1]; k++)
            is_before[i] |= (unsigned char)(is_before[graph->consumer[k]] ||
                                            has_jump(graph->op[graph->consumer[k]].kind));
    for (int k = 0; k < run->n_op; k++) run->operator[k].is_before_jump = is_before[run->operator[k].op];
}

static void set_plan_of_cell(const probe_run *run, int cell)
{
    const int op = cell / TANDEM_N_AMP_DTYPE / TANDEM_N_PRECISION;
    for (int k = 0; k < run->n_op; k++)
        if (run->operator[k].is_adjustable)
            tandem_step_set(run->plan, run->operator[k].op,
                            run->operator[k].op == op
                                ? (tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION)
                                : TANDEM_PRECISION_FP32);
    tandem_step_resolve(run->plan);
}

/* What a part of a dependent operator rounds to under the plan of a cell. */
static tandem_format format_of_dependent(const probe_run *run, const probe_operator *of, int part)
{
    const tandem_op_kind kind = run->age->step->graph->op[of->op].kind;
    if (of->is_adjustable || (part != PROBE_RESULT && part != PROBE_GRADIENT)) return TANDEM_N_FORMAT;
    if (part == PROBE_GRADIENT && tandem_op_row_get(kind)->dgrad != TANDEM_GRAD_TASK) return TANDEM_N_FORMAT;
    return run->age->emulation->format[run->plan->output_dtype[of->op]];
}

/* Cells whose operator writes a narrow result. */
static int has_narrow_result(const probe_run *run, int cell)
{
    return formats_of_cell(run, cell).of[PROBE_RESULT] != TANDEM_N_FORMAT;
}

/* The products that an output sums. */
static double products_of_output(const tandem_graph *graph, const tandem_op *op)
{
    if (op->kind == TANDEM_OP_EMBEDDING) return 1;
    if (op->parameter[0] < 0) return (double)tandem_shape_last(&graph->op[op->input[0]].shape);
    return (double)graph->parameter[op->parameter[0]].elements / (double)tandem_shape_last(&op->shape);
}

/* α: the part of the small step. */
static double share_of_small_step(const probe_run *run, const probe_operator *of, int part, tandem_format f,
                                  int range)
{
    const tandem_graph *graph = run->age->step->graph;
    const tandem_op *op = &graph->op[of->op];
    const int other = part != PROBE_INPUT ? PROBE_INPUT : op->parameter[0] < 0 ? PROBE_SECOND : PROBE_WEIGHT;
    const double first = 1 / run->step[0], last = 1 / run->step[1];
    const double by = part == PROBE_RESULT || op->kind == TANDEM_OP_EMBEDDING
                          ? 1
                          : products_of_output(graph, op) * of->mean_square[other];
    const double moved = sqrt(by * of->error_square[range][part][f]);
    if (!(moved > 0)) return 1;
    return (fmin(fmax(2 * sqrt(of->rate_square) / moved, last), first) - last) / (first - last);
}

/* q: the median, over all that makes jumps, of the noise at the small step over that at the large one. */
static void find_jump_ratio(probe_run *run)
{
    size_t n = 0;
    for (int k = 0; k < run->n_op; k++)
        for (int i = 0; i < N_PROBE_PART * TANDEM_N_FORMAT; i++) {
            const probe_operator *of = &run->operator[k];
            const double *noise = of->noise[OWN_RANGE][i / TANDEM_N_FORMAT][i % TANDEM_N_FORMAT];
            if (makes_jumps(of, i / TANDEM_N_FORMAT) && noise[0] > 0 && noise[1] > 0)
                run->log_ratio[n++] = log(noise[0] / noise[1]);
        }
    gsl_sort(run->log_ratio, 1, n);
    run->jump_ratio = n > 0 ? fmax(1, exp(gsl_stats_median_from_sorted_data(run->log_ratio, 1, n))) : 1;
}

static double noise_of_part(const probe_run *run, const probe_operator *of, int part, tandem_format f,
                            int range)
{
    const double *noise = of->noise[range][part][f], q = run->jump_ratio;
    if (!makes_jumps(of, part)) return 0.5 * (noise[0] + noise[1]);
    const double small = share_of_small_step(run, of, part, f, range);
    return 0.5 * (small * q + 1 - small) * (noise[0] / q + noise[1]);
}

static tandem_sensed_error error_of_cell(const probe_run *run, const probe_operator *of, int cell)
{
    const cell_formats formats = formats_of_cell(run, cell);
    tandem_sensed_error error = {0};
    for (int part = 0; part < N_PROBE_PART; part++) {
        const tandem_format f = formats.of[part];
        if (f == TANDEM_N_FORMAT) continue;
        error.total += noise_of_part(run, of, part, f, OWN_RANGE);
        error.wide_total += noise_of_part(run, of, part, f, WIDE_RANGE);
        if (part != PROBE_WEIGHT) continue;
        if (tandem_format_get(f)->rounding == TANDEM_ROUNDING_STOCHASTIC) {
            error.shared = of->cross[f];
        } else {
            error.total -= of->cross[f];
            error.wide_total -= of->cross[f];
        }
    }
    return error;
}

/* What the operators behind it add that its narrow result makes narrow. */
static void add_dependent_errors(tandem_sensed_error *error, const probe_run *run, int cell)
{
    if (!has_narrow_result(run, cell)) return;
    set_plan_of_cell(run, cell);
    for (int k = 0; k < run->n_op; k++)
        for (int part = 0; part < N_PROBE_PART; part++) {
            const probe_operator *of = &run->operator[k];
            const tandem_format f = format_of_dependent(run, of, part);
            if (f == TANDEM_N_FORMAT) continue;
            error->total += noise_of_part(run, of, part, f, OWN_RANGE);
            error->wide_total += noise_of_part(run, of, part, f, WIDE_RANGE);
        }
}

/* ln of the samples that wide ranges have over those that ranges have: the mean over a replicate's batches.
 */
static double log_widening(const probe_run *run, int r)
{
    const int seen = 2 * (r / run->age->n_rank) + 1;
    double sum = 0;
    for (int b = 0; b < 2; b++)
        sum += log((double)batches_of_range(run, WIDE_RANGE, seen + b) /
                   batches_of_range(run, OWN_RANGE, seen + b));
    return sum / 2;
}

/* Early replicates have seen few batches. Noise grows with the logarithm of the samples of a range
 * (predictor/sampled.c), so each tells of the growth what its own widening l has of it, with a weight that
 * makes the mean over R replicates the least squares': by R·l/Σl² to the growth of one unit. */
static double growth_of_widening(const probe_run *run, int r)
{
    const int n = run->age->sensing->n_replicate;
    double square = 0;
    for (int i = 0; i < n; i++) square += log_widening(run, i) * log_widening(run, i);
    return square > 0 ? n * log_widening(run, r) / square * log(TANDEM_WIDE_RANGE) : 0;
}

static void set_replicate(probe_run *run, int r)
{
    const double by = growth_of_widening(run, r);
    find_jump_ratio(run);
    tandem_sensing *sensing = run->age->sensing;
    const int each = TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    for (int k = 0; k < run->n_op; k++) {
        const probe_operator *of = &run->operator[k];
        for (int cell = of->op * each; cell < (of->op + 1) * each && of->is_adjustable; cell++) {
            if (!sensing->is_sensed[cell]) continue;
            tandem_sensed_error *error = &tandem_sensing_errors(sensing, run->age->age_index, cell)[r];
            *error = error_of_cell(run, of, cell);
            add_dependent_errors(error, run, cell);
            error->wide_total = error->total + by * (error->wide_total - error->total);
        }
    }
}

static tandem_status probe_replicate(probe_run *run, int r, float *sketch, tandem_error *error)
{
    const probe_age *age = run->age;
    tandem_status status = TANDEM_OK;
    probe_direction_draw(&run->direction, &age->metric, age->seed,
                         1 + (uint32_t)r + ((uint32_t)age->sensing->age[age->age_index] << 8));
    probe_direction_keep(&run->direction, run->weight);
    for (int k = 0; k < run->n_op; k++) {
        probe_operator *of = &run->operator[k];
        memset(of->mean_square, 0, sizeof of->mean_square);
        memset(of->error_square, 0, sizeof of->error_square);
        memset(of->noise, 0, sizeof of->noise);
        memset(of->cross, 0, sizeof of->cross);
        of->rate_square = 0;
    }
    for (run->batch = 0; run->batch < 2 && status == TANDEM_OK; run->batch++)
        status = sense_probe_batch(run, age->first_batch + 2 * r + run->batch,
                                   sketch + run->batch * PROBE_SKETCH, error);
    probe_direction_restore(&run->direction, run->weight);
    for (int k = 0; k < run->n_op && status == TANDEM_OK; k++) add_weight_noise(run, &run->operator[k]);
    if (status == TANDEM_OK && run->status != TANDEM_OK) {
        status = run->status;
        if (error) *error = run->error;
    }
    if (status == TANDEM_OK) set_replicate(run, r);
    return status;
}

/* --- An age --------------------------------------------------------------------------------------------- */

static tandem_status open_probed_weight(probe_run *run, probe_operator *of)
{
    const tandem_step *step = run->age->step;
    const int p = step->graph->op[of->op].parameter[0];
    if (p < 0) return TANDEM_OK;
    const float *w = run->weight + step->parameter_start[p];
    of->n_weight = step->graph->parameter[p].elements;
    /* odd, so that it meets all rows and columns of even lengths */
    of->stride = of->n_weight > KEPT_WEIGHTS ? of->n_weight / KEPT_WEIGHTS | 1 : 1;
    of->n_kept_weight = (of->n_weight - 1) / of->stride + 1;
    of->amax = probe_amax(w, of->n_weight);
    of->w = malloc(4 * (size_t)of->n_kept_weight * sizeof *of->w);
    if (!of->w) return TANDEM_NO_MEMORY;
    of->w_above = of->w + of->n_kept_weight;
    for (int b = 0; b < 2; b++) of->difference[b] = of->w + (2 + b) * of->n_kept_weight;
    for (int64_t i = 0; i < of->n_kept_weight; i++) of->w[i] = w[i * of->stride];
    return TANDEM_OK;
}

static void ask_formats(probe_run *run, const probe_operator *adjustable)
{
    const int each = TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    for (int cell = adjustable->op * each; cell < (adjustable->op + 1) * each; cell++) {
        const cell_formats formats = formats_of_cell(run, cell);
        if (!run->age->sensing->is_sensed[cell]) continue;
        set_plan_of_cell(run, cell);
        for (int k = 0; k < run->n_op; k++)
            for (int part = 0; part < N_PROBE_PART; part++) {
                probe_operator *of = &run->operator[k];
                const tandem_format f =
                    of == adjustable ? formats.of[part] : format_of_dependent(run, of, part);
                if (f != TANDEM_N_FORMAT) of->formats[part] |= 1U << f;
            }
    }
}

static int find_gradient_task(const tandem_step *step, int op)
{
    const int value = tandem_value_gradient(step, op, TANDEM_F32);
    for (int t = 0; t < step->n_task; t++)
        for (int r = 0; r < step->task[t].n_read && step->task[t].active; r++)
            if (step->task[t].read[r] == value) return t;
    return -1;
}

static void open_probed_operators(probe_run *run)
{
    const tandem_step *step = run->age->step;
    for (int i = 0; i < step->graph->n_op; i++) {
        const tandem_op *op = &step->graph->op[i];
        const int is_adjustable = tandem_op_is_adjustable(op),
                  may_depend = op->needs_gradient && op->dtype == TANDEM_F32 && !picks_numbers(op->kind);
        if (!is_adjustable && !may_depend) continue;
        run->operator[run->n_op++] =(probe_operator){
            .op = i, .is_adjustable = is_adjustable, .gradient_task = find_gradient_task(step, i)};
        probe_operator *of = &run->operator[run->n_op - 1];
        if (!is_adjustable || op->kind == TANDEM_OP_EMBEDDING) continue;
        of->kept[KEPT_X].is_costly = of->kept[KEPT_DX].is_costly =
            !step->graph->op[op->input[0]].needs_gradient;
    }
    for (int k = 0; k < run->n_op; k++)
        if (run->operator[k].is_adjustable) ask_formats(run, &run->operator[k]);
    /* dependent ones that no cell asks for */
    int n = 0;
    for (int k = 0; k < run->n_op; k++) {
        const probe_operator of = run->operator[k];
        if (of.is_adjustable || of.formats[PROBE_RESULT] || of.formats[PROBE_GRADIENT])
            run->operator[n++] = of;
    }
    run->n_op = n;
}

static tandem_status open_probe_run(probe_run *run, tandem_error *error)
{
    const probe_age *age = run->age;
    const tandem_graph *graph = age->step->graph;
    run->weight = age->backend->executor_weights(age->executor);
    if (!run->weight)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a probe moves weights in the memory of the host: sense on a CPU device");
    run->spare = age->backend->executor_spare(age->executor, &run->n_spare);
    run->operator= calloc((size_t)graph->n_op, sizeof *run->operator);
    open_rooms(run, 2 * KEPT_WEIGHTS); /* fewer than that are kept: strides are odd */
    if (!run->operator|| run->room_size == 0) return tandem_no_memory(error, "for a probe");
    tandem_status status = probe_direction_open(&run->direction, age->step, 1, error);
    if (status == TANDEM_OK) status = probe_direction_open(&run->sketched, age->step, 0, error);
    if (status == TANDEM_OK) probe_direction_draw(&run->sketched, &age->metric, 0, 0);
    if (status == TANDEM_OK) status = tandem_step_open(&run->plan, graph, age->step->amp_dtype, 0, error);
    if (status != TANDEM_OK) return status;
    open_probed_operators(run);
    unsigned char *const is_before_jump = calloc((size_t)graph->n_op, 1);
    run->log_ratio =
        malloc((size_t)(run->n_op + 1) * N_PROBE_PART * TANDEM_N_FORMAT * sizeof *run->log_ratio);
    if (is_before_jump) find_jumps(run, is_before_jump);
    free(is_before_jump);
    if (!is_before_jump || !run->log_ratio) return tandem_no_memory(error, "for a probe");
    for (int k = 0; k < run->n_op && status == TANDEM_OK; k++)
        if (run->operator[k].is_adjustable) status = open_probed_weight(run, &run->operator[k]);
    const double unit = sqrt(mean_square_of_weights(run) / probe_direction_mean_square(&run->sketched));
    run->step[0] = small_step * unit;
    run->step[1] = large_step * unit;
    return status == TANDEM_OK ? status : tandem_no_memory(error, "for the weights of a probe");
}

static void close_probe_run(probe_run *run)
{
    for (int k = 0; k < run->n_op; k++) {
        for (int i = 0; i < N_KEPT; i++)
            if (run->operator[k].kept[i].is_own) free(run->operator[k].kept[i].x);
        free(run->operator[k].w);
    }
    free(run->operator);
    tandem_step_close(run->plan);
    probe_direction_close(&run->direction);
    probe_direction_close(&run->sketched);
    free(run->log_ratio);
    close_rooms(run);
}

tandem_status sensing_probe_age(const probe_age *age, float *sketch, tandem_error *error)
{
    probe_run run = {.age = age};
    tandem_status status = open_probe_run(&run, error);
    age->backend->executor_observe(age->executor, observe_probe_task, &run);
    for (int r = age->rank; r < age->sensing->n_replicate && status == TANDEM_OK; r += age->n_rank)
        status = probe_replicate(&run, r, sketch + (size_t)r * 2 * PROBE_SKETCH, error);
    age->backend->executor_observe(age->executor, NULL, NULL);
    close_probe_run(&run);
    return status;
}

tandem_status sensing_probe_set_gradients(tandem_sensing *sensing, int age_index, const float *sketch,
                                          tandem_error *error)
{
    const int n = sensing->n_replicate;
    float *const all = calloc(PROBE_SKETCH, sizeof *all);
    if (!all) return tandem_no_memory(error, "for a sum of gradients");
    for (int b = 0; b < 2 * n; b++) probe_add(all, sketch + (size_t)b * PROBE_SKETCH, PROBE_SKETCH);
    for (int r = 0; r < n; r++) {
        const float *one = sketch + (size_t)r * 2 * PROBE_SKETCH, *two = one + PROBE_SKETCH;
        const double same = probe_product(one, two, PROBE_SKETCH),
                     own = probe_product(one, one, PROBE_SKETCH) + probe_product(two, two, PROBE_SKETCH),
                     with_all = probe_product(one, all, PROBE_SKETCH) + probe_product(two, all, PROBE_SKETCH);
        sensing->gradient[age_index * n + r] = (tandem_sensed_gradient){
            .variance = 0.5 * own - same, .mean_square = (with_all - own - 2 * same) / (4.0 * (n - 1))};
    }
    free(all);
    return TANDEM_OK;
}
