/* import.c: from an ONNX file to the training graph of its model: reads it, lowers its nodes one after the
 * other, adds the loss, and builds what the loss needs. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Initializers --------------------------------------------------------------------------------------- */

static bool read_initializer(onnx_import *import, onnx_value *value, const char *name)
{
    const int index = value->weight;
    const Onnx__Tensor *const t = import->model->graph->initializer[index];
    int64_t n = 0;
    *value = (onnx_value){.kind = ONNX_WEIGHT, .weight = -1};
    if (!onnx_tensor_elements(import, t, &n)) return false;
    if (t->n_dims > ONNX_MAX_DIM)
        return onnx_fail(import, TANDEM_WRONG_GRAPH,
                         "tensor '%.80s' has %zu dimensions; allowed are at most %d", name, t->n_dims,
                         ONNX_MAX_DIM);
    const bool is_float = onnx_is_float_type(t->data_type);
    if (is_float && n > 0 && (value->weight = onnx_add_weight(import, name, index)) < 0) return false;
    value->view = onnx_view_of((int)t->n_dims, t->dims, false);
    if (is_float && n > 0 && !onnx_tensor_has_data(t)) return true;
    if (is_float && n > 1) return onnx_tensor_check(import, t, n);
    if (n > 0 && !onnx_tensor_has_data(t))
        return onnx_fail(import, TANDEM_MALFORMED,
                         "tensor '%.80s' has no data; only weights of type float may be left out", name);
    onnx_constant *const c = onnx_constant_new(import, (int)t->n_dims, t->dims, is_float);
    return c && onnx_tensor_read(import, t, c->number, NULL, n) &&
           (value->kind = ONNX_CONSTANT, value->constant = c, true);
}

static bool read_initializers(onnx_import *import)
{
    for (int v = 0; v < import->n_value; v++)
        if (import->value[v].kind == ONNX_WEIGHT && import->n_reader[v] &&
            !read_initializer(import, &import->value[v], import->value_name[v]))
            return false;
    return true;
}

/* --- Nodes ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *op_type;
    onnx_lowering *lower;
} lowerings[] = {
    {"Abs", onnx_lower_unary},           {"Add", onnx_lower_binary},
    {"AveragePool", onnx_lower_pool},    {"BatchNormalization", onnx_lower_batchnorm},
    {"Cast", onnx_lower_identity},       {"Clip", onnx_lower_clip},
    {"Concat", onnx_lower_concat},       {"Conv", onnx_lower_conv},
    {"Cos", onnx_lower_unary},           {"DequantizeLinear", onnx_lower_quantize},
    {"Div", onnx_lower_binary},          {"Dropout", onnx_lower_dropout},
    {"Elu", onnx_lower_unary},           {"Erf", onnx_lower_unary},
    {"Exp", onnx_lower_unary},           {"Expand", onnx_lower_expand},
    {"Flatten", onnx_lower_flatten},     {"Gather", onnx_lower_gather},
    {"Gemm", onnx_lower_gemm},           {"GlobalAveragePool", onnx_lower_global_pool},
    {"HardSigmoid", onnx_lower_unary},   {"HardSwish", onnx_lower_unary},
    {"Identity", onnx_lower_identity},   {"LayerNormalization", onnx_lower_layernorm},
    {"LeakyRelu", onnx_lower_unary},     {"Log", onnx_lower_unary},
    {"LogSoftmax", onnx_lower_softmax},  {"MatMul", onnx_lower_matmul},
    {"Max", onnx_lower_binary},          {"MaxPool", onnx_lower_pool},
    {"Min", onnx_lower_binary},          {"Mul", onnx_lower_binary},
    {"Neg", onnx_lower_unary},           {"Pad", onnx_lower_pad},
    {"Pow", onnx_lower_binary},          {"QuantizeLinear", onnx_lower_quantize},
    {"Reciprocal", onnx_lower_unary},    {"ReduceMean", onnx_lower_reduce_mean},
    {"Relu", onnx_lower_unary},          {"Reshape", onnx_lower_reshape},
    {"Selu", onnx_lower_unary},          {"Sigmoid", onnx_lower_unary},
    {"Sin", onnx_lower_unary},           {"Slice", onnx_lower_slice},
    {"Softmax", onnx_lower_softmax},     {"Softplus", onnx_lower_unary},
    {"Softsign", onnx_lower_unary},      {"Split", onnx_lower_split},
    {"Sqrt", onnx_lower_unary},          {"Squeeze", onnx_lower_squeeze},
    {"Sub", onnx_lower_binary},          {"Tanh", onnx_lower_unary},
    {"Transpose", onnx_lower_transpose}, {"Unsqueeze", onnx_lower_unsqueeze},
    {"Where", onnx_lower_where},
};

static onnx_lowering *find_lowering(const onnx_import *import)
{
    if (!onnx_is_own_domain(import->node[import->current].message->domain)) return NULL;
    for (size_t i = 0; i < sizeof lowerings / sizeof *lowerings; i++)
        if (strcmp(lowerings[i].op_type, onnx_op_type(import)) == 0) return lowerings[i].lower;
    return NULL;
}

static const char no_control_flow[] =
    "control flow is not supported; export a traced model, without branches and loops";

static bool is_control_flow(const onnx_import *import)
{
    static const char *const control[] = {"If", "Loop", "Scan"};
    for (size_t i = 0; i < sizeof control / sizeof *control; i++)
        if (strcmp(onnx_op_type(import), control[i]) == 0) return true;
    return false;
}

static bool refuse_operator(onnx_import *import)
{
    static const char *const recurrent[] = {"LSTM", "GRU", "RNN"};
    const char *why = is_control_flow(import) ? no_control_flow : "there is no such operator here";
    for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++)
        if (strcmp(onnx_op_type(import), recurrent[i]) == 0) why = "recurrent layers are not supported";
    import->node[import->current].is_unknown = true;
    return onnx_refuse(import, "%s", why);
}

static bool lower_node(onnx_import *import)
{
    const onnx_node *const node = &import->node[import->current];
    bool done = false;
    import->nowhere = (onnx_value){.kind = ONNX_ABSENT, .weight = -1};
    onnx_lowering *const lower = find_lowering(import);
    /* what lies inside a layernorm need not be supported */
    if (lower && strcmp(onnx_op_type(import), "Div") == 0 && !onnx_lower_written_layernorm(import, &done))
        return false;
    if (done) return true;
    for (size_t i = 0; i < node->message->n_input; i++) {
        const onnx_value *const v = node->input[i] >= 0 ? &import->value[node->input[i]] : NULL;
        if (!v || v->kind != ONNX_REFUSED) continue;
        const int root = v->refused;
        import->node[import->current].is_unjudged = lower || onnx_is_foldable(import);
        if (!lower && !onnx_is_foldable(import) && !refuse_operator(import)) return false;
        onnx_blame(import, root);
        return true;
    }
    if (!onnx_fold(import, &done)) return false;
    if (done) return true;
    return lower ? lower(import) : refuse_operator(import);
}

/* Its branches may read anything, and are not looked at. */
static bool check_control_flow(onnx_import *import)
{
    for (int i = 0; i < import->n_sequence && !import->is_listing; i++) {
        import->current = import->sequence[i];
        if (is_control_flow(import)) return onnx_fail_node(import, "%s", no_control_flow);
    }
    return true;
}

/* The same, and what it computes has a shape if it can, also where it is not supported. A failure after a
 * stand-in, or at a weight that another node has, may be the stand-in's fault. */
static bool judge_node(onnx_import *import)
{
    onnx_node *const node = &import->node[import->current];
    const bool is_after_stand_in = onnx_reads_stand_in(import), fine = lower_node(import);
    if (!fine && (!is_after_stand_in || import->error->status == TANDEM_NO_MEMORY)) return false;
    if (!fine || (is_after_stand_in && node->refused && node->reads_taken)) {
        *import->error = (tandem_error){0};
        node->is_unjudged = true;
        node->refused = NULL;
        onnx_blame(import, import->current);
    }
    return onnx_stand_in(import);
}

static bool lower_nodes(onnx_import *import)
{
    for (int i = 0; i < import->n_sequence; i++) {
        import->current = import->sequence[i];
        if (!(import->is_listing ? judge_node(import) : lower_node(import))) return false;
    }
    return true;
}

/* --- The import ----------------------------------------------------------------------------------------- */

static void close_import(onnx_import *import)
{
    onnx_free_model(import);
    free(import->weight);
    free(import->expression);
    free(import->record);
    free(import->factors);
    tandem_arena_free(&import->arena);
}

static bool lower_model(onnx_import *import)
{
    return onnx_order_nodes(import) && check_control_flow(import) && read_initializers(import) &&
           onnx_lower_inputs(import) && lower_nodes(import);
}

tandem_status tandem_onnx_open(tandem_graph **graph, const char *model, const char *path,
                               const tandem_onnx_options *options, int64_t batch, tandem_error *error)
{
    tandem_error own = {0};
    onnx_import import = {.find_lowering = find_lowering,
                          .path = path,
                          .options = options,
                          .batch = batch,
                          .file = -1,
                          .error = &own,
                          .samples = -1};
    tandem_builder *builder = NULL;
    tandem_graph *made = NULL;
    tandem_status status = tandem_builder_open(&builder, batch, &own);
    const bool fine = status == TANDEM_OK && onnx_read_model(&import) && lower_model(&import) &&
                      onnx_lower_loss(&import) && onnx_emit(&import, builder, model, &made) &&
                      onnx_keep_weights(&import, made);
    if (fine && made->op[made->input].kind == TANDEM_OP_IMAGES) made->sample = import.sample;
    if (fine) status = tandem_graph_fuse(made, &own);
    if (fine && status == TANDEM_OK) {
        *graph = made;
    } else {
        tandem_graph_close(made);
        status = tandem_error_set(error, own.status, "%s", own.text);
    }
    tandem_builder_close(builder);
    close_import(&import);
    return status;
}

/* Counts what is listed, and makes room for it. */
static bool open_list(onnx_import *import, tandem_unsupported *list)
{
    int first = 0;
    list->n_node = import->n_sequence;
    for (int i = 0; i < import->n_sequence; i++) {
        onnx_node *const node = &import->node[import->sequence[i]];
        if (node->is_absorbed) node->refused = NULL, node->is_unjudged = false;
        list->n_unjudged += node->is_unjudged && !node->refused;
    }
    list->n = onnx_count_refused(import, &first);
    list->line = calloc((size_t)list->n + 1, sizeof *list->line);
    return list->line || onnx_no_memory(import);
}

tandem_status tandem_onnx_list_unsupported(tandem_unsupported *list, const char *path,
                                           const tandem_onnx_options *options, int64_t batch,
                                           tandem_error *error)
{
    tandem_error own = {0}, ignored = {0};
    tandem_unsupported made = {0};
    onnx_import import = {.find_lowering = find_lowering,
                          .path = path,
                          .options = options,
                          .batch = batch,
                          .is_listing = true,
                          .file = -1,
                          .error = &own,
                          .samples = -1};
    bool fine = onnx_read_model(&import) && lower_model(&import);
    import.error = &ignored;
    if (fine) (void)onnx_lower_loss(&import); /* it may refuse more */
    import.error = &own;
    fine = fine && open_list(&import, &made);
    for (int i = 0, n = 0; fine && i < import.n_sequence; i++) {
        const onnx_node *const node = &import.node[import.sequence[i]];
        if (!node->refused) continue;
        onnx_describe_node(&import, import.sequence[i], made.line[n].node, sizeof made.line[n].node);
        (void)snprintf(made.line[n].why, sizeof made.line[n].why, "%s", node->refused);
        n++;
    }
    close_import(&import);
    if (fine) *list = made;
    return fine ? TANDEM_OK : tandem_error_set(error, own.status, "%s", own.text);
}
