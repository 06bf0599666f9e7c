/* record.c: operators of the training graph as they are found, their names, and how values are laid out for
 * them. */
#include "graph/onnx/onnx_types.h"

#include <stdio.h>
#include <string.h>

#include "base/grow.h"

/* --- Names ---------------------------------------------------------------------------------------------- */

/* Keeps what names of operators may have. */
static void clean_name(char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    for (; *name; name++)
        if (!strchr(allowed, *name)) *name = '_';
}

/* Too long a name keeps its end, which says most. */
static void fit_name(char name[48], const char *text)
{
    const size_t n = strlen(text);
    (void)snprintf(name, 48, "%s", n < 48 ? text : text + n - 47);
    clean_name(name);
}

/* "/layer1/layer1.0/conv1/Conv" → "layer1.0.conv1.Conv": a part that begins with the one before replaces
 * it. */
static void module_path(char *text, size_t room, const char *name)
{
    size_t n = 0, last = 0;
    text[0] = '\0';
    while (*name) {
        const size_t part = strcspn(name, "/");
        const size_t before = n - last;
        if (part > 0) {
            const bool repeats =
                n > 0 && part > before && strncmp(name, text + last, before) == 0 && name[before] == '.';
            if (repeats) n = last;
            last = n + (n > 0 && !repeats);
            n +=
                (size_t)snprintf(text + n, room - n, "%s%.*s", n > 0 && !repeats ? "." : "", (int)part, name);
            if (n >= room) return;
        }
        name += part + (name[part] == '/');
    }
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    const size_t m = strlen(end);
    return n > m && memcmp(text + n - m, end, m) == 0;
}

void onnx_module_name(const onnx_import *import, const char *weight, char name[48])
{
    char text[512];
    const Onnx__Node *const m = import->node[import->current].message;
    const size_t n = weight ? strlen(weight) : 0;
    if (n > 0 && n < sizeof text && !strstr(weight, "::") && !(*weight >= '0' && *weight <= '9')) {
        (void)snprintf(text, sizeof text, "%s", weight);
        if (ends_with(text, n, ".weight")) text[n - 7] = '\0';
    } else {
        module_path(text, sizeof text, m->name && *m->name ? m->name : onnx_op_type(import));
        const char *const type = onnx_op_type(import);
        const size_t used = strlen(text), own = strlen(type);
        if (n > 0 && used > own + 1 && ends_with(text, used, type) && text[used - own - 1] == '.')
            text[used - own - 1] = '\0'; /* the module, as its weight has no name */
    }
    fit_name(name, *text ? text : "node");
}

void onnx_take_weight(onnx_import *import, int weight, char name[48])
{
    import->weight[weight].n_use++;
    onnx_module_name(import, import->weight[weight].name, name);
}

/* --- Records -------------------------------------------------------------------------------------------- */

onnx_record *onnx_add_record(onnx_import *import, tandem_op_kind kind, const char *name, int x, int y)
{
    onnx_record *const more =
        tandem_grow(import->record, &import->record_capacity, import->n_record, sizeof *more, 1 << 22);
    if (!more) {
        onnx_no_memory(import);
        return NULL;
    }
    import->record = more;
    onnx_record *const r = &more[import->n_record++];
    *r = (onnx_record){.kind = kind,
                       .node = import->current,
                       .reader = import->current,
                       .input = {x, y},
                       .parameter = {{.weight = -1}, {.weight = -1}},
                       .statistics = {{.weight = -1}, {.weight = -1}},
                       .scale = 1,
                       .epsilon = 1e-5f,
                       .tensor = -1};
    if (x >= 0) r->shape = more[x].shape;
    if (name)
        fit_name(r->name, name);
    else if (import->n_node > 0)
        onnx_module_name(import, NULL, r->name);
    return r;
}

int onnx_reshape_record(onnx_import *import, int record, int n_dim, const int64_t *dim)
{
    if (record < 0) return record;
    const tandem_shape *const s = &import->record[record].shape;
    if (s->n_dim == n_dim && memcmp(s->dim, dim, (size_t)n_dim * sizeof *dim) == 0) return record;
    const int source =
        import->record[record].kind == TANDEM_OP_RESHAPE ? import->record[record].input[0] : record;
    const tandem_shape *const first = &import->record[source].shape;
    if (first->n_dim == n_dim && memcmp(first->dim, dim, (size_t)n_dim * sizeof *dim) == 0) return source;
    char name[64];
    (void)snprintf(name, sizeof name, "%.40s.view", import->record[source].name);
    onnx_record *const r = onnx_add_record(import, TANDEM_OP_RESHAPE, name, source, -1);
    if (!r) return -1;
    r->shape = (tandem_shape){.n_dim = n_dim};
    memcpy(r->shape.dim, dim, (size_t)n_dim * sizeof *dim);
    return import->n_record - 1;
}
