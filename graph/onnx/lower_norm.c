/* lower_norm.c: norms and softmax. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A norm's scale and shift over dimension x of a tensor; both have its elements. */
static bool set_norm_parameter(onnx_import *import, onnx_record *r, int slot, onnx_view *tensor, int axis,
                               onnx_value *w)
{
    if (!onnx_as_weight(import, w) || w->view.n_dim != 1 ||
        onnx_view_dim(&w->view, 0) != onnx_view_dim(tensor, axis))
        return onnx_refuse(import,
                           "its scale or shift is no initializer of its own, with one number per channel");
    r->parameter[slot] = (onnx_parameter){w->weight, w->view};
    (void)onnx_follow_memory(tensor, axis, &w->view, 0, r->parameter[slot].view.order);
    import->weight[w->weight].n_use++;
    return true;
}

/* The running mean beside the scale, the variance beside the shift: an evaluation begins with them. Constants
 * that a node in training mode has in their place mean nothing. */
static bool set_statistics(onnx_import *import, onnx_record *r, int slot, const onnx_value *w)
{
    const bool is_weight = w->kind == ONNX_WEIGHT || (w->kind == ONNX_CONSTANT && w->weight >= 0);
    if (!is_weight)
        return onnx_int(import, "training_mode", 0) == 1 ||
               onnx_refuse(import, "its running mean or variance is no initializer");
    const int64_t n = onnx_view_elements(&r->parameter[slot].view);
    if (w->view.n_dim != 1 || !onnx_view_is_plain(&w->view) || onnx_view_elements(&w->view) != n)
        return onnx_fail_node(import, "a running mean or variance of other than %" PRId64 " channels", n);
    r->statistics[slot] = (onnx_parameter){w->weight, r->parameter[slot].view};
    return true;
}

/* What PyTorch calls momentum. The file has 1 − m, rounded to 24 bits; seven decimals give m back. */
static float replaced_part(float kept) { return (float)(round((1 - (double)kept) * 1e7) / 1e7); }

bool onnx_lower_batchnorm(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0), w[4];
    char name[48];
    const int axis = 1;
    for (int i = 0; i < 4; i++) w[i] = *onnx_input(import, i + 1);
    if (x.kind != ONNX_TENSOR || x.is_index || x.view.n_dim < 2)
        return onnx_refuse(import, "its input has no channels");
    if (onnx_int(import, "spatial", 1) != 1) return onnx_refuse(import, "spatial=0");
    for (int i = 0; i < 2; i++)
        if (!onnx_as_weight(import, &w[i]))
            return onnx_refuse(import, "its scale or shift is no initializer of its own");
    for (int i = 0; i < 2; i++)
        if (w[i].view.n_dim != 1 || onnx_view_dim(&w[i].view, 0) != onnx_view_dim(&x.view, 1))
            return onnx_fail_node(import, "a scale or shift of other than %" PRId64 " channels",
                                  onnx_view_dim(&x.view, 1));
    if (!onnx_view_match(&x.view, axis, &w[0].view, 0) || !onnx_view_match(&x.view, axis, &w[1].view, 0))
        return onnx_refuse(import, "this layout of its input");
    const int record = onnx_make_last(import, &x, 1, &axis);
    if (record < 0) return onnx_end_node(import, record);
    const int64_t c = onnx_view_dim(&x.view, 1), rows = onnx_view_elements(&x.view) / c;
    const tandem_shape *const s = &import->record[record].shape;
    const bool fits = s->n_dim == 4 && s->dim[3] == c;
    const int flat = fits ? record
                          : onnx_reshape_record(import, record, 4,
                                                (const int64_t[]){import->batch, rows / import->batch, 1, c});
    onnx_module_name(import, import->weight[w[0].weight].name, name);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_BATCHNORM, name, flat, -1);
    if (!r) return false;
    r->epsilon = onnx_float(import, "epsilon", 1e-5f);
    r->momentum = replaced_part(onnx_float(import, "momentum", 0.9f));
    if (!(r->momentum >= 0 && r->momentum <= 1))
        return onnx_fail_node(import, "its momentum is %g; allowed are 0 to 1", 1 - (double)r->momentum);
    for (int i = 0; i < 2; i++) {
        if (!set_norm_parameter(import, r, i, &x.view, axis, &w[i])) return false;
        if (!set_statistics(import, r, i, &w[i + 2])) return false;
    }
    if (import->node[import->current].refused) return true;
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &x.view);
}

/* The record of a layernorm over the last dimensions, without scale and shift; −1: error; −2: refused. */
static int add_layernorm(onnx_import *import, onnx_value *x, int first_axis, float epsilon)
{
    int axis[ONNX_MAX_DIM] = {0}, n = 0;
    for (int d = first_axis; d < x->view.n_dim; d++) axis[n++] = d;
    const int record = onnx_make_last(import, x, n, axis);
    if (record < 0) return record;
    int64_t width = 1;
    for (int i = 0; i < n; i++) width *= onnx_view_dim(&x->view, axis[i]);
    const tandem_shape *const s = &import->record[record].shape;
    const bool fits = s->n_dim >= 2 && s->dim[s->n_dim - 1] == width;
    const int64_t dim[2] = {onnx_view_elements(&x->view) / width, width};
    const int flat = fits ? record : onnx_reshape_record(import, record, 2, dim);
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_LAYERNORM, NULL, flat, -1);
    if (!r) return -1;
    r->epsilon = epsilon;
    return import->n_record - 1;
}

bool onnx_lower_layernorm(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0), scale = *onnx_input(import, 1), shift = *onnx_input(import, 2);
    int first;
    if (x.kind != ONNX_TENSOR || x.is_index) return onnx_refuse(import, "its input is no tensor of numbers");
    if (!onnx_axis(import, onnx_int(import, "axis", -1), x.view.n_dim, &first)) return false;
    if (first != x.view.n_dim - 1)
        return onnx_refuse(import, "over several dimensions; allowed is the last one");
    if (shift.kind == ONNX_ABSENT) return onnx_refuse(import, "without a shift");
    if (!onnx_as_weight(import, &scale) || !onnx_as_weight(import, &shift) || scale.view.n_dim != 1 ||
        shift.view.n_dim != 1 || onnx_view_dim(&scale.view, 0) != onnx_view_dim(&x.view, first) ||
        onnx_view_dim(&shift.view, 0) != onnx_view_dim(&x.view, first))
        return onnx_refuse(import,
                           "its scale or shift is no initializer of its own, with one number per channel");
    if (!onnx_view_match(&x.view, first, &scale.view, 0) || !onnx_view_match(&x.view, first, &shift.view, 0))
        return onnx_refuse(import, "this layout of its input");
    const int made = add_layernorm(import, &x, first, onnx_float(import, "epsilon", 1e-5f));
    if (made < 0) return onnx_end_node(import, made);
    onnx_record *const r = &import->record[made];
    onnx_module_name(import, import->weight[scale.weight].name, r->name);
    return set_norm_parameter(import, r, 0, &x.view, first, &scale) &&
           set_norm_parameter(import, r, 1, &x.view, first, &shift) &&
           onnx_set_tensor(import, onnx_output(import, 0), made, &x.view);
}

/* --- LayerNorm in steps --------------------------------------------------------------------------------- */

/* The node that computes input `slot` of a node, if it has this type; else NULL. */
static const onnx_node *input_node(const onnx_import *import, const onnx_node *node, int slot,
                                   const char *type)
{
    if (!node || (size_t)slot >= node->message->n_input || node->input[slot] < 0) return NULL;
    const int made = import->producer[node->input[slot]];
    const onnx_node *const from = made >= 0 ? &import->node[made] : NULL;
    return from && from->message->op_type && strcmp(from->message->op_type, type) == 0 &&
                   from->message->n_input
               ? from
               : NULL;
}

/* Casts change nothing here. */
static int through_casts(const onnx_import *import, int value)
{
    while (value >= 0 && import->producer[value] >= 0) {
        const onnx_node *const n = &import->node[import->producer[value]];
        if (!n->message->op_type || strcmp(n->message->op_type, "Cast") != 0 || n->message->n_input != 1)
            break;
        value = n->input[0];
    }
    return value;
}

static bool reduces_last(onnx_import *import, const onnx_node *node, int n_dim)
{
    const int kept = import->current;
    int axis[ONNX_MAX_DIM], n = -1;
    import->current = (int)(node - import->node);
    const bool fine = onnx_axes(import, "axes", 1, n_dim, axis, &n) && onnx_int(import, "keepdims", 1) == 1;
    import->current = kept;
    return fine && n == 1 && axis[0] == n_dim - 1;
}

/* The square of a Sub's result, by Pow 2 or Mul; the node it came from. */
static const onnx_node *squared_difference(const onnx_import *import, const onnx_node *mean)
{
    const onnx_node *const pow = input_node(import, mean, 0, "Pow"), *const mul =
                                                                         input_node(import, mean, 0, "Mul");
    const onnx_node *const square = pow ? pow : mul;
    double exponent;
    if (!square || square->message->n_input != 2) return NULL;
    if (pow && (square->input[1] < 0 || !onnx_is_number(&import->value[square->input[1]], &exponent) ||
                exponent != 2))
        return NULL;
    if (mul && square->input[0] != square->input[1]) return NULL;
    const int value = through_casts(import, square->input[0]);
    const int from = value >= 0 ? import->producer[value] : -1;
    if (from < 0 || !import->node[from].message->op_type ||
        strcmp(import->node[from].message->op_type, "Sub") != 0 || import->node[from].message->n_input != 2)
        return NULL;
    return &import->node[from];
}

/* sqrt(mean + epsilon): the mean's node. */
static const onnx_node *stabilised_mean(const onnx_import *import, const onnx_node *root, double *epsilon)
{
    const onnx_node *const sum = input_node(import, root, 0, "Add");
    if (!sum || sum->message->n_input != 2) return NULL;
    for (int slot = 0; slot < 2; slot++) {
        const onnx_node *const mean = input_node(import, sum, slot, "ReduceMean");
        if (mean && sum->input[!slot] >= 0 && onnx_is_number(&import->value[sum->input[!slot]], epsilon))
            return mean;
    }
    return NULL;
}

bool onnx_lower_written_layernorm(onnx_import *import, bool *done)
{
    const onnx_node *const node = &import->node[import->current];
    double epsilon = 0;
    *done = false;
    const onnx_node *const difference = input_node(import, node, 0, "Sub"), *const root = input_node(
                                                                                import, node, 1, "Sqrt");
    const onnx_node *const variance = root ? stabilised_mean(import, root, &epsilon) : NULL;
    if (!difference || !variance || difference->message->n_input != 2) return true;
    const onnx_node *const mean = input_node(import, difference, 1, "ReduceMean");
    const onnx_node *const square = squared_difference(import, variance);
    if (!mean || !square || difference->input[0] < 0) return true;
    /* Some exporters subtract the mean twice. */
    if (square != difference &&
        (square->input[0] != difference->input[0] || square->input[1] != difference->input[1]))
        return true;
    if (mean->input[0] != difference->input[0]) return true;
    onnx_value x = import->value[difference->input[0]];
    if (x.kind != ONNX_TENSOR || x.is_index || x.causal || x.view.n_dim < 1) return true;
    if (!reduces_last(import, mean, x.view.n_dim) || !reduces_last(import, variance, x.view.n_dim))
        return true;
    const int made = add_layernorm(import, &x, x.view.n_dim - 1, (float)epsilon);
    if (made == -1) return false;
    const onnx_node *const inner[] = {difference,
                                      root,
                                      variance,
                                      mean,
                                      square,
                                      input_node(import, variance, 0, "Pow"),
                                      input_node(import, variance, 0, "Mul"),
                                      input_node(import, root, 0, "Add")};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (inner[i]) import->node[inner[i] - import->node].is_absorbed = true;
    *done = true;
    if (made == -2) return onnx_refuse(import, "its input is not supported");
    return onnx_set_tensor(import, onnx_output(import, 0), made, &x.view);
}

/* --- Softmax -------------------------------------------------------------------------------------------- */

/* The softmax that ends a model is a part of its loss. */
static bool ends_model(const onnx_import *import)
{
    const onnx_node *const node = &import->node[import->current];
    return node->output[0] >= 0 &&
           strcmp(import->value_name[node->output[0]], onnx_trained_output(import)) == 0 &&
           import->n_reader[node->output[0]] == 1;
}

bool onnx_lower_softmax(onnx_import *import)
{
    onnx_value x = *onnx_input(import, 0);
    double factor = 1, shift = 0;
    int first, axis[ONNX_MAX_DIM], n = 0;
    const bool is_log = strcmp(onnx_op_type(import), "LogSoftmax") == 0, is_old = import->opset < 13;
    if (x.kind != ONNX_TENSOR || x.is_index || x.view.n_dim < 1)
        return onnx_refuse(import, "its input is no tensor of numbers");
    if (!onnx_axis(import, onnx_int(import, "axis", is_old ? 1 : -1), x.view.n_dim, &first)) return false;
    axis[n++] = first;
    for (int d = first + 1; d < x.view.n_dim && is_old; d++) axis[n++] = d; /* all of them, as one */
    if (first == x.view.n_dim - 1 && !x.causal && ends_model(import) && !import->options->whole_output) {
        *onnx_output(import, 0) = x;
        return true;
    }
    if (is_log) return onnx_refuse(import, "it does not end the model");
    if (import->expression[x.expression].record == -1 &&
        onnx_is_linear(import, x.expression, &factor, &shift) && factor > 0) {
        x.expression =
            onnx_expression_of(import, import->expression[x.expression].base); /* a shift changes nothing */
        if (x.expression < 0) return false;
    } else {
        factor = 1;
    }
    const int last = x.view.n_dim - 1;
    if (x.causal && (n > 1 || first != last || last < 2))
        return onnx_refuse(import, "a causal mask of other dimensions");
    const int record = x.causal ? onnx_make_last(import, &x, 2, (const int[]){last - 1, last})
                                : onnx_make_last(import, &x, n, axis);
    if (record < 0) return onnx_end_node(import, record);
    int64_t width = 1;
    for (int i = 0; i < n; i++) width *= onnx_view_dim(&x.view, axis[i]);
    const int64_t rows = onnx_view_elements(&x.view) / width;
    const tandem_shape *const s = &import->record[record].shape;
    const bool fits = s->n_dim >= 2 && s->dim[s->n_dim - 1] == width &&
                      (!x.causal || (s->n_dim > 2 && s->dim[s->n_dim - 2] == width));
    const int flat =
        fits       ? record
        : x.causal ? onnx_reshape_record(import, record, 3, (const int64_t[]){rows / width, width, width})
                   : onnx_reshape_record(import, record, 2, (const int64_t[]){rows, width});
    onnx_record *const r = flat < 0 ? NULL : onnx_add_record(import, TANDEM_OP_SOFTMAX, NULL, flat, -1);
    if (!r) return false;
    r->scale = (float)factor;
    r->causal = x.causal;
    return onnx_set_tensor(import, onnx_output(import, 0), import->n_record - 1, &x.view);
}
