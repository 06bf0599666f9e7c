#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

static const double u = 0x1p-24;          /* rounding of f32 */
static const double own = 0x1p-45;        /* of the reference itself, where a kernel is exact */
static const double elementary = 0x1p-20; /* oneDNN's exp and tanh */

/* What a reference works on. */
typedef struct work {
    const tandem_graph *graph;
    const tandem_op *op;
    const tandem_task *task;
    const task_operands *operands;
    const double *in[TANDEM_TASK_READS];
    double *const *out;   /* results */
    double *const *bound; /* of the rounding to the result's type comes on top */
    double row_weight;
    int adds_up;
    int saves_input; /* the operator, on the step's device */
} work;

static const tandem_shape *shape_in(const work *w, int slot)
{
    return &w->graph->op[w->op->input[slot]].shape;
}
static const tandem_shape *shape_out(const work *w) { return &w->op->shape; }
static int64_t last(const tandem_shape *shape) { return tandem_shape_last(shape); }
static int64_t rows_of(const tandem_shape *shape)
{
    return tandem_shape_elements(shape) / tandem_shape_last(shape);
}

/* Largest relative error of rounding to a type, subnormal numbers aside. */
static double rounding_of(tandem_dtype dtype)
{
    return dtype == TANDEM_BF16 ? 0x1p-8 : dtype == TANDEM_F16 ? 0x1p-11 : u;
}

/* --- Products ------------------------------------------------------------------------------------------- */

/* C(i, j) = Σ_l A(i, l)·B(l, j), with strides. */
typedef struct product {
    int64_t m, n, k, a_row, a_column, b_row, b_column;
} product;

/* What a product errs by beside the rounding of its sums, as a share of Σ|terms|: operands cut to tf32's 10
 * bits (2^−10 each, where the hardware does not round), and sums of fp8, of which Hopper's tensor cores keep
 * some 14 bits ("DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.3.2). */
static double product_error(const work *w)
{
    if (tandem_precision_product_dtype(w->task->precision, w->task->from) == TANDEM_TF32) return 0x1p-9;
    return w->task->from == TANDEM_E4M3 || w->task->from == TANDEM_E5M2 ? 0x1p-11 : 0;
}

static void multiply_reference(const work *w, const product *p, const double *a, const double *b, double *c,
                               double *bound)
{
    /* then the scales: their product, the conversion, the multiplication */
    const int exact = w->task->from == TANDEM_S8;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0, size = 0;
            for (int64_t l = 0; l < p->k; l++) {
                const double term = a[i * p->a_row + l * p->a_column] * b[l * p->b_row + j * p->b_column];
                sum += term;
                size += fabs(term);
            }
            c[i * p->n + j] = sum;
            bound[i * p->n + j] =
                exact ? 4 * u * fabs(sum) + own * size : ((double)(p->k + 2) * u + product_error(w)) * size;
        }
}

static void linear(const work *w)
{
    const int64_t k = last(shape_in(w, 0)), n = last(shape_out(w)), rows = rows_of(shape_out(w));
    const int tied = w->op->transpose_b; /* W is (n, k) */
    product p = {rows, n, k, k, 1, tied ? 1 : n, tied ? k : 1};
    if (w->task->kind == TANDEM_TASK_DGRAD) p = (product){rows, k, n, n, 1, tied ? k : 1, tied ? 1 : n};
    if (w->task->kind == TANDEM_TASK_WGRAD && tied) {
        p = (product){n, k, rows, 1, n, k, 1};
        multiply_reference(w, &p, w->in[1], w->in[0], w->out[0], w->bound[0]);
        return;
    }
    if (w->task->kind == TANDEM_TASK_WGRAD) p = (product){k, n, rows, 1, k, n, 1};
    multiply_reference(w, &p, w->in[0], w->in[1], w->out[0], w->bound[0]);
}

static void matmul(const work *w)
{
    const tandem_shape *a = shape_in(w, 0);
    const int64_t m = a->dim[a->n_dim - 2], k = last(a), n = last(shape_out(w));
    const int64_t batch = tandem_shape_elements(a) / (m * k);
    const int t = w->op->transpose_b;
    for (int64_t i = 0; i < batch; i++) {
        const double *first = w->in[0], *second = w->in[1];
        double *c = w->out[0], *bound = w->bound[0];
        if (w->task->kind == TANDEM_TASK_FORWARD) {
            const product p = {m, n, k, k, 1, t ? 1 : n, t ? k : 1};
            multiply_reference(w, &p, first + i * m * k, second + i * k * n, c + i * m * n,
                               bound + i * m * n);
        } else if (w->task->kind == TANDEM_TASK_DGRAD) { /* g·bᵀ */
            const product p = {m, k, n, n, 1, t ? k : 1, t ? 1 : n};
            multiply_reference(w, &p, first + i * m * n, second + i * k * n, c + i * m * k,
                               bound + i * m * k);
        } else if (t) { /* gᵀ·a */
            const product p = {n, k, m, 1, n, k, 1};
            multiply_reference(w, &p, second + i * m * n, first + i * m * k, c + i * k * n,
                               bound + i * k * n);
        } else { /* aᵀ·g */
            const product p = {k, n, m, 1, k, n, 1};
            multiply_reference(w, &p, first + i * m * k, second + i * m * n, c + i * k * n,
                               bound + i * k * n);
        }
    }
}

/* What the terms of each element add up to, their magnitudes, and how many they are. */
typedef struct sums {
    double *value, *size;
    int64_t *terms;
} sums;

/* Element `to` + o: a·x[o]. Most of what all references compute is computed here. */
static void add_multiple(const sums *sum, int64_t to, double a, const double *x, int64_t n)
{
    double *restrict const value = sum->value + to, *restrict const size = sum->size + to;
    int64_t *restrict const terms = sum->terms + to;
    for (int64_t o = 0; o < n; o++) {
        value[o] += a * x[o];
        size[o] += fabs(a * x[o]);
        terms[o]++;
    }
}

/* Element `to`: Σ x[o]·y[o], in this order. */
static void add_dot(const sums *sum, int64_t to, const double *x, const double *y, int64_t n)
{
    double value = sum->value[to], size = sum->size[to];
    for (int64_t o = 0; o < n; o++) {
        value += x[o] * y[o];
        size += fabs(x[o] * y[o]);
    }
    sum->value[to] = value;
    sum->size[to] = size;
    sum->terms[to] += n;
}

/* Every multiplication of a convolution adds to one element of the result, whichever pass it is. */
static void conv2d(const work *w)
{
    const tandem_op *op = w->op;
    const tandem_shape *in = shape_in(w, 0), *out = shape_out(w);
    const int64_t ci = in->dim[3], co = out->dim[3];
    const tandem_task_kind kind = w->task->kind;
    const size_t n = w->operands->out[0].n;
    const sums sum = {w->out[0], calloc(n, sizeof(double)), calloc(n, sizeof(int64_t))};
    if (!sum.size || !sum.terms) abort();
    memset(w->out[0], 0, n * sizeof *w->out[0]);
    for (int64_t b = 0; b < in->dim[0]; b++)
        for (int64_t y = 0; y < out->dim[1]; y++)
            for (int64_t x = 0; x < out->dim[2]; x++)
                for (int64_t ky = 0; ky < op->kernel_h; ky++)
                    for (int64_t kx = 0; kx < op->kernel_w; kx++) {
                        const int64_t sy = y * op->stride - op->pad + ky, sx = x * op->stride - op->pad + kx;
                        if (sy < 0 || sx < 0 || sy >= in->dim[1] || sx >= in->dim[2]) continue;
                        for (int64_t i = 0; i < ci; i++) {
                            const int64_t at_x = ((b * in->dim[1] + sy) * in->dim[2] + sx) * ci + i;
                            const int64_t at_w = ((ky * op->kernel_w + kx) * ci + i) * co;
                            const int64_t at_y = ((b * out->dim[1] + y) * out->dim[2] + x) * co;
                            if (kind == TANDEM_TASK_DGRAD)
                                add_dot(&sum, at_x, w->in[0] + at_y, w->in[1] + at_w, co);
                            else if (kind == TANDEM_TASK_FORWARD)
                                add_multiple(&sum, at_y, w->in[0][at_x], w->in[1] + at_w, co);
                            else
                                add_multiple(&sum, at_w, w->in[0][at_x], w->in[1] + at_y, co);
                        }
                    }
    for (size_t j = 0; j < n; j++)
        w->bound[0][j] = w->task->from == TANDEM_S8
                             ? 4 * u * fabs(w->out[0][j]) + own * sum.size[j]
                             : ((double)(sum.terms[j] + 2) * u + product_error(w)) * sum.size[j];
    free(sum.size);
    free(sum.terms);
}

/* --- Sums and elements ---------------------------------------------------------------------------------- */

static void embedding(const work *w)
{
    const tandem_shape *table = &w->graph->parameter[w->op->parameter[0]].shape;
    const int64_t width = table->dim[1], n = rows_of(shape_out(w));
    if (w->task->kind == TANDEM_TASK_FORWARD) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < width; j++)
                w->out[0][i * width + j] = w->in[1][(int64_t)w->in[0][i] * width + j];
        return;
    }
    for (int64_t i = 0; i < table->dim[0] * width && w->adds_up; i++) {
        w->out[0][i] = operands_prior(w->operands, (size_t)i);
        w->bound[0][i] = (double)(n + 2) * u * fabs(w->out[0][i]);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) {
            const int64_t at = (int64_t)w->in[0][i] * width + j;
            w->out[0][at] += w->in[1][i * width + j];
            w->bound[0][at] += (double)(n + 2) * u * fabs(w->in[1][i * width + j]);
        }
}

static void bias(const work *w)
{
    const tandem_shape *out = shape_out(w), *parameter = &w->graph->parameter[w->op->parameter[0]].shape;
    const int64_t n = tandem_shape_elements(out);
    int64_t period = 1; /* of a parameter with more rows only the first ones are used */
    for (int d = 1; d <= parameter->n_dim; d++) period *= out->dim[out->n_dim - d];
    for (int64_t i = 0; i < n; i++) {
        if (w->task->kind == TANDEM_TASK_FORWARD) {
            w->out[0][i] = w->in[0][i] + w->in[1][i % period];
            continue;
        }
        w->out[0][i % period] += w->in[0][i];
        const int64_t terms = n / period;
        w->bound[0][i % period] += (double)(terms + 2) * u * fabs(w->in[0][i]);
    }
}

static void relu(const work *w)
{
    const int64_t n = tandem_shape_elements(shape_out(w));
    for (int64_t i = 0; i < n; i++)
        w->out[0][i] = w->task->kind == TANDEM_TASK_FORWARD ? fmax(w->in[0][i], 0)
                       : w->in[1][i] > 0                    ? w->in[0][i]
                                                            : 0;
}

/* What is kept is multiplied in f32, so that it has its rounding; operands_run draws from the stream {3, 1,
 * ACTIVATION} of key 7 or 1. */
static void dropout(const work *w)
{
    const tandem_shape *shape = shape_out(w);
    const int64_t n = tandem_shape_elements(shape), first = case_first_place * (n / shape->dim[0]);
    const double rate = round((double)w->op->rate * 65536) / 65536;
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = first + i;
        const uint32_t counter[4] = {(uint32_t)(e / 8), 3, 1, TANDEM_RNG_ACTIVATION};
        const uint32_t word = tandem_philox(counter, w->operands->seed).word[e / 2 % 4];
        const int drops = (e % 2 ? word >> 16 : word & 0xFFFF) < rate * 65536;
        w->out[0][i] = drops ? 0 : w->in[0][i] / (1 - rate);
        w->bound[0][i] = drops ? 0 : 4 * u * fabs(w->out[0][i]);
    }
}

static void add_reference(const work *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) w->out[0][i] = w->in[0][i] + w->in[1][i];
}

static const double gelu_root = 0.7978845608028654, gelu_cubic = 0.044715; /* √(2/π) */

/* Of gelu at x, t being its tanh. */
static double gelu_slope(double x, double t)
{
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_root * (1 + 3 * gelu_cubic * x * x);
}

static void gelu(const work *w)
{
    const int64_t n = tandem_shape_elements(shape_out(w));
    for (int64_t i = 0; i < n; i++) {
        const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
        const double x = w->in[is_forward ? 0 : 1][i], t = tanh(gelu_root * (x + gelu_cubic * x * x * x));
        w->out[0][i] = is_forward ? 0.5 * x * (1 + t) : w->in[0][i] * gelu_slope(x, t);
        w->bound[0][i] = 4 * elementary * (is_forward ? fabs(x) : fabs(w->in[0][i]) * (1 + fabs(x)));
    }
}

static void bias_gelu(const work *w)
{
    const int64_t n = tandem_shape_elements(shape_out(w));
    const int64_t period = w->graph->parameter[w->op->parameter[0]].elements, terms = n / period;
    const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
    /* a sum may be of rounded gradients */
    const double rounding = is_forward || w->operands->out[0].dtype == TANDEM_F32 ? 0 : 0x1p-8;
    for (int64_t i = 0; i < n; i++) {
        const double x = w->in[is_forward ? 0 : 1][i], own_bias = w->in[is_forward ? 1 : 2][i % period],
                     sum = x + own_bias;
        const double t = tanh(gelu_root * (sum + gelu_cubic * sum * sum * sum));
        const double g = is_forward ? 1 : w->in[0][i];
        w->out[0][i] = is_forward ? 0.5 * sum * (1 + t) : g * gelu_slope(sum, t);
        w->bound[0][i] = 4 * elementary * fabs(g) * ((is_forward ? 0 : 1) + fabs(x) + fabs(own_bias));
        if (is_forward) continue;
        w->out[1][i % period] += w->out[0][i];
        w->bound[1][i % period] +=
            w->bound[0][i] + ((double)(terms + 2) * u + rounding) * (fabs(w->out[0][i]) + w->bound[0][i]);
    }
}

static void hyperbolic_tangent(const work *w)
{
    const int64_t n = tandem_shape_elements(shape_out(w));
    for (int64_t i = 0; i < n; i++) {
        const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
        const double y = is_forward ? tanh(w->in[0][i]) : w->in[1][i];
        w->out[0][i] = is_forward ? y : w->in[0][i] * (1 - y * y);
        w->bound[0][i] = is_forward ? 4 * elementary * fabs(w->in[0][i]) : 4 * u * fabs(w->in[0][i]);
    }
}

/* Rows that were not sliced have no gradient. */
static void slice_reference(const work *w)
{
    const tandem_shape *in = shape_in(w, 0), *out = shape_out(w);
    const int64_t row = tandem_shape_elements(in) / (in->dim[0] * in->dim[1]);
    for (int64_t i = 0; i < tandem_shape_elements(out); i++) {
        const int64_t block = i / (out->dim[1] * row),
                      at = block * in->dim[1] * row + w->op->start * row + i % (out->dim[1] * row);
        if (w->task->kind == TANDEM_TASK_FORWARD)
            w->out[0][i] = w->in[0][at];
        else
            w->out[0][at] = w->in[0][i];
    }
}

/* Where the label of row r of n a sample is: its r-th that is not −1, or its r-th where it has n. */
static int64_t label_place(const work *w, const double *label, int64_t r, int64_t n)
{
    const int64_t length = tandem_shape_elements(shape_in(w, 1)) / w->graph->batch, sample = r / n;
    int64_t place = sample * length - 1;
    if (n == length) return r;
    for (int64_t k = 0; k <= r % n; k++) do
            place++;
        while (label[place] < 0);
    return place;
}

/* Rows without a label have no gradient. */
static void labelled(const work *w)
{
    const tandem_shape *in = shape_in(w, 0), *out = shape_out(w);
    const int64_t row = tandem_shape_elements(in) / (in->dim[0] * in->dim[1]), n = out->dim[1];
    for (int64_t r = 0; r < out->dim[0] * n; r++) {
        const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
        const int64_t place = is_forward ? label_place(w, w->in[1], r, n) : (int64_t)w->in[1][r];
        if (is_forward) w->out[1][r] = (double)place;
        for (int64_t j = 0; j < row; j++)
            if (is_forward)
                w->out[0][r * row + j] = w->in[0][place * row + j];
            else
                w->out[0][place * row + j] = w->in[0][r * row + j];
    }
}

static void prepend(const work *w)
{
    const tandem_shape *in = shape_in(w, 0), *out = shape_out(w);
    const int64_t width = in->dim[2], rows = out->dim[1];
    for (int64_t i = 0; i < tandem_shape_elements(out); i++) {
        const int64_t block = i / (rows * width), row = i / width % rows, j = i % width;
        const int64_t at = (block * in->dim[1] + row - 1) * width + j;
        if (w->task->kind == TANDEM_TASK_FORWARD)
            w->out[0][i] = row == 0 ? w->in[1][j] : w->in[0][at];
        else if (w->task->kind == TANDEM_TASK_DGRAD && row > 0)
            w->out[0][at] = w->in[0][i];
        else if (w->task->kind == TANDEM_TASK_WGRAD && row == 0) {
            w->out[0][j] += w->in[0][i];
            w->bound[0][j] += (double)(in->dim[0] + 2) * u * fabs(w->in[0][i]);
        }
    }
}

static void concat_reference(const work *w)
{
    const tandem_shape *in = shape_in(w, 0), *out = shape_out(w);
    const int64_t row = tandem_shape_elements(in) / (in->dim[0] * in->dim[1]);
    const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
    for (int64_t i = 0; i < tandem_shape_elements(out); i++) {
        const int64_t block = i / (out->dim[1] * row), k = i / row % out->dim[1], j = i % row;
        const int part = k >= in->dim[1];
        const int64_t rows = part ? out->dim[1] - in->dim[1] : in->dim[1],
                      at = (block * rows + (part ? k - in->dim[1] : k)) * row + j;
        if (is_forward)
            w->out[0][i] = w->in[part][at];
        else
            w->out[part][at] = w->in[0][i];
    }
}

static void mul_reference(const work *w)
{
    const tandem_shape *in = shape_in(w, 0), *other = shape_in(w, 1);
    const int64_t n = tandem_shape_elements(in), m = tandem_shape_elements(other), repeats = n / m,
                  row = m / other->dim[0];
    const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i / (repeats * row) * row + i % row;
        if (is_forward) {
            w->out[0][i] = w->in[0][i] * w->in[1][at];
            w->bound[0][i] = 2 * u * fabs(w->out[0][i]);
            continue;
        }
        const double g = w->in[0][i], part = g * w->in[1][i];
        w->out[0][i] = g * w->in[2][at];
        w->bound[0][i] = 2 * u * fabs(w->out[0][i]);
        w->out[1][at] += part;
        w->bound[1][at] += (double)(repeats + 2) * u * fabs(part);
    }
}

/* f, and its slope by differences of it. */
static void map_reference(const work *w)
{
    const int64_t n = tandem_shape_elements(shape_out(w));
    const tandem_function f = w->op->function;
    const double a = (double)w->op->alpha, b = (double)w->op->beta, h = 1e-5;
    for (int64_t i = 0; i < n; i++) {
        if (w->task->kind == TANDEM_TASK_FORWARD) {
            w->out[0][i] = tandem_function_value(f, w->in[0][i], a, b);
            w->bound[0][i] = 2 * u * fabs(w->out[0][i]);
            continue;
        }
        const double x = w->in[1][i], g = w->in[0][i];
        w->out[0][i] =
            g * (tandem_function_value(f, x + h, a, b) - tandem_function_value(f, x - h, a, b)) / (2 * h);
        w->bound[0][i] = fabs(g) * 1e-8 + 4 * u * fabs(w->out[0][i]);
    }
}

static void scale_reference(const work *w)
{
    const int64_t n = tandem_shape_elements(shape_out(w)), width = tandem_shape_last(shape_out(w));
    const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
    for (int64_t i = 0; i < n; i++) {
        const double x = w->in[0][i], factor = w->in[is_forward ? 1 : 2][i % width];
        w->out[0][i] = x * factor;
        w->bound[0][i] = 2 * u * fabs(w->out[0][i]);
        if (is_forward) continue;
        const double part = x * w->in[1][i];
        w->out[1][i % width] += part;
        w->bound[1][i % width] += (double)(n / width + 2) * u * fabs(part);
    }
}

static void mul_constant_reference(const work *w)
{
    const tandem_shape *const shape = shape_out(w);
    for (int64_t i = 0; i < tandem_shape_elements(shape); i++) {
        int64_t at = 0, rest = i;
        for (int d = shape->n_dim - 1; d >= 0; rest /= shape->dim[d--])
            at += rest % shape->dim[d] * w->op->factor_step[d];
        w->out[0][i] = w->in[0][i] * (double)w->op->factor[at];
        w->bound[0][i] = 2 * u * fabs(w->out[0][i]);
    }
}

static void repeat_reference(const work *w)
{
    const tandem_shape *const out = shape_out(w);
    const int64_t times = out->dim[1], n = tandem_shape_elements(out), row = n / (out->dim[0] * times);
    const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i / (times * row) * row + i % row;
        w->out[0][is_forward ? i : at] += w->in[0][is_forward ? at : i];
        if (!is_forward) w->bound[0][at] += (double)(times + 1) * u * fabs(w->in[0][i]);
    }
}

/* For each result and each entry of its window. */
static void grouped_reference(const work *w)
{
    const tandem_op *op = w->op;
    const tandem_shape *in = shape_in(w, 0), *out = shape_out(w);
    const int64_t depth = in->dim[3] / op->groups, per = out->dim[3] / op->groups;
    const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
    const double *const x = w->in[is_forward ? 0 : 1], *const weight = w->in[is_forward ? 1 : 2];
    for (int64_t i = 0; i < tandem_shape_elements(out); i++) {
        const int64_t o = i % out->dim[3], column = i / out->dim[3] % out->dim[2],
                      row = i / (out->dim[3] * out->dim[2]) % out->dim[1],
                      n = i / (out->dim[3] * out->dim[2] * out->dim[1]);
        for (int64_t k = 0; k < (int64_t)op->kernel_h * op->kernel_w * depth; k++) {
            const int64_t d = k % depth, kx = k / depth % op->kernel_w, ky = k / depth / op->kernel_w;
            const int64_t y0 = row * op->stride - op->pad + ky * op->dilation,
                          x0 = column * op->stride - op->pad + kx * op->dilation;
            if (y0 < 0 || y0 >= in->dim[1] || x0 < 0 || x0 >= in->dim[2]) continue;
            const int64_t at = ((n * in->dim[1] + y0) * in->dim[2] + x0) * in->dim[3] + o / per * depth + d,
                          of = k * out->dim[3] + o;
            const double terms = (double)(tandem_shape_elements(out) + 2) * u;
            if (is_forward) {
                w->out[0][i] += x[at] * weight[of];
                w->bound[0][i] += terms * fabs(x[at] * weight[of]);
                continue;
            }
            const double g = w->in[0][i];
            w->out[0][at] += g * weight[of];
            w->bound[0][at] += terms * fabs(g * weight[of]);
            w->out[1][of] += g * x[at];
            w->bound[1][of] += terms * fabs(g * x[at]);
        }
    }
}

/* Probabilities of one row; the last `masked` are 0. */
static void softmax_row(const double *x, double *p, int64_t n, int64_t masked, double scale)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n - masked; j++) most = fmax(most, scale * x[j]);
    for (int64_t j = 0; j < n; j++) sum += p[j] = j < n - masked ? exp(scale * x[j] - most) : 0;
    for (int64_t j = 0; j < n; j++) p[j] /= sum;
}

static double softmax_bound(double p, int64_t n) { return p * (8 * elementary + (double)n * u) + 0x1p-120; }

static void softmax(const work *w)
{
    const int64_t n = last(shape_out(w)), rows = rows_of(shape_out(w));
    const double scale = (double)w->op->scale;
    for (int64_t r = 0; r < rows; r++) {
        const double *first = w->in[0] + r * n;
        double *out = w->out[0] + r * n, *bound = w->bound[0] + r * n;
        const int64_t masked = w->op->causal ? n - 1 - r % n : 0;
        if (w->task->kind == TANDEM_TASK_FORWARD) {
            softmax_row(first, out, n, masked, scale);
            for (int64_t j = 0; j < n; j++) bound[j] = j < n - masked ? softmax_bound(out[j], n) : 0;
            continue;
        }
        const double *y = w->in[1] + r * n;
        double dot = 0, size = 0;
        for (int64_t j = 0; j < n; j++) {
            dot += first[j] * y[j];
            size += fabs(first[j] * y[j]);
        }
        for (int64_t j = 0; j < n; j++) {
            out[j] = scale * y[j] * (first[j] - dot);
            bound[j] = scale * y[j] * ((double)(n + 8) * u * size + 8 * u * fabs(first[j]));
        }
    }
}

static double target(int64_t j, int64_t label, int64_t n)
{
    const double s = (double)case_smoothing;
    return s / (double)n + (j == label ? 1 - s : 0);
}

/* The largest of a row's logits, and Σ e^(logit − that). */
static void row_statistics(const double *x, int64_t n, double *most, double *sum)
{
    *most = -INFINITY, *sum = 0;
    for (int64_t j = 0; j < n; j++) *most = fmax(*most, x[j]);
    for (int64_t j = 0; j < n; j++) *sum += exp(x[j] - *most);
}

/* From probabilities, or, where logits are saved, from these and each row's statistics. */
static void loss_gradient(const work *w, int64_t r, int64_t n, int64_t rows)
{
    const int64_t label = (int64_t)w->in[0][label_place(w, w->in[0], r, rows / w->graph->batch)];
    for (int64_t j = 0; j < n && label >= 0; j++) {
        double p = w->in[1][r * n + j];
        if (w->saves_input) p = exp(p - w->in[2][r]) / w->in[2][rows + r];
        w->out[0][r * n + j] = (p - target(j, label, n)) * w->row_weight;
        w->bound[0][r * n + j] = (4 * u + (w->saves_input ? softmax_bound(p, 1) : 0)) * w->row_weight;
    }
}

static void cross_entropy(const work *w)
{
    const tandem_shape *logits = shape_in(w, 0);
    const int64_t n = last(logits), rows = rows_of(logits);
    for (int64_t r = 0; r < rows; r++) {
        if (w->task->kind == TANDEM_TASK_DGRAD) {
            loss_gradient(w, r, n, rows);
            continue;
        }
        const double *x = w->in[0] + r * n;
        const int64_t label = (int64_t)w->in[1][label_place(w, w->in[1], r, rows / w->graph->batch)];
        double most, sum;
        row_statistics(x, n, &most, &sum);
        if (w->saves_input) {
            w->out[1][r] = most;
            w->out[1][rows + r] = sum;
            w->bound[1][rows + r] = softmax_bound(sum, n);
        } else {
            softmax_row(x, w->out[1] + r * n, n, 0, 1);
            for (int64_t j = 0; j < n; j++) w->bound[1][r * n + j] = softmax_bound(w->out[1][r * n + j], n);
        }
        if (label < 0) continue; /* it is not predicted */
        for (int64_t j = 0; j < n; j++)
            w->out[0][0] += target(j, label, n) * (log(sum) - (x[j] - most)) * w->row_weight;
        w->bound[0][0] += (16 * elementary + (double)n * u) * w->row_weight;
    }
}

/* --- Norms: groups of n numbers; a layernorm's are rows, a batchnorm's are columns ---------------------- */

typedef struct group {
    int64_t n, stride;
    double mean, variance, mean_size; /* mean_size: of |x| */
} group;

static group statistics(const double *x, int64_t n, int64_t stride)
{
    group g = {.n = n, .stride = stride};
    for (int64_t i = 0; i < n; i++) {
        g.mean += x[i * stride] / (double)n;
        g.mean_size += fabs(x[i * stride]) / (double)n;
    }
    for (int64_t i = 0; i < n; i++)
        g.variance += (x[i * stride] - g.mean) * (x[i * stride] - g.mean) / (double)n;
    return g;
}

/* Group `index` begins at x[start]; element i of it has parameter (layernorm) i or (batchnorm) index. */
typedef struct norm_layout {
    int64_t groups, n, stride, step;
    int by_group;
} norm_layout;

static norm_layout layout_of(const work *w)
{
    const int64_t c = last(shape_out(w)), rows = rows_of(shape_out(w));
    if (w->op->kind == TANDEM_OP_LAYERNORM) return (norm_layout){rows, c, 1, c, 0};
    return (norm_layout){c, rows, c, 1, 1};
}

static int has_residual(const work *w) { return w->op->kind == TANDEM_OP_BATCHNORM_ADD_RELU; }
static int has_relu(const work *w) { return w->op->kind == TANDEM_OP_BATCHNORM_RELU || has_residual(w); }

static void norm_forward(const work *w)
{
    const norm_layout l = layout_of(w);
    const double *scale = w->in[1 + has_residual(w)], *shift = w->in[2 + has_residual(w)];
    for (int64_t k = 0; k < l.groups; k++) {
        const double *x = w->in[0] + k * l.step;
        const group g = statistics(x, l.n, l.stride);
        const double sigma = sqrt(g.variance + (double)w->op->epsilon);
        w->out[1][k] = g.mean;
        w->out[1][l.groups + k] = g.variance;
        w->bound[1][k] = (double)(l.n + 4) * u * g.mean_size;
        w->bound[1][l.groups + k] = (double)(2 * l.n + 16) * u * (g.variance + g.mean_size * g.mean_size);
        for (int64_t i = 0; i < l.n; i++) {
            const int64_t at = i * l.stride, p = l.by_group ? k : i;
            const double hat = (x[at] - g.mean) / sigma;
            const double size = fabs(scale[p]) * (fabs(x[at]) + g.mean_size) / sigma;
            const double residual = has_residual(w) ? w->in[1][k * l.step + at] : 0;
            const double y = scale[p] * hat + shift[p] + residual;
            w->out[0][k * l.step + at] = has_relu(w) ? fmax(y, 0) : y;
            w->bound[0][k * l.step + at] =
                (double)(l.n + 16) * u * size * (1 + fabs(hat)) + 4 * u * (fabs(shift[p]) + fabs(residual));
        }
    }
}

/* g where the rectifier lets it through. */
static double passed(const work *w, int64_t at, double hat, int64_t p)
{
    const double result = has_residual(w) ? w->in[2][at] : has_relu(w) ? hat * w->in[3][p] + w->in[4][p] : 1;
    return result > 0 ? w->in[0][at] : 0;
}

/* gx = (s − mean(s) − x̂·mean(s·x̂))/σ with s = g·scale; gradient of scale: Σ g·x̂, of shift: Σ g; of a
 * residual: g. */
static void norm_dgrad(const work *w)
{
    const norm_layout l = layout_of(w);
    const double *aux = w->in[2 + has_residual(w)], *scale = w->in[3 + has_residual(w)];
    const int of_scale = 1 + has_residual(w), of_shift = 2 + has_residual(w);
    for (int64_t k = 0; k < l.groups; k++) {
        const double *x = w->in[1] + k * l.step;
        const double mean = aux[k], sigma = sqrt(aux[l.groups + k] + (double)w->op->epsilon);
        double sum = 0, sum_size = 0, dot = 0, dot_size = 0;
        for (int64_t i = 0; i < l.n; i++) {
            const int64_t at = i * l.stride, p = l.by_group ? k : i;
            const double hat = (x[at] - mean) / sigma, g = passed(w, k * l.step + at, hat, p);
            const double s = g * scale[p];
            const double hat_size = (fabs(x[at]) + fabs(mean)) / sigma;
            sum += s / (double)l.n;
            sum_size += fabs(s) / (double)l.n;
            dot += s * hat / (double)l.n;
            dot_size += fabs(s) * hat_size / (double)l.n;
            w->out[of_scale][p] += g * hat;
            w->bound[of_scale][p] += (double)((l.by_group ? l.n : l.groups) + 16) * u * fabs(g) * hat_size;
            w->out[of_shift][p] += g;
            w->bound[of_shift][p] += (double)((l.by_group ? l.n : l.groups) + 16) * u * fabs(g);
            if (has_residual(w)) w->out[1][k * l.step + at] = g;
        }
        for (int64_t i = 0; i < l.n; i++) {
            const int64_t at = i * l.stride, p = l.by_group ? k : i;
            const double hat = (x[at] - mean) / sigma, g = passed(w, k * l.step + at, hat, p);
            const double s = g * scale[p];
            const double hat_size = (fabs(x[at]) + fabs(mean)) / sigma;
            w->out[0][k * l.step + at] = (s - sum - hat * dot) / sigma;
            w->bound[0][k * l.step + at] =
                (double)(l.n + 32) * u * (fabs(s) + sum_size + hat_size * dot_size) / sigma;
        }
    }
}

/* --- Windows -------------------------------------------------------------------------------------------- */

/* Place in x of window place q of output element (b, y, x, c); −1 where that is padding. */
static int64_t place_in(const work *w, int64_t output, int64_t q)
{
    const tandem_shape *in = shape_in(w, 0), *out = shape_out(w);
    const int64_t c = output % out->dim[3], x = output / out->dim[3] % out->dim[2];
    const int64_t y = output / (out->dim[3] * out->dim[2]) % out->dim[1],
                  b = output / (out->dim[3] * out->dim[2] * out->dim[1]);
    const int64_t sy = y * w->op->stride - w->op->pad + q / w->op->kernel_w;
    const int64_t sx = x * w->op->stride - w->op->pad + q % w->op->kernel_w;
    if (sy < 0 || sx < 0 || sy >= in->dim[1] || sx >= in->dim[2]) return -1;
    return ((b * in->dim[1] + sy) * in->dim[2] + sx) * in->dim[3] + c;
}

static int64_t best_place(const work *w, const double *x, int64_t output)
{
    int64_t best = -1;
    for (int64_t q = 0; q < (int64_t)w->op->kernel_h * w->op->kernel_w; q++) {
        const int64_t at = place_in(w, output, q);
        if (at >= 0 && (best < 0 || x[at] > x[place_in(w, output, best)])) best = q;
    }
    return best;
}

/* The kernel's own place is right where the number there is the maximum: numbers may tie. */
static void maxpool(const work *w)
{
    const int64_t n = tandem_shape_elements(shape_out(w)),
                  window = (int64_t)w->op->kernel_h * w->op->kernel_w;
    const double rounding = rounding_of(w->task->from);
    for (int64_t i = 0; i < n; i++) {
        if (w->task->kind == TANDEM_TASK_FORWARD) {
            const int64_t best = best_place(w, w->in[0], i), noted = (int64_t)w->operands->out[1].value[i];
            const int64_t at = noted >= 0 && noted < window ? place_in(w, i, noted) : -1;
            w->out[0][i] = w->in[0][place_in(w, i, best)];
            const int is_maximum = at >= 0 && !(w->in[0][at] < w->out[0][i]);
            w->out[1][i] = is_maximum ? (double)noted : (double)best;
            continue;
        }
        const int64_t at = place_in(w, i, (int64_t)w->in[1][i]);
        w->out[0][at] += w->in[0][i];
        w->bound[0][at] += (double)window * rounding * fabs(w->in[0][i]);
    }
}

static void avgpool(const work *w)
{
    const int64_t n = tandem_shape_elements(shape_out(w)),
                  window = (int64_t)w->op->kernel_h * w->op->kernel_w;
    const int is_forward = w->task->kind == TANDEM_TASK_FORWARD;
    /* a gradient in bf16 may be summed in bf16, window by window */
    const double rounding = is_forward ? u : rounding_of(w->task->from);
    for (int64_t i = 0; i < n; i++)
        for (int64_t q = 0; q < window; q++) {
            const int64_t at = place_in(w, i, q), to = is_forward ? i : at, from = is_forward ? at : i;
            w->out[0][to] += w->in[0][from] / (double)window;
            w->bound[0][to] += (double)(window + 4) * rounding * fabs(w->in[0][from]) / (double)window;
        }
}

static void transpose(const work *w)
{
    const tandem_shape *in = shape_in(w, 0), *out = shape_out(w);
    const int64_t n = tandem_shape_elements(out);
    for (int64_t i = 0; i < n; i++) {
        int64_t index[TANDEM_MAX_DIM] = {0}, rest = i, at = 0;
        for (int d = out->n_dim - 1; d >= 0; d--) {
            index[w->op->axis[d]] = rest % out->dim[d];
            rest /= out->dim[d];
        }
        for (int d = 0; d < in->n_dim; d++) at = at * in->dim[d] + index[d];
        if (w->task->kind == TANDEM_TASK_FORWARD)
            w->out[0][i] = w->in[0][at];
        else
            w->out[0][at] = w->in[0][i];
    }
}

/* --- Casts ---------------------------------------------------------------------------------------------- */

static void cast(const work *w)
{
    const size_t n = w->operands->out[0].n;
    for (size_t i = 0; i < n; i++) {
        w->out[0][i] = w->in[0][i];
        if (w->task->to == TANDEM_S8) /* up to a step, and what u_i is short of even (isa_kernels.h) */
            w->bound[0][i] = (double)w->operands->out[0].scale * (1 + 0x1p-12);
        /* half of the last bit, or half of the least step; the division moves it by two f32 bits more */
        if (w->task->to == TANDEM_E4M3)
            w->bound[0][i] =
                fabs(w->in[0][i]) * (0x1p-4 + 0x1p-20) + (double)w->operands->out[0].scale * 0x1p-10;
        if (w->task->to == TANDEM_E5M2)
            w->bound[0][i] =
                fabs(w->in[0][i]) * (0x1p-3 + 0x1p-20) + (double)w->operands->out[0].scale * 0x1p-17;
    }
    if (w->operands->n_out < 2) return;
    memcpy(w->out[1], w->out[0], n * sizeof *w->out[1]); /* the transposed copy */
    memcpy(w->bound[1], w->bound[0], n * sizeof *w->bound[1]);
}

/* --- All of them ---------------------------------------------------------------------------------------- */

static int reference_op(const work *w)
{
    switch (w->op->kind) {
    case TANDEM_OP_LINEAR: linear(w); return 1;
    case TANDEM_OP_CONV2D: conv2d(w); return 1;
    case TANDEM_OP_MATMUL: matmul(w); return 1;
    case TANDEM_OP_EMBEDDING: embedding(w); return 1;
    case TANDEM_OP_BIAS: bias(w); return 1;
    case TANDEM_OP_RELU: relu(w); return 1;
    case TANDEM_OP_DROPOUT: dropout(w); return 1;
    case TANDEM_OP_ADD: add_reference(w, tandem_shape_elements(&w->op->shape)); return 1;
    case TANDEM_OP_MAXPOOL: maxpool(w); return 1;
    case TANDEM_OP_AVGPOOL: avgpool(w); return 1;
    case TANDEM_OP_TRANSPOSE: transpose(w); return 1;
    case TANDEM_OP_SLICE: slice_reference(w); return 1;
    case TANDEM_OP_GATHER_LABELLED: labelled(w); return 1;
    case TANDEM_OP_CONCAT_TOKEN: prepend(w); return 1;
    case TANDEM_OP_CONCAT: concat_reference(w); return 1;
    case TANDEM_OP_MUL: mul_reference(w); return 1;
    case TANDEM_OP_MAP: map_reference(w); return 1;
    case TANDEM_OP_SCALE: scale_reference(w); return 1;
    case TANDEM_OP_MUL_CONSTANT: mul_constant_reference(w); return 1;
    case TANDEM_OP_REPEAT: repeat_reference(w); return 1;
    case TANDEM_OP_GROUPED_CONV2D: grouped_reference(w); return 1;
    case TANDEM_OP_TANH: hyperbolic_tangent(w); return 1;
    case TANDEM_OP_GELU: gelu(w); return 1;
    case TANDEM_OP_BIAS_GELU: bias_gelu(w); return 1;
    case TANDEM_OP_SOFTMAX: softmax(w); return 1;
    case TANDEM_OP_CROSS_ENTROPY: cross_entropy(w); return 1;
    case TANDEM_OP_LAYERNORM:
    case TANDEM_OP_BATCHNORM:
    case TANDEM_OP_BATCHNORM_RELU:
    case TANDEM_OP_BATCHNORM_ADD_RELU:
        if (w->task->kind == TANDEM_TASK_FORWARD)
            norm_forward(w);
        else
            norm_dgrad(w);
        return 1;
    default: return 0;
    }
}

/* Results exact in f32 keep a bound of 0: moving a number must not change it. */
static int only_moves(const work *w)
{
    const tandem_op_kind kind = w->op->kind;
    if (w->task->kind != TANDEM_TASK_FORWARD && w->task->kind != TANDEM_TASK_DGRAD) return 0;
    return kind == TANDEM_OP_RELU || kind == TANDEM_OP_TRANSPOSE || kind == TANDEM_OP_SLICE ||
           kind == TANDEM_OP_GATHER_LABELLED ||
           ((kind == TANDEM_OP_CONCAT || kind == TANDEM_OP_REPEAT) && w->task->kind == TANDEM_TASK_FORWARD) ||
           (w->task->kind == TANDEM_TASK_DGRAD && kind == TANDEM_OP_CONCAT_TOKEN) ||
           (w->task->kind == TANDEM_TASK_FORWARD && kind == TANDEM_OP_MAXPOOL) ||
           (w->task->kind == TANDEM_TASK_FORWARD && kind == TANDEM_OP_EMBEDDING &&
            w->operands->out[0].dtype == TANDEM_F32);
}

/* The sum so far, which a product may begin with as well as end. */
static void add_prior(const work *w)
{
    const tandem_shape *out = shape_out(w);
    const double terms = (double)(last(out) + out->dim[out->n_dim - 2]);
    for (size_t i = 0; i < w->operands->out[0].n && w->task->accumulate; i++) {
        const double prior = operands_prior(w->operands, i);
        w->out[0][i] += prior;
        w->bound[0][i] += (terms + 2) * u * fabs(prior) + 2 * u * fabs(w->out[0][i]);
    }
}

static void add_rounding(const work *w, int k)
{
    const case_array *array = &w->operands->out[k];
    if (has_scale(array->dtype) || only_moves(w)) return;
    const double rounding = rounding_of(array->dtype),
                 least = array->dtype == TANDEM_F16 ? 0x1p-25 : 0x1p-126;
    for (size_t i = 0; i < array->n; i++)
        w->bound[k][i] += rounding * (fabs(w->out[k][i]) + w->bound[k][i]) +
                          (w->bound[k][i] > 0 || array->dtype == TANDEM_F16 ? least : 0);
}

int task_reference(const tandem_step *step, int t, const task_operands *operands, float row_weight,
                   double *const *result, double *const *bound)
{
    work w = {.graph = step->graph,
              .op = &step->graph->op[step->task[t].op],
              .task = &step->task[t],
              .operands = operands,
              .out = result,
              .bound = bound,
              .row_weight = (double)row_weight,
              .adds_up = operands_add_up(step, t)};
    if (w.op)
        w.saves_input = tandem_op_row_on(w.op->kind, step->options.narrow_rows)->saves & TANDEM_SAVES_INPUT;
    for (int k = 0; k < operands->n_in; k++) w.in[k] = operands->in[k].value;
    for (int k = 0; k < operands->n_out; k++) {
        memset(result[k], 0, operands->out[k].n * sizeof *result[k]);
        memset(bound[k], 0, operands->out[k].n * sizeof *bound[k]);
    }
    switch (w.task->kind) {
    case TANDEM_TASK_FORWARD:
    case TANDEM_TASK_WGRAD:
    case TANDEM_TASK_DGRAD:
        if (!reference_op(&w)) return 0;
        add_prior(&w);
        break;
    case TANDEM_TASK_ACCUMULATE: add_reference(&w, (int64_t)operands->out[0].n); break;
    case TANDEM_TASK_WEIGHT_CAST:
    case TANDEM_TASK_CAST:
    case TANDEM_TASK_GRADIENT_CAST:
    case TANDEM_TASK_SAVED_CAST: cast(&w); break;
    default: return 0;
    }
    for (int k = 0; k < operands->n_out; k++) add_rounding(&w, k);
    return 1;
}

/* --- What a dgrad is given ------------------------------------------------------------------------------ */

static void fill_softmax(case_array *p, const tandem_shape *shape, int causal, double scale)
{
    const int64_t n = last(shape);
    for (int64_t r = 0; r < rows_of(shape); r++)
        softmax_row(p->value + r * n, p->value + r * n, n, causal ? n - 1 - r % n : 0, scale);
    array_store(p);
}

/* Of a dgrad's logits, where they are saved. */
static void fill_loss_statistics(const work *w, case_array *aux)
{
    const int64_t n = last(shape_in(w, 0)), rows = rows_of(shape_in(w, 0));
    for (int64_t r = 0; r < rows; r++)
        row_statistics(w->in[1] + r * n, n, &aux->value[r], &aux->value[rows + r]);
    array_store(aux);
}

static void fill_statistics(const work *w, case_array *aux)
{
    const norm_layout l = layout_of(w);
    for (int64_t k = 0; k < l.groups; k++) {
        const group g = statistics(w->in[1] + k * l.step, l.n, l.stride);
        aux->value[k] = g.mean;
        aux->value[l.groups + k] = g.variance;
    }
    array_store(aux);
}

static void fill_places(const work *w, case_array *aux, uint64_t key)
{
    case_array x;
    array_open(&x, TANDEM_F32, (size_t)tandem_shape_elements(shape_in(w, 0)));
    array_random(&x, key + 1);
    aux->scale = 1;
    for (size_t i = 0; i < aux->n; i++) aux->value[i] = (double)best_place(w, x.value, (int64_t)i);
    array_store(aux);
    array_close(&x);
}

/* As if the last labels of each sample were those that are not −1. */
static void fill_label_places(const work *w, case_array *places)
{
    const tandem_shape *in = shape_in(w, 0), *out = &w->op->shape;
    const int64_t n = out->dim[1], length = in->dim[1];
    for (size_t r = 0; r < places->n; r++)
        places->value[r] = (double)((int64_t)r / n * length + length - n + (int64_t)r % n);
    array_store(places);
}

static void rectify(case_array *y)
{
    for (size_t i = 0; i < y->n; i++) y->value[i] = fmax(y->value[i], 0);
    array_store(y);
}

void reference_fill_saved(task_operands *operands, const tandem_graph *graph, const tandem_op *op,
                          uint64_t key)
{
    work w = {.graph = graph, .op = op, .operands = operands};
    for (int k = 0; k < operands->n_in; k++) w.in[k] = operands->in[k].value;
    switch (op->kind) {
    case TANDEM_OP_RELU: rectify(&operands->in[1]); break;
    case TANDEM_OP_SOFTMAX: fill_softmax(&operands->in[1], &op->shape, op->causal, 3); break;
    case TANDEM_OP_CROSS_ENTROPY:
        if (operands->n_in > 2)
            fill_loss_statistics(&w, &operands->in[2]);
        else
            fill_softmax(&operands->in[1], shape_in(&w, 0), 0, 3);
        break;
    case TANDEM_OP_LAYERNORM:
    case TANDEM_OP_BATCHNORM:
    case TANDEM_OP_BATCHNORM_RELU: fill_statistics(&w, &operands->in[2]); break;
    case TANDEM_OP_BATCHNORM_ADD_RELU:
        fill_statistics(&w, &operands->in[3]);
        rectify(&operands->in[2]);
        break;
    case TANDEM_OP_GATHER_LABELLED: fill_label_places(&w, &operands->in[1]); break;
    case TANDEM_OP_MAXPOOL: fill_places(&w, &operands->in[1], key); break;
    default: break;
    }
}
