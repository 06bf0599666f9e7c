/* ends.c: where samples come in, and the loss. */
#include "graph/onnx/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- Samples -------------------------------------------------------------------------------------------- */

static bool find_set(const onnx_import *import, const char *name, int64_t *value)
{
    for (int i = 0; i < import->options->n; i++)
        if (strcmp(import->options->set[i].name, name) == 0) {
            *value = import->options->set[i].value;
            return true;
        }
    return false;
}

static bool read_sizes(onnx_import *import, const Onnx__ValueInfo *info, int64_t *dim, int *n_dim)
{
    const Onnx__TensorType *const t = info->type ? info->type->tensor_type : NULL;
    if (!t || !t->shape)
        return onnx_fail(import, TANDEM_MALFORMED, "input '%.80s' has no shape; allowed are inputs with one",
                         info->name);
    if (t->shape->n_dim > ONNX_MAX_DIM)
        return onnx_fail(import, TANDEM_WRONG_GRAPH,
                         "input '%.80s' has %zu dimensions; allowed are at most %d", info->name,
                         t->shape->n_dim, ONNX_MAX_DIM);
    *n_dim = (int)t->shape->n_dim;
    for (int d = 0; d < *n_dim; d++) {
        const Onnx__Dimension *const one = t->shape->dim[d];
        dim[d] = one->has_dim_value ? one->dim_value : 0;
        if (d == 0) {
            import->file_batch = dim[0] > 0 ? dim[0] : 0;
            dim[0] = import->batch;
        } else if (!one->has_dim_value || (one->dim_param && *one->dim_param)) {
            const char *const symbol = one->dim_param ? one->dim_param : "";
            if (!*symbol)
                return onnx_fail(
                    import, TANDEM_WRONG_GRAPH,
                    "dimension %d of input '%.80s' is left open without a name; export it with a size", d,
                    info->name);
            if (!find_set(import, symbol, &dim[d]))
                return onnx_fail(
                    import, TANDEM_WRONG_GRAPH,
                    "size '%.60s', dimension %d of input '%.80s', is left open; close it with --set "
                    "%.60s=N",
                    symbol, d, info->name, symbol);
        }
        if (dim[d] < 1 || dim[d] > INT64_C(1) << 32)
            return onnx_fail(import, TANDEM_WRONG_GRAPH,
                             "dimension %d of input '%.80s' is %" PRId64 "; allowed are sizes from 1", d,
                             info->name, dim[d]);
    }
    return true;
}

static int add_source(onnx_import *import, tandem_op_kind kind, const char *name, tandem_shape shape)
{
    onnx_record *const r = onnx_add_record(import, kind, name, -1, -1);
    if (!r) return -1;
    r->shape = shape;
    return import->n_record - 1;
}

/* Tokens. */
static bool read_tokens(onnx_import *import, onnx_value *v, const char *name, int n_dim, const int64_t *dim)
{
    if (n_dim != 2)
        return onnx_fail(
            import, TANDEM_WRONG_GRAPH,
            "input '%.80s' is of integers and has %d dimensions; allowed are 2, the batch and the sequence "
            "(a mask: --set %.60s=1)",
            name, n_dim, name);
    const int made = add_source(import, TANDEM_OP_TOKENS, "tokens", (tandem_shape){2, {dim[0], dim[1]}});
    const onnx_view view = onnx_view_of(2, dim, true);
    import->samples = made;
    if (!onnx_set_tensor(import, v, made, &view)) return false;
    v->is_index = true;
    return true;
}

/* Images as (batch, height, width, channels); anything else as its elements in ONNX's order. */
static bool read_images(onnx_import *import, onnx_value *v, int n_dim, const int64_t *dim)
{
    onnx_view view = onnx_view_of(n_dim, dim, true);
    tandem_shape shape = {4, {dim[0], 1, 1, onnx_view_elements(&view) / dim[0]}};
    if (n_dim == 4) {
        shape = (tandem_shape){4, {dim[0], dim[2], dim[3], dim[1]}};
        view = onnx_image_view(&view, dim[2], dim[3], dim[1]);
    }
    const int made = add_source(import, TANDEM_OP_IMAGES, "image", shape);
    import->samples = made;
    return onnx_set_tensor(import, v, made, &view);
}

static bool set_input_constant(onnx_import *import, onnx_value *v, int n_dim, const int64_t *dim,
                               int64_t number, bool is_float)
{
    onnx_constant *const c = onnx_constant_new(import, n_dim, dim, is_float);
    for (int64_t i = 0; c && i < c->n; i++) c->number[i] = (double)number;
    return onnx_set_constant(import, v, c);
}

static bool lower_input(onnx_import *import, const Onnx__ValueInfo *info, onnx_value *v)
{
    int64_t dim[ONNX_MAX_DIM], number;
    int n_dim = 0;
    const int type = info->type && info->type->tensor_type ? info->type->tensor_type->elem_type : 0;
    const bool is_float =
        type == ONNX_FLOAT || type == ONNX_DOUBLE || type == ONNX_FLOAT16 || type == ONNX_BFLOAT16;
    if (!read_sizes(import, info, dim, &n_dim)) return false;
    if (find_set(import, info->name, &number))
        return set_input_constant(import, v, n_dim, dim, number, is_float);
    if (import->samples >= 0)
        return onnx_fail(
            import, TANDEM_WRONG_GRAPH,
            "input '%.80s' is a second input of samples; allowed is one. --set %.60s=N makes it a constant",
            info->name, info->name);
    if (n_dim < 1)
        return onnx_fail(import, TANDEM_WRONG_GRAPH, "input '%.80s' is one number; allowed are samples",
                         info->name);
    if (is_float) return read_images(import, v, n_dim, dim);
    if (type == ONNX_INT64 || type == ONNX_INT32) return read_tokens(import, v, info->name, n_dim, dim);
    return onnx_fail(import, TANDEM_WRONG_GRAPH,
                     "input '%.80s' has element type %d; allowed are floats and integers", info->name, type);
}

bool onnx_lower_inputs(onnx_import *import)
{
    const Onnx__Graph *const g = import->model->graph;
    for (size_t i = 0; i < g->n_input; i++) {
        const int v = g->input[i]->name ? onnx_find_value(import, g->input[i]->name) : -1;
        if (v < 0 || import->value[v].kind != ONNX_TENSOR || import->n_reader[v] == 0 ||
            import->producer[v] >= 0)
            continue;
        if (!lower_input(import, g->input[i], &import->value[v])) return false;
    }
    if (import->samples >= 0) return true;
    return onnx_fail(import, TANDEM_WRONG_GRAPH,
                     "its output reads no input of samples; allowed is a model that does");
}

/* --- The loss ------------------------------------------------------------------------------------------- */

static bool check_loss_option(onnx_import *import)
{
    const char *const loss = import->options->loss;
    if (!loss || strcmp(loss, "cross_entropy") == 0 || strcmp(loss, "nll") == 0) return true;
    return onnx_fail(import, TANDEM_USAGE,
                     "--loss '%.40s'; allowed are cross_entropy (of logits) and nll (of a final LogSoftmax)",
                     loss);
}

bool onnx_lower_loss(onnx_import *import)
{
    const int output = onnx_find_value(import, onnx_trained_output(import));
    onnx_value v = import->value[output];
    if (!check_loss_option(import)) return false;
    if (v.kind == ONNX_REFUSED) return onnx_fail_refused(import);
    if (v.kind != ONNX_TENSOR || v.is_index || v.causal || v.view.n_dim < 2)
        return onnx_fail(
            import, TANDEM_WRONG_GRAPH,
            "its output '%.80s' has no logits; allowed are numbers of two dimensions or more, which the "
            "samples decide",
            import->value_name[output]);
    const int classes = v.view.n_dim == 4 ? 1 : v.view.n_dim - 1;
    const int record = onnx_make_last(import, &v, 1, &classes);
    if (record == -1) return false;
    if (record == -2) return onnx_fail_refused(import);
    const int64_t n = onnx_view_dim(&v.view, classes), rows = onnx_view_elements(&v.view) / n;
    const int64_t length = rows / import->batch;
    const int labels =
        add_source(import, TANDEM_OP_LABELS, "label",
                   (tandem_shape){length == 1 ? 1 : 2, {import->batch, length == 1 ? 0 : length}});
    const int64_t dim[3] = {import->batch, length, n};
    const int logits = length == 1
                           ? onnx_reshape_record(import, record, 2, (const int64_t[]){import->batch, n})
                           : onnx_reshape_record(import, record, 3, dim);
    if (labels < 0 || logits < 0) return false;
    import->labels = labels;
    return onnx_add_record(import, TANDEM_OP_CROSS_ENTROPY, "loss", logits, labels) != NULL;
}
