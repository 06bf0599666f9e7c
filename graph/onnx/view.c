/* view.c: how ONNX's dimensions lie in memory. */
#include "graph/onnx/onnx_types.h"

#include <string.h>

int onnx_view_start(const onnx_view *view, int axis)
{
    int start = 0;
    for (int d = 0; d < axis; d++) start += view->n_of[d];
    return start;
}

int64_t onnx_view_dim(const onnx_view *view, int axis)
{
    int64_t dim = 1;
    const int start = onnx_view_start(view, axis);
    for (int k = 0; k < view->n_of[axis]; k++) dim *= view->size[view->order[start + k]];
    return dim;
}

int64_t onnx_view_elements(const onnx_view *view)
{
    int64_t n = 1;
    for (int a = 0; a < view->n_atom; a++) n *= view->size[a];
    return n;
}

onnx_view onnx_view_of(int n_dim, const int64_t *dim, bool is_batch)
{
    onnx_view view = {.n_dim = n_dim, .batch = is_batch && n_dim ? 0 : -1};
    for (int d = 0; d < n_dim; d++) {
        view.n_of[d] = dim[d] != 1 || (d == 0 && is_batch);
        if (!view.n_of[d]) continue;
        view.order[view.n_atom] = view.n_atom;
        view.size[view.n_atom++] = dim[d];
    }
    return view;
}

bool onnx_view_is_plain(const onnx_view *view)
{
    for (int k = 0; k < view->n_atom; k++)
        if (view->order[k] != k) return false;
    return true;
}

void onnx_view_transpose(onnx_view *view, const int *axis)
{
    const onnx_view old = *view;
    int n = 0;
    for (int d = 0; d < old.n_dim; d++) {
        const int start = onnx_view_start(&old, axis[d]);
        view->n_of[d] = old.n_of[axis[d]];
        for (int k = 0; k < old.n_of[axis[d]]; k++) view->order[n++] = old.order[start + k];
    }
}

/* Cuts the atom at place k of `order` in two, the outer one of `outer`. */
static bool cut_atom(onnx_view *view, int k, int64_t outer)
{
    const int atom = view->order[k];
    if (view->n_atom == ONNX_MAX_ATOM || outer < 1 || view->size[atom] % outer != 0) return false;
    if (atom == view->batch && outer != view->size[atom]) return false;
    for (int i = 0; i < view->n_atom; i++) view->order[i] += view->order[i] > atom;
    memmove(&view->order[k + 2], &view->order[k + 1], (size_t)(view->n_atom - k - 1) * sizeof *view->order);
    memmove(&view->size[atom + 2], &view->size[atom + 1],
            (size_t)(view->n_atom - atom - 1) * sizeof *view->size);
    view->order[k + 1] = atom + 1;
    view->size[atom + 1] = view->size[atom] / outer;
    view->size[atom] = outer;
    view->batch += view->batch > atom;
    view->n_atom++;
    return true;
}

bool onnx_view_reshape(onnx_view *view, int n_dim, const int64_t *dim)
{
    onnx_view next = *view;
    int k = 0; /* the next atom in ONNX's order */
    if (n_dim > ONNX_MAX_DIM) return false;
    next.n_dim = n_dim;
    for (int d = 0; d < n_dim; d++) {
        int64_t left = dim[d];
        next.n_of[d] = 0;
        /* a batch of 1 belongs to the first dimension that can have it */
        while (k < next.n_atom && (left > 1 || (left == 1 && next.order[k] == next.batch &&
                                                next.size[next.batch] == 1 && dim[d] == 1))) {
            const int64_t size = next.size[next.order[k]];
            if (left % size != 0 && (size % left != 0 || !cut_atom(&next, k, left))) return false;
            left /= next.size[next.order[k]];
            next.n_of[d]++;
            k++;
        }
        if (left != 1) return false;
    }
    /* a batch of 1 that no dimension of size 1 is there for joins the last one before it */
    while (k < next.n_atom && next.size[next.order[k]] == 1 && n_dim > 0) {
        next.n_of[n_dim - 1]++;
        k++;
    }
    if (k != next.n_atom) return false;
    *view = next;
    return true;
}

bool onnx_view_match(onnx_view *a, int x, onnx_view *b, int y)
{
    int i = onnx_view_start(a, x), j = onnx_view_start(b, y);
    int n = a->n_of[x], m = b->n_of[y];
    while (n > 0 && m > 0) {
        const int64_t left = a->size[a->order[i]], right = b->size[b->order[j]];
        if (left > right) {
            if (left % right != 0) return false;
            /* the inner parts are compared last, so cut off the outer one */
            if (!cut_atom(a, i, right)) return false;
            a->n_of[x]++, n++;
        } else if (right > left) {
            if (right % left != 0) return false;
            if (!cut_atom(b, j, left)) return false;
            b->n_of[y]++, m++;
        }
        i++, j++, n--, m--;
    }
    return n == 0 && m == 0;
}

bool onnx_view_insert(onnx_view *view, int axis)
{
    if (view->n_dim == ONNX_MAX_DIM || axis < 0 || axis > view->n_dim) return false;
    memmove(&view->n_of[axis + 1], &view->n_of[axis], (size_t)(view->n_dim - axis) * sizeof *view->n_of);
    view->n_of[axis] = 0;
    view->n_dim++;
    return true;
}

/* A batch of 1 joins a neighbour. */
void onnx_view_remove(onnx_view *view, int axis)
{
    const int n = view->n_of[axis];
    memmove(&view->n_of[axis], &view->n_of[axis + 1], (size_t)(view->n_dim - axis - 1) * sizeof *view->n_of);
    view->n_dim--;
    if (n && view->n_dim > 0) view->n_of[axis < view->n_dim ? axis : axis - 1] += n;
}
