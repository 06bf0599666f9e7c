/* lower_elementwise.c: operators on each element, sums of tensors, biases and masks. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/grow.h"

static const struct {
    const char *op_type;
    onnx_function function;
    float alpha, beta; /* defaults of the attributes */
} functions[] = {
    {"Abs", ONNX_F_ABS, 0, 0},
    {"Add", ONNX_F_ADD, 0, 0},
    {"Div", ONNX_F_DIV, 0, 0},
    {"Elu", ONNX_F_ELU, 1, 0},
    {"Erf", ONNX_F_ERF, 0, 0},
    {"Exp", ONNX_F_EXP, 0, 0},
    {"HardSigmoid", ONNX_F_HARD_SIGMOID, 0.2f, 0.5f},
    {"HardSwish", ONNX_F_HARD_SWISH, 0, 0},
    {"LeakyRelu", ONNX_F_LEAKY_RELU, 0.01f, 0},
    {"Log", ONNX_F_LOG, 0, 0},
    {"Max", ONNX_F_MAX, 0, 0},
    {"Min", ONNX_F_MIN, 0, 0},
    {"Mul", ONNX_F_MUL, 0, 0},
    {"Neg", ONNX_F_NEG, 0, 0},
    {"Pow", ONNX_F_POW, 0, 0},
    {"Reciprocal", ONNX_F_RECIPROCAL, 0, 0},
    {"Relu", ONNX_F_RELU, 0, 0},
    {"Selu", ONNX_F_SELU, 1.67326319217681884765625f, 1.05070102214813232421875f},
    {"Sigmoid", ONNX_F_SIGMOID, 0, 0},
    {"Cos", ONNX_F_COS, 0, 0},
    {"Sin", ONNX_F_SIN, 0, 0},
    {"Softplus", ONNX_F_SOFTPLUS, 0, 0},
    {"Softsign", ONNX_F_SOFTSIGN, 0, 0},
    {"Sqrt", ONNX_F_SQRT, 0, 0},
    {"Sub", ONNX_F_SUB, 0, 0},
    {"Tanh", ONNX_F_TANH, 0, 0},
};

static int find_element_function(const onnx_import *import)
{
    for (int i = 0; i < (int)(sizeof functions / sizeof *functions); i++)
        if (strcmp(functions[i].op_type, onnx_op_type(import)) == 0) return i;
    return 0;
}

static bool is_numbers(const onnx_value *v) { return v->kind == ONNX_TENSOR && !v->is_index; }

/* The node's result: `value` with another function of its elements. */
static bool set_expression(onnx_import *import, onnx_value value, int expression)
{
    value.expression = expression;
    if (expression >= 0) *onnx_output(import, 0) = value;
    return expression >= 0;
}

bool onnx_lower_unary(onnx_import *import)
{
    const onnx_value x = *onnx_input(import, 0);
    const int i = find_element_function(import);
    if (!is_numbers(&x) || x.causal) return onnx_refuse(import, "its input is no tensor of numbers");
    const double alpha = (double)onnx_float(import, "alpha", functions[i].alpha),
                 beta = (double)onnx_float(import, functions[i].function == ONNX_F_SELU ? "gamma" : "beta",
                                           functions[i].beta);
    return set_expression(import, x,
                          onnx_express(import, functions[i].function, x.expression, -1, 0, alpha, beta));
}

bool onnx_lower_clip(onnx_import *import)
{
    const onnx_value x = *onnx_input(import, 0), low = *onnx_input(import, 1), high = *onnx_input(import, 2);
    double min = (double)onnx_float(import, "min", -3.4e38f),
           max = (double)onnx_float(import, "max", 3.4e38f);
    if (!is_numbers(&x) || x.causal) return onnx_refuse(import, "its input is no tensor of numbers");
    if ((low.kind != ONNX_ABSENT && !onnx_is_number(&low, &min)) ||
        (high.kind != ONNX_ABSENT && !onnx_is_number(&high, &max)))
        return onnx_refuse(import, "its limits are no numbers");
    return set_expression(import, x, onnx_express(import, ONNX_F_CLIP, x.expression, -1, 0, min, max));
}

/* --- Biases --------------------------------------------------------------------------------------------- */

/* Adds or multiplies by a weight whose dimension d is the tensor's dimension axis[d]; −1: of size 1. */
static bool apply_along(onnx_import *import, tandem_op_kind kind, onnx_value *x, onnx_value *w,
                        const int *axis)
{
    int last[ONNX_MAX_DIM] = {0}, own[ONNX_MAX_DIM] = {0}, n = 0, used = 0;
    onnx_parameter parameter = {.weight = w->weight};
    for (int d = 0; d < w->view.n_dim; d++) {
        if (axis[d] < 0) continue;
        if (!onnx_view_match(&x->view, axis[d], &w->view, d))
            return onnx_refuse(import, "this layout of its input");
        last[n] = axis[d], own[n++] = d;
    }
    const int record = onnx_make_last(import, x, n, last);
    if (record == -1) return false;
    if (record == -2)
        return onnx_refuse(import, "its input is not supported, or a weight has one part per sample");
    parameter.view = w->view;
    for (int p = 0; p < x->view.n_atom; p++) /* as the tensor lies in memory */
        for (int i = 0; i < n; i++) {
            const int from = onnx_view_start(&x->view, last[i]), at = onnx_view_start(&w->view, own[i]);
            for (int k = 0; k < x->view.n_of[last[i]]; k++)
                if (x->view.order[from + k] == p) parameter.view.order[used++] = w->view.order[at + k];
        }
    const int64_t period = onnx_view_elements(&w->view), rows = onnx_view_elements(&x->view) / period;
    const tandem_shape *const s = &import->record[record].shape;
    const bool fits = s->n_dim >= 2 && s->dim[s->n_dim - 1] == period;
    const int flat = fits ? record : onnx_reshape_record(import, record, 2, (const int64_t[]){rows, period});
    char name[48];
    onnx_take_weight(import, w->weight, name);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, kind, name, flat, -1);
    if (!r) return false;
    r->n_trailing = 1;
    r->parameter[0] = parameter;
    const onnx_view view = x->view;
    return onnx_set_tensor(import, x, import->n_record - 1, &view);
}

/* The first rows of a table of positions. */
static bool add_rows(onnx_import *import, onnx_value *x, onnx_value *w)
{
    const int n = x->view.n_dim, m = w->view.n_dim;
    const int64_t width = onnx_view_dim(&w->view, m - 1), all = onnx_view_dim(&w->view, m - 2);
    if (n < 3 || onnx_view_dim(&x->view, n - 1) != width || onnx_view_dim(&x->view, n - 2) != w->rows ||
        onnx_view_elements(&w->view) != width * all || !onnx_view_is_plain(&w->view))
        return onnx_refuse(import, "it adds a part of a weight of another shape");
    const int record = onnx_arrange_last(import, x, 2, (const int[]){n - 2, n - 1});
    if (record < 0) return onnx_end_node(import, record);
    const int64_t lead = onnx_view_elements(&x->view) / (width * w->rows);
    const int flat = onnx_reshape_record(import, record, 3, (const int64_t[]){lead, w->rows, width});
    char name[48];
    onnx_take_weight(import, w->weight, name);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_BIAS, name, flat, -1);
    if (!r) return false;
    r->n_trailing = 2;
    r->n = all;
    r->parameter[0] = (onnx_parameter){w->weight, w->view};
    const onnx_view view = x->view;
    return onnx_set_tensor(import, x, import->n_record - 1, &view);
}

static bool apply_weight(onnx_import *import, tandem_op_kind kind, onnx_value *x, onnx_value *w)
{
    int axis[ONNX_MAX_DIM] = {0};
    if (!onnx_as_weight(import, w))
        return onnx_refuse(import, "of no number, tensor or weight that it alone reads");
    if (w->rows)
        return kind == TANDEM_OP_BIAS ? add_rows(import, x, w) : onnx_refuse(import, "a part of a weight");
    for (int d = 0; d < w->view.n_dim; d++) {
        const int to = x->view.n_dim - w->view.n_dim + d;
        const int64_t size = onnx_view_dim(&w->view, d);
        axis[d] = size == 1 ? -1 : to;
        if (size != 1 && to < 0) return onnx_refuse(import, "a weight of more dimensions than its input");
        if (size != 1 && onnx_view_dim(&x->view, to) == 1)
            return onnx_refuse(import, "a weight that repeats its input");
        if (size != 1 && size != onnx_view_dim(&x->view, to))
            return onnx_fail_node(import,
                                  "a weight of %" PRId64 " for %" PRId64 " elements; allowed are as many",
                                  size, onnx_view_dim(&x->view, to));
    }
    return apply_along(import, kind, x, w, axis);
}

bool onnx_add_bias(onnx_import *import, onnx_value *x, onnx_value *w)
{
    return apply_weight(import, TANDEM_OP_BIAS, x, w);
}

/* One element per channel, dimension 1. */
bool onnx_add_channel_bias(onnx_import *import, onnx_value *x, onnx_value *w)
{
    if (!onnx_as_weight(import, w))
        return onnx_refuse(import, "its bias is no initializer that it alone reads");
    const int64_t n = onnx_view_dim(&x->view, 1);
    if (w->view.n_dim != 1 || onnx_view_dim(&w->view, 0) != n)
        return onnx_fail_node(import, "a bias of %d dimensions; allowed is 1, of %" PRId64, w->view.n_dim, n);
    return apply_along(import, TANDEM_OP_BIAS, x, w, (const int[]){n == 1 ? -1 : 1});
}

/* --- Masks ---------------------------------------------------------------------------------------------- */

enum mask { MASK_OTHER, MASK_NOTHING, MASK_CAUSAL };

/* Whether entries (i, j) of the last two dimensions are hidden for j > i alone, or nowhere. hidden(x): of an
 * added number, or of a condition. */
static enum mask classify_mask(const onnx_constant *c, bool (*hidden)(double x))
{
    const int64_t columns = c->n_dim > 0 ? c->dim[c->n_dim - 1] : 1,
                  rows = c->n_dim > 1 ? c->dim[c->n_dim - 2] : 1;
    bool any = false, causal = columns == rows && rows > 0;
    for (int64_t i = 0; i < c->n; i++) {
        const bool is_hidden = hidden(c->number[i]);
        any |= is_hidden;
        if (causal) causal = is_hidden == (i % columns > i / columns % rows);
    }
    return !any ? MASK_NOTHING : causal ? MASK_CAUSAL : MASK_OTHER;
}

static bool is_minus(double x) { return x <= -1e4; }
static bool is_zero(double x) { return x == 0; }
static bool is_set(double x) { return x != 0; }

static bool is_mask(const onnx_constant *c)
{
    for (int64_t i = 0; i < c->n; i++)
        if (c->number[i] != 0 && !is_minus(c->number[i])) return false;
    return true;
}

static bool is_square(const onnx_value *v)
{
    const int n = v->view.n_dim;
    return n >= 2 && onnx_view_dim(&v->view, n - 1) == onnx_view_dim(&v->view, n - 2);
}

/* Adds a constant of zeros and of numbers that make a softmax 0. *done: whether it is one. A weight of zeros
 * that is not square is a bias. */
static bool add_mask(onnx_import *import, const onnx_value *x, const onnx_value *constant, bool *done)
{
    const onnx_constant *c = NULL;
    const bool is_weight = constant->kind == ONNX_WEIGHT;
    *done = false;
    if (is_weight && !onnx_is_known(import, constant) && !is_square(constant)) return true;
    if (!onnx_weight_constant(import, constant, &c)) return false;
    if (!c || !is_mask(c)) return true;
    const enum mask mask = classify_mask(c, is_minus);
    if (mask == MASK_OTHER || (mask == MASK_NOTHING && is_weight && !is_square(constant))) return true;
    *done = true;
    onnx_value v = *x;
    v.causal |= mask == MASK_CAUSAL;
    *onnx_output(import, 0) = v;
    return true;
}

bool onnx_lower_where(onnx_import *import)
{
    const onnx_value condition = *onnx_input(import, 0), yes = *onnx_input(import, 1),
                     no = *onnx_input(import, 2);
    double number;
    const bool keeps_yes = yes.kind == ONNX_TENSOR && onnx_is_number(&no, &number) && is_minus(number);
    const bool keeps_no = no.kind == ONNX_TENSOR && onnx_is_number(&yes, &number) && is_minus(number);
    const onnx_constant *c = NULL;
    if (!onnx_weight_constant(import, &condition, &c)) return false;
    if ((!keeps_yes && !keeps_no) || !c)
        return onnx_refuse(import, "it chooses between others than a tensor and a mask");
    const enum mask mask = classify_mask(c, keeps_yes ? is_zero : is_set);
    onnx_value v = keeps_yes ? yes : no;
    if (mask == MASK_OTHER) return onnx_refuse(import, "a mask that is not causal");
    v.causal |= mask == MASK_CAUSAL;
    *onnx_output(import, 0) = v;
    return true;
}

/* --- Two tensors ---------------------------------------------------------------------------------------- */

static bool same_view(const onnx_view *a, const onnx_view *b)
{
    if (a->n_dim != b->n_dim || a->n_atom != b->n_atom) return false;
    for (int d = 0; d < a->n_dim; d++)
        if (a->n_of[d] != b->n_of[d]) return false;
    for (int k = 0; k < a->n_atom; k++)
        if (a->order[k] != b->order[k] || a->size[k] != b->size[k]) return false;
    return true;
}

/* Lays b out as a. Both have the same dimensions. */
static bool align(onnx_import *import, onnx_value *a, onnx_value *b, int *left, int *right)
{
    int wanted[ONNX_MAX_ATOM];
    for (int d = 0; d < a->view.n_dim; d++)
        if (!onnx_view_match(&a->view, d, &b->view, d))
            return onnx_refuse(import, "these layouts of its inputs");
    for (int k = 0; k < a->view.n_atom; k++) wanted[a->view.order[k]] = b->view.order[k];
    *left = onnx_build_expression(import, a->expression);
    *right = *left < 0 ? *left : onnx_arrange(import, b, wanted);
    if (*right < 0) return onnx_end_node(import, *right);
    const tandem_shape s = import->record[*left].shape;
    *right = onnx_reshape_record(import, *right, s.n_dim, s.dim);
    return *right >= 0;
}

static bool combine_aligned(onnx_import *import, onnx_value *a, onnx_value *b, onnx_function function)
{
    int left = -1, right = -1;
    if (!align(import, a, b, &left, &right)) return false;
    if (onnx_output(import, 0)->kind == ONNX_REFUSED) return true;
    const int made = onnx_combine_records(import, function, left, right, import->current);
    if (made == -2) return onnx_refuse(import, "of two tensors");
    return onnx_set_tensor(import, onnx_output(import, 0), made, &a->view);
}

/* Whether b has size 1 where it has not a's, in at least one dimension. */
static bool repeats_over(const onnx_view *a, const onnx_view *b)
{
    bool repeats = false;
    for (int d = 0; d < a->n_dim; d++) {
        const int64_t x = onnx_view_dim(a, d), y = onnx_view_dim(b, d);
        if (x != y && y != 1) return false;
        repeats |= x != y;
    }
    return repeats;
}

/* All atoms into wanted[n_atom], repeated ones last; returns the number of the others. */
static int put_repeated_last(int *wanted, int n_atom, const bool *is_repeated)
{
    int n = 0, n_other = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int p = 0; p < n_atom; p++)
            if (is_repeated[p] == (pass == 1)) wanted[n++] = p;
        if (pass == 0) n_other = n;
    }
    return n_other;
}

/* a·b where b has size 1 in some dimensions: their atoms lie together in a's memory, b has none of them. */
static bool multiply_repeated(onnx_import *import, onnx_value *a, onnx_value *b)
{
    int wanted[ONNX_MAX_ATOM], of_b[ONNX_MAX_ATOM] = {0}, order_b[ONNX_MAX_ATOM] = {0}, axis[ONNX_MAX_DIM],
                               n_axis = 0;
    for (int d = 0; d < a->view.n_dim; d++) {
        if (onnx_view_dim(&b->view, d) != onnx_view_dim(&a->view, d))
            axis[n_axis++] = d;
        else if (!onnx_view_match(&a->view, d, &b->view, d))
            return onnx_refuse(import, "these layouts of its inputs");
    }
    bool is_repeated[ONNX_MAX_ATOM] = {false};
    for (int i = 0; i < n_axis; i++)
        for (int k = 0; k < a->view.n_of[axis[i]]; k++)
            is_repeated[a->view.order[onnx_view_start(&a->view, axis[i]) + k]] = true;
    if (a->view.batch >= 0 && is_repeated[a->view.batch])
        return onnx_refuse(import, "a factor for all samples");
    for (int k = 0, j = 0; k < a->view.n_atom; k++)
        if (!is_repeated[a->view.order[k]]) of_b[a->view.order[k]] = b->view.order[j++];
    int first = 0, last = -1, count = 0;
    for (int p = 0; p < a->view.n_atom; p++)
        if (is_repeated[p]) first = count ? first : p, last = p, count++;
    const bool together = last - first + 1 == count;
    const int n = put_repeated_last(wanted, a->view.n_atom, is_repeated);
    for (int p = 0; p < n; p++) order_b[p] = of_b[wanted[p]];
    int left = together ? onnx_build_expression(import, a->expression) : onnx_arrange(import, a, wanted);
    int right = left < 0 ? left : onnx_arrange(import, b, order_b);
    if (right < 0) return onnx_end_node(import, right);
    if (!together) first = a->view.n_atom - count;
    int64_t dim[3] = {1, 1, 1};
    for (int p = 0; p < a->view.n_atom; p++)
        dim[p < first ? 0 : p < first + count ? 1 : 2] *= a->view.size[p];
    left = onnx_reshape_record(import, left, 3, dim);
    right = onnx_reshape_record(import, right, 3, (const int64_t[]){dim[0], 1, dim[2]});
    if (left < 0 || right < 0 || !onnx_add_record(import, TANDEM_OP_MUL, NULL, left, right)) return false;
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &a->view);
}

static bool combine_tensors(onnx_import *import, onnx_value *a, onnx_value *b, onnx_function function)
{
    const int base = import->expression[a->expression].base;
    if (a->causal || b->causal) return onnx_refuse(import, "it reads a masked tensor");
    while (a->view.n_dim < b->view.n_dim && onnx_view_insert(&a->view, 0)) continue;
    while (b->view.n_dim < a->view.n_dim && onnx_view_insert(&b->view, 0)) continue;
    if (function == ONNX_F_MUL && repeats_over(&a->view, &b->view)) return multiply_repeated(import, a, b);
    if (function == ONNX_F_MUL && repeats_over(&b->view, &a->view)) return multiply_repeated(import, b, a);
    for (int d = 0; d < a->view.n_dim; d++)
        if (onnx_view_dim(&a->view, d) != onnx_view_dim(&b->view, d))
            return onnx_refuse(
                import, "inputs of %" PRId64 " and %" PRId64 " in dimension %d; allowed are equal ones",
                onnx_view_dim(&a->view, d), onnx_view_dim(&b->view, d), d);
    if (import->expression[b->expression].base == base && same_view(&a->view, &b->view))
        return set_expression(import, *a,
                              onnx_express(import, function, a->expression, b->expression, 0, 0, 0));
    return combine_aligned(import, a, b, function);
}

/* --- All of two inputs ---------------------------------------------------------------------------------- */

/* A scale or shift after a layernorm that is written in steps. *done: whether it is one. */
static bool complete_layernorm(onnx_import *import, onnx_value *x, onnx_value *w, int slot, bool *done)
{
    const int made = import->expression[x->expression].record;
    *done = false;
    if (made < 0 || import->record[made].kind != TANDEM_OP_LAYERNORM || w->kind != ONNX_WEIGHT ||
        onnx_weight_is_taken(import, w->weight) || w->view.n_dim != 1)
        return true;
    onnx_record *const r = &import->record[made];
    const int last = x->view.n_dim - 1;
    if (r->parameter[slot].weight >= 0 || (slot == 1 && r->parameter[0].weight < 0) ||
        onnx_view_dim(&w->view, 0) != onnx_view_dim(&x->view, last))
        return true;
    onnx_view view = x->view;
    if (!onnx_view_match(&view, last, &w->view, 0)) return true;
    r->parameter[slot] = (onnx_parameter){w->weight, w->view};
    (void)onnx_follow_memory(&view, last, &w->view, 0, r->parameter[slot].view.order);
    if (slot == 0) onnx_module_name(import, import->weight[w->weight].name, r->name);
    import->weight[w->weight].n_use++;
    *done = true;
    *onnx_output(import, 0) = *x;
    return true;
}

/* --- Numbers that depend on the place alone ------------------------------------------------------------- */

/* Constants, first rows of a weight, or rows of a table: sizes that are used, and as they are stored. */
typedef struct place_numbers {
    int n_dim;
    int64_t dim[ONNX_MAX_DIM], stored[ONNX_MAX_DIM], n;
} place_numbers;

/* False: refused. Each size is 1 or that of x. */
static bool find_place_numbers(onnx_import *import, place_numbers *p, const onnx_value *x,
                               const onnx_value *y)
{
    const bool is_constant = y->kind == ONNX_CONSTANT;
    p->n_dim = is_constant ? y->constant->n_dim : y->view.n_dim;
    p->n = 1;
    bool fits = p->n_dim <= x->view.n_dim;
    for (int d = 0; d < p->n_dim && fits; d++) {
        p->dim[d] = p->stored[d] = is_constant ? y->constant->dim[d] : onnx_view_dim(&y->view, d);
        if (y->kind == ONNX_WEIGHT && y->rows && d == p->n_dim - 2) p->dim[d] = y->rows;
        p->n *= p->dim[d];
        fits = p->dim[d] == 1 || p->dim[d] == onnx_view_dim(&x->view, x->view.n_dim - p->n_dim + d);
    }
    if (x->causal || !fits)
        (void)onnx_refuse(import,
                          x->causal ? "it changes a masked tensor" : "its numbers have another shape");
    return fits && !x->causal;
}

/* What is planned and not trained. called: what is done with the numbers. */
static bool call_by_place(onnx_import *import, const onnx_value *x, const onnx_value *y, const char *called,
                          bool is_trained)
{
    place_numbers p;
    if (!find_place_numbers(import, &p, x, y)) return true;
    if (is_trained && onnx_weight_is_taken(import, y->weight))
        return onnx_refuse(import, "its table is read by another node, too");
    const int record = onnx_build_expression(import, x->expression);
    if (record < 0) return onnx_end_node(import, record);
    char name[48];
    if (is_trained) onnx_take_weight(import, y->weight, name);
    onnx_record *const r = onnx_add_record(import, is_trained ? TANDEM_OP_CALL_TRAINED : TANDEM_OP_CALL,
                                           is_trained ? name : NULL, record, -1);
    if (!r) return false;
    r->called = called;
    r->n = p.n;
    if (is_trained) {
        r->parameter[0] =
            (onnx_parameter){y->weight, onnx_view_of(2, (const int64_t[]){y->rows, y->width}, false)};
        r->n = onnx_view_elements(&r->parameter[0].view);
        r->reader = y->node;
    }
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &x->view);
}

/* In f32, once an import. *factor NULL: too many, not in the file, or a weight that does not lie as it is
 * seen. */
static bool read_place_factors(onnx_import *import, const onnx_value *y, const float **factor)
{
    const void *const of = y->kind == ONNX_WEIGHT
                               ? (const void *)onnx_file_tensor(import, import->weight[y->weight].tensor)
                               : y->constant;
    const onnx_constant *c = NULL;
    *factor = NULL;
    if (y->kind == ONNX_WEIGHT && !onnx_view_is_plain(&y->view)) return true;
    for (int i = 0; of && i < import->n_factors; i++)
        if (import->factors[i].of == of) return *factor = import->factors[i].number, true;
    if (!onnx_weight_constant(import, y, &c)) return false;
    if (!c) return true;
    float *const number = tandem_arena_array(&import->arena, (size_t)c->n, sizeof *number);
    struct onnx_factors *const more = tandem_grow(import->factors, &import->factors_capacity,
                                                  import->n_factors, sizeof *more, ONNX_MAX_NODE);
    if (more) import->factors = more;
    if (!more || !number) return onnx_no_memory(import);
    for (int64_t i = 0; i < c->n; i++) number[i] = (float)c->number[i];
    more[import->n_factors++] = (struct onnx_factors){of, number};
    return *factor = number, true;
}

/* How far apart the factors of neighbours in x's memory are. Atoms that are evenly apart are one dimension.
 * Returns how many there are, or 0: more than an operator has. */
static int lay_factors(const onnx_view *x, const place_numbers *p, int64_t *dim, int64_t *step)
{
    int64_t of_atom[ONNX_MAX_ATOM] = {0}, apart = 1, last = 0;
    int n = 0;
    for (int i = 0; i < p->n_dim && i < ONNX_MAX_DIM; i++) {
        const int d = p->n_dim - 1 - i;
        const int axis = x->n_dim - p->n_dim + d, start = onnx_view_start(x, axis);
        int64_t along = p->dim[d] == 1 ? 0 : apart;
        for (int k = x->n_of[axis] - 1; k >= 0; k--) {
            of_atom[x->order[start + k]] = along;
            along *= x->size[x->order[start + k]];
        }
        apart *= p->stored[d];
    }
    for (int a = 0; a < x->n_atom; a++) {
        if (n > 0 && last == of_atom[a] * x->size[a]) {
            dim[n - 1] *= x->size[a];
        } else {
            if (n == TANDEM_MAX_DIM) return 0;
            dim[n++] = x->size[a];
        }
        step[n - 1] = last = of_atom[a];
    }
    return n > 1 && step[0] == 0 ? n : 0;
}

static bool multiply_by_place(onnx_import *import, const onnx_value *x, const onnx_value *y)
{
    int64_t dim[TANDEM_MAX_DIM], step[TANDEM_MAX_DIM] = {0};
    const float *factor = NULL;
    place_numbers p;
    if (!find_place_numbers(import, &p, x, y)) return true;
    if (y->kind != ONNX_LOOKUP && !read_place_factors(import, y, &factor)) return false;
    const int n = lay_factors(&x->view, &p, dim, step);
    if (!factor || !n) return call_by_place(import, x, y, "multiply_by_constant", false);
    const int record = onnx_build_expression(import, x->expression);
    if (record < 0) return onnx_end_node(import, record);
    const int flat = onnx_reshape_record(import, record, n, dim);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_MUL_CONSTANT, NULL, flat, -1);
    if (!r) return false;
    r->factor = factor;
    memcpy(r->factor_step, step, sizeof step);
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &x->view);
}

/* Numbers for places in two dimensions or more that several nodes multiply by, such as the sines of rotated
 * positions. Exporters do not distinguish them from weights, but a weight that scales a tensor is one
 * node's. */
static bool is_table_of_factors(const onnx_import *import, const onnx_value *w, int slot)
{
    int n = 0;
    if (w->kind == ONNX_CONSTANT && w->weight < 0) return true;
    const int n_dim = w->kind == ONNX_CONSTANT ? w->constant->n_dim : w->view.n_dim;
    for (int d = 0; d < n_dim; d++)
        n += (w->kind == ONNX_CONSTANT ? w->constant->dim[d] : onnx_view_dim(&w->view, d)) > 1;
    return n > 1 && onnx_is_shared(import, slot);
}

/* --- A weight, or numbers that are known ---------------------------------------------------------------- */

/* slot: which input w is. */
static bool with_weight(onnx_import *import, onnx_value *x, onnx_value *w, int slot, onnx_function function)
{
    bool done = false;
    const bool is_known = w->kind == ONNX_CONSTANT || w->kind == ONNX_WEIGHT || w->kind == ONNX_LOOKUP;
    if (function == ONNX_F_MUL && is_known && is_table_of_factors(import, w, slot))
        return multiply_by_place(import, x, w);
    if (function == ONNX_F_MUL || function == ONNX_F_ADD) {
        if (!complete_layernorm(import, x, w, function == ONNX_F_ADD, &done)) return false;
        if (done) return true;
    }
    if (function == ONNX_F_MUL && w->kind == ONNX_WEIGHT && !x->causal) {
        if (!apply_weight(import, TANDEM_OP_SCALE, x, w)) return false;
        if (onnx_output(import, 0)->kind != ONNX_REFUSED) *onnx_output(import, 0) = *x;
        return true;
    }
    if (function != ONNX_F_ADD) return onnx_refuse(import, "of a tensor and a weight or constant");
    if (!add_mask(import, x, w, &done)) return false;
    if (done) return true;
    if (x->causal) return onnx_refuse(import, "it adds a weight to a masked tensor");
    if (w->kind == ONNX_CONSTANT) return call_by_place(import, x, w, "add_constant", false);
    if (w->kind == ONNX_LOOKUP) return call_by_place(import, x, w, "add_rows_of_table", true);
    if (w->kind != ONNX_WEIGHT) return onnx_refuse(import, "it adds what is no number here");
    if (!onnx_add_bias(import, x, w)) return false;
    if (onnx_output(import, 0)->kind != ONNX_REFUSED) *onnx_output(import, 0) = *x;
    return true;
}

bool onnx_lower_binary(onnx_import *import)
{
    onnx_value a = *onnx_input(import, 0), b = *onnx_input(import, 1);
    const onnx_function function = functions[find_element_function(import)].function;
    double number;
    if (onnx_n_input(import) != 2)
        return onnx_refuse(import, "%d inputs; allowed are 2", onnx_n_input(import));
    if (is_numbers(&a) && is_numbers(&b)) return combine_tensors(import, &a, &b, function);
    const bool first = is_numbers(&a);
    if (!first && !is_numbers(&b)) return onnx_refuse(import, "it reads no tensor of numbers");
    onnx_value *const x = first ? &a : &b, *const y = first ? &b : &a;
    if (onnx_is_number(y, &number) && y->constant->n_dim <= x->view.n_dim) {
        if (x->causal && (function != ONNX_F_MUL && function != ONNX_F_DIV))
            return onnx_refuse(import, "it reads a masked tensor");
        return set_expression(import, *x,
                              onnx_express(import, function, first ? x->expression : -1,
                                           first ? -1 : x->expression, number, 0, 0));
    }
    if (!first && function != ONNX_F_ADD && function != ONNX_F_MUL)
        return onnx_refuse(import, "of a weight or constant and a tensor");
    return with_weight(import, x, y, first, function);
}
