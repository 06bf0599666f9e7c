/* layout.c: how values lie in memory for the operators that read them. */
#include "graph/onnx/onnx_types.h"

#include <string.h>

bool onnx_set_tensor(onnx_import *import, onnx_value *value, int record, const onnx_view *view)
{
    if (record < 0) return false;
    const onnx_view kept = *view;
    *value = (onnx_value){.kind = ONNX_TENSOR, .view = kept, .weight = -1};
    value->expression = onnx_expression_of(import, record);
    return value->expression >= 0;
}

/* --- Layouts -------------------------------------------------------------------------------------------- */

static int64_t product(const onnx_view *view, const int *atom, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= view->size[atom[i]];
    return n;
}

/* Swaps the neighbouring runs [i, j) and [j, k) of atoms at[0 … n) of a record: one transpose. */
static int swap_runs(onnx_import *import, const onnx_view *view, int record, int *at, int i, int j, int k)
{
    static const int axis[4] = {0, 2, 1, 3};
    const int64_t dim[4] = {product(view, at, 0, i), product(view, at, i, j), product(view, at, j, k),
                            product(view, at, k, view->n_atom)};
    record = onnx_reshape_record(import, record, 4, dim);
    if (record < 0) return -1;
    onnx_record *const r = onnx_add_record(import, TANDEM_OP_TRANSPOSE, NULL, record, -1);
    if (!r) return -1;
    memcpy(r->axis, axis, sizeof axis);
    r->shape = (tandem_shape){4, {dim[0], dim[2], dim[1], dim[3]}};
    int run[ONNX_MAX_ATOM];
    memcpy(run, at + i, (size_t)(j - i) * sizeof *run);
    memmove(at + i, at + j, (size_t)(k - j) * sizeof *at);
    memcpy(at + i + (k - j), run, (size_t)(j - i) * sizeof *at);
    return import->n_record - 1;
}

/* Renames the atoms: the one at place p of memory is number p. */
static void renumber_atoms(onnx_view *view, const int *at)
{
    int place[ONNX_MAX_ATOM];
    int64_t size[ONNX_MAX_ATOM];
    for (int p = 0; p < view->n_atom; p++) place[at[p]] = p, size[p] = view->size[at[p]];
    for (int k = 0; k < view->n_atom; k++) view->order[k] = place[view->order[k]];
    if (view->batch >= 0) view->batch = place[view->batch];
    memcpy(view->size, size, (size_t)view->n_atom * sizeof *size);
}

int onnx_arrange(onnx_import *import, onnx_value *value, const int *wanted)
{
    int at[ONNX_MAX_ATOM] = {0};
    onnx_view *const view = &value->view;
    int record = onnx_build_expression(import, value->expression);
    if (record < 0) return record;
    const int original = record;
    for (int p = 0; p < view->n_atom; p++) at[p] = p;
    for (int p = 0; p < view->n_atom; p++) {
        if (at[p] == wanted[p]) continue;
        int j = p + 1, k;
        while (at[j] != wanted[p]) j++;
        for (k = j + 1; k < view->n_atom && at[k] == wanted[p + (k - j)]; k++) continue;
        record = swap_runs(import, view, record, at, p, j, k);
        if (record < 0) return -1;
        p += k - j - 1;
    }
    if (record == original) return record;
    renumber_atoms(view, at);
    value->expression = onnx_expression_of(import, record);
    return value->expression >= 0 ? record : -1;
}

int onnx_arrange_plain(onnx_import *import, onnx_value *value)
{
    int wanted[ONNX_MAX_ATOM];
    memcpy(wanted, value->view.order, sizeof wanted);
    return onnx_arrange(import, value, wanted);
}

int onnx_arrange_last(onnx_import *import, onnx_value *value, int n_axis, const int *axis)
{
    int wanted[ONNX_MAX_ATOM], n = 0;
    bool is_last[ONNX_MAX_ATOM] = {false};
    const onnx_view *const view = &value->view;
    for (int i = 0; i < n_axis; i++) {
        const int start = onnx_view_start(view, axis[i]);
        for (int k = 0; k < view->n_of[axis[i]]; k++) is_last[view->order[start + k]] = true;
    }
    for (int a = 0; a < view->n_atom; a++)
        if (!is_last[a]) wanted[n++] = a;
    for (int i = 0; i < n_axis; i++) {
        const int start = onnx_view_start(view, axis[i]);
        for (int k = 0; k < view->n_of[axis[i]]; k++) wanted[n++] = view->order[start + k];
    }
    return onnx_arrange(import, value, wanted);
}

/* --- Weights -------------------------------------------------------------------------------------------- */

bool onnx_weight_is_taken(onnx_import *import, int weight)
{
    const bool is_taken = import->weight[weight].n_use > 0;
    import->node[import->current].reads_taken |= is_taken;
    return is_taken;
}

/* A number may be a weight of one element, too. */
bool onnx_as_weight(onnx_import *import, onnx_value *v)
{
    if (v->kind == ONNX_CONSTANT && v->weight >= 0) v->kind = ONNX_WEIGHT;
    return v->kind == ONNX_WEIGHT && !onnx_weight_is_taken(import, v->weight);
}

/* The order of a parameter's atoms: those of dimension w of the weight as dimension x of the tensor has them
 * in memory. Both were matched. Returns how many. */
int onnx_follow_memory(const onnx_view *tensor, int x, const onnx_view *weight, int w, int *order)
{
    const int n = tensor->n_of[x], from = onnx_view_start(tensor, x), own = onnx_view_start(weight, w);
    int used = 0;
    for (int p = 0; p < tensor->n_atom; p++)
        for (int k = 0; k < n; k++)
            if (tensor->order[from + k] == p) order[used++] = weight->order[own + k];
    return used;
}

/* Whether the dimensions' atoms are the last ones in memory, in any order. */
static bool are_last(const onnx_view *view, int n_axis, const int *axis)
{
    int n = 0;
    for (int i = 0; i < n_axis; i++) n += view->n_of[axis[i]];
    for (int i = 0; i < n_axis; i++) {
        const int start = onnx_view_start(view, axis[i]);
        for (int k = 0; k < view->n_of[axis[i]]; k++)
            if (view->order[start + k] < view->n_atom - n) return false;
    }
    return true;
}

int onnx_make_last(onnx_import *import, onnx_value *v, int n_axis, const int *axis)
{
    if (are_last(&v->view, n_axis, axis)) return onnx_build_expression(import, v->expression);
    for (int i = 0; i < n_axis; i++) {
        const int start = onnx_view_start(&v->view, axis[i]);
        for (int k = 0; k < v->view.n_of[axis[i]]; k++)
            if (v->view.order[start + k] == v->view.batch) return -2;
    }
    return onnx_arrange_last(import, v, n_axis, axis);
}

/* --- Images --------------------------------------------------------------------------------------------- */

int onnx_put_axis(const onnx_view *view, int axis, int *wanted, int n)
{
    const int start = onnx_view_start(view, axis);
    for (int k = 0; k < view->n_of[axis]; k++) wanted[n++] = view->order[start + k];
    return n;
}

/* The record of an image as (batch, height, width, channels). */
int onnx_as_image(onnx_import *import, onnx_value *x)
{
    int wanted[ONNX_MAX_ATOM], n = 0;
    const int axis[4] = {0, 2, 3, 1};
    for (int i = 0; i < 4; i++) n = onnx_put_axis(&x->view, axis[i], wanted, n);
    if (x->view.batch > 0 && wanted[0] != x->view.batch) return -2;
    const int record = onnx_arrange(import, x, wanted);
    int64_t dim[4];
    for (int i = 0; i < 4; i++) dim[i] = onnx_view_dim(&x->view, axis[i]);
    return record < 0 ? record : onnx_reshape_record(import, record, 4, dim);
}

/* The view of a (batch, height, width, channels) record as (batch, channels, height, width); samples as in x.
 * */
onnx_view onnx_image_view(const onnx_view *x, int64_t h, int64_t w, int64_t c)
{
    onnx_view v = {.n_dim = 4, .batch = x->batch};
    const int64_t dim[3] = {h, w, c};
    int at[3];
    for (int k = 0; k < x->n_of[0]; k++) v.size[v.n_atom++] = x->size[x->order[k]];
    for (int i = 0; i < 3; i++) {
        at[i] = v.n_atom;
        if (dim[i] != 1) v.size[v.n_atom++] = dim[i];
    }
    v.n_of[0] = x->n_of[0];
    int n = 0;
    for (int k = 0; k < v.n_of[0]; k++) v.order[n++] = k;
    for (int i = 0; i < 3; i++) {
        const int d = i == 0 ? 2 : i - 1; /* channels, height, width */
        v.n_of[i + 1] = dim[d] != 1;
        if (dim[d] != 1) v.order[n++] = at[d];
    }
    return v;
}
