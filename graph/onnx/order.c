/* order.c: names become values; the nodes that the trained output needs, each after what it reads. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"

typedef struct naming {
    onnx_import *import;
    tandem_hash_index table;
} naming;

static uint64_t hash_name(const char *name) { return tandem_hash_text(TANDEM_HASH_START, name); }

/* The value of a name, made where it is new. */
static bool name_value(naming *n, const char *name, int *value)
{
    onnx_import *const import = n->import;
    *value = -1;
    if (!name || !*name) return true;
    const uint64_t hash = hash_name(name);
    *value = tandem_hash_index_find(&n->table, hash);
    if (*value >= 0) return true;
    if (!tandem_hash_index_add(&n->table, hash, import->n_value)) return onnx_no_memory(import);
    *value = import->n_value;
    import->value_name[import->n_value++] = name;
    return true;
}

/* At most this many values: every name of the file is one. */
static size_t count_names(const Onnx__Graph *g)
{
    size_t n = g->n_initializer + g->n_input + g->n_output;
    for (size_t i = 0; i < g->n_node; i++) n += g->node[i]->n_input + g->node[i]->n_output;
    return n;
}

static bool alloc_values(onnx_import *import, size_t n_name, size_t n_node)
{
    if (n_node > ONNX_MAX_NODE)
        return onnx_fail(import, TANDEM_MALFORMED, "it has %zu nodes; allowed are at most %d", n_node,
                         ONNX_MAX_NODE);
    if (n_name > INT32_MAX / 4) return onnx_fail(import, TANDEM_MALFORMED, "it has %zu names", n_name);
    import->value_name = tandem_arena_array(&import->arena, n_name + 1, sizeof *import->value_name);
    import->value = tandem_arena_array(&import->arena, n_name + 1, sizeof *import->value);
    import->producer = tandem_arena_array(&import->arena, n_name + 1, sizeof *import->producer);
    import->info = tandem_arena_array(&import->arena, n_name + 1, sizeof *import->info);
    import->n_reader = tandem_arena_array(&import->arena, n_name + 1, sizeof *import->n_reader);
    import->node = tandem_arena_array(&import->arena, n_node + 1, sizeof *import->node);
    import->sequence = tandem_arena_array(&import->arena, n_node + 1, sizeof *import->sequence);
    const bool fine = import->value_name && import->value && import->producer && import->info &&
                      import->n_reader && import->node && import->sequence;
    for (size_t i = 0; fine && i <= n_name; i++) import->producer[i] = -1;
    return fine || onnx_no_memory(import);
}

static bool name_node(naming *n, onnx_node *node)
{
    onnx_import *const import = n->import;
    const Onnx__Node *const m = node->message;
    node->input = tandem_arena_array(&import->arena, m->n_input + 1, sizeof *node->input);
    node->output = tandem_arena_array(&import->arena, m->n_output + 1, sizeof *node->output);
    if (!node->input || !node->output) return onnx_no_memory(import);
    for (size_t i = 0; i < m->n_input; i++)
        if (!name_value(n, m->input[i], &node->input[i])) return false;
    for (size_t i = 0; i < m->n_output; i++) {
        const int before = import->n_value;
        if (!name_value(n, m->output[i], &node->output[i])) return false;
        const int v = node->output[i];
        if (v < 0) continue;
        if (import->producer[v] >= 0 || (v < before && import->value[v].kind != ONNX_ABSENT))
            return onnx_fail(
                import, TANDEM_MALFORMED,
                "'%.80s' is computed by node '%.80s' (%.40s), but it is also an input or computed by another "
                "node; allowed is one origin",
                m->output[i], m->name ? m->name : "", m->op_type ? m->op_type : "");
        import->producer[v] = (int)(node - import->node);
    }
    return true;
}

/* Initializers hide inputs of the same name, which older files list. */
static bool name_initializers(naming *n)
{
    onnx_import *const import = n->import;
    const Onnx__Graph *const g = import->model->graph;
    for (size_t i = 0; i < g->n_initializer; i++) {
        int v;
        if (!name_value(n, g->initializer[i]->name, &v)) return false;
        if (v < 0) continue;
        if (import->value[v].kind != ONNX_ABSENT)
            return onnx_fail(import, TANDEM_MALFORMED, "initializer '%.80s' occurs twice; allowed is once",
                             g->initializer[i]->name);
        import->value[v].kind = ONNX_WEIGHT;
        import->value[v].weight = (int)i; /* the tensor's number; import.c makes a weight of it */
    }
    return true;
}

static bool name_all(naming *n)
{
    onnx_import *const import = n->import;
    const Onnx__Graph *const g = import->model->graph;
    int v;
    if (!name_initializers(n)) return false;
    for (size_t i = 0; i < g->n_input; i++) {
        if (!name_value(n, g->input[i]->name, &v)) return false;
        if (v >= 0 && import->value[v].kind == ONNX_ABSENT) import->value[v].kind = ONNX_TENSOR;
    }
    import->n_node = (int)g->n_node;
    for (int i = 0; i < import->n_node; i++) {
        import->node[i].message = g->node[i];
        if (!name_node(n, &import->node[i])) return false;
    }
    for (size_t i = 0; i < g->n_output; i++)
        if (!name_value(n, g->output[i]->name, &v)) return false;
    for (size_t i = 0; i < g->n_value_info && import->is_listing; i++) {
        const char *const name = g->value_info[i]->name;
        v = name ? tandem_hash_index_find(&n->table, hash_name(name)) : -1;
        if (v >= 0) import->info[v] = g->value_info[i];
    }
    return true;
}

/* --- The order ------------------------------------------------------------------------------------------ */

enum { UNSEEN, OPEN, DONE };

static bool refuse_cycle(onnx_import *import, const onnx_node *node)
{
    return onnx_fail(
        import, TANDEM_MALFORMED,
        "node '%.80s' (%.40s) reads what it computes, directly or through others; allowed are graphs "
        "without cycles",
        node->message->name ? node->message->name : "", node->message->op_type ? node->message->op_type : "");
}

/* Depth first from `root`, without recursion: graphs may be 100,000 nodes deep. */
static bool visit_from(onnx_import *import, int root, char *state, int *stack, size_t *next)
{
    int depth = 0;
    stack[depth++] = root;
    state[root] = OPEN;
    while (depth > 0) {
        const int i = stack[depth - 1];
        onnx_node *const node = &import->node[i];
        if (next[i] == node->message->n_input) {
            state[i] = DONE;
            node->is_needed = true;
            import->sequence[import->n_sequence++] = i;
            depth--;
            continue;
        }
        const int v = node->input[next[i]++];
        if (v < 0) continue;
        import->n_reader[v]++;
        const int from = import->producer[v];
        if (from < 0 && import->value[v].kind == ONNX_ABSENT)
            return onnx_fail(
                import, TANDEM_MALFORMED,
                "node '%.80s' (%.40s) reads '%.80s', which nothing computes; allowed are outputs of nodes, "
                "initializers and inputs",
                node->message->name ? node->message->name : "",
                node->message->op_type ? node->message->op_type : "", import->value_name[v]);
        if (from < 0 || state[from] == DONE) continue;
        if (state[from] == OPEN) return refuse_cycle(import, &import->node[from]);
        state[from] = OPEN;
        stack[depth++] = from;
    }
    return true;
}

static bool is_file_sorted(const onnx_import *import)
{
    for (int i = 0; i < import->n_sequence; i++) {
        const onnx_node *const node = &import->node[import->sequence[i]];
        for (size_t k = 0; k < node->message->n_input; k++)
            if (node->input[k] >= 0 && import->producer[node->input[k]] >= import->sequence[i]) return false;
    }
    return true;
}

/* Where the file's order will do, it is that of the forward pass that was exported. */
static void keep_file_order(onnx_import *import)
{
    int n = 0;
    if (is_file_sorted(import))
        for (int i = 0; i < import->n_node; i++)
            if (import->node[i].is_needed) import->sequence[n++] = i;
    for (int i = 0; i < import->n_sequence; i++) import->node[import->sequence[i]].place = i;
}

int onnx_find_value(const onnx_import *import, const char *name)
{
    for (int v = 0; v < import->n_value; v++)
        if (strcmp(import->value_name[v], name) == 0) return v;
    return -1;
}

const char *onnx_trained_output(const onnx_import *import)
{
    const Onnx__Graph *const g = import->model->graph;
    if (import->options->output) return import->options->output;
    return g->n_output && g->output[0]->name ? g->output[0]->name : "";
}

static bool sequence_nodes(onnx_import *import)
{
    const char *const output = onnx_trained_output(import);
    const int v = *output ? onnx_find_value(import, output) : -1;
    if (v < 0 || (import->producer[v] < 0))
        return onnx_fail(
            import, TANDEM_MALFORMED,
            "no node computes its output '%.80s'; allowed is the result of a node (--set output=NAME "
            "chooses)",
            output);
    const size_t n = (size_t)import->n_node;
    char *const state = tandem_arena_array(&import->arena, n, sizeof *state);
    int *const stack = tandem_arena_array(&import->arena, n, sizeof *stack);
    size_t *const next = tandem_arena_array(&import->arena, n, sizeof *next);
    if (!state || !stack || !next) return onnx_no_memory(import);
    import->n_reader[v]++;
    if (!visit_from(import, import->producer[v], state, stack, next)) return false;
    keep_file_order(import);
    return true;
}

bool onnx_order_nodes(onnx_import *import)
{
    naming n = {.import = import};
    const Onnx__Graph *const g = import->model->graph;
    const bool fine =
        alloc_values(import, count_names(g), g->n_node) && name_all(&n) && sequence_nodes(import);
    tandem_hash_index_free(&n.table);
    return fine;
}
