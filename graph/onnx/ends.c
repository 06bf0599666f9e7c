/* ends.c: where samples come in, and the loss. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_INPUTS = 17 };
static const int64_t MAX_WEIGHT = INT64_C(1) << 40; /* elements */

typedef struct sample_input {
    int value, n_dim;
    int64_t dim[ONNX_MAX_DIM];
    bool is_float;
    const Onnx__ValueInfo *info;
} sample_input;

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
        if (d == 0 && !import->options->whole_output) {
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

static onnx_view input_view(const onnx_import *import, const sample_input *in)
{
    return onnx_view_of(in->n_dim, in->dim, !import->options->whole_output);
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

static void note_sample(onnx_import *import, tandem_sample_layout layout, int n_dim, const int64_t *dim)
{
    import->sample = (tandem_sample){.layout = layout, .n_dim = n_dim};
    for (int d = 0; d < n_dim; d++) import->sample.dim[d] = dim[d];
}

/* Whether a Transpose is all that reads an image, and brings its channels from the end to the front. */
static bool has_channels_last(const onnx_import *import, const sample_input *in)
{
    static const int64_t wanted[4] = {0, 3, 1, 2};
    bool is_read = false;
    for (int i = 0; i < import->n_sequence && in->n_dim == 4; i++) {
        const onnx_node *const node = &import->node[import->sequence[i]];
        const Onnx__Node *const m = node->message;
        for (size_t slot = 0; slot < m->n_input; slot++) {
            if (node->input[slot] != in->value) continue;
            is_read = true;
            if (!m->op_type || strcmp(m->op_type, "Transpose") != 0 || m->n_attribute != 1 ||
                m->attribute[0]->n_ints != 4 || memcmp(m->attribute[0]->ints, wanted, sizeof wanted) != 0)
                return false;
        }
    }
    return is_read;
}

/* Images as (batch, height, width, channels); anything else as its elements in ONNX's order. */
static bool read_images(onnx_import *import, const sample_input *in)
{
    onnx_view view = input_view(import, in);
    const bool is_image = in->n_dim == 4 && !import->options->whole_output,
               is_last = is_image && has_channels_last(import, in);
    const int64_t *const dim = in->dim;
    tandem_shape shape = {4, {import->batch, 1, 1, onnx_view_elements(&view) / import->batch}};
    if (is_last) {
        shape = (tandem_shape){4, {dim[0], dim[1], dim[2], dim[3]}};
    } else if (is_image) {
        shape = (tandem_shape){4, {dim[0], dim[2], dim[3], dim[1]}};
        view = onnx_image_view(&view, dim[2], dim[3], dim[1]);
    }
    note_sample(import,
                is_last    ? TANDEM_SAMPLE_CHANNELS_LAST
                : is_image ? TANDEM_SAMPLE_CHANNELS_FIRST
                           : TANDEM_SAMPLE_NUMBERS,
                in->n_dim > 0 ? in->n_dim - 1 : 0, dim + 1);
    import->samples = add_source(import, TANDEM_OP_IMAGES, "image", shape);
    return onnx_set_tensor(import, &import->value[in->value], import->samples, &view);
}

/* Several inputs of numbers: a sample is all of them, one after the other. */
static bool read_several(onnx_import *import, const sample_input *in, int n)
{
    int64_t all = 0, start = 0;
    for (int i = 0; i < n; i++) {
        const onnx_view view = input_view(import, &in[i]);
        all += onnx_view_elements(&view) / import->batch;
    }
    import->samples = add_source(import, TANDEM_OP_IMAGES, "image", (tandem_shape){4, { import->batch,
                                                                                        1,
                                                                                        1,
                                                                                        all }});
    note_sample(import, TANDEM_SAMPLE_SEVERAL, 1, &all);
    const int flat = onnx_reshape_record(import, import->samples, 2, (const int64_t[]){import->batch, all});
    if (flat < 0) return false;
    for (int i = 0; i < n; i++) {
        const onnx_view view = input_view(import, &in[i]);
        onnx_record *const r =
            onnx_add_record(import, TANDEM_OP_SLICE, import->value_name[in[i].value], flat, -1);
        if (!r) return false;
        r->start = start;
        r->n = onnx_view_elements(&view) / import->batch;
        r->shape.dim[1] = r->n;
        start += r->n;
        if (!onnx_set_tensor(import, &import->value[in[i].value], import->n_record - 1, &view)) return false;
    }
    return true;
}

static bool set_input_constant(onnx_import *import, onnx_value *v, int n_dim, const int64_t *dim,
                               int64_t number, bool is_float)
{
    onnx_constant *const c = onnx_constant_new(import, n_dim, dim, is_float);
    for (int64_t i = 0; c && i < c->n; i++) c->number[i] = (double)number;
    return onnx_set_constant(v, c);
}

/* --- Weights without numbers ---------------------------------------------------------------------------- */

static int input_type(const Onnx__ValueInfo *info)
{
    return info->type && info->type->tensor_type ? info->type->tensor_type->elem_type : 0;
}

static bool is_float_input(const Onnx__ValueInfo *info) { return onnx_is_float_type(input_type(info)); }

static bool is_whole_input(const Onnx__ValueInfo *info)
{
    return input_type(info) == ONNX_INT64 || input_type(info) == ONNX_INT32;
}

static int64_t fixed_size(const Onnx__Dimension *d)
{
    return d->has_dim_value && !(d->dim_param && *d->dim_param) ? d->dim_value : 0;
}

/* A file that was exported without weights lists them among its inputs, after the samples. Their sizes are
 * fixed; the first one is no batch, or the name is that of a module's parameter: "layer1.weight". So are
 * integers, such as places in a table, but always with such a name. */
static bool is_weight_input(const onnx_import *import, const Onnx__ValueInfo *info,
                            const Onnx__ValueInfo *samples)
{
    int64_t number, n = 1;
    const bool is_named = strchr(info->name, '.') != NULL;
    if ((!is_float_input(info) && !(is_named && is_whole_input(info))) || !info->type->tensor_type->shape ||
        info->type->tensor_type->shape->n_dim - 1 >= ONNX_MAX_DIM || find_set(import, info->name, &number))
        return false;
    const Onnx__Shape *const shape = info->type->tensor_type->shape;
    for (size_t d = 0; d < shape->n_dim; d++) {
        const int64_t size = fixed_size(shape->dim[d]);
        if (size < 1 || size > MAX_WEIGHT / n) return false;
        n *= size;
    }
    const Onnx__Shape *const first = samples->type->tensor_type->shape;
    return is_named || fixed_size(first->dim[0]) != fixed_size(shape->dim[0]);
}

static bool add_weight_input(onnx_import *import, const Onnx__ValueInfo *info, onnx_value *v)
{
    const Onnx__Shape *const shape = info->type->tensor_type->shape;
    int64_t dim[ONNX_MAX_DIM];
    for (size_t d = 0; d < shape->n_dim; d++) dim[d] = shape->dim[d]->dim_value;
    *v = (onnx_value){.kind = ONNX_INDEX, .weight = -1};
    v->view = onnx_view_of((int)shape->n_dim, dim, false);
    if (!is_float_input(info)) return true;
    v->kind = ONNX_WEIGHT;
    v->weight = onnx_add_weight(import, info->name, -1);
    return v->weight >= 0;
}

/* Whether the file has weights that its output needs. */
static bool has_weights(const onnx_import *import)
{
    for (int v = 0; v < import->n_value; v++)
        if (import->value[v].kind == ONNX_WEIGHT && import->n_reader[v]) return true;
    for (int i = 0; i < import->n_sequence; i++) {
        const int node = import->sequence[i];
        const Onnx__Tensor *const t =
            onnx_file_tensor(import, (int)import->model->graph->n_initializer + node);
        if (t && onnx_is_float_type(t->data_type) && t->n_dims > 0 && t->dims[0] > 1) return true;
    }
    return false;
}

/* --- Inputs --------------------------------------------------------------------------------------------- */

/* Notes an input of samples, unless --set makes it a constant. */
static bool note_input(onnx_import *import, const Onnx__ValueInfo *info, int value, sample_input *in, int *n)
{
    int64_t number = 0;
    sample_input *const next = &in[*n];
    *next = (sample_input){0};
    next->is_float = is_float_input(info);
    next->value = value;
    next->info = info;
    if (!read_sizes(import, info, next->dim, &next->n_dim)) return false;
    if (find_set(import, info->name, &number))
        return set_input_constant(import, &import->value[value], next->n_dim, next->dim, number,
                                  next->is_float);
    if (next->n_dim < 1 && !import->options->whole_output)
        return onnx_fail(import, TANDEM_WRONG_GRAPH, "input '%.80s' is one number; allowed are samples",
                         info->name);
    if (!next->is_float && !is_whole_input(info))
        return onnx_fail(import, TANDEM_WRONG_GRAPH,
                         "input '%.80s' has element type %d; allowed are floats and integers (a mask: --set "
                         "%.60s=1)",
                         info->name, input_type(info), info->name);
    if (*n > 0 && (!next->is_float || !in[0].is_float))
        return onnx_fail(
            import, TANDEM_WRONG_GRAPH,
            "input '%.80s' is a second input of samples, of integers; allowed are one of integers, or "
            "several of floats. --set %.60s=N makes it a constant",
            next->is_float ? in[0].info->name : info->name, next->is_float ? in[0].info->name : info->name);
    if (++*n < MAX_INPUTS) return true;
    return onnx_fail(import, TANDEM_WRONG_GRAPH, "more than %d inputs; allowed are as many", MAX_INPUTS - 1);
}

bool onnx_lower_inputs(onnx_import *import)
{
    const Onnx__Graph *const g = import->model->graph;
    sample_input in[MAX_INPUTS];
    int n = 0;
    const bool may_be_weights = !import->options->whole_output && !has_weights(import);
    for (size_t i = 0; i < g->n_input; i++) {
        const int v = g->input[i]->name ? onnx_find_value(import, g->input[i]->name) : -1;
        if (v < 0 || import->value[v].kind != ONNX_TENSOR || import->n_reader[v] == 0 ||
            import->producer[v] >= 0 || import->value[v].view.n_dim > 0)
            continue;
        const bool is_weight = may_be_weights && n > 0 && is_weight_input(import, g->input[i], in[0].info);
        if (!(is_weight ? add_weight_input(import, g->input[i], &import->value[v])
                        : note_input(import, g->input[i], v, in, &n)))
            return false;
    }
    if (n == 0 && import->is_listing) return true; /* a branch may read it */
    if (n == 0)
        return onnx_fail(import, TANDEM_WRONG_GRAPH,
                         "its output reads no input of samples; allowed is a model that does");
    if (n > 1) return read_several(import, in, n);
    return in[0].is_float
               ? read_images(import, &in[0])
               : read_tokens(import, &import->value[in[0].value], in[0].info->name, in[0].n_dim, in[0].dim);
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

/* The output, or an operator before it, cannot be laid out so that it ends with the classes. */
static bool fail_output(onnx_import *import)
{
    int first;
    if (onnx_count_refused(import, &first) > 0) return onnx_fail_refused(import);
    return onnx_fail(import, TANDEM_WRONG_GRAPH,
                     "its output '%.80s' does not count samples first; allowed are logits of one sample "
                     "after the other",
                     onnx_trained_output(import));
}

/* All of the output as the logits of one row. */
static bool lower_whole_output(onnx_import *import, onnx_value *v)
{
    const int record = onnx_arrange_plain(import, v);
    if (record == -1) return false;
    if (record == -2) return fail_output(import);
    const int64_t n = onnx_view_elements(&v->view);
    const int logits = onnx_reshape_record(import, record, 2, (const int64_t[]){1, n});
    const int labels = add_source(import, TANDEM_OP_LABELS, "label", (tandem_shape){1, {1}});
    if (logits < 0 || labels < 0) return false;
    /* so that something is trained */
    onnx_record *const bias = onnx_add_record(import, TANDEM_OP_BIAS, "whole", logits, -1);
    if (!bias) return false;
    bias->n_trailing = 1;
    const int last = import->n_record - 1;
    return onnx_add_record(import, TANDEM_OP_CROSS_ENTROPY, "loss", last, labels) != NULL;
}

bool onnx_lower_loss(onnx_import *import)
{
    const int output = onnx_find_value(import, onnx_trained_output(import));
    onnx_value v = import->value[output];
    if (!check_loss_option(import)) return false;
    if (v.kind == ONNX_REFUSED) return onnx_fail_refused(import);
    if (v.kind != ONNX_TENSOR || v.is_index || v.causal ||
        (v.view.n_dim < 2 && !import->options->whole_output))
        return onnx_fail(
            import, TANDEM_WRONG_GRAPH,
            "its output '%.80s' has no logits; allowed are numbers of two dimensions or more, which the "
            "samples decide",
            import->value_name[output]);
    if (import->options->whole_output) return lower_whole_output(import, &v);
    const int classes = v.view.n_dim == 4 ? 1 : v.view.n_dim - 1;
    const int record = onnx_make_last(import, &v, 1, &classes);
    if (record == -1) return false;
    if (record == -2) return fail_output(import);
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
