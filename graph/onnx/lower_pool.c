/* lower_pool.c: pools and means. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <string.h>

bool onnx_lower_pool(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0);
    onnx_window w = {.kernel = {0}};
    const bool is_max = strcmp(onnx_op_type(import), "MaxPool") == 0;
    const onnx_node *const node = &import->node[import->current];
    if (x.kind != ONNX_TENSOR || x.is_index) return onnx_refuse(import, "its input is no tensor of numbers");
    if (x.view.n_dim != 4) return onnx_refuse(import, "%d dimensions; allowed are 4", x.view.n_dim);
    for (size_t i = 1; i < node->message->n_output; i++)
        if (node->output[i] >= 0 && import->n_reader[node->output[i]] > 0)
            return onnx_refuse(import, "its indices are read");
    if (!onnx_read_window(import, onnx_view_dim(&x.view, 2), onnx_view_dim(&x.view, 3), &w)) return false;
    if (w.kernel[0] == 1 && w.kernel[1] == 1 && w.stride[0] == 1 && w.stride[1] == 1 && !w.before[0] &&
        !w.before[1] && !w.after[0] && !w.after[1]) {
        *onnx_output(import, 0) = x;
        return true;
    }
    int64_t end[2];
    for (int d = 0; d < 2; d++) { /* as much more padding as the last window reaches */
        end[d] = (w.n[d] - 1) * w.stride[d] + w.kernel[d] - onnx_view_dim(&x.view, 2 + d) - 2 * w.before[d];
        end[d] = end[d] < 0 ? 0 : end[d];
    }
    if (w.stride[0] != w.stride[1] || w.dilation[0] != 1 || w.dilation[1] != 1 ||
        w.before[0] != w.before[1] ||
        (is_max && (w.kernel[0] != w.kernel[1] || 2 * w.before[0] > w.kernel[0] || end[0] != end[1] ||
                    end[0] > w.kernel[0] - 1 - w.before[0])) ||
        (!is_max && (w.before[0] || w.after[0] || w.after[1] || end[0] || end[1])))
        return onnx_refuse(import, "dilations, different sizes in height and width, or padding of a mean");
    const int record = onnx_as_image(import, &x);
    if (record < 0) return onnx_end_node(import, record);
    onnx_record *const r =
        onnx_add_record(import, is_max ? TANDEM_OP_MAXPOOL : TANDEM_OP_AVGPOOL, NULL, record, -1);
    if (!r) return false;
    r->kernel_h = (int)w.kernel[0], r->kernel_w = (int)w.kernel[1];
    r->stride = (int)w.stride[0], r->pad = (int)w.before[0], r->pad_end = (int)end[0];
    r->shape.dim[1] = w.n[0], r->shape.dim[2] = w.n[1];
    const onnx_view view = onnx_image_view(&x.view, w.n[0], w.n[1], onnx_view_dim(&x.view, 1));
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &view);
}

/* The dimensions' atoms become the middle of (outer, height, width, inner); they are dropped from the view.
 * */
static int mean_record(onnx_import *import, onnx_value *x, int n, const int *axis)
{
    bool gone[ONNX_MAX_ATOM] = {false};
    int wanted[ONNX_MAX_ATOM], used = 0, first = -1, last = -1, count = 0;
    for (int i = 0; i < n; i++) {
        const int start = onnx_view_start(&x->view, axis[i]);
        for (int k = 0; k < x->view.n_of[axis[i]]; k++) gone[x->view.order[start + k]] = true;
    }
    if (x->view.batch >= 0 && gone[x->view.batch]) return -2;
    for (int a = 0; a < x->view.n_atom; a++) {
        if (!gone[a]) continue;
        first = first < 0 ? a : first;
        last = a;
        count++;
    }
    int record = onnx_build_expression(import, x->expression);
    if (record < 0 || count == 0) return record;
    if (last - first + 1 != count) { /* not together in memory */
        for (int pass = 0; pass < 2; pass++)
            for (int a = 0; a < x->view.n_atom; a++)
                if (gone[a] == (pass == 1)) wanted[used++] = a;
        record = onnx_arrange(import, x, wanted);
        if (record < 0) return record;
        first = x->view.n_atom - count;
        last = x->view.n_atom - 1;
    }
    int64_t dim[4] = {1, 1, 1, 1};
    for (int a = 0; a < x->view.n_atom; a++)
        dim[a < first ? 0 : a > last ? 3 : a == first || count != 2 ? 1 : 2] *= x->view.size[a];
    if (dim[1] > 1 << 20 || dim[2] > 1 << 20) return -2;
    const int flat = onnx_reshape_record(import, record, 4, dim);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_AVGPOOL, NULL, flat, -1);
    if (!r) return -1;
    r->kernel_h = (int)dim[1], r->kernel_w = (int)dim[2], r->stride = 1;
    r->shape.dim[1] = r->shape.dim[2] = 1;
    return import->n_record - 1;
}

/* Drops the atoms of dimensions that are 1 now. */
static void drop_atoms(onnx_view *view, int n, const int *axis)
{
    onnx_view next = {.n_dim = view->n_dim, .batch = -1};
    bool gone[ONNX_MAX_ATOM] = {false};
    int place[ONNX_MAX_ATOM], used = 0;
    for (int i = 0; i < n; i++) {
        const int start = onnx_view_start(view, axis[i]);
        for (int k = 0; k < view->n_of[axis[i]]; k++) gone[view->order[start + k]] = true;
    }
    for (int a = 0; a < view->n_atom; a++)
        if (!gone[a]) place[a] = next.n_atom, next.size[next.n_atom++] = view->size[a];
    for (int d = 0, k = 0; d < view->n_dim; d++)
        for (int i = 0; i < view->n_of[d]; i++, k++)
            if (!gone[view->order[k]]) next.order[used++] = place[view->order[k]], next.n_of[d]++;
    if (view->batch >= 0) next.batch = place[view->batch];
    *view = next;
}

static bool lower_mean(onnx_import *import, onnx_value *x, int n, const int *axis, bool keeps)
{
    const int made = mean_record(import, x, n, axis);
    if (made == -1) return false;
    if (made == -2) return onnx_refuse(import, "a mean over samples, or its input is not supported");
    onnx_view view = x->view;
    drop_atoms(&view, n, axis);
    for (int d = view.n_dim - 1; d >= 0 && !keeps; d--)
        for (int i = 0; i < n; i++)
            if (axis[i] == d) onnx_view_remove(&view, d);
    return onnx_set_tensor(import, onnx_output(import, 0), made, &view);
}

bool onnx_lower_global_pool(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0);
    int axis[ONNX_MAX_DIM], n = 0;
    if (x.kind != ONNX_TENSOR || x.is_index || x.view.n_dim < 3)
        return onnx_refuse(import, "its input is no image");
    for (int d = 2; d < x.view.n_dim; d++) axis[n++] = d;
    return lower_mean(import, &x, n, axis, true);
}

bool onnx_lower_reduce_mean(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0);
    int axis[ONNX_MAX_DIM], n;
    if (x.kind != ONNX_TENSOR || x.is_index || x.causal)
        return onnx_refuse(import, "its input is no tensor of numbers");
    if (!onnx_axes(import, "axes", 1, x.view.n_dim, axis, &n)) return false;
    if (import->node[import->current].refused) return true;
    const bool is_all = n < 1 && !onnx_int(import, "noop_with_empty_axes", 0); /* none, or an empty list */
    for (int d = 0; d < x.view.n_dim && is_all; d++) axis[d] = d;
    return lower_mean(import, &x,
                      is_all  ? x.view.n_dim
                      : n < 0 ? 0
                              : n,
                      axis, onnx_int(import, "keepdims", 1) != 0);
}
