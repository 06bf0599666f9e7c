/* emit.c: builds the operators that the loss needs. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static void mark_live(onnx_import *import)
{
    import->record[import->n_record - 1].is_live = true;
    for (int i = import->n_record - 1; i >= 0; i--) {
        const onnx_record *const r = &import->record[i];
        for (int slot = 0; slot < 2 && r->is_live; slot++)
            if (r->input[slot] >= 0) import->record[r->input[slot]].is_live = true;
    }
}

/* Names that occur twice get a number. */
static bool make_names_unique(onnx_import *import)
{
    tandem_hash_index table = {0};
    bool fine = true;
    for (int i = 0; i < import->n_record && fine; i++) {
        onnx_record *const r = &import->record[i];
        char base[48];
        if (!r->is_live) continue;
        memcpy(base, r->name, sizeof base);
        uint64_t hash = tandem_hash_text(TANDEM_HASH_START, r->name);
        int at = tandem_hash_index_find(&table, hash);
        for (int n = at >= 0 ? import->record[at].n_same + 2 : 2; tandem_hash_index_find(&table, hash) >= 0;
             n++) {
            (void)snprintf(r->name, sizeof r->name, "%.35s.%d", base, n);
            hash = tandem_hash_text(TANDEM_HASH_START, r->name);
            if (at >= 0) import->record[at].n_same = n - 1;
        }
        fine = tandem_hash_index_add(&table, hash, i) || onnx_no_memory(import);
    }
    tandem_hash_index_free(&table);
    return fine;
}

static int emit_bias(tandem_builder *b, const onnx_record *r, int x)
{
    return r->n > 0 ? tandem_build_row_bias(b, r->name, x, r->n, 0)
                    : tandem_build_bias(b, r->name, x, r->n_trailing, 0);
}

static int emit_norm(tandem_builder *b, const onnx_record *r, int x)
{
    const int made = r->kind == TANDEM_OP_LAYERNORM ? tandem_build_layernorm(b, r->name, x)
                                                    : tandem_build_batchnorm(b, r->name, x);
    tandem_build_set_epsilon(b, made, r->epsilon);
    if (r->kind == TANDEM_OP_BATCHNORM) tandem_build_set_momentum(b, made, r->momentum);
    return made;
}

static int emit_linear(const onnx_import *import, tandem_builder *b, const onnx_record *r, int x)
{
    const double depth = (double)tandem_shape_last(&import->record[r->input[0]].shape);
    if (r->transpose_b) return tandem_build_tied(b, r->name, x, import->record[r->start].tensor);
    return tandem_build_linear(b, r->name, x, r->n, (float)(1 / sqrt(depth)));
}

static int emit_grouped(tandem_builder *b, const onnx_record *r, int x)
{
    const tandem_grouped_window window = {r->kernel_h, r->kernel_w, r->stride, r->pad,
                                          r->pad_end,  r->dilation, r->groups};
    return tandem_build_grouped_conv2d(b, r->name, x, r->n, &window);
}

static int emit_source(tandem_builder *b, const onnx_record *r)
{
    const int64_t *const d = r->shape.dim;
    if (r->kind == TANDEM_OP_IMAGES) return tandem_build_images(b, r->name, d[1], d[2], d[3]);
    if (r->kind == TANDEM_OP_TOKENS) return tandem_build_tokens(b, r->name, d[1]);
    return tandem_build_labels(b, r->name, r->shape.n_dim == 1 ? 1 : d[1]);
}

static int emit_call(tandem_builder *b, const onnx_record *r, int x)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s(%" PRId64 ")", r->called, r->n);
    return tandem_build_call(b, r->name, x, text, r->kind == TANDEM_OP_CALL_TRAINED ? r->n : 0, &r->shape);
}

static int emit_record(const onnx_import *import, tandem_builder *b, const onnx_record *r)
{
    const int x = r->input[0] >= 0 ? import->record[r->input[0]].tensor : -1,
              y = r->input[1] >= 0 ? import->record[r->input[1]].tensor : -1;
    switch (r->kind) {
    case TANDEM_OP_IMAGES:
    case TANDEM_OP_TOKENS:
    case TANDEM_OP_LABELS: return emit_source(b, r);
    case TANDEM_OP_LINEAR: return emit_linear(import, b, r, x);
    case TANDEM_OP_CONV2D: return tandem_build_conv2d(b, r->name, x, r->n, r->kernel_h, r->stride, r->pad);
    case TANDEM_OP_MATMUL: return tandem_build_matmul(b, r->name, x, y, r->transpose_b);
    case TANDEM_OP_EMBEDDING: return tandem_build_embedding(b, r->name, x, r->n, r->start);
    case TANDEM_OP_BIAS: return emit_bias(b, r, x);
    case TANDEM_OP_RELU: return tandem_build_relu(b, r->name, x);
    case TANDEM_OP_GELU: return tandem_build_gelu(b, r->name, x);
    case TANDEM_OP_TANH: return tandem_build_tanh(b, r->name, x);
    case TANDEM_OP_DROPOUT: return tandem_build_dropout(b, r->name, x, r->rate);
    case TANDEM_OP_ADD: return tandem_build_add(b, r->name, x, y);
    case TANDEM_OP_MAXPOOL:
        return r->pad_end ? tandem_build_maxpool_to(b, r->name, x, r->kernel_h, r->stride, r->pad, r->pad_end)
                          : tandem_build_maxpool(b, r->name, x, r->kernel_h, r->stride, r->pad);
    case TANDEM_OP_AVGPOOL: return tandem_build_avgpool(b, r->name, x, r->kernel_h, r->kernel_w, r->stride);
    case TANDEM_OP_RESHAPE: return tandem_build_reshape(b, r->name, x, r->shape.n_dim, r->shape.dim);
    case TANDEM_OP_TRANSPOSE: return tandem_build_transpose(b, r->name, x, r->axis);
    case TANDEM_OP_SLICE: return tandem_build_slice(b, r->name, x, r->start, r->n);
    case TANDEM_OP_CONCAT_TOKEN: return tandem_build_concat_token(b, r->name, x, 0.02f);
    case TANDEM_OP_CONCAT: return tandem_build_concat(b, r->name, x, y);
    case TANDEM_OP_MUL: return tandem_build_mul(b, r->name, x, y);
    case TANDEM_OP_MAP: return tandem_build_map(b, r->name, x, r->function, r->alpha, r->beta);
    case TANDEM_OP_MUL_CONSTANT: return tandem_build_mul_constant(b, r->name, x, r->factor, r->factor_step);
    case TANDEM_OP_REPEAT: return tandem_build_repeat(b, r->name, x, r->n);
    case TANDEM_OP_SCALE: return tandem_build_scale(b, r->name, x);
    case TANDEM_OP_GROUPED_CONV2D: return emit_grouped(b, r, x);
    case TANDEM_OP_SOFTMAX: return tandem_build_softmax(b, r->name, x, r->scale, r->causal);
    case TANDEM_OP_LAYERNORM:
    case TANDEM_OP_BATCHNORM: return emit_norm(b, r, x);
    case TANDEM_OP_CALL:
    case TANDEM_OP_CALL_TRAINED: return emit_call(b, r, x);
    case TANDEM_OP_CROSS_ENTROPY: return tandem_build_cross_entropy(b, r->name, x, y);
    default: return -1;
    }
}

/* A layernorm needs its scale and shift. */
static bool check_record(onnx_import *import, const onnx_record *r)
{
    if (r->kind != TANDEM_OP_LAYERNORM || (r->parameter[0].weight >= 0 && r->parameter[1].weight >= 0))
        return true;
    import->current = r->node;
    (void)onnx_refuse(import, "a layernorm without scale and shift");
    return onnx_fail_refused(import);
}

/* A weight that its node reads before other nodes read theirs, and whose values are used after. */
static void order_gradients(const onnx_import *import, tandem_builder *builder)
{
    for (int i = 0; i < import->n_record; i++) {
        const onnx_record *const late = &import->record[i];
        const int place = import->node[late->reader].place;
        if (!late->is_live || late->reader == late->node) continue;
        for (int k = 0; k < i; k++) {
            const onnx_record *const r = &import->record[k];
            if (!r->is_live || r->parameter[0].weight < 0 || r->transpose_b) continue;
            if (import->node[r->reader].place < place) continue;
            tandem_build_hand_on_after(builder, late->tensor, r->tensor);
            break;
        }
    }
}

bool onnx_emit(onnx_import *import, tandem_builder *builder, const char *model, tandem_graph **graph)
{
    static const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.01f, .momentum = 0.9f},
                                          adamw = {.kind = TANDEM_ADAMW,
                                                   .rate = 3e-4f,
                                                   .beta1 = 0.9f,
                                                   .beta2 = 0.999f,
                                                   .epsilon = 1e-8f};
    tandem_error own = {0};
    mark_live(import);
    if (!make_names_unique(import)) return false;
    for (int i = 0; i < import->n_record; i++) {
        onnx_record *const r = &import->record[i];
        if (!r->is_live) continue;
        if (!check_record(import, r)) return false;
        r->tensor = emit_record(import, builder, r);
        if (r->tensor < 0) break;
        const tandem_shape *const s = tandem_builder_shape(builder, r->tensor);
        if (s->n_dim != r->shape.n_dim && r->kind != TANDEM_OP_CROSS_ENTROPY)
            return onnx_fail(import, TANDEM_BUG, "operator '%s' has another shape than its view", r->name);
    }
    order_gradients(import, builder);
    const bool is_text = import->record[import->samples].kind == TANDEM_OP_TOKENS;
    tandem_status status = tandem_builder_finish(builder, model, is_text ? &adamw : &sgd, graph, &own);
    if (status != TANDEM_OK) return onnx_fail(import, status, "%s", own.text);
    return true;
}
