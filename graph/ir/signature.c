/* signature.c: the canonical text of an operator, for cost keys, and the hash of a graph. */
#include "graph/ir/op.h"

#include "base/hash.h"
#include "base/plain_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- Operators ------------------------------------------------------------------------------------------ */
static void append_signature(tandem_op *op, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append_signature(tandem_op *op, const char *format, ...)
{
    const size_t used = strlen(op->signature);
    va_list arguments;
    va_start(arguments, format);
    const int n =
        tandem_plain_print_list(op->signature + used, sizeof op->signature - used, format, arguments);
    va_end(arguments);
    assert(n >= 0 && (size_t)n < sizeof op->signature - used);
    (void)n;
}

static void sign_image(tandem_op *op, const tandem_shape *s)
{
    append_signature(op, " n=%" PRId64 " h=%" PRId64 " w=%" PRId64 " c=%" PRId64, s->dim[0], s->dim[1],
                     s->dim[2], s->dim[3]);
}

static void sign_rows(tandem_op *op, const char *rows, const tandem_shape *in, const char *last)
{
    const int64_t n = tandem_shape_last(in);
    append_signature(op, " %s=%" PRId64 " %s=%" PRId64, rows, tandem_shape_elements(in) / n, last, n);
}

static void sign_matmul(tandem_op *op, const tandem_shape *a)
{
    const int64_t m = a->dim[a->n_dim - 2], k = a->dim[a->n_dim - 1];
    append_signature(op, " batch=%" PRId64 " m=%" PRId64 " k=%" PRId64 " n=%" PRId64 " tb=%d",
                     tandem_shape_elements(a) / (m * k), m, k, tandem_shape_last(&op->shape),
                     op->transpose_b);
}

/* n blocks of rows along dimension 1. */
static void sign_block(tandem_op *op, const tandem_shape *in)
{
    append_signature(op, " n=%" PRId64 " of=%" PRId64 " row=%" PRId64, in->dim[0], in->dim[1],
                     tandem_shape_elements(in) / (in->dim[0] * in->dim[1]));
}

static void sign_transpose(tandem_op *op, const tandem_shape *in)
{
    for (int d = 0; d < in->n_dim; d++) append_signature(op, "%c%" PRId64, d == 0 ? ' ' : 'x', in->dim[d]);
    append_signature(op, " axes=");
    for (int d = 0; d < in->n_dim; d++) append_signature(op, "%d", op->axis[d]);
}

static void sign_bias(tandem_op *op, const tandem_parameter *own)
{
    const int64_t period = tandem_bias_period(op, own);
    append_signature(op, " n=%" PRId64 " period=%" PRId64, tandem_shape_elements(&op->shape), period);
    if (own->elements != period) append_signature(op, " of=%" PRId64, own->elements);
}

static void sign_attributes(tandem_op *op, const tandem_op *all, const tandem_shape *in,
                            const tandem_parameter *own)
{
    const int64_t elements = tandem_shape_elements(in);
    switch (op->kind) {
    case TANDEM_OP_IMAGES: sign_image(op, in); break;
    case TANDEM_OP_TOKENS:
    case TANDEM_OP_LABELS:
        append_signature(op, " n=%" PRId64 " length=%" PRId64, in->dim[0], elements / in->dim[0]);
        break;
    case TANDEM_OP_LINEAR:
        sign_rows(op, "m", in, "k");
        append_signature(op, " n=%" PRId64, tandem_shape_last(&op->shape));
        if (op->transpose_b) append_signature(op, " tb=1");
        break;
    case TANDEM_OP_CONV2D:
        sign_image(op, in);
        append_signature(op, " -> c=%" PRId64 " k=%dx%d s=%d p=%d", tandem_shape_last(&op->shape),
                         op->kernel_h, op->kernel_w, op->stride, op->pad);
        break;
    case TANDEM_OP_MATMUL: sign_matmul(op, in); break;
    case TANDEM_OP_EMBEDDING:
        append_signature(op, " rows=%" PRId64 " vocabulary=%" PRId64 " width=%" PRId64, elements,
                         own->shape.dim[0], tandem_shape_last(&op->shape));
        if (own->tied >= 0) append_signature(op, " tied=1");
        break;
    case TANDEM_OP_BIAS:
    case TANDEM_OP_BIAS_GELU: sign_bias(op, own); break;
    case TANDEM_OP_RELU:
    case TANDEM_OP_DROPOUT:
    case TANDEM_OP_GELU:
    case TANDEM_OP_TANH:
    case TANDEM_OP_ADD:
    case TANDEM_OP_RESHAPE: append_signature(op, " n=%" PRId64, elements); break;
    case TANDEM_OP_GROUPED_CONV2D:
        sign_image(op, in);
        append_signature(op, " -> c=%" PRId64 " k=%dx%d s=%d p=%d e=%d d=%d g=%d",
                         tandem_shape_last(&op->shape), op->kernel_h, op->kernel_w, op->stride, op->pad,
                         op->pad_end, op->dilation, op->groups);
        break;
    case TANDEM_OP_MAXPOOL:
    case TANDEM_OP_AVGPOOL:
        sign_image(op, in);
        append_signature(op, " k=%dx%d s=%d p=%d", op->kernel_h, op->kernel_w, op->stride, op->pad);
        if (op->pad_end) append_signature(op, " e=%d", op->pad_end);
        break;
    case TANDEM_OP_MAP:
        append_signature(op, " f=%s n=%" PRId64, tandem_function_name(op->function), elements);
        break;
    case TANDEM_OP_MUL:
        append_signature(op, " n=%" PRId64 " of=%" PRId64, elements,
                         tandem_shape_elements(&all[op->input[1]].shape));
        break;
    case TANDEM_OP_MUL_CONSTANT:
        append_signature(op, " n=%" PRId64 " of=%" PRId64, elements, tandem_op_n_factor(op));
        break;
    case TANDEM_OP_REPEAT:
        append_signature(op, " n=%" PRId64 " of=%" PRId64 " row=%" PRId64, op->shape.dim[0], op->shape.dim[1],
                         elements / in->dim[0]);
        break;
    case TANDEM_OP_CONCAT:
        append_signature(op, " n=%" PRId64 " of=%" PRId64 " row=%" PRId64 " first=%" PRId64, op->shape.dim[0],
                         op->shape.dim[1],
                         tandem_shape_elements(&op->shape) / (op->shape.dim[0] * op->shape.dim[1]),
                         in->dim[1]);
        break;
    case TANDEM_OP_TRANSPOSE: sign_transpose(op, in); break;
    case TANDEM_OP_SLICE:
        sign_block(op, in);
        append_signature(op, " start=%" PRId64 " rows=%" PRId64, op->start, op->shape.dim[1]);
        break;
    case TANDEM_OP_GATHER_LABELLED:
        sign_block(op, in);
        append_signature(op, " rows=%" PRId64, op->shape.dim[1]);
        break;
    case TANDEM_OP_CONCAT_TOKEN: sign_block(op, in); break;
    case TANDEM_OP_SOFTMAX:
        sign_rows(op, "rows", in, "n");
        append_signature(op, " causal=%d", op->causal);
        break;
    case TANDEM_OP_SCALE:
    case TANDEM_OP_LAYERNORM:
    case TANDEM_OP_BATCHNORM:
    case TANDEM_OP_BATCHNORM_RELU:
    case TANDEM_OP_BATCHNORM_ADD_RELU:
    case TANDEM_OP_CROSS_ENTROPY: sign_rows(op, "rows", in, "n"); break;
    case TANDEM_OP_CALL: /* tandem_build_call appends what was called */
    case TANDEM_OP_CALL_TRAINED:
    case TANDEM_N_OP_KIND: break;
    }
}

void tandem_op_sign(tandem_op *op, const tandem_op *all, const tandem_parameter *parameter)
{
    static const tandem_parameter none = {.op = -1, .tied = -1, .after = -1};
    const tandem_shape *in = op->input[0] >= 0 ? &all[op->input[0]].shape : &op->shape;
    const int is_call = op->kind == TANDEM_OP_CALL || op->kind == TANDEM_OP_CALL_TRAINED;
    if (is_call && op->signature[0]) return; /* it says what was called */
    op->signature[0] = '\0';
    append_signature(op, "%s", tandem_op_row_get(op->kind)->name);
    sign_attributes(op, all, in, op->parameter[0] >= 0 ? &parameter[op->parameter[0]] : &none);
}

/* --- Graphs --------------------------------------------------------------------------------------------- */
static uint64_t hash_number(uint64_t hash, int64_t number)
{
    char text[24];
    (void)snprintf(text, sizeof text, " %" PRId64, number);
    return tandem_hash_text(hash, text);
}

static uint64_t hash_float(uint64_t hash, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return hash_number(hash, bits);
}

/* Of one sample: the builder allows only multiples of the batch as the first dimension. */
static uint64_t hash_sample(uint64_t hash, const tandem_shape *shape, int64_t batch)
{
    for (int d = 0; d < shape->n_dim; d++)
        hash = hash_number(hash, d == 0 ? shape->dim[0] / batch : shape->dim[d]);
    return hash;
}

static uint64_t hash_op(uint64_t hash, const tandem_op *op, int64_t batch)
{
    hash = tandem_hash_text(tandem_hash_text(hash, "\n"), tandem_op_row_get(op->kind)->name);
    hash = tandem_hash_text(tandem_hash_text(hash, " "), op->name);
    for (int i = 0; i < TANDEM_MAX_INPUT; i++) hash = hash_number(hash, op->input[i]);
    hash = hash_sample(tandem_hash_text(hash, " shape"), &op->shape, batch);
    const int attributes[] = {op->kernel_h, op->kernel_w, op->stride, op->pad, op->transpose_b, op->causal};
    hash = tandem_hash_text(hash, " attributes");
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        hash = hash_number(hash, attributes[i]);
    for (int d = 0; d < TANDEM_MAX_DIM; d++) hash = hash_number(hash, op->axis[d]);
    if (op->start) hash = hash_number(tandem_hash_text(hash, " start"), op->start);
    if (op->kind == TANDEM_OP_MAP) {
        hash = tandem_hash_text(tandem_hash_text(hash, " function "), tandem_function_name(op->function));
        hash = hash_float(hash_float(hash, op->alpha), op->beta);
    }
    if (op->groups)
        hash = hash_number(hash_number(tandem_hash_text(hash, " groups"), op->groups), op->dilation);
    if (op->pad_end) hash = hash_number(tandem_hash_text(hash, " end"), op->pad_end);
    if (op->rate > 0) hash = hash_float(tandem_hash_text(hash, " rate"), op->rate);
    if (tandem_op_is_batchnorm(op) && op->momentum != TANDEM_BATCHNORM_MOMENTUM)
        hash = hash_float(tandem_hash_text(hash, " momentum"), op->momentum);
    return hash_float(hash_float(hash, op->scale), op->epsilon);
}

static uint64_t hash_parameter(uint64_t hash, const tandem_parameter *p)
{
    hash = hash_number(tandem_hash_text(hash, "\nparameter"), p->op);
    hash = hash_sample(hash, &p->shape, 1);
    hash = hash_number(hash_number(tandem_hash_text(hash, " init"), p->init), p->has_weight_decay);
    if (p->tied >= 0) hash = hash_number(tandem_hash_text(hash, " tied"), p->tied);
    return hash_float(hash, p->deviation);
}

/* Factors are numbered in the order in which operators use them, and enter once. */
static uint64_t hash_factors(uint64_t hash, const tandem_graph *graph, const tandem_op *op, int *n_seen)
{
    int c = 0;
    while (graph->constant[c] != op->factor) c++;
    hash = hash_number(tandem_hash_text(hash, " factors"), c);
    for (int d = 0; d < op->shape.n_dim; d++) hash = hash_number(hash, op->factor_step[d]);
    for (int64_t i = 0, n = tandem_op_n_factor(op); c == *n_seen && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &op->factor[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    *n_seen += c == *n_seen;
    return hash;
}

/* Later additions enter the hash only where a model uses them, so that hashes in old plans stay valid. */
uint64_t tandem_graph_hash(const tandem_graph *graph)
{
    const char *const folder = strrchr(graph->model, '/'); /* where a file lies does not matter */
    uint64_t hash = tandem_hash_text(TANDEM_HASH_START, folder ? folder + 1 : graph->model);
    if (graph->n_masked) hash = hash_number(tandem_hash_text(hash, " masked"), graph->n_masked);
    int n_seen = 0;
    for (int i = 0; i < graph->n_op; i++) {
        hash = hash_op(hash, &graph->op[i], graph->batch);
        if (graph->op[i].factor) hash = hash_factors(hash, graph, &graph->op[i], &n_seen);
    }
    for (int p = 0; p < graph->n_parameter; p++) hash = hash_parameter(hash, &graph->parameter[p]);
    const tandem_optimizer_options *o = &graph->optimizer;
    hash = tandem_hash_text(tandem_hash_text(hash, "\n"), tandem_optimizer_name(o->kind));
    const float options[] = {o->rate, o->momentum, o->beta1, o->beta2, o->epsilon, o->decay};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) hash = hash_float(hash, options[i]);
    return hash;
}
