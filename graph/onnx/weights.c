/* weights.c: initial weights and running statistics from the file. An import keeps where they are; the file
 * is read again when a training begins, so that plans need no memory for weights. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A parameter's atoms, outermost first: sizes, and steps in the file's tensor. */
typedef struct weight_place {
    int tensor; /* −1: none */
    bool is_filled;
    float fill;
    int n_atom;
    int64_t size[ONNX_MAX_ATOM], step[ONNX_MAX_ATOM];
} weight_place;

typedef struct onnx_source {
    tandem_weight_source base;
    char *path;
    int n_parameter;
    weight_place *weight,
        *statistics; /* [n_parameter]; statistics: the mean beside a scale, the variance beside a shift */
} onnx_source;

static void close_source(tandem_weight_source *base)
{
    onnx_source *const s = (onnx_source *)base;
    if (!s) return;
    free(s->path);
    free(s->weight);
    free(s->statistics);
    free(s);
}

/* --- Reading -------------------------------------------------------------------------------------------- */

/* Copies elements in the parameter's order. */
static void copy_atoms(float *to, const float *from, const weight_place *w)
{
    int64_t at[ONNX_MAX_ATOM] = {0}, offset = 0, n = 1;
    for (int a = 0; a < w->n_atom; a++) n *= w->size[a];
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[offset];
        for (int a = w->n_atom - 1; a >= 0; a--) {
            offset += w->step[a];
            if (++at[a] < w->size[a]) break;
            offset -= at[a] * w->step[a];
            at[a] = 0;
        }
    }
}

static bool read_place(onnx_import *import, const weight_place *w, float *to)
{
    const Onnx__Tensor *const t = onnx_file_tensor(import, w->tensor);
    int64_t n = 0, wanted = 1;
    for (int a = 0; a < w->n_atom; a++) wanted *= w->size[a];
    for (int64_t i = 0; i < wanted && w->is_filled; i++) to[i] = w->fill;
    if (w->is_filled) return true;
    if (t && !onnx_tensor_elements(import, t, &n)) return false;
    if (n != wanted)
        return onnx_fail(import, TANDEM_MALFORMED, "it has changed since its graph was read; read it again");
    if (!onnx_tensor_has_data(t)) return true; /* drawn at random */
    float *const all = malloc((size_t)n * sizeof *all + 1);
    if (!all) return onnx_no_memory(import);
    const bool fine = onnx_tensor_read(import, t, NULL, all, n);
    if (fine) copy_atoms(to, all, w);
    free(all);
    return fine;
}

static tandem_status read_all(const tandem_weight_source *base, const weight_place *place, float *const *to,
                              tandem_error *error)
{
    const onnx_source *const s = (const onnx_source *)base;
    tandem_error own = {0};
    static const tandem_onnx_options none;
    onnx_import import = {.path = s->path, .options = &none, .file = -1, .error = &own};
    bool fine = onnx_read_model(&import);
    for (int p = 0; p < s->n_parameter && fine; p++)
        if ((place[p].tensor >= 0 || place[p].is_filled) && to[p])
            fine = read_place(&import, &place[p], to[p]);
    onnx_free_model(&import);
    tandem_arena_free(&import.arena);
    return fine ? TANDEM_OK : tandem_error_set(error, own.status, "%s", own.text);
}

static tandem_status read_weights(const tandem_weight_source *base, float *const *weight, tandem_error *error)
{
    return read_all(base, ((const onnx_source *)base)->weight, weight, error);
}

static tandem_status read_statistics(const tandem_weight_source *base, float *const *statistics,
                                     tandem_error *error)
{
    return read_all(base, ((const onnx_source *)base)->statistics, statistics, error);
}

/* --- Keeping -------------------------------------------------------------------------------------------- */

static void keep_place(weight_place *to, const onnx_import *import, const onnx_parameter *p)
{
    int64_t step[ONNX_MAX_ATOM], n = 1;
    to->tensor = -1;
    if (p->weight < 0) return;
    const onnx_weight *const w = &import->weight[p->weight];
    to->tensor = w->tensor, to->is_filled = w->is_filled, to->fill = (float)w->fill;
    to->n_atom = p->view.n_atom;
    for (int a = p->view.n_atom - 1; a >= 0; a--) step[a] = n, n *= p->view.size[a];
    for (int k = 0; k < p->view.n_atom; k++) {
        to->size[k] = p->view.size[p->view.order[k]];
        to->step[k] = step[p->view.order[k]];
    }
}

bool onnx_keep_weights(onnx_import *import, tandem_graph *graph)
{
    const size_t n = (size_t)graph->n_parameter + 1;
    onnx_source *const s = calloc(1, sizeof *s);
    if (!s) return onnx_no_memory(import);
    graph->source = &s->base;
    s->base = (tandem_weight_source){read_weights, read_statistics, close_source};
    s->n_parameter = graph->n_parameter;
    const size_t length = strlen(import->path) + 1;
    s->path = malloc(length);
    if (s->path) memcpy(s->path, import->path, length);
    s->weight = calloc(n, sizeof *s->weight);
    s->statistics = calloc(n, sizeof *s->statistics);
    if (!s->path || !s->weight || !s->statistics) return onnx_no_memory(import);
    for (size_t p = 0; p < n; p++) s->weight[p].tensor = s->statistics[p].tensor = -1;
    for (int i = 0; i < import->n_record; i++) {
        const onnx_record *const r = &import->record[i];
        for (int slot = 0; slot < 2 && r->is_live && !r->transpose_b; slot++) {
            const int p = graph->op[r->tensor].parameter[slot];
            if (p < 0) continue;
            keep_place(&s->weight[p], import, &r->parameter[slot]);
            keep_place(&s->statistics[p], import, &r->statistics[slot]);
        }
    }
    return true;
}
