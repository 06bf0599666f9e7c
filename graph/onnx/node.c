/* node.c: the node that is being lowered: its inputs and outputs, its errors, and what is not supported. */
#include "graph/onnx/onnx_types.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/grow.h"
#include "base/plain_text.h"

/* --- Domains of operators ------------------------------------------------------------------------------- */

bool onnx_is_own_domain(const char *domain) { return !domain || !*domain || strcmp(domain, "ai.onnx") == 0; }

int onnx_domain_version(const onnx_import *import, const char *domain)
{
    const Onnx__Model *const m = import->model;
    const bool is_own = onnx_is_own_domain(domain);
    int version = 0;
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const char *const one = m->opset_import[i]->domain;
        const bool is_it = is_own ? onnx_is_own_domain(one) : one && strcmp(one, domain) == 0;
        if (is_it && m->opset_import[i]->version <= 1 << 20) version = (int)m->opset_import[i]->version;
    }
    return version;
}

/* --- Errors --------------------------------------------------------------------------------------------- */

static bool set_error(onnx_import *import, tandem_status status, const char *where, const char *format,
                      va_list arguments)
{
    char text[512];
    (void)tandem_plain_print_list(text, sizeof text, format, arguments);
    tandem_error_set(import->error, status, "model '%s': %s%s", import->path, where, text);
    return false;
}

bool onnx_fail(onnx_import *import, tandem_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(import, status, "", format, arguments);
    va_end(arguments);
    return false;
}

/* "node 'conv1' (Conv, opset 13)" */
void onnx_describe_node(const onnx_import *import, int node, char *text, size_t room)
{
    const Onnx__Node *const m = import->node[node].message;
    (void)snprintf(text, room, "node '%.80s' (%.40s, domain %.40s, opset %d)", m->name ? m->name : "",
                   m->op_type ? m->op_type : "", m->domain && *m->domain ? m->domain : "ai.onnx",
                   onnx_domain_version(import, m->domain));
}

bool onnx_fail_node(onnx_import *import, const char *format, ...)
{
    char node[256], where[264];
    va_list arguments;
    onnx_describe_node(import, import->current, node, sizeof node);
    (void)snprintf(where, sizeof where, "%s: ", node);
    va_start(arguments, format);
    set_error(import, TANDEM_WRONG_GRAPH, where, format, arguments);
    va_end(arguments);
    return false;
}

bool onnx_no_memory(onnx_import *import)
{
    tandem_no_memory(import->error, "for model '%s'", import->path);
    return false;
}

/* --- The current node ----------------------------------------------------------------------------------- */

const onnx_value *onnx_input(const onnx_import *import, int slot)
{
    static const onnx_value absent = {.kind = ONNX_ABSENT, .weight = -1};
    const onnx_node *const node = &import->node[import->current];
    if (slot < 0 || (size_t)slot >= node->message->n_input || node->input[slot] < 0) return &absent;
    return &import->value[node->input[slot]];
}

int onnx_n_input(const onnx_import *import) { return (int)import->node[import->current].message->n_input; }

static bool makes_weight(const onnx_node *node)
{
    const char *const type = node->message->op_type;
    return type && (strcmp(type, "Constant") == 0 || strcmp(type, "ConstantOfShape") == 0);
}

bool onnx_is_shared(const onnx_import *import, int slot)
{
    int value = import->node[import->current].input[slot];
    while (value >= 0 && import->n_reader[value] == 1) {
        const onnx_node *const node =
            import->producer[value] >= 0 ? &import->node[import->producer[value]] : NULL;
        value = node && node->message->n_input && !makes_weight(node) ? node->input[0] : -1;
    }
    return value >= 0;
}

onnx_value *onnx_output(onnx_import *import, int slot)
{
    const onnx_node *const node = &import->node[import->current];
    if ((size_t)slot >= node->message->n_output || node->output[slot] < 0) return &import->nowhere;
    return &import->value[node->output[slot]];
}

const char *onnx_op_type(const onnx_import *import)
{
    const char *const type = import->node[import->current].message->op_type;
    return type ? type : "";
}

void onnx_blame(onnx_import *import, int node)
{
    const onnx_node *const current = &import->node[import->current];
    import->nowhere.kind = ONNX_REFUSED; /* where the first output is left out */
    for (size_t i = 0; i < current->message->n_output; i++)
        if (current->output[i] >= 0)
            import->value[current->output[i]] =
                (onnx_value){.kind = ONNX_REFUSED, .refused = node, .weight = -1};
}

bool onnx_refuse(onnx_import *import, const char *format, ...)
{
    onnx_node *const node = &import->node[import->current];
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)tandem_plain_print_list(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!node->refused) node->refused = tandem_arena_text(&import->arena, text);
    if (!node->refused) return onnx_no_memory(import);
    onnx_blame(import, import->current);
    return true;
}

bool onnx_end_node(onnx_import *import, int record)
{
    return record == -2 && onnx_refuse(import, "its input is not supported");
}

/* --- Unsupported nodes ---------------------------------------------------------------------------------- */

int onnx_count_refused(const onnx_import *import, int *first)
{
    int n = 0;
    for (int pass = 0; pass < 2 && n == 0; pass++) /* those of patterns where there is no other */
        for (int i = import->n_sequence - 1; i >= 0; i--) {
            const onnx_node *const node = &import->node[import->sequence[i]];
            if (!node->refused || (pass == 0 && node->is_absorbed)) continue;
            if (n == 0 || node->is_unknown || !import->node[*first].is_unknown) *first = import->sequence[i];
            n++;
        }
    return n;
}

bool onnx_fail_refused(onnx_import *import)
{
    char node[256];
    int first = 0;
    const int n = onnx_count_refused(import, &first);
    if (n == 0) return onnx_fail(import, TANDEM_BUG, "no node is to blame");
    onnx_describe_node(import, first, node, sizeof node);
    const char *const why = import->node[first].refused;
    return n == 1
               ? onnx_fail(import, TANDEM_WRONG_GRAPH, "%s is not supported: %s", node, why)
               : onnx_fail(
                     import, TANDEM_WRONG_GRAPH,
                     "%s is not supported: %s. %d more are not: `tandem graph show --unsupported` lists them",
                     node, why, n - 1);
}

/* --- Weights -------------------------------------------------------------------------------------------- */

int onnx_add_weight(onnx_import *import, const char *name, int tensor)
{
    onnx_weight *const more =
        tandem_grow(import->weight, &import->weight_capacity, import->n_weight, sizeof *more, 1 << 24);
    if (!more) {
        onnx_no_memory(import);
        return -1;
    }
    import->weight = more;
    more[import->n_weight] = (onnx_weight){.name = name, .tensor = tensor};
    return import->n_weight++;
}

int onnx_copy_weight(onnx_import *import, const char *name, int weight)
{
    const int made = onnx_add_weight(import, name, import->weight[weight].tensor);
    if (made < 0) return -1;
    const onnx_weight *const from = &import->weight[weight];
    onnx_weight *const to = &import->weight[made];
    to->is_known = from->is_known, to->is_filled = from->is_filled, to->fill = from->fill;
    return made;
}
