/* expression.c: functions of each element, which are built when their values are needed. What a chain of
 * them computes is found by its values at some points, so that every way to write a gelu is one operator. */
#include "graph/onnx/import.h"

#include <math.h>
#include <string.h>

#include "base/grow.h"

double onnx_sample_point(int i)
{
    static const double point[ONNX_N_SAMPLE] = {-9.5, -6.2, -4.1,  -3.02, -2.9, -1.7, -1.05, -0.9,
                                                -0.5, -0.2, -0.03, 0.04,  0.3,  0.55, 0.7,   1.1,
                                                1.9,  2.45, 2.8,   3.2,   4.5,  5.7,  6.3,   8.6};
    return point[i];
}

static double clip(double x, double low, double high) { return fmin(fmax(x, low), high); }

static double apply_function(const onnx_expression *e, double x, double y)
{
    switch (e->function) {
    case ONNX_F_IDENTITY: return x;
    case ONNX_F_ADD: return x + y;
    case ONNX_F_SUB: return x - y;
    case ONNX_F_MUL: return x * y;
    case ONNX_F_DIV: return x / y;
    case ONNX_F_POW: return pow(x, y);
    case ONNX_F_MAX: return fmax(x, y);
    case ONNX_F_MIN: return fmin(x, y);
    case ONNX_F_RELU: return fmax(x, 0);
    case ONNX_F_TANH: return tanh(x);
    case ONNX_F_ERF: return erf(x);
    case ONNX_F_SIGMOID: return 1 / (1 + exp(-x));
    case ONNX_F_EXP: return exp(x);
    case ONNX_F_SQRT: return sqrt(x);
    case ONNX_F_NEG: return -x;
    case ONNX_F_CLIP: return clip(x, e->alpha, e->beta);
    case ONNX_F_HARD_SIGMOID: return clip(e->alpha * x + e->beta, 0, 1);
    case ONNX_F_HARD_SWISH: return x * clip(x / 6 + 0.5, 0, 1);
    case ONNX_F_LEAKY_RELU: return x < 0 ? e->alpha * x : x;
    case ONNX_F_ELU: return x < 0 ? e->alpha * expm1(x) : x;
    case ONNX_F_SOFTPLUS: return log1p(exp(x));
    case ONNX_F_ABS: return fabs(x);
    case ONNX_F_LOG: return log(x);
    case ONNX_F_RECIPROCAL: return 1 / x;
    }
    return 0;
}

static onnx_expression *append_expression(onnx_import *import)
{
    onnx_expression *const more = tandem_grow(import->expression, &import->expression_capacity,
                                              import->n_expression, sizeof *more, 1 << 24);
    if (!more) {
        onnx_no_memory(import);
        return NULL;
    }
    import->expression = more;
    onnx_expression *const e = &more[import->n_expression++];
    *e = (onnx_expression){.left = -1, .right = -1, .record = -1, .node = import->current};
    return e;
}

int onnx_expression_of(onnx_import *import, int record)
{
    if (record < 0) return -1;
    onnx_expression *const e = append_expression(import);
    if (!e) return -1;
    e->function = ONNX_F_IDENTITY;
    e->base = e->record = record;
    for (int i = 0; i < ONNX_N_SAMPLE; i++) e->sample[i] = onnx_sample_point(i);
    return import->n_expression - 1;
}

int onnx_express(onnx_import *import, onnx_function function, int left, int right, double number,
                 double alpha, double beta)
{
    onnx_expression *const e = append_expression(import);
    if (!e) return -1;
    const onnx_expression *const l = left >= 0 ? &import->expression[left] : NULL;
    const onnx_expression *const r = right >= 0 ? &import->expression[right] : NULL;
    e->function = function;
    e->base = l ? l->base : r->base;
    e->left = left;
    e->right = right;
    e->number = number;
    e->alpha = alpha;
    e->beta = beta;
    for (int i = 0; i < ONNX_N_SAMPLE; i++)
        e->sample[i] = apply_function(e, l ? l->sample[i] : number, r ? r->sample[i] : number);
    return import->n_expression - 1;
}

bool onnx_is_identity(const onnx_import *import, int expression)
{
    return import->expression[expression].function == ONNX_F_IDENTITY;
}

static bool is_near(double a, double b, double tolerance)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(b));
}

bool onnx_is_linear(const onnx_import *import, int expression, double *factor, double *shift)
{
    const double *const s = import->expression[expression].sample;
    const double x0 = onnx_sample_point(0), x1 = onnx_sample_point(ONNX_N_SAMPLE - 1);
    *factor = (s[ONNX_N_SAMPLE - 1] - s[0]) / (x1 - x0);
    *shift = s[0] - *factor * x0;
    if (!isfinite(*factor) || !isfinite(*shift)) return false;
    for (int i = 0; i < ONNX_N_SAMPLE; i++)
        if (!is_near(s[i], *factor * onnx_sample_point(i) + *shift, 1e-9)) return false;
    if (fabs(*shift) < 1e-12 * (1 + fabs(*factor))) *shift = 0;
    if (fabs(*factor - 1) < 1e-12) *factor = 1;
    return true;
}

/* --- Functions with an operator ------------------------------------------------------------------------- */

static double tanh_gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* Operators of one input; a chain of functions that has the values of one becomes it. */
static const struct {
    tandem_op_kind kind;
    double (*value)(double x);
    double tolerance; /* exporters round the constants of gelu */
} known[] = {{TANDEM_OP_GELU, tanh_gelu, 1e-6}, {TANDEM_OP_TANH, tanh, 1e-9}};

static bool equals_function(const onnx_expression *e, double (*value)(double), double tolerance)
{
    for (int i = 0; i < ONNX_N_SAMPLE; i++)
        if (!is_near(e->sample[i], value(onnx_sample_point(i)), tolerance)) return false;
    return true;
}

static double relu(double x) { return fmax(x, 0); }

/* The record of a whole chain that one operator computes; -2: there is none. */
static int build_known(onnx_import *import, int expression)
{
    const onnx_expression e = import->expression[expression];
    tandem_op_kind kind = TANDEM_N_OP_KIND;
    if (equals_function(&e, relu, 1e-12)) kind = TANDEM_OP_RELU;
    for (size_t k = 0; k < sizeof known / sizeof *known && kind == TANDEM_N_OP_KIND; k++)
        if (equals_function(&e, known[k].value, known[k].tolerance)) kind = known[k].kind;
    if (kind == TANDEM_N_OP_KIND) return -2;
    const int node = import->current;
    import->current = e.node;
    const onnx_record *const r = onnx_add_record(import, kind, NULL, e.base, -1);
    import->current = node;
    return r ? import->n_record - 1 : -1;
}

int onnx_build_expression(onnx_import *import, int expression)
{
    const onnx_expression e = import->expression[expression];
    if (e.record != -1) return e.record;
    int made = build_known(import, expression);
    if (made == -2 && e.function == ONNX_F_ADD && e.left >= 0 && e.right >= 0) {
        const int left = onnx_build_expression(import, e.left);
        const int right = left >= 0 ? onnx_build_expression(import, e.right) : left;
        if (right < 0) return right;
        made = onnx_add_record(import, TANDEM_OP_ADD, NULL, left, right) ? import->n_record - 1 : -1;
    }
    if (made == -2) {
        onnx_node *const node = &import->node[e.node];
        if (!node->refused) node->refused = "this function of each element";
    }
    import->expression[expression].record = made;
    return made;
}
