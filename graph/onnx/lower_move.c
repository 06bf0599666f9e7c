/* lower_move.c: operators that only move elements. Most change the view of a value, and no memory. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <string.h>

static bool is_seen(const onnx_value *v) { return v->kind == ONNX_TENSOR || v->kind == ONNX_WEIGHT; }
static bool has_view(const onnx_value *v)
{
    return is_seen(v) || v->kind == ONNX_LOOKUP || v->kind == ONNX_INDEX;
}

/* The current node's result is its input 0 through another view. */
static bool pass_on(onnx_import *import, const onnx_value *value)
{
    *onnx_output(import, 0) = *value;
    return true;
}

bool onnx_lower_identity(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    if (v.kind == ONNX_WEIGHT) {
        const onnx_node *const node = &import->node[import->current];
        const char *const name = node->output[0] >= 0 ? import->value_name[node->output[0]] : "";
        if (strcmp(onnx_op_type(import), "Cast") == 0 &&
            !onnx_is_float_type(onnx_int(import, "to", ONNX_FLOAT)))
            return onnx_refuse(import, "a weight is cast to integers");
        if (strcmp(onnx_op_type(import), "Identity") == 0 &&
            (v.weight = onnx_copy_weight(import, name, v.weight)) < 0)
            return false;
    }
    if (v.kind == ONNX_TENSOR && strcmp(onnx_op_type(import), "Cast") == 0) {
        const int64_t to = onnx_int(import, "to", ONNX_FLOAT);
        if (onnx_is_float_type(to) == v.is_index)
            return onnx_refuse(import, "samples are cast to another kind of number");
    }
    return pass_on(import, &v);
}

/* --- Dimensions ----------------------------------------------------------------------------------------- */

/* Of memory in ONNX's order, whose samples are counted first. */
static bool plain_view(onnx_import *import, onnx_view *view, int n_dim, const int64_t *dim)
{
    if (dim[0] % import->batch != 0)
        return onnx_refuse(import, "it mixes samples: dimension 0 becomes %" PRId64 " of a batch of %" PRId64,
                           dim[0], import->batch);
    int64_t cut[ONNX_MAX_DIM + 1];
    cut[0] = import->batch;
    cut[1] = dim[0] / import->batch;
    memcpy(cut + 2, dim + 1, (size_t)(n_dim - 1) * sizeof *dim);
    onnx_view next = n_dim < ONNX_MAX_DIM ? onnx_view_of(n_dim + 1, cut, true) : (onnx_view){0};
    if (n_dim >= ONNX_MAX_DIM || !onnx_view_reshape(&next, n_dim, dim))
        return onnx_refuse(import, "more than %d dimensions", ONNX_MAX_DIM - 1);
    *view = next;
    return true;
}

bool onnx_reshape_value(onnx_import *import, onnx_value *v, int n_dim, const int64_t *dim)
{
    if (onnx_view_reshape(&v->view, n_dim, dim)) return true;
    /* The memory must first be in ONNX's order, and its atoms be forgotten. */
    if (v->kind != ONNX_TENSOR || v->is_index)
        return onnx_refuse(import, "this reshape of a weight or of tokens");
    const int record = onnx_arrange_plain(import, v);
    return record < 0 ? onnx_end_node(import, record) : plain_view(import, &v->view, n_dim, dim);
}

/* A file with a fixed batch writes it into its shapes: the first size is then a multiple of it. */
static void use_batch(const onnx_import *import, int64_t elements, int n_dim, int64_t *dim)
{
    int64_t known = 1;
    if (import->file_batch < 1 || import->file_batch == import->batch || n_dim == 0) return;
    for (int d = 0; d < n_dim; d++)
        if (dim[d] < 0 || __builtin_mul_overflow(known, dim[d], &known)) return;
    if (dim[0] % import->file_batch != 0 || known > elements) return;
    const int64_t scaled = dim[0] / import->file_batch * import->batch;
    if (known / dim[0] * scaled == elements) dim[0] = scaled;
}

bool onnx_lower_reshape(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    const onnx_value *const shape = onnx_input(import, 1);
    int64_t dim[ONNX_MAX_DIM], known = 1;
    int open = -1;
    if (!has_view(&v) || shape->kind != ONNX_CONSTANT)
        return onnx_refuse(import, "its shape is computed from samples");
    const int n_dim = (int)shape->constant->n;
    if (n_dim > ONNX_MAX_DIM || n_dim < 1)
        return onnx_refuse(import, "%d dimensions; allowed are 1 to 8", n_dim);
    const int64_t elements = onnx_view_elements(&v.view);
    for (int d = 0; d < n_dim; d++) {
        dim[d] = onnx_whole(shape->constant->number[d]);
        if (dim[d] == 0 && d < v.view.n_dim && !onnx_int(import, "allowzero", 0))
            dim[d] = onnx_view_dim(&v.view, d);
        if (dim[d] == -1 && open < 0)
            open = d;
        else if (dim[d] < 1 || __builtin_mul_overflow(known, dim[d], &known) || known > INT64_C(1) << 44)
            return onnx_fail_node(
                import, "size %" PRId64 " in dimension %d; allowed are sizes from 1, and one -1", dim[d], d);
    }
    if (open > 0 && v.kind == ONNX_TENSOR && import->file_batch > 0 && dim[0] == import->file_batch) {
        known = known / dim[0] * import->batch; /* a fixed batch before the open size */
        dim[0] = import->batch;
    }
    if (open >= 0) dim[open] = elements / known;
    if (open < 0 && v.kind == ONNX_TENSOR) use_batch(import, elements, n_dim, dim);
    known = 1;
    for (int d = 0; d < n_dim; d++) known *= dim[d];
    if (known != elements)
        return onnx_fail_node(import, "%" PRId64 " elements into %" PRId64 "; allowed are as many", elements,
                              known);
    return onnx_reshape_value(import, &v, n_dim, dim) &&
           (onnx_output(import, 0)->kind == ONNX_REFUSED || pass_on(import, &v));
}

bool onnx_lower_flatten(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    int64_t dim[2] = {1, 1};
    const int64_t axis = onnx_int(import, "axis", 1);
    if (!has_view(&v)) return onnx_refuse(import, "its input is known");
    if (axis < -v.view.n_dim || axis > v.view.n_dim)
        return onnx_fail_node(import, "axis %" PRId64 " of %d dimensions", axis, v.view.n_dim);
    const int64_t first = axis < 0 ? axis + v.view.n_dim : axis;
    for (int d = 0; d < v.view.n_dim; d++) dim[d >= first] *= onnx_view_dim(&v.view, d);
    return onnx_reshape_value(import, &v, 2, dim) &&
           (onnx_output(import, 0)->kind == ONNX_REFUSED || pass_on(import, &v));
}

bool onnx_lower_transpose(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    int axis[ONNX_MAX_DIM];
    if (!has_view(&v)) return onnx_refuse(import, "its input is known");
    if (!onnx_permutation(import, v.view.n_dim, axis)) return false;
    v.causal = false;
    onnx_view_transpose(&v.view, axis);
    return pass_on(import, &v);
}

bool onnx_lower_squeeze(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    int axis[ONNX_MAX_DIM], n;
    if (!has_view(&v)) return onnx_refuse(import, "its input is known");
    if (!onnx_axes(import, "axes", 1, v.view.n_dim, axis, &n)) return false;
    for (int d = v.view.n_dim - 1; d >= 0; d--) {
        bool gone = n < 0 && onnx_view_dim(&v.view, d) == 1;
        for (int i = 0; i < n; i++) gone |= axis[i] == d;
        if (!gone) continue;
        if (onnx_view_dim(&v.view, d) != 1)
            return onnx_fail_node(import, "dimension %d is %" PRId64 "; allowed is 1", d,
                                  onnx_view_dim(&v.view, d));
        onnx_view_remove(&v.view, d);
    }
    return pass_on(import, &v);
}

bool onnx_lower_unsqueeze(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    int axis[ONNX_MAX_DIM], n;
    size_t n_given;
    const onnx_value *const given = onnx_input(import, 1);
    if (!has_view(&v)) return onnx_refuse(import, "its input is known");
    (void)onnx_ints(import, "axes", &n_given);
    const int64_t more = n_given ? (int64_t)n_given : given->kind == ONNX_CONSTANT ? given->constant->n : 0;
    if (more < 1 || more + v.view.n_dim > ONNX_MAX_DIM)
        return onnx_refuse(import, "%d dimensions; allowed are at most %d", v.view.n_dim + (int)more,
                           ONNX_MAX_DIM);
    if (!onnx_axes(import, "axes", 1, v.view.n_dim + (int)more, axis, &n)) return false;
    for (int d = 0; d < ONNX_MAX_DIM; d++)
        for (int i = 0; i < n; i++)
            if (axis[i] == d && !onnx_view_insert(&v.view, d))
                return onnx_fail_node(import, "axis %d is too large", d);
    return pass_on(import, &v);
}

/* --- Parts ---------------------------------------------------------------------------------------------- */

/* Brings an axis's atoms together, so that they are one. The record lies as the view says then; -1, -2. */
static int join_axis(onnx_import *import, onnx_value *v, int axis)
{
    const int n = v->view.n_of[axis], start = onnx_view_start(&v->view, axis);
    int record = onnx_build_expression(import, v->expression);
    bool together = true;
    for (int k = 1; k < n; k++) together &= v->view.order[start + k] == v->view.order[start + k - 1] + 1;
    if (!together) record = onnx_arrange_last(import, v, 1, &axis);
    if (record < 0 || n < 2) return record;
    onnx_view *const view = &v->view;
    const int first = view->order[start];
    for (int k = 1; k < n; k++) view->size[first] *= view->size[first + k];
    memmove(&view->size[first + 1], &view->size[first + n],
            (size_t)(view->n_atom - first - n) * sizeof *view->size);
    memmove(&view->order[start + 1], &view->order[start + n],
            (size_t)(view->n_atom - start - n) * sizeof *view->order);
    view->n_atom -= n - 1;
    view->n_of[axis] = 1;
    for (int k = 0; k < view->n_atom; k++)
        if (view->order[k] > first) view->order[k] -= n - 1;
    if (view->batch > first) view->batch -= n - 1;
    return record;
}

static bool has_batch(const onnx_view *view, int axis)
{
    const int start = onnx_view_start(view, axis);
    for (int k = 0; k < view->n_of[axis]; k++)
        if (view->order[start + k] == view->batch) return true;
    return false;
}

/* Rows start … start+n−1 of a dimension. */
static bool slice_axis(onnx_import *import, onnx_value *v, int axis, int64_t start, int64_t n)
{
    const int64_t size = onnx_view_dim(&v->view, axis);
    if (start == 0 && n == size) return true;
    if (n < 1) return onnx_refuse(import, "it has no rows");
    if (has_batch(&v->view, axis)) return onnx_refuse(import, "it takes a part of the batch");
    const int record = join_axis(import, v, axis);
    if (record < 0) return onnx_end_node(import, record);
    onnx_view *const view = &v->view;
    const int atom = view->order[onnx_view_start(view, axis)];
    int64_t dim[3] = {1, size, 1};
    for (int a = 0; a < view->n_atom; a++)
        if (a != atom) dim[a > atom ? 2 : 0] *= view->size[a];
    const int flat = onnx_reshape_record(import, record, 3, dim);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_SLICE, NULL, flat, -1);
    if (!r) return false;
    r->start = start;
    r->n = n;
    r->shape.dim[1] = n;
    view->size[atom] = n;
    v->causal = false;
    v->expression = onnx_expression_of(import, import->n_record - 1);
    if (v->expression < 0) return false;
    if (n > 1) return true;
    /* an atom of size 1 is left out */
    const int at = onnx_view_start(view, axis);
    memmove(&view->size[atom], &view->size[atom + 1], (size_t)(view->n_atom - atom - 1) * sizeof *view->size);
    memmove(&view->order[at], &view->order[at + 1], (size_t)(view->n_atom - at - 1) * sizeof *view->order);
    view->n_atom--;
    view->n_of[axis] = 0;
    for (int k = 0; k < view->n_atom; k++) view->order[k] -= view->order[k] > atom;
    view->batch -= view->batch > atom;
    return true;
}

/* Every step-th row: the dimension is cut in two, and the inner one sliced. */
static bool stride_axis(onnx_import *import, onnx_value *v, int axis, int64_t start, int64_t step)
{
    const int64_t size = onnx_view_dim(&v->view, axis);
    int64_t dim[ONNX_MAX_DIM];
    if (step < 1 || size % step != 0 || start >= step || v->view.n_dim == ONNX_MAX_DIM)
        return onnx_refuse(import, "a step of %" PRId64 " over %" PRId64 " rows", step, size);
    const int join = join_axis(import, v, axis);
    if (join < 0) return onnx_end_node(import, join);
    for (int d = 0, to = 0; d < v->view.n_dim; d++) {
        dim[to++] = d == axis ? size / step : onnx_view_dim(&v->view, d);
        if (d == axis) dim[to++] = step;
    }
    if (!onnx_view_reshape(&v->view, v->view.n_dim + 1, dim))
        return onnx_refuse(import, "a step of %" PRId64, step);
    if (!slice_axis(import, v, axis + 1, start, 1)) return false;
    onnx_view_remove(&v->view, axis + 1);
    return true;
}

static bool slice_weight(onnx_import *import, onnx_value *v, const int64_t *start, const int64_t *count)
{
    for (int d = 0; d < v->view.n_dim; d++) {
        const int64_t size = onnx_view_dim(&v->view, d);
        if (count[d] == size) continue;
        if (d != v->view.n_dim - 2 || start[d] != 0 || count[d] < 1)
            return onnx_refuse(import, "a part of weight '%.80s'", import->weight[v->weight].name);
        v->rows = count[d];
    }
    return true;
}

bool onnx_lower_slice(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    int64_t dim[ONNX_MAX_DIM], start[ONNX_MAX_DIM], count[ONNX_MAX_DIM], step[ONNX_MAX_DIM];
    if (!is_seen(&v)) return onnx_refuse(import, "its input is known");
    for (int d = 0; d < v.view.n_dim; d++) dim[d] = onnx_view_dim(&v.view, d);
    if (!onnx_slice_bounds(import, v.view.n_dim, dim, start, count, step)) return false;
    if (v.kind == ONNX_WEIGHT)
        return slice_weight(import, &v, start, count) &&
               (onnx_output(import, 0)->kind == ONNX_REFUSED || pass_on(import, &v));
    for (int d = 0; d < v.view.n_dim; d++) {
        const bool fine = step[d] == 1 || count[d] == 0 ? slice_axis(import, &v, d, start[d], count[d])
                                                        : stride_axis(import, &v, d, start[d], step[d]);
        if (!fine) return false;
        if (onnx_output(import, 0)->kind == ONNX_REFUSED) return true;
    }
    return pass_on(import, &v);
}

bool onnx_lower_split(onnx_import *import)
{
    const onnx_value v = *onnx_input(import, 0), sizes = *onnx_input(import, 1);
    const onnx_node *const node = &import->node[import->current];
    const int64_t n_out = (int64_t)node->message->n_output;
    size_t n;
    const int64_t *const given = onnx_ints(import, "split", &n);
    int axis;
    if (v.kind != ONNX_TENSOR) return onnx_refuse(import, "it splits a weight");
    if (!onnx_axis(import, onnx_int(import, "axis", 0), v.view.n_dim, &axis)) return false;
    const int64_t size = onnx_view_dim(&v.view, axis), each = n_out ? (size + n_out - 1) / n_out : 0;
    if (onnx_int(import, "num_outputs", n_out) != n_out || (given && (int64_t)n != n_out) ||
        (sizes.kind == ONNX_CONSTANT && sizes.constant->n != n_out))
        return onnx_fail_node(import, "different numbers of sizes and outputs");
    int64_t start = 0;
    for (int64_t i = 0; i < n_out; i++) {
        onnx_value part = v;
        const int64_t rest = size - start, equal = each < rest ? each : rest;
        const int64_t rows = given                         ? given[i]
                             : sizes.kind == ONNX_CONSTANT ? onnx_whole(sizes.constant->number[i])
                                                           : equal;
        if (rows < 0 || rows > rest)
            return onnx_fail_node(import, "its sizes are not those of %" PRId64 " rows", size);
        if (node->output[i] >= 0 && import->n_reader[node->output[i]] > 0) {
            if (!slice_axis(import, &part, axis, start, rows)) return false;
            if (onnx_output(import, 0)->kind == ONNX_REFUSED) return true;
            import->value[node->output[i]] = part;
        }
        start += rows;
    }
    return true;
}

/* --- Gather --------------------------------------------------------------------------------------------- */

/* Rows of a table by tokens. */
static bool embed(onnx_import *import, const onnx_value *table, const onnx_value *tokens)
{
    if (table->view.n_dim != 2 || !onnx_view_is_plain(&table->view) || table->rows)
        return onnx_refuse(import, "its table has %d dimensions; allowed are 2", table->view.n_dim);
    const int64_t vocabulary = onnx_view_dim(&table->view, 0), width = onnx_view_dim(&table->view, 1);
    const int record = import->expression[tokens->expression].record;
    char name[48];
    if (onnx_weight_is_taken(import, table->weight))
        return onnx_refuse(import, "its table is read by another node, too");
    onnx_take_weight(import, table->weight, name);
    onnx_record *const r = onnx_add_record(import, TANDEM_OP_EMBEDDING, name, record, -1);
    if (!r) return false;
    r->parameter[0] = (onnx_parameter){table->weight, table->view};
    r->n = vocabulary;
    r->start = width;
    r->shape.dim[r->shape.n_dim++] = width;
    onnx_view view = tokens->view;
    if (!onnx_view_insert(&view, view.n_dim))
        return onnx_refuse(import, "more than %d dimensions", ONNX_MAX_DIM);
    view.n_of[view.n_dim - 1] = width != 1;
    if (width != 1) {
        view.order[view.n_atom] = view.n_atom;
        view.size[view.n_atom++] = width;
    }
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &view);
}

static bool are_first_rows(const onnx_constant *index, int64_t rows)
{
    bool fine = index->n >= 1 && index->n <= rows;
    for (int64_t i = 0; i < index->n && fine; i++) fine = index->number[i] == (double)i;
    for (int d = 0; d + 1 < index->n_dim; d++) fine = fine && index->dim[d] == 1;
    return fine;
}

/* The table itself, of which the first n rows are used. */
static bool pass_first_rows(onnx_import *import, onnx_value *table, const onnx_constant *index)
{
    table->rows = index->n == onnx_view_dim(&table->view, 0) ? 0 : index->n;
    for (int d = 0; d + 1 < index->n_dim; d++)
        if (!onnx_view_insert(&table->view, 0))
            return onnx_refuse(import, "more than %d dimensions", ONNX_MAX_DIM);
    return pass_on(import, table);
}

/* Rows of a table, in places that the file fixes. Those of a file without weights are not known. */
static bool gather_positions(onnx_import *import, onnx_value *table, const onnx_value *index)
{
    const onnx_constant *const c = index->kind == ONNX_CONSTANT ? index->constant : NULL;
    const char *const name = import->weight[table->weight].name;
    const int n_dim = c ? c->n_dim : index->view.n_dim;
    int64_t dim[ONNX_MAX_DIM];
    if (table->view.n_dim != 2 || !onnx_view_is_plain(&table->view) || table->rows || (c && c->n < 1))
        return onnx_refuse(import, "constant rows of weight '%.80s'", name);
    if (n_dim + 1 > ONNX_MAX_DIM) return onnx_refuse(import, "more than %d dimensions", ONNX_MAX_DIM);
    const int64_t rows = onnx_view_dim(&table->view, 0), width = onnx_view_dim(&table->view, 1);
    if (c && are_first_rows(c, rows)) return pass_first_rows(import, table, c);
    for (int64_t i = 0; c && i < c->n; i++)
        if (!(c->number[i] >= (double)-rows && c->number[i] < (double)rows))
            return onnx_fail_node(import, "row %g of %" PRId64 " of weight '%.80s'", c->number[i], rows,
                                  name);
    for (int d = 0; d < n_dim; d++) dim[d] = c ? c->dim[d] : onnx_view_dim(&index->view, d);
    dim[n_dim] = width;
    const onnx_value lookup = {.kind = ONNX_LOOKUP,
                               .weight = table->weight,
                               .rows = rows,
                               .width = width,
                               .node = import->current,
                               .view = onnx_view_of(n_dim + 1, dim, false)};
    return pass_on(import, &lookup);
}

bool onnx_lower_gather(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    const onnx_value index = *onnx_input(import, 1);
    int axis;
    double number;
    if (!is_seen(&v)) return onnx_refuse(import, "a known table, by samples");
    if (!onnx_axis(import, onnx_int(import, "axis", 0), v.view.n_dim, &axis)) return false;
    if (v.kind == ONNX_WEIGHT && index.kind == ONNX_TENSOR && index.is_index && axis == 0)
        return embed(import, &v, &index);
    if (index.kind != ONNX_CONSTANT && index.kind != ONNX_INDEX)
        return onnx_refuse(import, "its index is computed from samples");
    if (v.kind == ONNX_WEIGHT && axis == 0) return gather_positions(import, &v, &index);
    if (v.kind != ONNX_TENSOR || v.is_index || !onnx_is_number(&index, &number) || index.constant->n_dim > 1)
        return onnx_refuse(import, "several rows by their numbers");
    const int64_t size = onnx_view_dim(&v.view, axis);
    int64_t row = onnx_whole(number);
    row = row < 0 ? row + size : row;
    if (row < 0 || row >= size) return onnx_fail_node(import, "row %" PRId64 " of %" PRId64, row, size);
    if (!slice_axis(import, &v, axis, row, 1)) return false;
    if (onnx_output(import, 0)->kind == ONNX_REFUSED) return true;
    if (index.constant->n_dim == 0) onnx_view_remove(&v.view, axis);
    return pass_on(import, &v);
}

/* --- Concat, Expand ------------------------------------------------------------------------------------- */

static bool concat_token(onnx_import *import, const onnx_value *token, onnx_value *x)
{
    if (x->view.n_dim != 3 || token->view.n_dim != 3 || onnx_view_dim(&token->view, 1) != 1 ||
        onnx_view_dim(&token->view, 2) != onnx_view_dim(&x->view, 2) ||
        onnx_view_elements(&token->view) != onnx_view_dim(&x->view, 2))
        return onnx_refuse(import, "it joins a weight of this shape to a tensor");
    const int64_t dim[3] = {onnx_view_dim(&x->view, 0), onnx_view_dim(&x->view, 1),
                            onnx_view_dim(&x->view, 2)};
    const int record = onnx_arrange_plain(import, x);
    if (record < 0) return onnx_end_node(import, record);
    const int flat = onnx_reshape_record(import, record, 3, dim);
    char name[48];
    if (onnx_weight_is_taken(import, token->weight))
        return onnx_refuse(import, "its weight is read by another node, too");
    onnx_take_weight(import, token->weight, name);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_CONCAT_TOKEN, name, flat, -1);
    if (!r) return false;
    r->parameter[0] = (onnx_parameter){token->weight, token->view};
    r->shape.dim[1]++;
    const onnx_view view = onnx_view_of(3, (const int64_t[]){dim[0], dim[1] + 1, dim[2]}, true);
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &view);
}

/* Gives a dimension of size 1 an atom, after that of the dimension before it. */
static bool give_atom(onnx_view *view, int axis)
{
    const int start = onnx_view_start(view, axis);
    if (view->n_of[axis] > 0) return true;
    if (view->n_atom == ONNX_MAX_ATOM || (start == 0 && view->batch >= 0)) return false;
    const int place = start > 0 ? view->order[start - 1] + 1 : 0;
    memmove(&view->size[place + 1], &view->size[place], (size_t)(view->n_atom - place) * sizeof *view->size);
    for (int k = 0; k < view->n_atom; k++) view->order[k] += view->order[k] >= place;
    memmove(&view->order[start + 1], &view->order[start],
            (size_t)(view->n_atom - start) * sizeof *view->order);
    view->size[place] = 1;
    view->order[start] = place;
    view->batch += view->batch >= place;
    view->n_atom++;
    view->n_of[axis] = 1;
    return true;
}

/* The record of both; the same as before where both were joined before. */
static int join_records(onnx_import *import, int left, int right, int64_t rows)
{
    for (int i = import->n_record - 1; i >= 0 && i >= import->n_record - 4096; i--) {
        const onnx_record *const r = &import->record[i];
        if (r->kind == TANDEM_OP_CONCAT && r->input[0] == left && r->input[1] == right) return i;
    }
    onnx_record *const r = onnx_add_record(import, TANDEM_OP_CONCAT, NULL, left, right);
    if (!r) return -1;
    r->shape.dim[1] = rows;
    return import->n_record - 1;
}

/* Appends b to a along a dimension. Sums of many inputs are chains: those that begin alike share it. */
static bool append_tensor(onnx_import *import, onnx_value *a, onnx_value *b, int axis)
{
    int wanted[ONNX_MAX_ATOM];
    if (b->kind != ONNX_TENSOR || b->is_index || b->causal || b->view.n_dim != a->view.n_dim)
        return onnx_refuse(import, "it joins a tensor and something else");
    int left = join_axis(import, a, axis), right = left < 0 ? left : join_axis(import, b, axis);
    if (right < 0) return onnx_end_node(import, right);
    for (int d = 0; d < a->view.n_dim; d++)
        if (d != axis && (onnx_view_dim(&a->view, d) != onnx_view_dim(&b->view, d) ||
                          !onnx_view_match(&a->view, d, &b->view, d)))
            return onnx_refuse(import, "inputs of different shapes or layouts");
    if (has_batch(&a->view, axis) || !give_atom(&a->view, axis) || !give_atom(&b->view, axis))
        return onnx_refuse(import, "it joins samples");
    for (int k = 0; k < a->view.n_atom; k++) wanted[a->view.order[k]] = b->view.order[k];
    right = onnx_arrange(import, b, wanted);
    if (right < 0) return false;
    const int atom = a->view.order[onnx_view_start(&a->view, axis)];
    int64_t dim[3] = {1, a->view.size[atom], 1};
    for (int p = 0; p < a->view.n_atom; p++)
        if (p != atom) dim[p > atom ? 2 : 0] *= a->view.size[p];
    const int64_t more = b->view.size[b->view.order[onnx_view_start(&b->view, axis)]];
    left = onnx_reshape_record(import, left, 3, dim);
    right = onnx_reshape_record(import, right, 3, (const int64_t[]){dim[0], more, dim[2]});
    const int made = left < 0 || right < 0 ? -1 : join_records(import, left, right, dim[1] + more);
    onnx_view view = a->view;
    view.size[atom] += more;
    return onnx_set_tensor(import, a, made, &view);
}

static bool concat_tensors(onnx_import *import, int axis)
{
    onnx_value all = *onnx_input(import, 0);
    if (all.kind != ONNX_TENSOR || all.is_index || all.causal)
        return onnx_refuse(import, "it joins a tensor and something else");
    for (int i = 1; i < onnx_n_input(import); i++) {
        onnx_value next = *onnx_input(import, i);
        if (!append_tensor(import, &all, &next, axis)) return false;
        if (onnx_output(import, 0)->kind == ONNX_REFUSED) return true;
    }
    return pass_on(import, &all);
}

bool onnx_lower_concat(onnx_import *import)
{
    const int n = onnx_n_input(import);
    const onnx_value first = *onnx_input(import, 0);
    onnx_value second = *onnx_input(import, 1);
    int axis;
    if (n == 1) return pass_on(import, &first);
    if (!is_seen(&first)) return onnx_refuse(import, "it joins constants to a tensor");
    if (!onnx_axis(import, onnx_int(import, "axis", 0), first.view.n_dim, &axis)) return false;
    if (n == 2 && axis == 1 && first.kind == ONNX_WEIGHT && second.kind == ONNX_TENSOR)
        return concat_token(import, &first, &second);
    return concat_tensors(import, axis);
}

/* Of a tensor: dimensions of size 1 become those of `dim`, such as the heads that share a key. */
static bool repeat_tensor(onnx_import *import, onnx_value *v, const int64_t *dim)
{
    const int n_dim = v->view.n_dim;
    int64_t now[ONNX_MAX_DIM], lead = 1, elements = 1;
    for (int d = 0; d < n_dim; d++) {
        now[d] = onnx_view_dim(&v->view, d);
        if (dim[d] != now[d] && has_batch(&v->view, d)) return onnx_refuse(import, "it repeats samples");
        if (__builtin_mul_overflow(elements, dim[d], &elements) || elements > INT64_C(1) << 44)
            return onnx_refuse(import, "more than 2^44 elements");
    }
    if (v->is_index || v->causal) return onnx_refuse(import, "it repeats tokens or a masked tensor");
    int record = onnx_arrange_plain(import, v);
    elements = onnx_view_elements(&v->view);
    for (int d = 0; d < n_dim && record >= 0; lead *= now[d++]) {
        if (dim[d] == now[d]) continue;
        const int flat = onnx_reshape_record(import, record, 3, (const int64_t[]){lead, 1, elements / lead});
        onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_REPEAT, NULL, flat, -1);
        if (!r) return false;
        r->n = r->shape.dim[1] = now[d] = dim[d];
        elements *= dim[d];
        record = import->n_record - 1;
    }
    onnx_view view = v->view;
    if (record < 0) return onnx_end_node(import, record);
    if (!plain_view(import, &view, n_dim, dim)) return false;
    return onnx_output(import, 0)->kind == ONNX_REFUSED ||
           onnx_set_tensor(import, onnx_output(import, 0), record, &view);
}

/* Of a weight that every sample gets, such as a class token, the batch is left to its reader. */
bool onnx_lower_expand(onnx_import *import)
{
    onnx_value v = *onnx_input(import, 0);
    const onnx_value shape = *onnx_input(import, 1);
    int64_t dim[ONNX_MAX_DIM];
    if (shape.kind != ONNX_CONSTANT) return onnx_refuse(import, "its shape is computed from samples");
    if (!is_seen(&v)) return onnx_refuse(import, "its input is known");
    if (shape.constant->n > v.view.n_dim) return onnx_refuse(import, "it repeats samples, or a whole weight");
    bool is_same = true;
    for (int i = 1; i <= v.view.n_dim; i++) {
        const int d = v.view.n_dim - i;
        const int64_t have = onnx_view_dim(&v.view, d);
        const int64_t want =
            i <= shape.constant->n ? onnx_whole(shape.constant->number[shape.constant->n - i]) : 1;
        const bool is_batch = v.kind == ONNX_TENSOR && d == 0 && want == import->file_batch;
        dim[d] = want == 1 || is_batch ? have : want;
        is_same &= dim[d] == have || (v.kind == ONNX_WEIGHT && d == 0 && have == 1);
        if (want < 1 || (have != 1 && dim[d] != have))
            return onnx_refuse(import, "size %" PRId64 " for dimension %d of %" PRId64, want, d, have);
    }
    if (is_same) return pass_on(import, &v);
    return v.kind == ONNX_TENSOR ? repeat_tensor(import, &v, dim)
                                 : onnx_refuse(import, "it repeats a weight");
}

/* Precisions are chosen here: what a file says of them is left out. */
bool onnx_lower_quantize(onnx_import *import)
{
    const onnx_value v = *onnx_input(import, 0);
    if (v.kind == ONNX_TENSOR && !v.is_index) return pass_on(import, &v);
    return onnx_refuse(import, "weights that are quantised already; export the model before quantisation");
}

/* Without training_mode, or before the opset that has it, a Dropout's ratio counts in training here, as it
 * does where the model came from. */
bool onnx_lower_dropout(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0);
    const onnx_value ratio = *onnx_input(import, 1), training = *onnx_input(import, 2);
    double rate = (double)onnx_float(import, "ratio", 0.5f), trains = 0;
    if (!is_seen(&x) || x.is_index) return onnx_refuse(import, "its input is no tensor of numbers");
    if (ratio.kind != ONNX_ABSENT && !onnx_is_number(&ratio, &rate))
        return onnx_refuse(import, "its ratio is computed");
    if (training.kind != ONNX_ABSENT && !onnx_is_number(&training, &trains))
        return onnx_refuse(import, "its mode is computed");
    if (x.kind != ONNX_TENSOR || trains == 0 || rate == 0) return pass_on(import, &x);
    if (!(rate > 0 && rate <= 0.9)) return onnx_refuse(import, "a ratio of %g; allowed are 0 to 0.9", rate);
    const bool causal = x.causal;
    const int record = causal ? -2 : onnx_build_expression(import, x.expression);
    if (record < 0) return onnx_end_node(import, record);
    onnx_record *const r = onnx_add_record(import, TANDEM_OP_DROPOUT, NULL, record, -1);
    if (!r) return false;
    r->rate = (float)rate;
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &x.view);
}

/* A pad of nothing: exporters leave such nodes in the graph. */
bool onnx_lower_pad(onnx_import *import)
{
    const onnx_value x = *onnx_input(import, 0), pads = *onnx_input(import, 1);
    size_t n = 0;
    const int64_t *const given = onnx_ints(import, "pads", &n);
    bool is_nothing = given || pads.kind == ONNX_CONSTANT;
    if (x.kind == ONNX_ABSENT || !is_nothing)
        return onnx_refuse(import, "its sizes are computed from samples");
    for (size_t i = 0; given && i < n; i++) is_nothing &= given[i] == 0;
    for (int64_t i = 0; !given && i < pads.constant->n; i++) is_nothing &= pads.constant->number[i] == 0;
    return is_nothing ? pass_on(import, &x) : onnx_refuse(import, "padding outside of a convolution or pool");
}
