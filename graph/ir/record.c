/* record.c: the graph of a list of calls that another framework made (record.h). */
#include "tandem/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "graph/ir/builder.h"
#include "graph/ir/record_memory.h"

typedef struct recorder {
    tandem_builder *b;
    int n_order;
} recorder;

/* An edge without data: x, as a tensor of another shape. */
static int append_order(recorder *r, int x, const tandem_shape *shape)
{
    char name[32];
    (void)snprintf(name, sizeof name, "recorded.order%d", ++r->n_order);
    tandem_op *op = begin_op(r->b, TANDEM_OP_RESHAPE, name, x, -1, 0, TANDEM_MAX_DIM);
    if (!op) return -1;
    op->shape = *shape;
    return finish_op(r->b, op);
}

static bool is_shape(const tandem_shape *a, const tandem_shape *b)
{
    return a->n_dim == b->n_dim && memcmp(a->dim, b->dim, (size_t)a->n_dim * sizeof *a->dim) == 0;
}

static int ordered(recorder *r, int x, const tandem_shape *shape)
{
    return x < 0 || is_shape(&r->b->op[x].shape, shape) ? x : append_order(r, x, shape);
}

static bool has_dimensions(recorder *r, const tandem_recorded_call *call, const tandem_shape *shape)
{
    if (shape->n_dim >= 1 && shape->n_dim <= TANDEM_MAX_DIM) return true;
    if (r->b->error.status == TANDEM_OK)
        tandem_error_set(&r->b->error, TANDEM_WRONG_GRAPH,
                         "call '%.60s' reads a tensor of %d dimensions; allowed 1 … %d",
                         call->name ? call->name : "", shape->n_dim, TANDEM_MAX_DIM);
    return false;
}

/* The builder's rules give a shape that the recording must agree with. */
static int check_result(recorder *r, const tandem_recorded_call *call, int y)
{
    char is[SHAPE_TEXT], should_be[SHAPE_TEXT];
    if (y < 0 || is_shape(&r->b->op[y].shape, &call->shape)) return y;
    fail_build(r->b, &r->b->op[y], "its result was recorded as %s, but is %s",
               shape_as_text(is, &call->shape), shape_as_text(should_be, &r->b->op[y].shape));
    return -1;
}

static int append_recorded(recorder *r, const tandem_recorded_call *call, int x)
{
    tandem_builder *const b = r->b;
    if (call->kind == TANDEM_OP_CALL)
        return tandem_build_call(b, call->name, x, call->text, call->parameter_elements, &call->shape);
    if (!has_dimensions(r, call, &call->input)) return -1;
    switch (call->kind) {
    case TANDEM_OP_LINEAR:
        x = ordered(r, x, &call->input);
        return check_result(r, call,
                            tandem_build_linear(b, call->name, x, tandem_shape_last(&call->shape), 0));
    case TANDEM_OP_CONV2D:
        x = ordered(r, x, &call->input);
        return check_result(r, call,
                            tandem_build_conv2d(b, call->name, x, tandem_shape_last(&call->shape),
                                                call->kernel, call->stride, call->pad));
    case TANDEM_OP_MATMUL:
        if (!has_dimensions(r, call, &call->second)) return -1;
        const int second = append_order(r, x, &call->second);
        x = append_order(r, x, &call->input);
        return check_result(r, call, tandem_build_matmul(b, call->name, x, second, call->transpose_b));
    default:
        if (b->error.status == TANDEM_OK)
            tandem_error_set(&b->error, TANDEM_USAGE,
                             "call '%.60s' has kind %d; allowed are linear, conv2d, matmul and call",
                             call->name ? call->name : "", (int)call->kind);
        return -1;
    }
}

/* --- The hash -------------------------------------------------------------------------------------------
 * */

static uint64_t hash_numbers(uint64_t hash, const int64_t *number, size_t n)
{
    char text[24];
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, " %" PRId64, number[i]);
        hash = tandem_hash_text(hash, text);
    }
    return hash;
}

/* What an adjustable operator does with one sample. Rows that hold several samples, or parts of one, count
 * only where they are a multiple of the batch. */
static uint64_t hash_product(uint64_t hash, const tandem_graph *g, const tandem_op *op)
{
    const tandem_shape *in = &g->op[op->input[0]].shape;
    const int is_of_samples = op->kind != TANDEM_OP_LINEAR && in->dim[0] % g->batch == 0;
    const int64_t attributes[] = {
        tandem_shape_last(in), tandem_shape_last(&op->shape), op->kernel_h, op->stride, op->pad,
        op->transpose_b};
    hash = hash_numbers(hash, attributes, sizeof attributes / sizeof *attributes);
    return is_of_samples ? hash_numbers(hash, &in->dim[1], (size_t)in->n_dim - 1) : hash;
}

/* Of names, kinds and weights, and of the shapes of products. Costs, statistics and plans of one module
 * belong together, independent of the batch and the optimizer. */
static uint64_t hash_recorded(const tandem_graph *g)
{
    uint64_t hash = tandem_hash_text(TANDEM_HASH_START, g->model);
    for (int i = 0; i < g->n_op; i++) {
        const tandem_op *op = &g->op[i];
        if (op->kind == TANDEM_OP_RESHAPE) continue;
        hash = tandem_hash_text(tandem_hash_text(hash, "\n"), tandem_op_row_get(op->kind)->name);
        hash = tandem_hash_text(tandem_hash_text(hash, " "), op->name);
        if (tandem_op_is_adjustable(op)) hash = hash_product(hash, g, op);
        if (op->parameter[0] >= 0) hash = hash_numbers(hash, &g->parameter[op->parameter[0]].elements, 1);
    }
    return hash;
}

static tandem_status check_recording(const tandem_recorded_graph *recording, tandem_error *error)
{
    if (recording->n_call < 1 || recording->n_call > TANDEM_MAX_RECORDED_CALL)
        return tandem_error_set(error, TANDEM_USAGE, "the recording has %d calls; allowed 1 … %d",
                                recording->n_call, TANDEM_MAX_RECORDED_CALL);
    if (recording->n_prediction < 1 || recording->n_class < 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "the recording has %" PRId64 " predictions a sample and %" PRId64
                                " classes; both must be 1 or more",
                                recording->n_prediction, recording->n_class);
    return TANDEM_OK;
}

/* op_of_call: [n_call] the operator of each call, out. */
static tandem_status build_recorded(tandem_graph **graph, const tandem_recorded_graph *recording,
                                    int *op_of_call, tandem_error *error)
{
    recorder r = {0};
    tandem_status status = tandem_builder_open(&r.b, recording->batch, error);
    if (status != TANDEM_OK) return status;
    const int64_t batch = recording->batch, length = recording->n_prediction;
    int x = tandem_build_images(r.b, "recorded.input", 1, 1, 1);
    const int label = tandem_build_labels(r.b, "recorded.label", length);
    for (int i = 0; i < recording->n_call && x >= 0; i++)
        op_of_call[i] = x = append_recorded(&r, &recording->call[i], x);
    const tandem_shape logits = length == 1 ? (tandem_shape){2, {batch, recording->n_class}}
                                            : (tandem_shape){3, {batch, length, recording->n_class}};
    tandem_build_cross_entropy(r.b, "recorded.loss", ordered(&r, x, &logits), label);
    status = tandem_builder_finish(r.b, recording->model, &recording->optimizer, graph, error);
    tandem_builder_close(r.b);
    return status;
}

tandem_status tandem_graph_record(tandem_graph **graph, const tandem_recorded_graph *recording,
                                  tandem_error *error)
{
    tandem_graph *made = NULL;
    tandem_status status = check_recording(recording, error);
    if (status != TANDEM_OK) return status;
    int *const op_of_call = calloc((size_t)recording->n_call, sizeof *op_of_call);
    status = op_of_call ? build_recorded(&made, recording, op_of_call, error)
                        : tandem_no_memory(error, "for a recording of %d calls", recording->n_call);
    if (status == TANDEM_OK && recording->memory)
        status = tandem_graph_set_memory(made, recording->memory, op_of_call, recording->n_call, error);
    free(op_of_call);
    if (status != TANDEM_OK) {
        tandem_graph_close(made);
        return status;
    }
    made->hash = hash_recorded(made);
    made->is_recorded = 1;
    *graph = made;
    return TANDEM_OK;
}
