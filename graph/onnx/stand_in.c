/* stand_in.c: replaces the output of a node that is not supported, so that all nodes are judged: a tensor of
 * the shape that the file declares, or that the operator's definition gives. For the list of such nodes
 * alone. */
#include "graph/onnx/onnx_types.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct known_shape {
    int n_dim;
    int64_t dim[ONNX_MAX_DIM];
} known_shape;

/* --- Shapes that the file declares ---------------------------------------------------------------------- */

static bool find_declared(const onnx_import *import, int value, known_shape *s)
{
    const Onnx__ValueInfo *const info = import->info[value];
    const Onnx__TensorType *const t = info && info->type ? info->type->tensor_type : NULL;
    if (!t || !t->shape || t->shape->n_dim < 1 || t->shape->n_dim > ONNX_MAX_DIM ||
        !onnx_is_float_type(t->elem_type))
        return false;
    s->n_dim = (int)t->shape->n_dim;
    for (int d = 0; d < s->n_dim; d++) {
        const Onnx__Dimension *const one = t->shape->dim[d];
        const bool is_named = one->dim_param && *one->dim_param;
        s->dim[d] = one->has_dim_value && !is_named ? one->dim_value : 0;
        for (int i = 0; i < import->options->n && is_named; i++)
            if (strcmp(import->options->set[i].name, one->dim_param) == 0)
                s->dim[d] = import->options->set[i].value;
        if (d == 0 && (s->dim[d] == 0 || s->dim[d] == import->file_batch)) s->dim[d] = import->batch;
        if (s->dim[d] < 1) return false;
    }
    return true;
}

/* --- Shapes by definition ------------------------------------------------------------------------------- */

static bool value_shape(const onnx_value *v, known_shape *s)
{
    const bool is_constant = v->kind == ONNX_CONSTANT;
    if (!is_constant && v->kind != ONNX_TENSOR && v->kind != ONNX_WEIGHT && v->kind != ONNX_LOOKUP)
        return false;
    s->n_dim = is_constant ? v->constant->n_dim : v->view.n_dim;
    for (int d = 0; d < s->n_dim; d++)
        s->dim[d] = is_constant ? v->constant->dim[d] : onnx_view_dim(&v->view, d);
    return true;
}

static bool is_one_of(const onnx_import *import, const char *list)
{
    const char *const type = onnx_op_type(import);
    const size_t n = strlen(type);
    for (const char *at = strstr(list, type); at && n; at = strstr(at + 1, type))
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static bool broadcast(const onnx_import *import, known_shape *s)
{
    const int n = onnx_n_input(import);
    *s = (known_shape){.n_dim = 0};
    for (int i = 0; i < n; i++) {
        known_shape one;
        if (!value_shape(onnx_input(import, i), &one)) return false;
        if (one.n_dim > s->n_dim) {
            memmove(s->dim + one.n_dim - s->n_dim, s->dim, (size_t)s->n_dim * sizeof *s->dim);
            for (int d = 0; d < one.n_dim - s->n_dim; d++) s->dim[d] = 1;
            s->n_dim = one.n_dim;
        }
        for (int d = 0; d < one.n_dim; d++) {
            int64_t *const to = &s->dim[s->n_dim - one.n_dim + d];
            if (*to != one.dim[d] && *to != 1 && one.dim[d] != 1) return false;
            *to = *to == 1 ? one.dim[d] : *to;
        }
    }
    return s->n_dim > 0;
}

static bool slide_window(onnx_import *import, known_shape *s)
{
    known_shape weight;
    onnx_window window = {.kernel = {1, 1}};
    const bool is_conv = strcmp(onnx_op_type(import), "Conv") == 0;
    if (s->n_dim != 4 || (is_conv && (!value_shape(onnx_input(import, 1), &weight) || weight.n_dim != 4)))
        return false;
    if (is_conv) window.kernel[0] = weight.dim[2], window.kernel[1] = weight.dim[3];
    if (!onnx_read_window(import, s->dim[2], s->dim[3], &window)) return false;
    if (is_conv) s->dim[1] = weight.dim[0];
    s->dim[2] = window.n[0], s->dim[3] = window.n[1];
    return true;
}

/* Upsample has its scales in input 1, or an attribute; Resize has scales or sizes in inputs 2 and 3. */
static bool resize(const onnx_import *import, known_shape *s)
{
    const bool is_resize = strcmp(onnx_op_type(import), "Resize") == 0;
    const onnx_value *const scale = onnx_input(import, is_resize && onnx_n_input(import) > 2 ? 2 : 1),
                            *const size = onnx_input(import, 3);
    const Onnx__Attribute *const listed = onnx_attribute(import, "scales");
    const onnx_constant *c = NULL;
    if (size->kind == ONNX_CONSTANT && size->constant->n == s->n_dim) {
        for (int d = 0; d < s->n_dim; d++) s->dim[d] = onnx_whole(size->constant->number[d]);
        return true;
    }
    if (!onnx_weight_constant((onnx_import *)(uintptr_t)import, scale, &c)) return false;
    for (int d = 0; d < s->n_dim; d++) {
        const double by = c && c->n == s->n_dim                            ? c->number[d]
                          : listed && listed->n_floats == (size_t)s->n_dim ? (double)listed->floats[d]
                                                                           : 0;
        if (!(by > 0 && by < 1e6)) return false;
        s->dim[d] = (int64_t)floor((double)s->dim[d] * by);
    }
    return true;
}

static bool pad_shape(const onnx_import *import, known_shape *s)
{
    const onnx_value *const pads = onnx_input(import, 1);
    size_t n;
    const int64_t *const given = onnx_ints(import, "pads", &n);
    if (given ? n != 2 * (size_t)s->n_dim
              : pads->kind != ONNX_CONSTANT || pads->constant->n != 2 * (int64_t)s->n_dim)
        return false;
    for (int d = 0; d < 2 * s->n_dim; d++)
        s->dim[d % s->n_dim] += given ? given[d] : onnx_whole(pads->constant->number[d]);
    return true;
}

static bool reduce_shape(onnx_import *import, known_shape *s)
{
    int axis[ONNX_MAX_DIM], n, kept = 0;
    const bool keeps = onnx_int(import, "keepdims", 1) != 0;
    if (!onnx_axes(import, "axes", 1, s->n_dim, axis, &n)) return false;
    for (int d = 0; d < s->n_dim; d++) {
        bool gone = n < 1;
        for (int i = 0; i < n; i++) gone |= axis[i] == d;
        if (!gone || keeps) s->dim[kept++] = gone ? 1 : s->dim[d];
    }
    s->n_dim = kept;
    return true;
}

static bool multiply(const onnx_import *import, known_shape *s)
{
    known_shape w;
    if (!value_shape(onnx_input(import, 1), &w) || w.n_dim != 2 || s->n_dim < 1) return false;
    s->dim[s->n_dim - 1] = w.dim[onnx_int(import, "transB", 0) ? 0 : 1];
    return true;
}

static bool find_defined(onnx_import *import, known_shape *s)
{
    if (is_one_of(import, "Add Sub Mul Div Pow Max Min Where Mod Sum Mean")) return broadcast(import, s);
    if (!value_shape(onnx_input(import, 0), s)) return false;
    if (is_one_of(import, "Conv AveragePool MaxPool LpPool")) return slide_window(import, s);
    if (is_one_of(import, "Resize Upsample")) return resize(import, s);
    if (is_one_of(import, "Pad")) return pad_shape(import, s);
    if (is_one_of(import, "ReduceMax ReduceMin ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 "
                          "ReduceSumSquare ReduceLogSumExp ReduceLogSum"))
        return reduce_shape(import, s);
    if (is_one_of(import, "MatMul Gemm")) return multiply(import, s);
    if (is_one_of(import, "GlobalMaxPool GlobalLpPool GlobalAveragePool")) {
        for (int d = 2; d < s->n_dim; d++) s->dim[d] = 1;
        return true;
    }
    return is_one_of(import,
                     "PRelu Celu Gelu Mish ThresholdedRelu InstanceNormalization GroupNormalization LRN "
                     "LpNormalization MeanVarianceNormalization Hardmax Softmax LogSoftmax Round Floor Ceil "
                     "Sign CumSum Clip Dropout BatchNormalization LayerNormalization Abs Elu Erf Exp "
                     "HardSigmoid HardSwish LeakyRelu Log Neg Reciprocal Relu Selu Sigmoid Cos Sin Softplus "
                     "Softsign Sqrt Tanh Shrink Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh "
                     "SkipLayerNormalization QuickGelu FastGelu DequantizeLinear QuantizeLinear");
}

/* --- Stand-ins ------------------------------------------------------------------------------------------ */

static bool set_stand_in(onnx_import *import, onnx_value *value, const known_shape *s)
{
    int64_t n = 1;
    const int64_t first = s->n_dim > 0 ? s->dim[0] : 1;
    for (int d = 0; d < s->n_dim; d++)
        if (s->dim[d] < 1 || __builtin_mul_overflow(n, s->dim[d], &n) || n > INT64_C(1) << 44) return true;
    onnx_record *const r = onnx_add_record(import, TANDEM_OP_CALL, "stand_in", -1, -1);
    if (!r) return false;
    assert(first > 0);
    r->shape = (tandem_shape){2, {first, n / first}};
    const onnx_view view = onnx_view_of(s->n_dim, s->dim, first == import->batch);
    return onnx_set_tensor(import, value, import->n_record - 1, &view);
}

bool onnx_reads_stand_in(const onnx_import *import)
{
    for (int i = 0; i < onnx_n_input(import); i++)
        if (onnx_input(import, i)->is_stand_in) return true;
    return false;
}

bool onnx_stand_in(onnx_import *import)
{
    const onnx_node *const node = &import->node[import->current];
    const bool is_after_stand_in = onnx_reads_stand_in(import);
    tandem_error ignored = {0}, *const kept = import->error;
    for (size_t i = 0; i < node->message->n_output; i++) {
        known_shape s = {.n_dim = 0};
        if (node->output[i] < 0) continue;
        onnx_value *const value = &import->value[node->output[i]];
        const bool is_missing = value->kind == ONNX_REFUSED;
        const char *const why = node->refused;
        import->error = &ignored;
        const bool is_found = is_missing && (find_declared(import, node->output[i], &s) ||
                                             (i == 0 && find_defined(import, &s)));
        import->error = kept;
        import->node[import->current].refused = why;
        if (is_found && !set_stand_in(import, value, &s)) return false;
        value->is_stand_in = is_after_stand_in || (is_missing && value->kind == ONNX_TENSOR);
    }
    return true;
}
