/* build.c: the rule of every operator: its inputs, parameters and attributes, and the shape that follows. */
#include "graph/ir/builder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tandem/record.h"

enum { MAX_KERNEL = 1 << 20, MAX_FACTOR = 1 << 28 };

static int build_elementwise(tandem_builder *b, tandem_op_kind kind, const char *name, int x)
{
    tandem_op *op = begin_op(b, kind, name, x, -1, 1, TANDEM_MAX_DIM);
    return op ? finish_op(b, op) : -1;
}

/* --- Sources -------------------------------------------------------------------------------------------- */

static int build_source(tandem_builder *b, tandem_op_kind kind, const char *name, tandem_shape shape)
{
    tandem_op *op = begin_op(b, kind, name, -1, -1, 0, 0);
    if (!op) return -1;
    int *only = kind == TANDEM_OP_LABELS ? &b->label : &b->input;
    if (*only >= 0) {
        fail_build(b, op, "there is '%s' (%s) already; allowed are one source of samples and one of labels",
                   b->op[*only].name, tandem_op_row_get(b->op[*only].kind)->name);
        return -1;
    }
    op->shape = shape;
    op->dtype = kind == TANDEM_OP_IMAGES ? TANDEM_F32 : TANDEM_S32;
    return *only = finish_op(b, op);
}

int tandem_build_images(tandem_builder *b, const char *name, int64_t height, int64_t width, int64_t channels)
{
    return build_source(b, TANDEM_OP_IMAGES, name, (tandem_shape){4, {b->batch, height, width, channels}});
}

int tandem_build_tokens(tandem_builder *b, const char *name, int64_t length)
{
    return build_source(b, TANDEM_OP_TOKENS, name, (tandem_shape){2, {b->batch, length}});
}

int tandem_build_labels(tandem_builder *b, const char *name, int64_t length)
{
    return build_source(b, TANDEM_OP_LABELS, name,
                        (tandem_shape){length == 1 ? 1 : 2, {b->batch, length == 1 ? 0 : length}});
}

int tandem_build_masked_labels(tandem_builder *b, const char *name, int64_t length, int64_t masked)
{
    const int label = tandem_build_labels(b, name, length);
    if (label < 0 || !check_op_range(b, &b->op[label], "the number of masked tokens", masked, 1, length))
        return -1;
    b->masked = masked;
    return label;
}

/* --- Adjustable operators ------------------------------------------------------------------------------- */

int tandem_build_linear(tandem_builder *b, const char *name, int x, int64_t n, float deviation)
{
    tandem_op *op = begin_op(b, TANDEM_OP_LINEAR, name, x, -1, 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    const tandem_shape weight = {2, {tandem_shape_last(&op->shape), n}};
    if (!add_parameter(b, op, weight, deviation, false, true)) return -1;
    op->shape.dim[op->shape.n_dim - 1] = n;
    return finish_op(b, op);
}

int tandem_build_tied(tandem_builder *b, const char *name, int x, int embedding)
{
    tandem_op *op = begin_op(b, TANDEM_OP_LINEAR, name, x, -1, 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    if (embedding < 0 || embedding >= b->n_op || b->op[embedding].kind != TANDEM_OP_EMBEDDING) {
        fail_build(b, op, "its weight is that of operator %d; allowed is an embedding", embedding);
        return -1;
    }
    tandem_op *owner = &b->op[embedding];
    tandem_parameter *table = &b->parameter[owner->parameter[0]];
    const int64_t width = table->shape.dim[1];
    if (!check_op_range(b, op, "the last dimension of its input", tandem_shape_last(&op->shape), width,
                        width))
        return -1;
    if (table->tied >= 0) {
        fail_build(b, op, "the table of '%s' is tied to '%s'; allowed is one linear a table", owner->name,
                   b->op[table->tied].name);
        return -1;
    }
    op->parameter[0] = owner->parameter[0];
    op->transpose_b = 1;
    op->shape.dim[op->shape.n_dim - 1] = table->shape.dim[0];
    const int made = finish_op(b, op);
    if (made >= 0) {
        table->tied = made;
        tandem_op_sign(owner, b->op, b->parameter); /* its gradient is now added, not written */
    }
    return made;
}

/* Shape of an operator that slides a window over images; the channels stay. */
static bool set_window_shape(tandem_builder *b, tandem_op *op, int kernel_h, int kernel_w, int stride,
                             int pad)
{
    /* No window may lie in the padding altogether: a maximum over nothing does not exist. */
    const int smaller = kernel_h < kernel_w ? kernel_h : kernel_w;
    if (!check_op_range(b, op, "the window's height", kernel_h, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the window's width", kernel_w, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the stride", stride, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the padding", pad, 0,
                        op->kind == TANDEM_OP_CONV2D ? smaller - 1 : smaller / 2))
        return false;
    int64_t *dim = op->shape.dim;
    if (kernel_h > dim[1] + 2 * pad || kernel_w > dim[2] + 2 * pad)
        return fail_build(b, op,
                          "a window of %dx%d on images of %" PRId64 "x%" PRId64
                          " padded by %d; allowed are windows that fit",
                          kernel_h, kernel_w, dim[1], dim[2], pad);
    op->kernel_h = kernel_h;
    op->kernel_w = kernel_w;
    op->stride = stride;
    op->pad = pad;
    dim[1] = (dim[1] + 2 * pad - kernel_h) / stride + 1;
    dim[2] = (dim[2] + 2 * pad - kernel_w) / stride + 1;
    return true;
}

int tandem_build_conv2d(tandem_builder *b, const char *name, int x, int64_t channels, int kernel, int stride,
                        int pad)
{
    tandem_op *op = begin_op(b, TANDEM_OP_CONV2D, name, x, -1, 4, 4);
    if (!op || !set_window_shape(b, op, kernel, kernel, stride, pad)) return -1;
    tandem_shape weight = {2, {0, channels}};
    if (__builtin_mul_overflow((int64_t)kernel * kernel, op->shape.dim[3], &weight.dim[0]))
        weight.dim[0] = INT64_MAX;
    const float deviation = sqrtf(2 / (float)weight.dim[0]); /* He et al., ICCV 2015: for a relu after it */
    if (!add_parameter(b, op, weight, deviation, false, true)) return -1;
    op->shape.dim[3] = channels;
    return finish_op(b, op);
}

int tandem_build_matmul(tandem_builder *b, const char *name, int a, int x, int transpose_b)
{
    tandem_op *op = begin_op(b, TANDEM_OP_MATMUL, name, a, x, 3, TANDEM_MAX_DIM);
    if (!op || !check_n_dim(b, op, 1, op->shape.n_dim, op->shape.n_dim)) return -1;
    const tandem_shape *left = input_shape(b, op, 0), *right = input_shape(b, op, 1);
    const int row = left->n_dim - 2, column = left->n_dim - 1;
    const bool fits = memcmp(left->dim, right->dim, (size_t)row * sizeof *left->dim) == 0;
    if (!fits || left->dim[column] != right->dim[transpose_b ? column : row]) {
        char l[SHAPE_TEXT], r[SHAPE_TEXT];
        fail_build(b, op,
                   "%s by %s%s; allowed are equal leading dimensions, and columns of the first equal to %s "
                   "of the second",
                   shape_as_text(l, left), shape_as_text(r, right), transpose_b ? " transposed" : "",
                   transpose_b ? "columns" : "rows");
        return -1;
    }
    op->shape.dim[column] = right->dim[transpose_b ? row : column];
    op->transpose_b = transpose_b != 0;
    return finish_op(b, op);
}

int tandem_build_embedding(tandem_builder *b, const char *name, int tokens, int64_t vocabulary, int64_t width)
{
    tandem_op *op = begin_op(b, TANDEM_OP_EMBEDDING, name, tokens, -1, 1, TANDEM_MAX_DIM - 1);
    if (!op || !add_parameter(b, op, (tandem_shape){2, {vocabulary, width}}, 0.02f, false, true)) return -1;
    op->shape.dim[op->shape.n_dim++] = width;
    return finish_op(b, op);
}

/* --- Dependent operators -------------------------------------------------------------------------------- */

int tandem_build_bias(tandem_builder *b, const char *name, int x, int n_trailing, float deviation)
{
    tandem_op *op = begin_op(b, TANDEM_OP_BIAS, name, x, -1, 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    const int first = op->shape.n_dim - n_trailing;
    if (!check_op_range(b, op, "the number of trailing dimensions", n_trailing, 1, op->shape.n_dim - 1))
        return -1;
    tandem_shape shape = {n_trailing, {0}};
    memcpy(shape.dim, &op->shape.dim[first], (size_t)n_trailing * sizeof *shape.dim);
    return add_parameter(b, op, shape, deviation, false, false) ? finish_op(b, op) : -1;
}

int tandem_build_row_bias(tandem_builder *b, const char *name, int x, int64_t rows, float deviation)
{
    tandem_op *op = begin_op(b, TANDEM_OP_BIAS, name, x, -1, 3, TANDEM_MAX_DIM);
    if (!op) return -1;
    const int64_t used = op->shape.dim[op->shape.n_dim - 2];
    const tandem_shape shape = {2, {rows, tandem_shape_last(&op->shape)}};
    return check_op_range(b, op, "the number of rows", rows, used, INT32_MAX) &&
                   add_parameter(b, op, shape, deviation, false, false)
               ? finish_op(b, op)
               : -1;
}

int tandem_build_relu(tandem_builder *b, const char *name, int x)
{
    return build_elementwise(b, TANDEM_OP_RELU, name, x);
}
int tandem_build_gelu(tandem_builder *b, const char *name, int x)
{
    return build_elementwise(b, TANDEM_OP_GELU, name, x);
}
int tandem_build_tanh(tandem_builder *b, const char *name, int x)
{
    return build_elementwise(b, TANDEM_OP_TANH, name, x);
}

int tandem_build_dropout(tandem_builder *b, const char *name, int x, float rate)
{
    if (rate == 0) return x;
    tandem_op *op = begin_op(b, TANDEM_OP_DROPOUT, name, x, -1, 1, TANDEM_MAX_DIM);
    if (!op) return -1;
    op->rate = rate;
    const bool fits = (rate > 0 && rate <= 0.9f) ||
                      fail_build(b, op, "the rate is %g; allowed are numbers from 0 to 0.9", (double)rate);
    return fits ? finish_op(b, op) : -1;
}

int tandem_build_add(tandem_builder *b, const char *name, int x, int y)
{
    tandem_op *op = begin_op(b, TANDEM_OP_ADD, name, x, y, 1, TANDEM_MAX_DIM);
    if (!op) return -1;
    const tandem_shape *left = input_shape(b, op, 0), *right = input_shape(b, op, 1);
    char l[SHAPE_TEXT], r[SHAPE_TEXT];
    const bool fits = (left->n_dim == right->n_dim &&
                       memcmp(left->dim, right->dim, (size_t)left->n_dim * sizeof *left->dim) == 0) ||
                      fail_build(b, op, "the inputs have shapes %s and %s; allowed are equal ones",
                                 shape_as_text(l, left), shape_as_text(r, right));
    return fits ? finish_op(b, op) : -1;
}

int tandem_build_maxpool(tandem_builder *b, const char *name, int x, int kernel, int stride, int pad)
{
    tandem_op *op = begin_op(b, TANDEM_OP_MAXPOOL, name, x, -1, 4, 4);
    return op && set_window_shape(b, op, kernel, kernel, stride, pad) ? finish_op(b, op) : -1;
}

int tandem_build_maxpool_to(tandem_builder *b, const char *name, int x, int kernel, int stride, int pad,
                            int pad_end)
{
    tandem_op *op = begin_op(b, TANDEM_OP_MAXPOOL, name, x, -1, 4, 4);
    if (!op || !check_op_range(b, op, "the padding at the end", pad_end, 0, kernel - 1 - pad)) return -1;
    const int64_t *const in = input_shape(b, op, 0)->dim;
    if (!set_window_shape(b, op, kernel, kernel, stride, pad)) return -1;
    op->pad_end = pad_end;
    for (int d = 1; d < 3; d++) op->shape.dim[d] = (in[d] + 2 * pad + pad_end - kernel) / stride + 1;
    return finish_op(b, op);
}

int tandem_build_avgpool(tandem_builder *b, const char *name, int x, int kernel_h, int kernel_w, int stride)
{
    tandem_op *op = begin_op(b, TANDEM_OP_AVGPOOL, name, x, -1, 4, 4);
    return op && set_window_shape(b, op, kernel_h, kernel_w, stride, 0) ? finish_op(b, op) : -1;
}

int tandem_build_reshape(tandem_builder *b, const char *name, int x, int n_dim, const int64_t *dim)
{
    tandem_op *op = begin_op(b, TANDEM_OP_RESHAPE, name, x, -1, 0, TANDEM_MAX_DIM);
    if (!op || !check_op_range(b, op, "the number of dimensions", n_dim, 1, TANDEM_MAX_DIM)) return -1;
    op->dtype = b->op[x].dtype;
    op->shape = (tandem_shape){.n_dim = n_dim};
    memcpy(op->shape.dim, dim, (size_t)n_dim * sizeof *dim);
    if (!check_shape(b, op, "output", &op->shape)) return -1;
    char from[SHAPE_TEXT], to[SHAPE_TEXT];
    shape_as_text(from, input_shape(b, op, 0));
    shape_as_text(to, &op->shape);
    const int64_t elements = tandem_shape_elements(input_shape(b, op, 0));
    if (elements != tandem_shape_elements(&op->shape))
        fail_build(b, op, "%s into %s; allowed are shapes of %" PRId64 " elements", from, to, elements);
    else if (dim[0] % b->batch != 0)
        fail_build(b, op, "%s into %s; the first dimension must stay a multiple of the batch, %" PRId64, from,
                   to, b->batch);
    else
        return finish_op(b, op);
    return -1;
}

int tandem_build_transpose(tandem_builder *b, const char *name, int x, const int *axis)
{
    tandem_op *op = begin_op(b, TANDEM_OP_TRANSPOSE, name, x, -1, 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    unsigned seen = 0;
    for (int d = 0; d < in->n_dim; d++) {
        if (axis[d] < 0 || axis[d] >= in->n_dim || seen >> axis[d] & 1) {
            fail_build(b, op,
                       "axis %d of the output is axis %d of the input; allowed is each of 0 … %d, once", d,
                       axis[d], in->n_dim - 1);
            return -1;
        }
        seen |= 1u << axis[d];
        op->axis[d] = axis[d];
        op->shape.dim[d] = in->dim[axis[d]];
    }
    const bool fits =
        axis[0] == 0 ||
        fail_build(b, op, "axis 0 of the output is axis %d of the input; allowed is 0: the batch stays first",
                   axis[0]);
    return fits ? finish_op(b, op) : -1;
}

int tandem_build_slice(tandem_builder *b, const char *name, int x, int64_t start, int64_t n)
{
    tandem_op *op = begin_op(b, TANDEM_OP_SLICE, name, x, -1, 2, TANDEM_MAX_DIM);
    if (!op || !check_op_range(b, op, "the first row", start, 0, op->shape.dim[1] - 1) ||
        !check_op_range(b, op, "the number of rows", n, 1, op->shape.dim[1] - start))
        return -1;
    op->start = start;
    op->shape.dim[1] = n;
    return finish_op(b, op);
}

int tandem_build_gather_labelled(tandem_builder *b, const char *name, int x, int labels)
{
    tandem_op *op = begin_op(b, TANDEM_OP_GATHER_LABELLED, name, x, labels, 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    const int64_t n = op->shape.dim[0], length = op->shape.dim[1];
    const int64_t n_label = tandem_shape_elements(input_shape(b, op, 1));
    if (!check_op_range(b, op, "the first dimension of its input", n, b->batch, b->batch) ||
        !check_op_range(b, op, "the number of labels", n_label, n * length, n * length) ||
        !check_op_range(b, op, "the number of masked tokens", b->masked, 1, length))
        return -1;
    op->shape.dim[1] = b->masked;
    return finish_op(b, op);
}

int tandem_build_concat_token(tandem_builder *b, const char *name, int x, float deviation)
{
    tandem_op *op = begin_op(b, TANDEM_OP_CONCAT_TOKEN, name, x, -1, 3, 3);
    if (!op) return -1;
    const tandem_shape row = {1, {tandem_shape_last(&op->shape)}};
    if (!add_parameter(b, op, row, deviation, false, false)) return -1;
    op->shape.dim[1]++;
    return finish_op(b, op);
}

int tandem_build_concat(tandem_builder *b, const char *name, int x, int y)
{
    tandem_op *op = begin_op(b, TANDEM_OP_CONCAT, name, x, y, 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    const tandem_shape *left = input_shape(b, op, 0), *right = input_shape(b, op, 1);
    bool fits = left->n_dim == right->n_dim;
    for (int d = 0; d < left->n_dim && fits; d++) fits = d == 1 || left->dim[d] == right->dim[d];
    char l[SHAPE_TEXT], r[SHAPE_TEXT];
    if (!fits) {
        fail_build(b, op, "the inputs have shapes %s and %s; allowed are equal ones, but for dimension 1",
                   shape_as_text(l, left), shape_as_text(r, right));
        return -1;
    }
    op->shape.dim[1] += right->dim[1];
    return finish_op(b, op);
}

int tandem_build_mul(tandem_builder *b, const char *name, int x, int y)
{
    tandem_op *op = begin_op(b, TANDEM_OP_MUL, name, x, y, 1, TANDEM_MAX_DIM);
    if (!op) return -1;
    const tandem_shape *left = input_shape(b, op, 0), *right = input_shape(b, op, 1);
    bool fits = left->n_dim == right->n_dim;
    for (int d = 0; d < left->n_dim && fits; d++)
        fits = left->dim[d] == right->dim[d] || (d == 1 && right->dim[d] == 1);
    char l[SHAPE_TEXT], r[SHAPE_TEXT];
    if (!fits) {
        fail_build(
            b, op,
            "the inputs have shapes %s and %s; allowed are equal ones, or 1 in dimension 1 of the second",
            shape_as_text(l, left), shape_as_text(r, right));
        return -1;
    }
    return finish_op(b, op);
}

/* --- Fixed operators ------------------------------------------------------------------------------------ */

int tandem_build_map(tandem_builder *b, const char *name, int x, tandem_function function, float alpha,
                     float beta)
{
    tandem_op *op = begin_op(b, TANDEM_OP_MAP, name, x, -1, 1, TANDEM_MAX_DIM);
    if (!op || !check_op_range(b, op, "the function", (int64_t)function, 0, TANDEM_N_FUNCTION - 1)) return -1;
    if (!isfinite(alpha) || !isfinite(beta)) {
        fail_build(b, op, "its attributes are %g and %g; allowed are numbers", (double)alpha, (double)beta);
        return -1;
    }
    op->function = function;
    op->alpha = alpha;
    op->beta = beta;
    return finish_op(b, op);
}

int tandem_build_scale(tandem_builder *b, const char *name, int x)
{
    tandem_op *op = begin_op(b, TANDEM_OP_SCALE, name, x, -1, 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    const tandem_shape channels = {1, {tandem_shape_last(&op->shape)}};
    return add_parameter(b, op, channels, 0, true, false) ? finish_op(b, op) : -1;
}

int tandem_build_mul_constant(tandem_builder *b, const char *name, int x, const float *factor,
                              const int64_t *step)
{
    tandem_op *op = begin_op(b, TANDEM_OP_MUL_CONSTANT, name, x, -1, 2, TANDEM_MAX_DIM);
    for (int d = 0; op && d < op->shape.n_dim; d++) {
        if (!check_op_range(b, op, "a step of its factors", step[d], 0, d == 0 ? 0 : MAX_FACTOR)) return -1;
        op->factor_step[d] = step[d];
        if (!check_op_range(b, op, "its size", op->shape.dim[d], 1, INT32_MAX)) return -1;
        if (!check_op_range(b, op, "the number of its factors", tandem_op_n_factor(op), 1, MAX_FACTOR))
            return -1;
    }
    if (op) op->factor = keep_constant(b, factor, tandem_op_n_factor(op));
    return op && op->factor ? finish_op(b, op) : -1;
}

int tandem_build_repeat(tandem_builder *b, const char *name, int x, int64_t times)
{
    tandem_op *op = begin_op(b, TANDEM_OP_REPEAT, name, x, -1, 2, TANDEM_MAX_DIM);
    if (!op || !check_op_range(b, op, "dimension 1", op->shape.dim[1], 1, 1) ||
        !check_op_range(b, op, "the number of times", times, 1, INT32_MAX))
        return -1;
    op->shape.dim[1] = times;
    return finish_op(b, op);
}

static bool is_call_text(const char *text)
{
    size_t n = 0;
    for (; text && text[n] > ' ' && text[n] <= '~'; n++) {
    }
    return n >= 1 && n <= TANDEM_RECORDED_TEXT && !text[n];
}

int tandem_build_call(tandem_builder *b, const char *name, int x, const char *text,
                      int64_t parameter_elements, const tandem_shape *shape)
{
    const int is_trained = parameter_elements != 0;
    tandem_op *op =
        begin_op(b, is_trained ? TANDEM_OP_CALL_TRAINED : TANDEM_OP_CALL, name, x, -1, 0, TANDEM_MAX_DIM);
    if (!op) return -1;
    if (!is_call_text(text)) {
        fail_build(b, op, "its text is '%.130s'; allowed are 1 … %d visible characters without spaces",
                   text ? text : "", TANDEM_RECORDED_TEXT);
        return -1;
    }
    const tandem_shape parameter = {1, {parameter_elements}};
    if (is_trained && !add_parameter(b, op, parameter, 0, false, true)) return -1;
    if (shape->n_dim < 1 || shape->n_dim > TANDEM_MAX_DIM) {
        fail_build(b, op, "its result has %d dimensions; allowed 1 … %d", shape->n_dim, TANDEM_MAX_DIM);
        return -1;
    }
    op->shape = *shape;
    if (!check_shape(b, op, "result", &op->shape)) return -1;
    const int y = finish_op(b, op);
    if (y >= 0)
        (void)snprintf(op->signature, sizeof op->signature, "%s %.*s n=%" PRId64,
                       tandem_op_row_get(op->kind)->name, TANDEM_RECORDED_TEXT, text,
                       tandem_shape_elements(&op->shape));
    return y;
}

int tandem_build_grouped_conv2d(tandem_builder *b, const char *name, int x, int64_t channels,
                                const tandem_grouped_window *w)
{
    tandem_op *op = begin_op(b, TANDEM_OP_GROUPED_CONV2D, name, x, -1, 4, 4);
    if (!op) return -1;
    int64_t *const dim = op->shape.dim;
    if (!check_op_range(b, op, "the window's height", w->kernel_h, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the window's width", w->kernel_w, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the stride", w->stride, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the padding", w->pad, 0, MAX_KERNEL) ||
        !check_op_range(b, op, "the padding at the end", w->pad_end, 0, MAX_KERNEL) ||
        !check_op_range(b, op, "the dilation", w->dilation, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the number of groups", w->groups, 1, dim[3]) ||
        !check_op_range(b, op, "the rest of channels over groups", dim[3] % w->groups + channels % w->groups,
                        0, 0))
        return -1;
    const int64_t kernel[2] = {w->kernel_h, w->kernel_w};
    tandem_shape weight = {2, {kernel[0] * kernel[1], channels}};
    if (__builtin_mul_overflow(weight.dim[0], dim[3] / w->groups, &weight.dim[0])) weight.dim[0] = INT64_MAX;
    const float deviation = sqrtf(2 / (float)weight.dim[0]);
    for (int d = 1; d < 3; d++) {
        const int64_t room = dim[d] + 2 * w->pad + w->pad_end - (kernel[d - 1] - 1) * w->dilation - 1;
        if (!check_op_range(b, op, "the room for the window", room, 0, INT32_MAX)) return -1;
        dim[d] = room / w->stride + 1;
    }
    if (!add_parameter(b, op, weight, deviation, false, true)) return -1;
    op->kernel_h = w->kernel_h, op->kernel_w = w->kernel_w, op->stride = w->stride, op->pad = w->pad;
    op->pad_end = w->pad_end, op->dilation = w->dilation, op->groups = w->groups;
    dim[3] = channels;
    return finish_op(b, op);
}

int tandem_build_softmax(tandem_builder *b, const char *name, int x, float scale, int causal)
{
    tandem_op *op = begin_op(b, TANDEM_OP_SOFTMAX, name, x, -1, causal ? 3 : 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    const int64_t rows = op->shape.dim[op->shape.n_dim - 2], columns = tandem_shape_last(&op->shape);
    op->scale = scale;
    op->causal = causal != 0;
    if (causal && rows != columns)
        fail_build(b, op,
                   "the last dimensions are %" PRId64 "x%" PRId64
                   "; allowed under a causal mask are equal ones",
                   rows, columns);
    else if (!isfinite(scale) || scale <= 0)
        fail_build(b, op, "the scale is %g; allowed are numbers above 0", (double)scale);
    else
        return finish_op(b, op);
    return -1;
}

static int build_norm(tandem_builder *b, tandem_op_kind kind, const char *name, int x, int min_dim)
{
    tandem_op *op = begin_op(b, kind, name, x, -1, min_dim, TANDEM_MAX_DIM);
    if (!op) return -1;
    const tandem_shape channels = {1, {tandem_shape_last(&op->shape)}};
    op->epsilon = 1e-5f;
    op->momentum = kind == TANDEM_OP_BATCHNORM ? TANDEM_BATCHNORM_MOMENTUM : 0;
    return add_parameter(b, op, channels, 0, true, false) && add_parameter(b, op, channels, 0, false, false)
               ? finish_op(b, op)
               : -1;
}

int tandem_build_layernorm(tandem_builder *b, const char *name, int x)
{
    return build_norm(b, TANDEM_OP_LAYERNORM, name, x, 2);
}
int tandem_build_batchnorm(tandem_builder *b, const char *name, int x)
{
    return build_norm(b, TANDEM_OP_BATCHNORM, name, x, 4);
}

void tandem_build_set_epsilon(tandem_builder *b, int norm, float epsilon)
{
    if (norm < 0) return;
    tandem_op *op = &b->op[norm];
    if (isfinite(epsilon) && epsilon >= 0)
        op->epsilon = epsilon;
    else
        fail_build(b, op, "epsilon is %g; allowed are numbers from 0", (double)epsilon);
}

void tandem_build_set_momentum(tandem_builder *b, int batchnorm, float momentum)
{
    if (batchnorm < 0) return;
    tandem_op *op = &b->op[batchnorm];
    if (momentum >= 0 && momentum <= 1)
        op->momentum = momentum;
    else
        fail_build(b, op, "the momentum is %g; allowed are 0 to 1", (double)momentum);
}

void tandem_build_hand_on_after(tandem_builder *b, int op, int other)
{
    if (op < 0 || other < 0) return;
    b->parameter[b->op[op].parameter[0]].after = b->op[other].parameter[0];
}

int tandem_build_cross_entropy(tandem_builder *b, const char *name, int logits, int labels)
{
    tandem_op *op = begin_op(b, TANDEM_OP_CROSS_ENTROPY, name, logits, labels, 2, TANDEM_MAX_DIM);
    if (!op) return -1;
    const int64_t n_class = tandem_shape_last(&op->shape);
    const int64_t rows = tandem_shape_elements(&op->shape) / n_class;
    const int64_t n_label = tandem_shape_elements(input_shape(b, op, 1));
    const bool only_masked = b->masked && rows == b->batch * b->masked;
    op->shape = (tandem_shape){0};
    return check_op_range(b, op, "the number of classes", n_class, 2, INT32_MAX) &&
                   (only_masked || check_op_range(b, op, "the number of labels", n_label, rows, rows))
               ? finish_op(b, op)
               : -1;
}
