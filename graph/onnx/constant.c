/* constant.c: computes nodes whose inputs are known: shapes and what exporters derive from them, masks,
 * scalars. Numbers are doubles; integers are exact up to 2^53, which no size exceeds. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

onnx_constant *onnx_constant_new(onnx_import *import, int n_dim, const int64_t *dim, bool is_float)
{
    onnx_constant *const c = tandem_arena_alloc(&import->arena, sizeof *c);
    if (!c) return onnx_no_memory(import), NULL;
    if (n_dim > ONNX_MAX_DIM) {
        onnx_fail(import, TANDEM_WRONG_GRAPH, "a constant has %d dimensions; allowed are at most %d", n_dim,
                  ONNX_MAX_DIM);
        return NULL;
    }
    c->is_float = is_float;
    c->n_dim = n_dim;
    c->n = 1;
    for (int d = 0; d < n_dim; d++) {
        c->dim[d] = dim[d];
        if (dim[d] < 0 || dim[d] > ONNX_MAX_CONSTANT || __builtin_mul_overflow(c->n, dim[d], &c->n) ||
            c->n > ONNX_MAX_CONSTANT) {
            onnx_fail(import, TANDEM_WRONG_GRAPH,
                      "a constant has dimension %d of %" PRId64
                      "; allowed are sizes from 0, and at most %d elements",
                      d, dim[d], ONNX_MAX_CONSTANT);
            return NULL;
        }
    }
    if (import->n_constant + c->n > 4 * (int64_t)ONNX_MAX_CONSTANT) {
        onnx_fail(import, TANDEM_WRONG_GRAPH, "its constants have more than %d elements together",
                  4 * ONNX_MAX_CONSTANT);
        return NULL;
    }
    import->n_constant += c->n;
    c->number = tandem_arena_array(&import->arena, (size_t)c->n, sizeof *c->number);
    if (!c->number) return onnx_no_memory(import), NULL;
    return c;
}

bool onnx_set_constant(onnx_value *value, const onnx_constant *constant)
{
    if (!constant) return false;
    *value = (onnx_value){.kind = ONNX_CONSTANT, .constant = constant, .weight = -1};
    return true;
}

bool onnx_is_number(const onnx_value *value, double *number)
{
    if (value->kind != ONNX_CONSTANT || value->constant->n != 1) return false;
    *number = value->constant->number[0];
    return true;
}

/* --- Broadcasting --------------------------------------------------------------------------------------- */

enum { MAX_WALK = 2 * ONNX_MAX_DIM, MAX_WALKED = 3 };

/* A way through all indices, the last dimension fastest, and with it through arrays: how far apart in array k
 * neighbours along dimension d are, and where it is. */
typedef struct walk {
    int n_dim;
    int64_t dim[MAX_WALK], at[MAX_WALK], step[MAX_WALKED][MAX_WALK], place[MAX_WALKED];
} walk;

static void walk_on(walk *w, int n_array)
{
    for (int d = w->n_dim - 1; d >= 0; d--) {
        const bool is_end = ++w->at[d] == w->dim[d];
        for (int k = 0; k < n_array; k++)
            w->place[k] += is_end ? -(w->dim[d] - 1) * w->step[k][d] : w->step[k][d];
        if (!is_end) return;
        w->at[d] = 0;
    }
}

/* How far apart in memory neighbours along each dimension are. */
static void find_strides(int64_t *stride, int n_dim, const int64_t *dim)
{
    int64_t n = 1;
    for (int d = n_dim - 1; d >= 0; d--) {
        stride[d] = n;
        (void)__builtin_mul_overflow(n, dim[d], &n); /* only where a size is 0: then there is no element */
    }
}

static walk walk_over(int n_dim, const int64_t *dim)
{
    walk w = {.n_dim = n_dim};
    memcpy(w.dim, dim, (size_t)n_dim * sizeof *dim);
    return w;
}

/* Array k, of these dimensions, is broadcast. */
static void broadcast_array(walk *w, int k, int n_dim, const int64_t *dim)
{
    int64_t stride[ONNX_MAX_DIM];
    find_strides(stride, n_dim, dim);
    for (int d = 0; d < n_dim; d++) w->step[k][w->n_dim - n_dim + d] = dim[d] == 1 ? 0 : stride[d];
}

/* The node's result: elements of x along the way, in dimensions of as many. */
static bool fold_walk(onnx_import *import, const onnx_constant *x, walk *w, int n_dim, const int64_t *dim)
{
    onnx_constant *const c = onnx_constant_new(import, n_dim, dim, x->is_float);
    for (int64_t i = 0; c && i < c->n; i++, walk_on(w, 1)) c->number[i] = x->number[w->place[0]];
    return onnx_set_constant(onnx_output(import, 0), c);
}

/* --- Weights as numbers --------------------------------------------------------------------------------- */

bool onnx_is_known(const onnx_import *import, const onnx_value *v)
{
    if (v->kind == ONNX_LOOKUP) return v->constant != NULL;
    return v->kind == ONNX_WEIGHT && import->weight[v->weight].is_known;
}

/* As they lie in memory. */
static bool read_numbers(onnx_import *import, const onnx_value *v, double *number, int64_t n)
{
    const onnx_weight *const w = &import->weight[v->weight];
    if (v->kind == ONNX_LOOKUP)
        memcpy(number, v->constant->number, (size_t)n * sizeof *number);
    else if (!w->is_filled)
        return onnx_tensor_read(import, onnx_file_tensor(import, w->tensor), number, NULL, n);
    else
        for (int64_t i = 0; i < n; i++) number[i] = w->fill;
    return true;
}

/* Puts the numbers of memory into ONNX's order. */
static bool turn_numbers(onnx_import *import, const onnx_view *view, double *number, int64_t n)
{
    int64_t stride[ONNX_MAX_ATOM], dim[ONNX_MAX_ATOM] = {0};
    double *const from = malloc((size_t)n * sizeof *from + 1);
    if (!from) return onnx_no_memory(import);
    memcpy(from, number, (size_t)n * sizeof *from);
    find_strides(stride, view->n_atom, view->size);
    for (int k = 0; k < view->n_atom; k++) dim[k] = view->size[view->order[k]];
    walk w = walk_over(view->n_atom, dim);
    for (int k = 0; k < view->n_atom; k++) w.step[0][k] = stride[view->order[k]];
    for (int64_t i = 0; i < n; i++, walk_on(&w, 1)) number[i] = from[w.place[0]];
    free(from);
    return true;
}

/* Keeps the first rows of the dimension before the last one. */
static void keep_rows(onnx_constant *c, int64_t rows)
{
    if (!rows || c->n_dim < 2) return;
    const int64_t width = c->dim[c->n_dim - 1], all = c->dim[c->n_dim - 2], lead = c->n / (width * all);
    for (int64_t i = 1; i < lead; i++)
        memmove(c->number + i * rows * width, c->number + i * all * width,
                (size_t)(rows * width) * sizeof *c->number);
    c->dim[c->n_dim - 2] = rows;
    c->n = lead * rows * width;
}

bool onnx_weight_constant(onnx_import *import, const onnx_value *value, const onnx_constant **constant)
{
    const bool is_known = onnx_is_known(import, value);
    const onnx_weight *const w = value->kind == ONNX_WEIGHT ? &import->weight[value->weight] : NULL;
    *constant = value->kind == ONNX_CONSTANT ? value->constant : NULL;
    if (!is_known && (!w || w->tensor < 0 || !onnx_view_is_plain(&value->view))) return true;
    const int64_t n = onnx_view_elements(&value->view);
    if (!is_known && (!onnx_tensor_has_data(onnx_file_tensor(import, w->tensor)) || n > 1 << 22)) return true;
    int64_t dim[ONNX_MAX_DIM];
    for (int d = 0; d < value->view.n_dim; d++) dim[d] = onnx_view_dim(&value->view, d);
    onnx_constant *const c = onnx_constant_new(import, value->view.n_dim, dim, true);
    if (!c || !read_numbers(import, value, c->number, n)) return false;
    if (!onnx_view_is_plain(&value->view) && !turn_numbers(import, &value->view, c->number, n)) return false;
    if (is_known && value->kind == ONNX_WEIGHT) keep_rows(c, value->rows);
    *constant = c;
    return true;
}

static bool broadcast_dims(onnx_import *import, const onnx_constant *const *c, int n, int64_t *dim,
                           int *n_dim)
{
    *n_dim = 0;
    for (int i = 0; i < n; i++) *n_dim = c[i]->n_dim > *n_dim ? c[i]->n_dim : *n_dim;
    for (int d = 0; d < *n_dim; d++) {
        dim[d] = 1;
        for (int i = 0; i < n; i++) {
            const int own = d - (*n_dim - c[i]->n_dim);
            if (own < 0 || c[i]->dim[own] == 1) continue;
            if (dim[d] != 1 && dim[d] != c[i]->dim[own])
                return onnx_fail_node(
                    import, "sizes %" PRId64 " and %" PRId64 " in one dimension; allowed are equal ones",
                    dim[d], c[i]->dim[own]);
            dim[d] = c[i]->dim[own];
        }
    }
    return true;
}

/* --- Elementwise ---------------------------------------------------------------------------------------- */

static double whole(double x, bool is_float) { return is_float ? x : trunc(x); }

static double modulo(double x, double y)
{
    if (y == 0) return 0;
    const double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

typedef double fold_function(double x, double y, double z, bool is_float);
#define FOLD(name, value)                                                                                    \
    static double name(double x, double y, double z, bool is_float)                                          \
    {                                                                                                        \
        (void)x, (void)y, (void)z, (void)is_float;                                                           \
        return value;                                                                                        \
    }
FOLD(fold_add, x + y)
FOLD(fold_sub, x - y)
FOLD(fold_mul, x *y)
FOLD(fold_div, y == 0 && !is_float ? 0 : whole(x / y, is_float))
FOLD(fold_mod, modulo(x, y))
FOLD(fold_fmod, y == 0 ? 0 : fmod(x, y))
FOLD(fold_pow, whole(pow(x, y), is_float))
FOLD(fold_max, fmax(x, y))
FOLD(fold_min, fmin(x, y))
FOLD(fold_equal, x == y)
FOLD(fold_greater, x > y)
FOLD(fold_less, x < y)
FOLD(fold_greater_equal, x >= y)
FOLD(fold_less_equal, x <= y)
FOLD(fold_and, x != 0 && y != 0)
FOLD(fold_or, x != 0 || y != 0)
FOLD(fold_not, x == 0)
FOLD(fold_neg, -x)
FOLD(fold_abs, fabs(x))
FOLD(fold_sqrt, sqrt(x))
FOLD(fold_exp, exp(x))
FOLD(fold_log, log(x))
FOLD(fold_floor, floor(x))
FOLD(fold_ceil, ceil(x))
FOLD(fold_round, nearbyint(x))
FOLD(fold_reciprocal, 1 / x)
FOLD(fold_identity, x)
FOLD(fold_where, x != 0 ? y : z)
FOLD(fold_sin, sin(x))
FOLD(fold_cos, cos(x))
FOLD(fold_tanh, tanh(x))
FOLD(fold_erf, erf(x))
#undef FOLD

static const struct {
    const char *op_type;
    int n_input;
    fold_function *function;
} elementwise[] = {
    {"Add", 2, fold_add},
    {"Sub", 2, fold_sub},
    {"Mul", 2, fold_mul},
    {"Div", 2, fold_div},
    {"Mod", 2, fold_mod},
    {"Pow", 2, fold_pow},
    {"Max", 2, fold_max},
    {"Min", 2, fold_min},
    {"Equal", 2, fold_equal},
    {"Greater", 2, fold_greater},
    {"Less", 2, fold_less},
    {"GreaterOrEqual", 2, fold_greater_equal},
    {"LessOrEqual", 2, fold_less_equal},
    {"And", 2, fold_and},
    {"Or", 2, fold_or},
    {"Not", 1, fold_not},
    {"Neg", 1, fold_neg},
    {"Abs", 1, fold_abs},
    {"Sqrt", 1, fold_sqrt},
    {"Exp", 1, fold_exp},
    {"Log", 1, fold_log},
    {"Floor", 1, fold_floor},
    {"Ceil", 1, fold_ceil},
    {"Round", 1, fold_round},
    {"Reciprocal", 1, fold_reciprocal},
    {"Identity", 1, fold_identity},
    {"Dropout", 1, fold_identity},
    {"Where", 3, fold_where},
    {"Sin", 1, fold_sin},
    {"Cos", 1, fold_cos},
    {"Tanh", 1, fold_tanh},
    {"Erf", 1, fold_erf},
};

static bool fold_elementwise(onnx_import *import, const onnx_constant *const *in, int row)
{
    int64_t dim[ONNX_MAX_DIM];
    int n_dim;
    const int n = elementwise[row].n_input;
    const bool takes_sign_of_x = elementwise[row].function == fold_mod && onnx_int(import, "fmod", 0);
    fold_function *const function = takes_sign_of_x ? fold_fmod : elementwise[row].function;
    if (!broadcast_dims(import, in, n, dim, &n_dim)) return false;
    onnx_constant *const c = onnx_constant_new(import, n_dim, dim, in[n > 1]->is_float);
    if (!c) return false;
    walk w = walk_over(n_dim, dim);
    for (int k = 0; k < n; k++) broadcast_array(&w, k, in[k]->n_dim, in[k]->dim);
    for (int64_t i = 0; i < c->n; i++, walk_on(&w, n)) {
        double x[MAX_WALKED] = {0};
        for (int k = 0; k < n; k++) x[k] = in[k]->number[w.place[k]];
        c->number[i] = function(x[0], x[1], x[2], in[0]->is_float);
    }
    return onnx_set_constant(onnx_output(import, 0), c);
}

/* Whether a weight is one row of numbers along a dimension in which the constant has size 1. */
static bool is_vector_across(const onnx_value *w, const onnx_constant *c)
{
    int along = 0; /* from the end */
    for (int d = 1; d <= w->view.n_dim; d++) {
        if (onnx_view_dim(&w->view, w->view.n_dim - d) == 1) continue;
        if (along) return false;
        along = d;
    }
    return along && !w->rows && c->n > 1 && (c->n_dim < along || c->dim[c->n_dim - along] == 1);
}

/* An outer product of constants, or of constants and a vector of the file: a table such as the angles of
 * rotated positions. A weight that is trained meets samples. *done: whether it is one. */
static bool fold_outer_product(onnx_import *import, bool *done)
{
    const bool is_matmul = strcmp(onnx_op_type(import), "MatMul") == 0;
    const onnx_constant *in[2] = {NULL, NULL};
    int mul = 0;
    if (onnx_n_input(import) != 2 || (!is_matmul && strcmp(onnx_op_type(import), "Mul") != 0)) return true;
    const onnx_value *const a = onnx_input(import, 0), *const b = onnx_input(import, 1);
    const bool is_a = a->kind == ONNX_CONSTANT || onnx_is_known(import, a),
               is_b = b->kind == ONNX_CONSTANT || onnx_is_known(import, b);
    if ((is_a && (is_b || b->kind == ONNX_WEIGHT) && !onnx_weight_constant(import, a, &in[0])) ||
        (is_b && (is_a || a->kind == ONNX_WEIGHT) && !onnx_weight_constant(import, b, &in[1])))
        return false;
    if (!in[0] && a->kind == ONNX_WEIGHT && in[1] && is_vector_across(a, in[1]) &&
        !onnx_weight_constant(import, a, &in[0]))
        return false;
    if (!in[1] && b->kind == ONNX_WEIGHT && in[0] && is_vector_across(b, in[0]) &&
        !onnx_weight_constant(import, b, &in[1]))
        return false;
    if (!in[0] || !in[1]) return true;
    for (int i = 0; i < 2 && is_matmul; i++) /* one term a sum */
        if (in[i]->n_dim < 2 || in[i]->dim[in[i]->n_dim - 1 - i] != 1) return true;
    while (strcmp(elementwise[mul].op_type, "Mul") != 0) mul++;
    *done = true;
    return fold_elementwise(import, in, mul);
}

static bool fold_cast(onnx_import *import, const onnx_constant *const *in)
{
    const int64_t to = onnx_int(import, "to", ONNX_FLOAT);
    const bool is_float = onnx_is_float_type(to);
    onnx_constant *const c = onnx_constant_new(import, in[0]->n_dim, in[0]->dim, is_float);
    if (!c) return false;
    for (int64_t i = 0; i < c->n; i++) {
        const double x = in[0]->number[i];
        c->number[i] = to == ONNX_BOOL ? x != 0 : is_float ? x : trunc(x);
    }
    return onnx_set_constant(onnx_output(import, 0), c);
}

/* --- Shapes --------------------------------------------------------------------------------------------- */

static int value_n_dim(const onnx_value *v)
{
    return v->kind == ONNX_CONSTANT ? v->constant->n_dim : v->view.n_dim;
}

static int64_t value_dim(const onnx_value *v, int d)
{
    if (v->kind == ONNX_CONSTANT) return v->constant->dim[d];
    return onnx_view_dim(&v->view, d);
}

static bool fold_shape(onnx_import *import)
{
    const onnx_value *const v = onnx_input(import, 0);
    const bool is_size = strcmp(onnx_op_type(import), "Size") == 0;
    if (v->kind == ONNX_ABSENT) return onnx_fail_node(import, "it has no input");
    const int n_dim = value_n_dim(v);
    int64_t start = onnx_int(import, "start", 0), end = onnx_int(import, "end", n_dim);
    start = start < 0 ? start + n_dim : start;
    end = end < 0 ? end + n_dim : end;
    start = start < 0 ? 0 : start > n_dim ? n_dim : start;
    end = end > n_dim ? n_dim : end < start ? start : end;
    const int64_t n = end - start;
    onnx_constant *const c = onnx_constant_new(import, !is_size, &n, false);
    if (!c) return false;
    if (is_size) {
        c->number[0] = 1;
        for (int d = 0; d < n_dim; d++) c->number[0] *= (double)value_dim(v, d);
    } else {
        for (int64_t d = start; d < end; d++) c->number[d - start] = (double)value_dim(v, (int)d);
    }
    return onnx_set_constant(onnx_output(import, 0), c);
}

/* The node makes a weight, as an initializer is one: which numbers are trained follows from their use. */
static int add_known_weight(onnx_import *import)
{
    const onnx_node *const node = &import->node[import->current];
    const bool is_named = node->message->n_output && node->output[0] >= 0;
    const int made = onnx_add_weight(import, is_named ? import->value_name[node->output[0]] : "",
                                     (int)import->model->graph->n_initializer + import->current);
    if (made >= 0) import->weight[made].is_known = true;
    return made;
}

static bool fold_tensor(onnx_import *import, const Onnx__Tensor *t)
{
    const bool is_float = onnx_is_float_type(t->data_type);
    onnx_value *const out = onnx_output(import, 0);
    int64_t n = 1;
    int weight = -1;
    if (!onnx_tensor_elements(import, t, &n)) return false;
    if (t->data_type == ONNX_TEXT) return onnx_refuse(import, "texts are not supported");
    if (t->n_dims > ONNX_MAX_DIM) return onnx_refuse(import, "it has %zu dimensions", t->n_dims);
    if (is_float && n > 0 && (weight = add_known_weight(import)) < 0) return false;
    const onnx_view view = onnx_view_of((int)t->n_dims, t->dims, false);
    if (is_float && n > 1) {
        *out = (onnx_value){.kind = ONNX_WEIGHT, .weight = weight, .view = view};
        return onnx_tensor_check(import, t, n);
    }
    onnx_constant *const c = onnx_constant_new(import, (int)t->n_dims, t->dims, is_float);
    if (!c || !onnx_tensor_read(import, t, c->number, NULL, n) || !onnx_set_constant(out, c)) return false;
    out->weight = weight;
    out->view = view;
    return true;
}

static bool fold_constant(onnx_import *import)
{
    const Onnx__Tensor *const t =
        onnx_file_tensor(import, (int)import->model->graph->n_initializer + import->current);
    const Onnx__Attribute *const one_f = onnx_attribute(import, "value_float"),
                                 *const one_i = onnx_attribute(import, "value_int"),
                                 *const is = onnx_attribute(import, "value_ints");
    if (t) return fold_tensor(import, t);
    if (!one_f && !one_i && !is) return onnx_refuse(import, "it has no number");
    const int64_t n = is ? (int64_t)is->n_ints : 1;
    onnx_constant *const c = onnx_constant_new(import, is != NULL, &n, one_f != NULL);
    if (!c) return false;
    if (one_f) c->number[0] = (double)one_f->f;
    if (one_i) c->number[0] = (double)one_i->i;
    for (int64_t i = 0; i < n && is; i++) c->number[i] = (double)is->ints[i];
    return onnx_set_constant(onnx_output(import, 0), c);
}

static bool fold_constant_of_shape(onnx_import *import, const onnx_constant *const *in)
{
    int64_t dim[ONNX_MAX_DIM] = {0}, n = 1;
    const Onnx__Tensor *const t = onnx_tensor(import, "value");
    onnx_value *const out = onnx_output(import, 0);
    double number = 0;
    int weight = -1;
    const int n_dim = (int)in[0]->n;
    if (in[0]->n > ONNX_MAX_DIM) return onnx_refuse(import, "it makes more than %d dimensions", ONNX_MAX_DIM);
    for (int d = 0; d < n_dim; d++) {
        dim[d] = onnx_whole(in[0]->number[d]);
        if (dim[d] < 0 || __builtin_mul_overflow(n, dim[d], &n) || n > INT64_C(1) << 40)
            return onnx_fail_node(
                import, "dimension %d is %" PRId64 "; allowed are sizes from 0, and at most 2^40 elements", d,
                dim[d]);
    }
    if (t && !onnx_tensor_read(import, t, &number, NULL, 1)) return false;
    const bool is_float = !t || onnx_is_float_type(t->data_type);
    if (is_float && n > 0) {
        if ((weight = add_known_weight(import)) < 0) return false;
        import->weight[weight].tensor = -1;
        import->weight[weight].is_filled = true;
        import->weight[weight].fill = number;
    }
    const onnx_view view = onnx_view_of(n_dim, dim, false);
    if (is_float && n > 1) {
        *out = (onnx_value){.kind = ONNX_WEIGHT, .weight = weight, .view = view};
        return true;
    }
    onnx_constant *const c = onnx_constant_new(import, n_dim, dim, is_float);
    if (!c) return false;
    for (int64_t i = 0; i < c->n; i++) c->number[i] = number;
    (void)onnx_set_constant(out, c);
    out->weight = weight;
    out->view = view;
    return true;
}

static bool fold_range(onnx_import *import, const onnx_constant *const *in)
{
    if (in[0]->n != 1 || in[1]->n != 1 || in[2]->n != 1)
        return onnx_fail_node(import, "its limits are no scalars");
    const double start = in[0]->number[0], step = in[2]->number[0];
    const double count = ceil((in[1]->number[0] - start) / step);
    if (step == 0 || !(count < ONNX_MAX_CONSTANT))
        return onnx_fail_node(import, "a step of %g; allowed are ranges of at most %d numbers", step,
                              ONNX_MAX_CONSTANT);
    const int64_t n = count > 0 ? (int64_t)count : 0;
    onnx_constant *const c = onnx_constant_new(import, 1, &n, in[0]->is_float);
    if (!c) return false;
    for (int64_t i = 0; i < n; i++) c->number[i] = start + (double)i * step;
    return onnx_set_constant(onnx_output(import, 0), c);
}

/* --- Movement ------------------------------------------------------------------------------------------- */

/* A copy with other dimensions of as many elements. */
static bool fold_as(onnx_import *import, const onnx_constant *from, int n_dim, const int64_t *dim)
{
    onnx_constant *const c = onnx_constant_new(import, n_dim, dim, from->is_float);
    if (!c) return false;
    if (c->n != from->n)
        return onnx_fail_node(import, "%" PRId64 " elements into %" PRId64 "; allowed are as many", from->n,
                              c->n);
    memcpy(c->number, from->number, (size_t)c->n * sizeof *c->number);
    return onnx_set_constant(onnx_output(import, 0), c);
}

static bool fold_reshape(onnx_import *import, const onnx_constant *const *in)
{
    int64_t dim[ONNX_MAX_DIM] = {0};
    int open = -1;
    int64_t known = 1;
    const int n_dim = (int)in[1]->n;
    if (in[1]->n > ONNX_MAX_DIM) return onnx_refuse(import, "more than %d dimensions", ONNX_MAX_DIM);
    for (int d = 0; d < n_dim; d++) {
        dim[d] = onnx_whole(in[1]->number[d]);
        if (dim[d] == 0 && d < in[0]->n_dim && !onnx_int(import, "allowzero", 0)) dim[d] = in[0]->dim[d];
        if (dim[d] == -1)
            open = d;
        else if (dim[d] < 0 || __builtin_mul_overflow(known, dim[d], &known))
            return onnx_fail_node(import, "dimension %d is %" PRId64, d, dim[d]);
    }
    if (open >= 0) dim[open] = known > 0 ? in[0]->n / known : 0;
    return fold_as(import, in[0], n_dim, dim);
}

static bool fold_squeeze(onnx_import *import, const onnx_constant *const *in)
{
    int axis[ONNX_MAX_DIM], n, n_dim = 0;
    int64_t dim[ONNX_MAX_DIM];
    if (!onnx_axes(import, "axes", 1, in[0]->n_dim, axis, &n)) return false;
    for (int d = 0; d < in[0]->n_dim; d++) {
        bool gone = n < 0 && in[0]->dim[d] == 1;
        for (int i = 0; i < n; i++) gone |= axis[i] == d;
        if (!gone) dim[n_dim++] = in[0]->dim[d];
    }
    return fold_as(import, in[0], n_dim, dim);
}

static bool fold_unsqueeze(onnx_import *import, const onnx_constant *const *in)
{
    int axis[ONNX_MAX_DIM], n, from = 0;
    int64_t dim[ONNX_MAX_DIM];
    size_t n_given;
    const onnx_value *const v = onnx_input(import, 1);
    (void)onnx_ints(import, "axes", &n_given);
    const int n_dim = in[0]->n_dim + (int)(n_given                    ? n_given
                                           : v->kind == ONNX_CONSTANT ? (size_t)v->constant->n
                                                                      : 0);
    if (n_dim > ONNX_MAX_DIM) return onnx_refuse(import, "more than %d dimensions", ONNX_MAX_DIM);
    if (!onnx_axes(import, "axes", 1, n_dim, axis, &n)) return false;
    for (int d = 0; d < n_dim; d++) {
        bool is_new = false;
        for (int i = 0; i < n; i++) is_new |= axis[i] == d;
        dim[d] = is_new || from >= in[0]->n_dim ? 1 : in[0]->dim[from++];
    }
    return fold_as(import, in[0], n_dim, dim);
}

static bool fold_transpose(onnx_import *import, const onnx_constant *const *in)
{
    int axis[ONNX_MAX_DIM];
    int64_t dim[ONNX_MAX_DIM] = {0}, stride[ONNX_MAX_DIM];
    const int n_dim = in[0]->n_dim;
    if (!onnx_permutation(import, n_dim, axis)) return false;
    find_strides(stride, n_dim, in[0]->dim);
    for (int d = 0; d < n_dim; d++) dim[d] = in[0]->dim[axis[d]];
    walk w = walk_over(n_dim, dim);
    for (int d = 0; d < n_dim; d++) w.step[0][d] = stride[axis[d]];
    return fold_walk(import, in[0], &w, n_dim, dim);
}

static bool fold_gather(onnx_import *import, const onnx_constant *const *in)
{
    int axis;
    int64_t dim[2 * ONNX_MAX_DIM];
    int n_dim = 0;
    const onnx_constant *const x = in[0], *const index = in[1];
    if (!onnx_axis(import, onnx_int(import, "axis", 0), x->n_dim, &axis)) return false;
    for (int d = 0; d < axis; d++) dim[n_dim++] = x->dim[d];
    for (int d = 0; d < index->n_dim; d++) dim[n_dim++] = index->dim[d];
    for (int d = axis + 1; d < x->n_dim; d++) dim[n_dim++] = x->dim[d];
    onnx_constant *const c = onnx_constant_new(import, n_dim, dim, x->is_float);
    if (!c) return false;
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < axis; d++) outer *= x->dim[d];
    for (int d = axis + 1; d < x->n_dim; d++) inner *= x->dim[d];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < index->n; i++) {
            int64_t at = onnx_whole(index->number[i]);
            at = at < 0 ? at + x->dim[axis] : at;
            if (at < 0 || at >= x->dim[axis])
                return onnx_fail_node(import, "index %" PRId64 " of %" PRId64, at, x->dim[axis]);
            memcpy(&c->number[(o * index->n + i) * inner], &x->number[(o * x->dim[axis] + at) * inner],
                   (size_t)inner * sizeof *c->number);
        }
    return onnx_set_constant(onnx_output(import, 0), c);
}

static bool fold_concat(onnx_import *import, const onnx_constant *const *in, int n_in)
{
    int axis;
    int64_t dim[ONNX_MAX_DIM];
    if (!onnx_axis(import, onnx_int(import, "axis", 0), in[0]->n_dim, &axis)) return false;
    memcpy(dim, in[0]->dim, sizeof dim);
    for (int i = 1; i < n_in; i++) {
        if (in[i]->n_dim != in[0]->n_dim) return onnx_fail_node(import, "inputs of different dimensions");
        for (int d = 0; d < in[0]->n_dim; d++)
            if (d != axis && in[i]->dim[d] != dim[d])
                return onnx_fail_node(import, "inputs of different sizes");
        dim[axis] += in[i]->dim[axis];
    }
    onnx_constant *const c = onnx_constant_new(import, in[0]->n_dim, dim, in[0]->is_float);
    if (!c) return false;
    int64_t outer = 1, row = 1, at = 0;
    for (int d = 0; d < axis; d++) outer *= dim[d];
    for (int d = axis; d < in[0]->n_dim; d++) row *= dim[d];
    for (int i = 0; i < n_in; i++) {
        const int64_t own = outer ? in[i]->n / outer : 0;
        for (int64_t o = 0; o < outer; o++)
            memcpy(&c->number[o * row + at], &in[i]->number[o * own], (size_t)own * sizeof *c->number);
        at += own;
    }
    return onnx_set_constant(onnx_output(import, 0), c);
}

static bool fold_expand(onnx_import *import, const onnx_constant *const *in)
{
    onnx_constant want = {.n_dim = (int)in[1]->n};
    int64_t dim[ONNX_MAX_DIM] = {0};
    int n_dim;
    if (in[1]->n > ONNX_MAX_DIM) return onnx_refuse(import, "more than %d dimensions", ONNX_MAX_DIM);
    for (int d = 0; d < want.n_dim; d++) want.dim[d] = onnx_whole(in[1]->number[d]);
    if (!broadcast_dims(import, (const onnx_constant *const[]){in[0], &want}, 2, dim, &n_dim)) return false;
    walk w = walk_over(n_dim, dim);
    broadcast_array(&w, 0, in[0]->n_dim, in[0]->dim);
    return fold_walk(import, in[0], &w, n_dim, dim);
}

/* Each dimension is walked in two: which repetition, and where in it. */
static bool fold_tile(onnx_import *import, const onnx_constant *const *in)
{
    const onnx_constant *const x = in[0];
    int64_t dim[ONNX_MAX_DIM] = {0}, stride[ONNX_MAX_DIM];
    walk w = {.n_dim = 2 * x->n_dim};
    find_strides(stride, x->n_dim, x->dim);
    if (in[1]->n != x->n_dim)
        return onnx_fail_node(import, "it repeats %" PRId64 " dimensions of %d; allowed are as many",
                              in[1]->n, x->n_dim);
    for (int d = 0; d < x->n_dim; d++) {
        const int64_t times = onnx_whole(in[1]->number[d]);
        if (times < 0 || __builtin_mul_overflow(times, x->dim[d], &dim[d]))
            return onnx_fail_node(import, "it repeats dimension %d %" PRId64 " times", d, times);
        w.dim[2 * d] = times;
        w.dim[2 * d + 1] = x->dim[d];
        w.step[0][2 * d + 1] = stride[d];
    }
    return fold_walk(import, x, &w, x->n_dim, dim);
}

/* Whether ends, and axes and steps where they are given, are as many as starts. */
static bool are_slice_inputs_even(const onnx_value *const *in, int64_t n)
{
    return in[2]->kind == ONNX_CONSTANT && in[2]->constant->n == n &&
           (in[3]->kind != ONNX_CONSTANT || in[3]->constant->n == n) &&
           (in[4]->kind != ONNX_CONSTANT || in[4]->constant->n == n);
}

/* Of a list in an attribute, or else of an input that is a constant. */
static double slice_number(const int64_t *listed, const onnx_value *input, int64_t i, double otherwise)
{
    if (listed) return (double)listed[i];
    return input->kind == ONNX_CONSTANT ? input->constant->number[i] : otherwise;
}

bool onnx_slice_bounds(onnx_import *import, int n_dim, const int64_t *dim, int64_t *start, int64_t *count,
                       int64_t *step)
{
    const onnx_value *in[5];
    size_t n_start = 0, n_end = 0, n_axis = 0;
    const int64_t *const starts = onnx_ints(import, "starts", &n_start),
                         *const ends = onnx_ints(import, "ends", &n_end),
                         *const axes = onnx_ints(import, "axes", &n_axis);
    for (int i = 1; i < 5; i++) {
        in[i] = onnx_input(import, starts ? -1 : i); /* -1: absent */
        if (in[i]->kind != ONNX_CONSTANT && in[i]->kind != ONNX_ABSENT)
            return onnx_fail_node(import, "its bounds are computed from samples");
    }
    for (int d = 0; d < n_dim; d++) start[d] = 0, count[d] = dim[d], step[d] = 1;
    if (!starts && in[1]->kind == ONNX_ABSENT) return onnx_fail_node(import, "it has no bounds");
    const int64_t n = starts ? (int64_t)n_start : in[1]->constant->n;
    const bool is_even = starts ? n_end == n_start : are_slice_inputs_even(in, n);
    if (!is_even || (axes && (int64_t)n_axis != n))
        return onnx_fail_node(import, "different numbers of starts, ends, axes or steps");
    for (int64_t i = 0; i < n; i++) {
        int d;
        const int64_t given = onnx_whole(slice_number(axes, in[3], i, (double)i));
        if (!onnx_axis(import, given, n_dim, &d)) return false;
        const double first = slice_number(starts, in[1], i, 0),
                     last = slice_number(starts ? ends : NULL, in[2], i, 0),
                     by = slice_number(NULL, in[4], i, 1);
        const double size = (double)dim[d];
        if (by == 0 || fabs(by) > 1e15) return onnx_fail_node(import, "a step of %g; allowed are others", by);
        double a = first < 0 ? first + size : first, z = last < 0 ? last + size : last;
        a = fmin(fmax(a, 0), by > 0 ? size : size - 1);
        z = fmin(fmax(z, by > 0 ? 0 : -1), size);
        const double rows = ceil((z - a) / by);
        start[d] = (int64_t)a;
        step[d] = (int64_t)by;
        count[d] = rows > 0 ? (int64_t)rows : 0;
    }
    return true;
}

static bool fold_slice(onnx_import *import, const onnx_constant *const *in)
{
    int64_t start[ONNX_MAX_DIM] = {0}, count[ONNX_MAX_DIM] = {0}, step[ONNX_MAX_DIM] = {0},
            stride[ONNX_MAX_DIM];
    const int n_dim = in[0]->n_dim;
    if (!onnx_slice_bounds(import, n_dim, in[0]->dim, start, count, step)) return false;
    find_strides(stride, n_dim, in[0]->dim);
    walk w = walk_over(n_dim, count);
    for (int d = 0; d < n_dim && in[0]->n > 0; d++) {
        w.place[0] += start[d] * stride[d];
        w.step[0][d] = count[d] > 1 ? step[d] * stride[d] : 0; /* a step of one row may be any number */
    }
    return fold_walk(import, in[0], &w, n_dim, count);
}

static bool fold_reduce(onnx_import *import, const onnx_constant *const *in)
{
    int axis[ONNX_MAX_DIM], n, n_kept = 0;
    int64_t kept[ONNX_MAX_DIM], full[ONNX_MAX_DIM];
    const char *const type = onnx_op_type(import);
    const bool is_product = strcmp(type, "ReduceProd") == 0, is_max = strcmp(type, "ReduceMax") == 0,
               is_min = strcmp(type, "ReduceMin") == 0;
    if (!onnx_axes(import, "axes", 1, in[0]->n_dim, axis, &n)) return false;
    for (int d = 0; d < in[0]->n_dim; d++) {
        bool gone = n < 1 && !onnx_int(import, "noop_with_empty_axes", 0);
        for (int i = 0; i < n; i++) gone |= axis[i] == d;
        full[d] = gone ? 1 : in[0]->dim[d];
        if (!gone || onnx_int(import, "keepdims", 1)) kept[n_kept++] = full[d];
    }
    onnx_constant *const c = onnx_constant_new(import, n_kept, kept, in[0]->is_float);
    if (!c) return false;
    for (int64_t i = 0; i < c->n; i++)
        c->number[i] = is_product ? 1 : is_max ? -INFINITY : is_min ? INFINITY : 0;
    walk w = walk_over(in[0]->n_dim, in[0]->dim);
    broadcast_array(&w, 0, in[0]->n_dim, full);
    for (int64_t i = 0; i < in[0]->n; i++, walk_on(&w, 1)) {
        double *const sum = &c->number[w.place[0]];
        const double x = in[0]->number[i];
        *sum = is_product ? *sum * x : is_max ? fmax(*sum, x) : is_min ? fmin(*sum, x) : *sum + x;
    }
    return onnx_set_constant(onnx_output(import, 0), c);
}

static bool fold_trilu(onnx_import *import, const onnx_constant *const *in, int n_in)
{
    const onnx_constant *const x = in[0];
    const bool is_upper = onnx_int(import, "upper", 1) != 0;
    if (x->n_dim < 2 || (n_in > 1 && in[1]->n != 1))
        return onnx_fail_node(import, "it needs a matrix and a number");
    const double k = n_in > 1 ? in[1]->number[0] : 0;
    onnx_constant *const c = onnx_constant_new(import, x->n_dim, x->dim, x->is_float);
    if (!c) return false;
    const int64_t columns = x->dim[x->n_dim - 1], rows = x->dim[x->n_dim - 2];
    for (int64_t i = 0; i < c->n; i++) {
        const double diagonal = (double)(i % columns) - (double)(i / columns % rows);
        c->number[i] = (is_upper ? diagonal >= k : diagonal <= k) ? x->number[i] : 0;
    }
    return onnx_set_constant(onnx_output(import, 0), c);
}

/* Rows of the updates in the places that the index names. */
static bool fold_scatter(onnx_import *import, const onnx_constant *const *in)
{
    const onnx_constant *const x = in[0], *const index = in[1], *const update = in[2];
    const int64_t n_axis = index->n_dim > 0 ? index->dim[index->n_dim - 1] : 0;
    if (n_axis < 1 || n_axis > x->n_dim)
        return onnx_fail_node(import, "indices of %" PRId64 " axes; allowed are 1 to %d", n_axis, x->n_dim);
    int64_t width = 1;
    for (int d = (int)n_axis; d < x->n_dim; d++) width *= x->dim[d];
    const int64_t rows = index->n / n_axis;
    if (update->n != rows * width)
        return onnx_fail_node(import, "%" PRId64 " updates for %" PRId64 " elements; allowed are as many",
                              update->n, rows * width);
    onnx_constant *const c = onnx_constant_new(import, x->n_dim, x->dim, x->is_float);
    if (!c) return false;
    memcpy(c->number, x->number, (size_t)x->n * sizeof *c->number);
    for (int64_t i = 0; i < rows; i++) {
        int64_t to = 0;
        for (int64_t d = 0; d < n_axis; d++) {
            int64_t at = onnx_whole(index->number[i * n_axis + d]);
            at = at < 0 ? at + x->dim[d] : at;
            if (at < 0 || at >= x->dim[d])
                return onnx_fail_node(import, "index %" PRId64 " of %" PRId64, at, x->dim[d]);
            to = to * x->dim[d] + at;
        }
        memcpy(&c->number[to * width], &update->number[i * width], (size_t)width * sizeof *c->number);
    }
    return onnx_set_constant(onnx_output(import, 0), c);
}

/* --- Which ---------------------------------------------------------------------------------------------- */

static bool fold_known(onnx_import *import, const onnx_constant *const *in, int n, bool *done)
{
    const char *const type = onnx_op_type(import);
#define IS(name, least) (strcmp(type, name) == 0 && n >= (least))
    *done = true;
    for (size_t i = 0; i < sizeof elementwise / sizeof *elementwise; i++)
        if (IS(elementwise[i].op_type, elementwise[i].n_input)) return fold_elementwise(import, in, (int)i);
    if (IS("Cast", 1)) return fold_cast(import, in);
    if (IS("ConstantOfShape", 1)) return fold_constant_of_shape(import, in);
    if (IS("Range", 3)) return fold_range(import, in);
    if (IS("Reshape", 2)) return fold_reshape(import, in);
    if (IS("Squeeze", 1)) return fold_squeeze(import, in);
    if (IS("Unsqueeze", 1)) return fold_unsqueeze(import, in);
    if (IS("Transpose", 1)) return fold_transpose(import, in);
    if (IS("Gather", 2)) return fold_gather(import, in);
    if (IS("Concat", 1)) return fold_concat(import, in, n);
    if (IS("Expand", 2)) return fold_expand(import, in);
    if (IS("Tile", 2)) return fold_tile(import, in);
    if (IS("Slice", 1)) return fold_slice(import, in);
    if (IS("ReduceProd", 1) || IS("ReduceSum", 1) || IS("ReduceMax", 1) || IS("ReduceMin", 1))
        return fold_reduce(import, in);
    if (IS("Trilu", 1)) return fold_trilu(import, in, n);
    if (IS("ScatterND", 3) &&
        (!onnx_attribute(import, "reduction") || onnx_has_text(import, "reduction", "none")))
        return fold_scatter(import, in);
#undef IS
    *done = false;
    return true;
}

bool onnx_is_foldable(const onnx_import *import)
{
    static const char *const others[] = {"Constant",  "Shape",      "Size",      "ConstantOfShape",
                                         "Range",     "Tile",       "ReduceSum", "ReduceMax",
                                         "ReduceMin", "ReduceProd", "Trilu",     "ScatterND"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], onnx_op_type(import)) == 0) return true;
    for (size_t i = 0; i < sizeof elementwise / sizeof *elementwise; i++)
        if (strcmp(elementwise[i].op_type, onnx_op_type(import)) == 0) return true;
    return false;
}

/* Operators through which a weight stays one. */
static bool is_view(const onnx_import *import)
{
    static const char *const views[] = {"Identity",  "Cast",   "Reshape", "Flatten", "Transpose", "Squeeze",
                                        "Unsqueeze", "Expand", "Slice",   "Gather",  "Dropout"};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        if (strcmp(views[i], onnx_op_type(import)) == 0) return true;
    return false;
}

/* Lowers the node as if its input 0 were a weight alone. *seen: the result; not a weight: it cannot be. */
static bool lower_weight(onnx_import *import, onnx_value *seen)
{
    onnx_node *const node = &import->node[import->current];
    onnx_value *const in = &import->value[node->input[0]];
    onnx_lowering *const lower = import->find_lowering(import);
    const onnx_value kept = *in;
    *seen = (onnx_value){.kind = ONNX_ABSENT, .weight = -1};
    if (!lower || !node->message->n_output) return true;
    in->kind = kept.kind == ONNX_CONSTANT ? ONNX_WEIGHT : kept.kind;
    const bool fine = lower(import);
    *in = kept;
    node->refused = NULL;
    *seen = *onnx_output(import, 0);
    return fine;
}

static bool are_inputs_known(const onnx_import *import, int n)
{
    for (int i = 0; i < n; i++) {
        const onnx_value *const v = onnx_input(import, i);
        if (v->kind == ONNX_CONSTANT || onnx_is_known(import, v)) continue;
        if (v->kind != ONNX_ABSENT || i == 0 || strcmp(onnx_op_type(import), "Slice") != 0) return false;
    }
    return true;
}

/* Computes the node; its result stays the weight that `seen` is. */
static bool fold_inputs(onnx_import *import, const onnx_value *seen, int n, bool *done)
{
    onnx_value *const out = onnx_output(import, 0);
    const onnx_constant **const in = tandem_arena_array(&import->arena, (size_t)n, sizeof *in);
    if (!in) return onnx_no_memory(import);
    for (int i = 0; i < n; i++)
        if (!onnx_weight_constant(import, onnx_input(import, i), &in[i])) return false;
    if (!fold_known(import, in, n, done)) return false;
    if (!*done || out->kind != ONNX_CONSTANT) return true;
    if (seen->kind == ONNX_WEIGHT) out->weight = seen->weight, out->view = seen->view;
    if (seen->kind == ONNX_LOOKUP) {
        const onnx_constant *const number = out->constant;
        *out = *seen;
        out->constant = number;
    }
    return true;
}

bool onnx_fold(onnx_import *import, bool *done)
{
    const onnx_node *const node = &import->node[import->current];
    const char *const type = onnx_op_type(import);
    const int n = onnx_n_input(import);
    onnx_value seen = {.kind = ONNX_ABSENT, .weight = -1};
    *done = false;
    if (!onnx_is_own_domain(node->message->domain)) return true;
    if (strcmp(type, "Constant") == 0) return *done = true, fold_constant(import);
    if (strcmp(type, "Shape") == 0 || strcmp(type, "Size") == 0) return *done = true, fold_shape(import);
    if (!fold_outer_product(import, done)) return false;
    if (*done || n == 0 || !are_inputs_known(import, n)) return true;
    const onnx_value *const first = onnx_input(import, 0);
    const bool is_constant = first->kind == ONNX_CONSTANT;
    if (is_view(import) && (!is_constant || first->weight >= 0) && !lower_weight(import, &seen)) return false;
    if (seen.kind == ONNX_WEIGHT && !is_constant) return *done = true;
    return fold_inputs(import, &seen, n, done);
}
