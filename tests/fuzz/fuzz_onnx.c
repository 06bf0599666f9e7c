/* folder: graph */
/* ONNX models from any bytes: an error with a text, or a graph that keeps its laws. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/philox.h"
#include "graph/onnx/onnx.h"
#include "graph/onnx/onnx.pb-c.h"
#include "tests/fuzz/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const tandem_onnx_options options = {.n = 1, .set = {{"seq", 5}}};
    char path[64];
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const int file = memfd_create("fuzz.onnx", MFD_CLOEXEC);
    if (file < 0 || write(file, data, size) != (ssize_t)size) abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const tandem_status status = tandem_onnx_open(&graph, "fuzz.onnx", path, &options, 3, &error);
    demand((status == TANDEM_OK) == (graph != NULL), "outputs are untouched");
    demand(status == TANDEM_OK || (error.status == status && error.text[0]), "an error has a text");
    demand(status != TANDEM_BUG, "no input is our bug");
    if (graph)
        demand(graph->n_op > 1 && graph->op[graph->loss].kind == TANDEM_OP_CROSS_ENTROPY,
               "it ends with the loss");
    tandem_graph_close(graph);
    tandem_unsupported list = {0};
    const tandem_status listed = tandem_onnx_list_unsupported(&list, path, &options, 3, &error);
    demand((listed == TANDEM_OK) == (list.line != NULL), "a list is made, or untouched");
    demand(listed != TANDEM_BUG, "no input is our bug");
    if (listed == TANDEM_OK)
        demand(list.n >= 0 && list.n_unjudged >= 0 && list.n + list.n_unjudged <= list.n_node,
               "each node is judged once");
    tandem_unsupported_close(&list);
    close(file);
    return 0;
}

/* --- Changes that leave a model a model ------------------------------------------------------------------
 * libFuzzer changes bytes; few of those are protocol buffers still. So every second input is read, changed in
 * up to four places and written. */

typedef struct changer {
    Onnx__Graph *graph;
    uint32_t seed, n;
} changer;

static uint32_t below(changer *c, size_t n)
{
    const uint32_t word = tandem_philox((uint32_t[4]){c->n++, c->seed, 0, 0}, 18).word[0];
    return n ? word % (uint32_t)n : 0;
}

static int64_t odd_number(changer *c)
{
    static const int64_t odd[] = {0,         1,         -1,        2,         3,       4,        7,
                                  INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 24, 1LL << 40};
    return odd[below(c, sizeof odd / sizeof *odd)];
}

static void replace_text(char **text, const char *by)
{
    char *const copy = strdup(by ? by : "");
    if (!copy) abort();
    free(*text);
    *text = copy;
}

/* Of a node's output, an input or an initializer. */
static const char *any_name(changer *c)
{
    const Onnx__Graph *const g = c->graph;
    const uint32_t k = below(c, 3);
    if (k == 0 && g->n_input) return g->input[below(c, g->n_input)]->name;
    if (k == 1 && g->n_initializer) return g->initializer[below(c, g->n_initializer)]->name;
    const Onnx__Node *const node = g->node[below(c, g->n_node)];
    return node->n_output ? node->output[below(c, node->n_output)] : "";
}

static void change_node(changer *c)
{
    static const char *const types[] = {"Add",
                                        "AveragePool",
                                        "BatchNormalization",
                                        "Cast",
                                        "Clip",
                                        "Concat",
                                        "Conv",
                                        "Div",
                                        "Dropout",
                                        "Expand",
                                        "Flatten",
                                        "Gather",
                                        "Gemm",
                                        "GlobalAveragePool",
                                        "Identity",
                                        "LayerNormalization",
                                        "LogSoftmax",
                                        "MatMul",
                                        "MaxPool",
                                        "Mul",
                                        "Pad",
                                        "Pow",
                                        "Range",
                                        "ReduceMean",
                                        "Relu",
                                        "Reshape",
                                        "ScatterND",
                                        "Shape",
                                        "Slice",
                                        "Softmax",
                                        "Split",
                                        "Sqrt",
                                        "Squeeze",
                                        "Sub",
                                        "Tile",
                                        "Transpose",
                                        "Trilu",
                                        "Unsqueeze",
                                        "Where",
                                        "QuantizeLinear"};
    Onnx__Node *const node = c->graph->node[below(c, c->graph->n_node)],
                      *const other = c->graph->node[below(c, c->graph->n_node)];
    const Onnx__Node kept = *node;
    switch (below(c, 6)) {
    case 0: replace_text(&node->op_type, types[below(c, sizeof types / sizeof *types)]); break;
    case 1:
        if (node->n_input) free(node->input[--node->n_input]);
        break;
    case 2: /* of another kind, with the same edges */
        node->attribute = other->attribute, node->n_attribute = other->n_attribute;
        other->attribute = kept.attribute, other->n_attribute = kept.n_attribute;
        break;
    case 3:
        if (node->n_attribute) {
            Onnx__Attribute *const a = node->attribute[below(c, node->n_attribute)];
            if (a->n_ints) a->ints[below(c, a->n_ints)] = odd_number(c);
            a->has_i = 1, a->i = odd_number(c);
        }
        break;
    default:
        if (node->n_input) replace_text(&node->input[below(c, node->n_input)], any_name(c));
    }
}

static void change_tensor(changer *c)
{
    Onnx__Graph *const g = c->graph;
    Onnx__Tensor *const t = g->n_initializer ? g->initializer[below(c, g->n_initializer)] : NULL;
    if (!t) return;
    const uint32_t k = below(c, 4);
    if (k == 0 && t->n_dims) t->dims[below(c, t->n_dims)] = odd_number(c);
    if (k == 1) t->data_type = (int32_t)below(c, 18);
    if (k == 2 && t->n_dims > 1) { /* another shape of as many elements */
        const int64_t first = t->dims[0];
        t->dims[0] = t->dims[t->n_dims - 1];
        t->dims[t->n_dims - 1] = first;
    }
    if (k == 3 && t->raw_data.len >= 8 && t->data_type == 7) {
        const int64_t number = odd_number(c);
        memcpy(t->raw_data.data + 8 * below(c, t->raw_data.len / 8), &number, sizeof number);
    }
}

extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    Onnx__Model *const model = seed % 2 ? onnx__model__unpack(NULL, size, data) : NULL;
    size_t n = 0;
    if (model && model->graph && model->graph->n_node) {
        changer c = {model->graph, seed, 0};
        for (uint32_t k = 1 + below(&c, 4); k > 0; k--) below(&c, 4) ? change_node(&c) : change_tensor(&c);
        n = onnx__model__get_packed_size(model);
        if (n <= room) onnx__model__pack(model, data);
    }
    if (model) onnx__model__free_unpacked(model, NULL);
    return n && n <= room ? n : LLVMFuzzerMutate(data, size, room);
}

int main(int argc, char **argv)
{
    return tandem_fuzz_main("onnx", LLVMFuzzerTestOneInput, NULL, NULL, 0, argc, argv);
}
