/* build.c: the builder: every operator's rules, and the shape that follows from its inputs. */
#include "graph/ir/op.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OP = 65535, MAX_BATCH = 1 << 20, MAX_KERNEL = 1 << 20, SHAPE_TEXT = 96 };
static const int64_t max_elements = (INT64_C(1) << 44) - 1; /* of f32: below 2^46 bytes */

struct tandem_builder {
    int64_t batch;
    int max_op;
    tandem_error error; /* the first one; status TANDEM_OK while there is none */
    tandem_op *op;
    tandem_parameter *parameter;
    int n_op, n_parameter, op_capacity, parameter_capacity;
    int *by_name; /* open addressing, 2 × op_capacity places (a power of two): operator id + 1, or 0 */
    int input, label;
    int64_t masked;
};

tandem_status tandem_builder_open(tandem_builder **builder, int64_t batch, tandem_error *error)
{
    if (batch < 1 || batch > MAX_BATCH)
        return tandem_error_set(error, TANDEM_USAGE, "the batch is %" PRId64 "; allowed 1 … %d", batch,
                                MAX_BATCH);
    tandem_builder *b = calloc(1, sizeof *b);
    if (!b) return tandem_no_memory(error, "to build a graph");
    b->batch = batch;
    b->max_op = MAX_OP;
    b->input = b->label = -1;
    *builder = b;
    return TANDEM_OK;
}

void tandem_builder_set_max_op(tandem_builder *b, int max_op)
{
    b->max_op = max_op < MAX_OP ? max_op : MAX_OP;
}

int tandem_builder_n_op(const tandem_builder *b) { return b->n_op; }

/* Leaves what was built to its new owner. */
static void detach_graph(tandem_builder *b)
{
    free(b->by_name);
    *b = (tandem_builder){.batch = b->batch, .max_op = b->max_op, .input = -1, .label = -1};
}

void tandem_builder_close(tandem_builder *b)
{
    if (!b) return;
    free(b->by_name);
    free(b->parameter);
    free(b->op);
    free(b);
}

int64_t tandem_builder_batch(const tandem_builder *b) { return b->batch; }

const tandem_shape *tandem_builder_shape(const tandem_builder *b, int tensor)
{
    static const tandem_shape none = {0};
    return tensor >= 0 && tensor < b->n_op ? &b->op[tensor].shape : &none;
}

/* --- Errors --------------------------------------------------------------------------------------------- */
static bool fail_build(tandem_builder *b, const tandem_op *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail_build(tandem_builder *b, const tandem_op *op, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tandem_error_set(&b->error, TANDEM_WRONG_GRAPH, "operator '%s' (%s): %s", op->name,
                     tandem_op_row_get(op->kind)->name, text);
    return false;
}

static bool fail_no_memory(tandem_builder *b)
{
    tandem_no_memory(&b->error, "for a graph of %d operators", b->n_op + 1);
    return false;
}

static const char *shape_as_text(char text[SHAPE_TEXT], const tandem_shape *shape)
{
    size_t n = 0;
    text[0] = '\0';
    for (int d = 0; d < shape->n_dim; d++)
        n += (size_t)snprintf(text + n, SHAPE_TEXT - n, "%s%" PRId64, d ? "x" : "", shape->dim[d]);
    return n ? text : "a single number";
}

/* --- Names ---------------------------------------------------------------------------------------------- */
static uint32_t hash_op_name(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* The place of a name in by_name: where it stands or where it would. */
static uint32_t find_name_slot(const tandem_builder *b, const char *name)
{
    const uint32_t mask = 2 * (uint32_t)b->op_capacity - 1;
    uint32_t slot = hash_op_name(name) & mask;
    while (b->by_name[slot] && strcmp(b->op[b->by_name[slot] - 1].name, name) != 0) slot = (slot + 1) & mask;
    return slot;
}

static bool set_op_name(tandem_builder *b, tandem_op *op, const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    const size_t length = name ? strnlen(name, sizeof op->name) : 0;
    if (length == 0 || length >= sizeof op->name || name[strspn(name, allowed)] != '\0') {
        tandem_error_set(&b->error, TANDEM_WRONG_GRAPH,
                         "operator %d (%s) has the name '%.60s'; allowed are 1 … %zu letters, digits, and "
                         "any of ._-/",
                         b->n_op, tandem_op_row_get(op->kind)->name, name ? name : "", sizeof op->name - 1);
        return false;
    }
    memcpy(op->name, name, length);
    if (b->by_name[find_name_slot(b, op->name)])
        return fail_build(b, op, "the name is taken by operator %d; names must be unique",
                          b->by_name[find_name_slot(b, op->name)] - 1);
    return true;
}

/* --- Operators come and stay ---------------------------------------------------------------------------- */
static bool reserve_op(tandem_builder *b)
{
    if (b->n_op < b->op_capacity) return true;
    const int capacity = b->op_capacity ? 2 * b->op_capacity : 64;
    int *by_name = calloc(2 * (size_t)capacity, sizeof *by_name);
    tandem_op *op = by_name ? realloc(b->op, (size_t)capacity * sizeof *op) : NULL;
    if (!op) {
        free(by_name);
        return fail_no_memory(b);
    }
    free(b->by_name);
    b->by_name = by_name;
    b->op = op;
    b->op_capacity = capacity;
    for (int i = 0; i < b->n_op; i++) b->by_name[find_name_slot(b, b->op[i].name)] = i + 1;
    return true;
}

static bool check_input(tandem_builder *b, const tandem_op *op, int slot)
{
    const int t = op->input[slot];
    if (t < 0 || t >= b->n_op)
        return b->n_op ? fail_build(b, op, "input %d is tensor %d; allowed 0 … %d", slot, t, b->n_op - 1)
                       : fail_build(b, op, "input %d is tensor %d, but there is none yet", slot, t);
    const tandem_op *in = &b->op[t];
    if (in->kind == TANDEM_OP_CROSS_ENTROPY)
        return fail_build(b, op, "it reads '%s'; nothing may follow the loss", in->name);
    const bool reads_classes =
        (op->kind == TANDEM_OP_CROSS_ENTROPY || op->kind == TANDEM_OP_GATHER_LABELLED) && slot == 1;
    if ((in->kind == TANDEM_OP_LABELS) != reads_classes)
        return fail_build(
            b, op,
            "input %d is '%s' (%s); labels are read by the loss and by gather_labelled, as their second "
            "input, and by "
            "nothing else",
            slot, in->name, tandem_op_row_get(in->kind)->name);
    const bool any_type = op->kind == TANDEM_OP_RESHAPE;
    const tandem_dtype wanted = reads_classes || op->kind == TANDEM_OP_EMBEDDING ? TANDEM_S32 : TANDEM_F32;
    if (!any_type && in->dtype != wanted)
        return fail_build(b, op, "input %d, '%s', has type %s; allowed is %s", slot, in->name,
                          tandem_dtype_name(in->dtype), tandem_dtype_name(wanted));
    return true;
}

/* Starts an operator behind the last; it counts once finish_op has taken it. NULL where anything is wrong. */
static tandem_op *begin_op(tandem_builder *b, tandem_op_kind kind, const char *name, int x, int y)
{
    if (b->error.status != TANDEM_OK) return NULL;
    if (b->n_op >= b->max_op) {
        tandem_error_set(&b->error, b->max_op < MAX_OP ? TANDEM_LIMIT_EXCEEDED : TANDEM_WRONG_GRAPH,
                         "the graph has more than %d operators, which is the limit", b->max_op);
        return NULL;
    }
    if (!reserve_op(b)) return NULL;
    const tandem_op_row *row = tandem_op_row_get(kind);
    tandem_op *op = &b->op[b->n_op];
    *op = (tandem_op){.kind = kind, .input = {x, y}, .parameter = {-1, -1}, .dtype = TANDEM_F32};
    if (!set_op_name(b, op, name)) return NULL;
    for (int slot = 0; slot < row->n_input; slot++) {
        if (!check_input(b, op, slot)) return NULL;
        op->needs_gradient |= b->op[op->input[slot]].needs_gradient;
    }
    for (int slot = row->n_input; slot < TANDEM_MAX_INPUT; slot++) op->input[slot] = -1;
    op->needs_gradient |= row->n_parameter > 0;
    return op;
}

static bool check_shape(tandem_builder *b, const tandem_op *op, const char *what, const tandem_shape *shape)
{
    int64_t elements = 1;
    for (int d = 0; d < shape->n_dim; d++) {
        if (shape->dim[d] < 1)
            return fail_build(b, op, "dimension %d of its %s is %" PRId64 "; allowed 1 or more", d, what,
                              shape->dim[d]);
        char text[SHAPE_TEXT];
        if (__builtin_mul_overflow(elements, shape->dim[d], &elements) || elements > max_elements)
            return fail_build(b, op, "its %s has shape %s; allowed are fewer than 2^44 elements", what,
                              shape_as_text(text, shape));
    }
    return true;
}

static int finish_op(tandem_builder *b, tandem_op *op)
{
    if (!check_shape(b, op, "output", &op->shape)) return -1;
    tandem_op_count(op, b->op);
    tandem_op_sign(op, b->op, b->parameter);
    b->by_name[find_name_slot(b, op->name)] = b->n_op + 1;
    return b->n_op++;
}

/* --- What the rules have in common ---------------------------------------------------------------------- */
static const tandem_shape *input_shape(const tandem_builder *b, const tandem_op *op, int slot)
{
    return &b->op[op->input[slot]].shape;
}

static bool check_n_dim(tandem_builder *b, const tandem_op *op, int slot, int min, int max)
{
    const tandem_shape *in = input_shape(b, op, slot);
    char text[SHAPE_TEXT];
    if (in->n_dim >= min && in->n_dim <= max) return true;
    return min == max ? fail_build(b, op, "input %d has shape %s, %d dimensions; allowed %d", slot,
                                   shape_as_text(text, in), in->n_dim, min)
                      : fail_build(b, op, "input %d has shape %s, %d dimensions; allowed %d … %d", slot,
                                   shape_as_text(text, in), in->n_dim, min, max);
}

static bool check_op_range(tandem_builder *b, const tandem_op *op, const char *what, int64_t got, int64_t min,
                           int64_t max)
{
    return (got >= min && got <= max) ||
           fail_build(b, op, "%s is %" PRId64 "; allowed %" PRId64 " … %" PRId64, what, got, min, max);
}

static bool check_deviation(tandem_builder *b, const tandem_op *op, float deviation)
{
    return (isfinite(deviation) && deviation >= 0) ||
           fail_build(b, op, "the deviation of its initial weights is %g; allowed 0 or more",
                      (double)deviation);
}

/* Gives the operator its next parameter. A deviation of 0 means zeros; `ones` overrules it. */
static bool add_parameter(tandem_builder *b, tandem_op *op, tandem_shape shape, float deviation, bool ones,
                          bool has_weight_decay)
{
    if (!check_shape(b, op, "parameter", &shape) || !check_deviation(b, op, deviation)) return false;
    if (b->n_parameter == b->parameter_capacity) {
        const int capacity = b->parameter_capacity ? 2 * b->parameter_capacity : 64;
        tandem_parameter *parameter = realloc(b->parameter, (size_t)capacity * sizeof *parameter);
        if (!parameter) return fail_no_memory(b);
        b->parameter = parameter;
        b->parameter_capacity = capacity;
    }
    tandem_parameter *p = &b->parameter[b->n_parameter];
    *p = (tandem_parameter){.op = b->n_op,
                            .tied = -1,
                            .shape = shape,
                            .elements = tandem_shape_elements(&shape),
                            .has_weight_decay = has_weight_decay};
    p->init = ones ? TANDEM_INIT_ONE : deviation > 0 ? TANDEM_INIT_NORMAL : TANDEM_INIT_ZERO;
    p->deviation = deviation;
    op->parameter[op->parameter[0] < 0 ? 0 : 1] = b->n_parameter++;
    return true;
}

/* An operator that changes neither shape nor anything else that needs checking. */
static int build_elementwise(tandem_builder *b, tandem_op_kind kind, const char *name, int x)
{
    tandem_op *op = begin_op(b, kind, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 1, TANDEM_MAX_DIM)) return -1;
    op->shape = *input_shape(b, op, 0);
    return finish_op(b, op);
}

/* --- Sources -------------------------------------------------------------------------------------------- */
static int build_source(tandem_builder *b, tandem_op_kind kind, const char *name, tandem_shape shape)
{
    tandem_op *op = begin_op(b, kind, name, -1, -1);
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
    tandem_op *op = begin_op(b, TANDEM_OP_LINEAR, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 2, TANDEM_MAX_DIM)) return -1;
    const int64_t k = tandem_shape_last(input_shape(b, op, 0));
    if (!add_parameter(b, op, (tandem_shape){2, {k, n}}, deviation, false, true)) return -1;
    op->shape = *input_shape(b, op, 0);
    op->shape.dim[op->shape.n_dim - 1] = n;
    return finish_op(b, op);
}

int tandem_build_tied(tandem_builder *b, const char *name, int x, int embedding)
{
    tandem_op *op = begin_op(b, TANDEM_OP_LINEAR, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 2, TANDEM_MAX_DIM)) return -1;
    if (embedding < 0 || embedding >= b->n_op || b->op[embedding].kind != TANDEM_OP_EMBEDDING) {
        fail_build(b, op, "its weight is that of operator %d; allowed is an embedding", embedding);
        return -1;
    }
    tandem_op *owner = &b->op[embedding];
    tandem_parameter *table = &b->parameter[owner->parameter[0]];
    const int64_t width = table->shape.dim[1];
    if (!check_op_range(b, op, "the last dimension of its input", tandem_shape_last(input_shape(b, op, 0)),
                        width, width))
        return -1;
    if (table->tied >= 0) {
        fail_build(b, op, "the table of '%s' is tied to '%s'; allowed is one linear a table", owner->name,
                   b->op[table->tied].name);
        return -1;
    }
    op->parameter[0] = owner->parameter[0];
    op->transpose_b = 1;
    op->shape = *input_shape(b, op, 0);
    op->shape.dim[op->shape.n_dim - 1] = table->shape.dim[0];
    const int made = finish_op(b, op);
    if (made >= 0) {
        table->tied = made;
        tandem_op_sign(owner, b->op, b->parameter); /* its gradient is added now, not written */
    }
    return made;
}

/* Shape of an operator that slides a window over images; its channels stay. */
static bool set_window_shape(tandem_builder *b, tandem_op *op, int kernel_h, int kernel_w, int stride,
                             int pad)
{
    if (!check_n_dim(b, op, 0, 4, 4) ||
        !check_op_range(b, op, "the window's height", kernel_h, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the window's width", kernel_w, 1, MAX_KERNEL) ||
        !check_op_range(b, op, "the stride", stride, 1, MAX_KERNEL))
        return false;
    /* No window may lie in the padding altogether: a maximum over nothing does not exist. */
    const int smaller = kernel_h < kernel_w ? kernel_h : kernel_w;
    if (!check_op_range(b, op, "the padding", pad, 0,
                        op->kind == TANDEM_OP_CONV2D ? smaller - 1 : smaller / 2))
        return false;
    const tandem_shape *in = input_shape(b, op, 0);
    if (kernel_h > in->dim[1] + 2 * pad || kernel_w > in->dim[2] + 2 * pad)
        return fail_build(b, op,
                          "a window of %dx%d on images of %" PRId64 "x%" PRId64 " padded by %d; "
                          "allowed are windows "
                          "that fit",
                          kernel_h, kernel_w, in->dim[1], in->dim[2], pad);
    op->kernel_h = kernel_h;
    op->kernel_w = kernel_w;
    op->stride = stride;
    op->pad = pad;
    op->shape = *in;
    op->shape.dim[1] = (in->dim[1] + 2 * pad - kernel_h) / stride + 1;
    op->shape.dim[2] = (in->dim[2] + 2 * pad - kernel_w) / stride + 1;
    return true;
}

int tandem_build_conv2d(tandem_builder *b, const char *name, int x, int64_t channels, int kernel, int stride,
                        int pad)
{
    tandem_op *op = begin_op(b, TANDEM_OP_CONV2D, name, x, -1);
    if (!op || !set_window_shape(b, op, kernel, kernel, stride, pad)) return -1;
    tandem_shape weight = {2, {0, channels}};
    if (__builtin_mul_overflow((int64_t)kernel * kernel, op->shape.dim[3], &weight.dim[0]))
        weight.dim[0] = INT64_MAX;
    /* He et al., ICCV 2015: keeps the variance through a relu. */
    const float deviation = sqrtf(2 / (float)weight.dim[0]);
    if (!add_parameter(b, op, weight, deviation, false, true)) return -1;
    op->shape.dim[3] = channels;
    return finish_op(b, op);
}

int tandem_build_matmul(tandem_builder *b, const char *name, int a, int x, int transpose_b)
{
    tandem_op *op = begin_op(b, TANDEM_OP_MATMUL, name, a, x);
    if (!op || !check_n_dim(b, op, 0, 3, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *left = input_shape(b, op, 0), *right = input_shape(b, op, 1);
    if (!check_n_dim(b, op, 1, left->n_dim, left->n_dim)) return -1;
    const int row = left->n_dim - 2, column = left->n_dim - 1;
    const int inner = transpose_b ? column : row; /* of the right */
    const bool fits = memcmp(left->dim, right->dim, (size_t)row * sizeof *left->dim) == 0;
    if (!fits || left->dim[column] != right->dim[inner]) {
        char l[SHAPE_TEXT], r[SHAPE_TEXT];
        fail_build(
            b, op,
            "%s by %s%s; allowed are equal leading dimensions, and columns of the first equal to %s of the "
            "second",
            shape_as_text(l, left), shape_as_text(r, right), transpose_b ? " transposed" : "",
            transpose_b ? "columns" : "rows");
        return -1;
    }
    op->shape = *left;
    op->shape.dim[column] = right->dim[transpose_b ? row : column];
    op->transpose_b = transpose_b != 0;
    return finish_op(b, op);
}

int tandem_build_embedding(tandem_builder *b, const char *name, int tokens, int64_t vocabulary, int64_t width)
{
    tandem_op *op = begin_op(b, TANDEM_OP_EMBEDDING, name, tokens, -1);
    if (!op || !check_n_dim(b, op, 0, 1, TANDEM_MAX_DIM - 1) ||
        !add_parameter(b, op, (tandem_shape){2, {vocabulary, width}}, 0.02f, false, true))
        return -1;
    op->shape = *input_shape(b, op, 0);
    op->shape.dim[op->shape.n_dim++] = width;
    return finish_op(b, op);
}

/* --- Dependent operators -------------------------------------------------------------------------------- */
int tandem_build_bias(tandem_builder *b, const char *name, int x, int n_trailing, float deviation)
{
    tandem_op *op = begin_op(b, TANDEM_OP_BIAS, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 2, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    if (!check_op_range(b, op, "the number of trailing dimensions", n_trailing, 1, in->n_dim - 1)) return -1;
    tandem_shape shape = {n_trailing, {0}};
    memcpy(shape.dim, &in->dim[in->n_dim - n_trailing], (size_t)n_trailing * sizeof *shape.dim);
    if (!add_parameter(b, op, shape, deviation, false, false)) return -1;
    op->shape = *in;
    return finish_op(b, op);
}

int tandem_build_row_bias(tandem_builder *b, const char *name, int x, int64_t rows, float deviation)
{
    tandem_op *op = begin_op(b, TANDEM_OP_BIAS, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 3, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    const tandem_shape shape = {2, {rows, tandem_shape_last(in)}};
    if (!check_op_range(b, op, "the number of rows", rows, in->dim[in->n_dim - 2], INT32_MAX) ||
        !add_parameter(b, op, shape, deviation, false, false))
        return -1;
    op->shape = *in;
    return finish_op(b, op);
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
    tandem_op *op = begin_op(b, TANDEM_OP_DROPOUT, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 1, TANDEM_MAX_DIM)) return -1;
    if (!(rate > 0 && rate <= 0.9f)) {
        fail_build(b, op, "the rate is %g; allowed are numbers from 0 to 0.9", (double)rate);
        return -1;
    }
    op->shape = *input_shape(b, op, 0);
    op->rate = rate;
    return finish_op(b, op);
}

static bool are_shapes_equal(const tandem_shape *a, const tandem_shape *b)
{
    return a->n_dim == b->n_dim && memcmp(a->dim, b->dim, (size_t)a->n_dim * sizeof *a->dim) == 0;
}

static bool check_summands(tandem_builder *b, const tandem_op *op)
{
    const tandem_shape *left = input_shape(b, op, 0), *right = input_shape(b, op, 1);
    char l[SHAPE_TEXT], r[SHAPE_TEXT];
    return are_shapes_equal(left, right) || fail_build(b, op,
                                                       "the inputs have shapes %s and %s; allowed are "
                                                       "equal ones",
                                                       shape_as_text(l, left), shape_as_text(r, right));
}

int tandem_build_add(tandem_builder *b, const char *name, int x, int y)
{
    tandem_op *op = begin_op(b, TANDEM_OP_ADD, name, x, y);
    if (!op || !check_n_dim(b, op, 0, 1, TANDEM_MAX_DIM) || !check_summands(b, op)) return -1;
    op->shape = *input_shape(b, op, 0);
    return finish_op(b, op);
}

int tandem_build_maxpool(tandem_builder *b, const char *name, int x, int kernel, int stride, int pad)
{
    tandem_op *op = begin_op(b, TANDEM_OP_MAXPOOL, name, x, -1);
    return op && set_window_shape(b, op, kernel, kernel, stride, pad) ? finish_op(b, op) : -1;
}

int tandem_build_avgpool(tandem_builder *b, const char *name, int x, int kernel_h, int kernel_w, int stride)
{
    tandem_op *op = begin_op(b, TANDEM_OP_AVGPOOL, name, x, -1);
    return op && set_window_shape(b, op, kernel_h, kernel_w, stride, 0) ? finish_op(b, op) : -1;
}

int tandem_build_reshape(tandem_builder *b, const char *name, int x, int n_dim, const int64_t *dim)
{
    tandem_op *op = begin_op(b, TANDEM_OP_RESHAPE, name, x, -1);
    if (!op || !check_op_range(b, op, "the number of dimensions", n_dim, 1, TANDEM_MAX_DIM)) return -1;
    op->shape.n_dim = n_dim;
    memcpy(op->shape.dim, dim, (size_t)n_dim * sizeof *dim);
    if (!check_shape(b, op, "output", &op->shape)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    char from[SHAPE_TEXT], to[SHAPE_TEXT];
    if (tandem_shape_elements(in) != tandem_shape_elements(&op->shape)) {
        fail_build(b, op, "%s into %s; allowed are shapes of %" PRId64 " elements", shape_as_text(from, in),
                   shape_as_text(to, &op->shape), tandem_shape_elements(in));
        return -1;
    }
    if (dim[0] % b->batch != 0) {
        fail_build(b, op, "%s into %s; the first dimension must stay a multiple of the batch, %" PRId64,
                   shape_as_text(from, in), shape_as_text(to, &op->shape), b->batch);
        return -1;
    }
    op->dtype = b->op[x].dtype;
    return finish_op(b, op);
}

int tandem_build_transpose(tandem_builder *b, const char *name, int x, const int *axis)
{
    tandem_op *op = begin_op(b, TANDEM_OP_TRANSPOSE, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 2, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    unsigned seen = 0;
    op->shape.n_dim = in->n_dim;
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
    if (axis[0] != 0) {
        fail_build(b, op, "axis 0 of the output is axis %d of the input; allowed is 0: the batch stays first",
                   axis[0]);
        return -1;
    }
    return finish_op(b, op);
}

int tandem_build_slice(tandem_builder *b, const char *name, int x, int64_t start, int64_t n)
{
    tandem_op *op = begin_op(b, TANDEM_OP_SLICE, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 2, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    if (!check_op_range(b, op, "the first row", start, 0, in->dim[1] - 1) ||
        !check_op_range(b, op, "the number of rows", n, 1, in->dim[1] - start))
        return -1;
    op->start = start;
    op->shape = *in;
    op->shape.dim[1] = n;
    return finish_op(b, op);
}

int tandem_build_gather_labelled(tandem_builder *b, const char *name, int x, int labels)
{
    tandem_op *op = begin_op(b, TANDEM_OP_GATHER_LABELLED, name, x, labels);
    if (!op || !check_n_dim(b, op, 0, 2, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    const int64_t rows = in->dim[0] * in->dim[1];
    if (!check_op_range(b, op, "the first dimension of its input", in->dim[0], b->batch, b->batch) ||
        !check_op_range(b, op, "the number of labels", tandem_shape_elements(input_shape(b, op, 1)), rows,
                        rows) ||
        !check_op_range(b, op, "the number of masked tokens", b->masked, 1, in->dim[1]))
        return -1;
    op->shape = *in;
    op->shape.dim[1] = b->masked;
    return finish_op(b, op);
}

int tandem_build_concat_token(tandem_builder *b, const char *name, int x, float deviation)
{
    tandem_op *op = begin_op(b, TANDEM_OP_CONCAT_TOKEN, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, 3, 3)) return -1;
    const tandem_shape row = {1, {tandem_shape_last(input_shape(b, op, 0))}};
    if (!add_parameter(b, op, row, deviation, false, false)) return -1;
    op->shape = *input_shape(b, op, 0);
    op->shape.dim[1]++;
    return finish_op(b, op);
}

/* --- Fixed operators ------------------------------------------------------------------------------------ */
int tandem_build_softmax(tandem_builder *b, const char *name, int x, float scale, int causal)
{
    tandem_op *op = begin_op(b, TANDEM_OP_SOFTMAX, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, causal ? 3 : 2, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    const int64_t rows = in->dim[in->n_dim - 2], columns = in->dim[in->n_dim - 1];
    if (causal && rows != columns) {
        fail_build(b, op,
                   "the last dimensions are %" PRId64 "x%" PRId64 "; allowed under a causal mask are "
                   "equal ones",
                   rows, columns);
        return -1;
    }
    if (!isfinite(scale) || scale <= 0) {
        fail_build(b, op, "the scale is %g; allowed are numbers above 0", (double)scale);
        return -1;
    }
    op->shape = *in;
    op->scale = scale;
    op->causal = causal != 0;
    return finish_op(b, op);
}

static int build_norm(tandem_builder *b, tandem_op_kind kind, const char *name, int x)
{
    tandem_op *op = begin_op(b, kind, name, x, -1);
    if (!op || !check_n_dim(b, op, 0, kind == TANDEM_OP_LAYERNORM ? 2 : 4, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    const tandem_shape channels = {1, {tandem_shape_last(in)}};
    if (!add_parameter(b, op, channels, 0, true, false) || !add_parameter(b, op, channels, 0, false, false))
        return -1;
    op->shape = *in;
    op->epsilon = 1e-5f;
    return finish_op(b, op);
}

int tandem_build_layernorm(tandem_builder *b, const char *name, int x)
{
    return build_norm(b, TANDEM_OP_LAYERNORM, name, x);
}
int tandem_build_batchnorm(tandem_builder *b, const char *name, int x)
{
    return build_norm(b, TANDEM_OP_BATCHNORM, name, x);
}

int tandem_build_cross_entropy(tandem_builder *b, const char *name, int logits, int labels)
{
    tandem_op *op = begin_op(b, TANDEM_OP_CROSS_ENTROPY, name, logits, labels);
    if (!op || !check_n_dim(b, op, 0, 2, TANDEM_MAX_DIM)) return -1;
    const tandem_shape *in = input_shape(b, op, 0);
    const int64_t rows = tandem_shape_elements(in) / tandem_shape_last(in);
    const int64_t n_label = tandem_shape_elements(input_shape(b, op, 1));
    const bool only_masked = b->masked && rows == b->batch * b->masked;
    if (!check_op_range(b, op, "the number of classes", tandem_shape_last(in), 2, INT32_MAX) ||
        (!only_masked && !check_op_range(b, op, "the number of labels", n_label, rows, rows)))
        return -1;
    return finish_op(b, op);
}

/* --- The finished graph --------------------------------------------------------------------------------- */
static tandem_status check_model(const char *model, const tandem_optimizer_options *o, tandem_error *error)
{
    const size_t max = sizeof((tandem_graph *)NULL)->model - 1;
    if (!model || !*model || strlen(model) > max)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                "the model's name has %zu characters; allowed 1 … "
                                "%zu",
                                model ? strlen(model) : 0, max);
    const float options[] = {o->rate, o->momentum, o->beta1, o->beta2, o->epsilon, o->decay};
    bool fine = o->kind == TANDEM_SGD || o->kind == TANDEM_ADAMW;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        fine = fine && isfinite(options[i]) && options[i] >= 0;
    return fine ? TANDEM_OK
                : tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                   "model %s: an option of its optimizer is negative or not a number", model);
}

tandem_status tandem_graph_connect(tandem_graph *g, tandem_error *error)
{
    int *start = g->consumer_start;
    memset(start, 0, ((size_t)g->n_op + 1) * sizeof *start);
    for (int i = 0; i < g->n_op; i++)
        for (int slot = 0; slot < TANDEM_MAX_INPUT && g->op[i].input[slot] >= 0; slot++)
            start[g->op[i].input[slot] + 1]++;
    for (int t = 0; t < g->n_op; t++) {
        if (start[t + 1] == 0 && t != g->loss)
            return tandem_error_set(
                error, TANDEM_WRONG_GRAPH,
                "operator '%s' (%s): nothing reads its output; allowed for the loss alone", g->op[t].name,
                tandem_op_row_get(g->op[t].kind)->name);
        start[t + 1] += start[t];
    }
    /* start[t + 1] is the end of t's part. Filling from behind moves it to the beginning, in ascending order.
     * */
    const int n_edge = start[g->n_op];
    for (int i = g->n_op - 1; i >= 0; i--)
        for (int slot = 0; slot < TANDEM_MAX_INPUT && g->op[i].input[slot] >= 0; slot++)
            g->consumer[--start[g->op[i].input[slot] + 1]] = i;
    memmove(start, start + 1, (size_t)g->n_op * sizeof *start);
    start[g->n_op] = n_edge;
    for (int t = 0; t < g->n_op; t++)
        g->view[t] = g->op[t].kind == TANDEM_OP_RESHAPE ? g->view[g->op[t].input[0]] : t;
    return TANDEM_OK;
}

static tandem_status check_ends(const tandem_builder *b, tandem_error *error)
{
    const tandem_op *last = b->n_op ? &b->op[b->n_op - 1] : NULL;
    if (!last || last->kind != TANDEM_OP_CROSS_ENTROPY)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                "the graph ends with %s%s%s; allowed is "
                                "cross_entropy",
                                last ? "operator '" : "nothing", last ? last->name : "", last ? "'" : "");
    if (b->input < 0)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                "the graph reads no samples; it needs images or "
                                "tokens");
    if (!last->needs_gradient)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH, "the graph has nothing to train before its loss");
    return TANDEM_OK;
}

/* What every table of the graph has a row for. */
static int64_t min_vocabulary(const tandem_graph *g)
{
    int64_t vocabulary = 0;
    for (int p = 0; p < g->n_parameter; p++) {
        const tandem_parameter *table = &g->parameter[p];
        if (g->op[table->op].kind == TANDEM_OP_EMBEDDING &&
            (vocabulary == 0 || table->shape.dim[0] < vocabulary))
            vocabulary = table->shape.dim[0];
    }
    return vocabulary;
}

tandem_status tandem_builder_finish(tandem_builder *b, const char *model,
                                    const tandem_optimizer_options *optimizer, tandem_graph **graph,
                                    tandem_error *error)
{
    if (b->error.status != TANDEM_OK) return tandem_error_set(error, b->error.status, "%s", b->error.text);
    tandem_status status = check_model(model, optimizer, error);
    if (status == TANDEM_OK) status = check_ends(b, error);
    if (status != TANDEM_OK) return status;
    const size_t n = (size_t)b->n_op;
    tandem_graph *g = calloc(1, sizeof *g);
    if (g) {
        g->consumer_start = calloc(n + 1, sizeof *g->consumer_start);
        g->consumer = calloc(n * TANDEM_MAX_INPUT, sizeof *g->consumer);
        g->view = calloc(n, sizeof *g->view);
    }
    if (!g || !g->consumer_start || !g->consumer || !g->view) {
        status = tandem_no_memory(error, "for a graph of %d operators", b->n_op);
        goto out;
    }
    memcpy(g->model, model, strlen(model));
    g->batch = b->batch;
    g->n_op = b->n_op;
    g->n_parameter = b->n_parameter;
    g->op = b->op;
    g->parameter = b->parameter;
    g->loss = b->n_op - 1;
    g->input = b->input;
    g->label = b->label;
    g->n_class = tandem_shape_last(&g->op[g->op[g->loss].input[0]].shape);
    g->length = tandem_shape_elements(&g->op[g->label].shape) / g->batch;
    g->n_masked = b->masked;
    g->vocabulary = min_vocabulary(g);
    g->optimizer = *optimizer;
    status = tandem_graph_connect(g, error);
    if (status != TANDEM_OK) {
        g->op = NULL; /* the builder's still */
        g->parameter = NULL;
        goto out;
    }
    g->hash = tandem_graph_hash(g);
    detach_graph(b);
    *graph = g;
    g = NULL;
out:
    tandem_graph_close(g);
    return status;
}
