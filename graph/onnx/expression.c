/* expression.c: functions of each element, which are built when their values are needed. What a chain of
 * them computes is found by its values at some points, so that every way to write a gelu is one operator. */
#include "graph/onnx/onnx_types.h"

#include <math.h>
#include <string.h>

#include "base/grow.h"

enum { MAX_DEPTH = 40 };

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
    case ONNX_F_SELU: return x < 0 ? e->beta * e->alpha * expm1(x) : e->beta * x;
    case ONNX_F_SOFTSIGN: return x / (1 + fabs(x));
    case ONNX_F_SIN: return sin(x);
    case ONNX_F_COS: return cos(x);
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
    e->depth = 1 + (l && (!r || l->depth > r->depth) ? l->depth : r ? r->depth : 0);
    e->function = function;
    const onnx_expression *const operand = l ? l : r;
    e->base = operand ? operand->base : -1;
    e->left = left;
    e->right = right;
    e->number = number;
    e->alpha = alpha;
    e->beta = beta;
    for (int i = 0; i < ONNX_N_SAMPLE; i++)
        e->sample[i] = apply_function(e, l ? l->sample[i] : number, r ? r->sample[i] : number);
    const int made = import->n_expression - 1;
    if (e->depth < MAX_DEPTH) return made;
    /* The values of a chain that grew long become a record, so that no recursion is deep. */
    const int record = onnx_build_expression(import, made);
    return record == -2 ? made : record < 0 ? -1 : onnx_expression_of(import, record);
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

static double relu(double x) { return fmax(x, 0); }

/* Functions that an operator of their own computes. */
static const struct {
    tandem_op_kind kind;
    double (*value)(double x);
    double tolerance; /* exporters round the constants of gelu */
} known[] = {{TANDEM_OP_RELU, relu, 1e-12}, {TANDEM_OP_GELU, tanh_gelu, 1e-6}, {TANDEM_OP_TANH, tanh, 1e-9}};

static bool equals_known(const onnx_expression *e, size_t k)
{
    for (int i = 0; i < ONNX_N_SAMPLE; i++)
        if (!is_near(e->sample[i], known[k].value(onnx_sample_point(i)), known[k].tolerance)) return false;
    return true;
}

static bool equals_map(const onnx_expression *e, tandem_function f, double alpha, double beta)
{
    for (int i = 0; i < ONNX_N_SAMPLE; i++)
        if (!is_near(e->sample[i], tandem_function_value(f, onnx_sample_point(i), alpha, beta), 1e-6))
            return false;
    return true;
}

typedef struct mapping {
    tandem_op_kind kind;
    tandem_function function;
    double alpha, beta;
} mapping;

/* Of functions with attributes, those of one node: its own. */
static const struct {
    onnx_function from;
    tandem_function to;
} mapped[] = {
    {ONNX_F_EXP, TANDEM_FUNCTION_EXP},
    {ONNX_F_LOG, TANDEM_FUNCTION_LOG},
    {ONNX_F_SQRT, TANDEM_FUNCTION_SQRT},
    {ONNX_F_ERF, TANDEM_FUNCTION_ERF},
    {ONNX_F_ABS, TANDEM_FUNCTION_ABS},
    {ONNX_F_CLIP, TANDEM_FUNCTION_CLIP},
    {ONNX_F_HARD_SIGMOID, TANDEM_FUNCTION_HARD_SIGMOID},
    {ONNX_F_LEAKY_RELU, TANDEM_FUNCTION_LEAKY_RELU},
    {ONNX_F_ELU, TANDEM_FUNCTION_ELU},
    {ONNX_F_SELU, TANDEM_FUNCTION_SELU},
    {ONNX_F_SOFTPLUS, TANDEM_FUNCTION_SOFTPLUS},
    {ONNX_F_SOFTSIGN, TANDEM_FUNCTION_SOFTSIGN},
    {ONNX_F_RECIPROCAL, TANDEM_FUNCTION_RECIPROCAL},
    {ONNX_F_SIN, TANDEM_FUNCTION_SIN},
    {ONNX_F_COS, TANDEM_FUNCTION_COS},
};

/* What one operator computes all of the chain. */
static bool find_mapping(const onnx_import *import, int expression, mapping *m)
{
    static const tandem_function named[] = {TANDEM_FUNCTION_SIGMOID, TANDEM_FUNCTION_SWISH,
                                            TANDEM_FUNCTION_GELU_ERF, TANDEM_FUNCTION_HARD_SWISH,
                                            TANDEM_FUNCTION_MISH};
    const onnx_expression *const e = &import->expression[expression];
    *m = (mapping){.kind = TANDEM_OP_MAP};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (equals_known(e, k)) return m->kind = known[k].kind, true;
    for (size_t k = 0; k < sizeof named / sizeof *named; k++)
        if (equals_map(e, named[k], 0, 0)) return m->function = named[k], true;
    m->function = TANDEM_FUNCTION_LINEAR;
    if (onnx_is_linear(import, expression, &m->alpha, &m->beta)) return true;
    m->function = TANDEM_FUNCTION_CLIP; /* between the values at both ends */
    m->alpha = e->sample[0], m->beta = e->sample[ONNX_N_SAMPLE - 1];
    return m->alpha < m->beta && equals_map(e, TANDEM_FUNCTION_CLIP, m->alpha, m->beta);
}

/* The last step alone, of what the steps before it give: of one operand and numbers. */
static bool find_step(const onnx_expression *e, mapping *m)
{
    *m = (mapping){.kind = TANDEM_OP_MAP, .alpha = e->alpha, .beta = e->beta};
    for (size_t k = 0; k < sizeof mapped / sizeof *mapped; k++)
        if (mapped[k].from == e->function) return m->function = mapped[k].to, true;
    switch (e->function) {
    case ONNX_F_RELU: m->kind = TANDEM_OP_RELU; return true;
    case ONNX_F_TANH: m->kind = TANDEM_OP_TANH; return true;
    case ONNX_F_SIGMOID: m->function = TANDEM_FUNCTION_SIGMOID; return true;
    case ONNX_F_HARD_SWISH: m->function = TANDEM_FUNCTION_HARD_SWISH; return true;
    case ONNX_F_NEG: m->alpha = -1, m->beta = 0; return true;
    case ONNX_F_ADD: m->alpha = 1, m->beta = e->number; return true;
    case ONNX_F_MUL: m->alpha = e->number, m->beta = 0; return true;
    case ONNX_F_SUB:
        m->alpha = e->left >= 0 ? 1 : -1, m->beta = e->left >= 0 ? -e->number : e->number;
        return true;
    case ONNX_F_DIV: m->alpha = 1 / e->number, m->beta = 0; return e->left >= 0;
    case ONNX_F_MAX: m->function = TANDEM_FUNCTION_CLIP, m->alpha = e->number, m->beta = 3.4e38; return true;
    case ONNX_F_MIN: m->function = TANDEM_FUNCTION_CLIP, m->alpha = -3.4e38, m->beta = e->number; return true;
    case ONNX_F_POW: m->function = TANDEM_FUNCTION_POWER, m->alpha = e->number; return e->left >= 0;
    default: return false;
    }
}

static int add_mapping(onnx_import *import, const mapping *m, int record, int origin)
{
    if (!isfinite((float)m->alpha) || !isfinite((float)m->beta)) return -2;
    const int node = import->current;
    import->current = origin;
    onnx_record *const r = onnx_add_record(import, m->kind, NULL, record, -1);
    import->current = node;
    if (!r) return -1;
    r->function = m->function;
    r->alpha = (float)m->alpha;
    r->beta = (float)m->beta;
    return import->n_record - 1;
}

/* −x or 1/x of a record. */
static int turn_record(onnx_import *import, int record, onnx_function function, int origin)
{
    const mapping m = function == ONNX_F_SUB
                          ? (mapping){.kind = TANDEM_OP_MAP, .alpha = -1}
                          : (mapping){.kind = TANDEM_OP_MAP, .function = TANDEM_FUNCTION_RECIPROCAL};
    return add_mapping(import, &m, record, origin);
}

int onnx_combine_records(onnx_import *import, onnx_function function, int left, int right, int origin)
{
    if (function == ONNX_F_SUB || function == ONNX_F_DIV)
        right = turn_record(import, right, function, origin);
    if (right < 0) return right;
    const bool is_sum = function == ONNX_F_ADD || function == ONNX_F_SUB;
    if (!is_sum && function != ONNX_F_MUL && function != ONNX_F_DIV) return -2;
    return onnx_add_record(import, is_sum ? TANDEM_OP_ADD : TANDEM_OP_MUL, NULL, left, right)
               ? import->n_record - 1
               : -1;
}

static int build_last_step(onnx_import *import, const onnx_expression *e)
{
    mapping m;
    if (e->left >= 0 && e->right >= 0) {
        const int left = onnx_build_expression(import, e->left);
        const int right = left >= 0 ? onnx_build_expression(import, e->right) : left;
        return right < 0 ? right : onnx_combine_records(import, e->function, left, right, e->node);
    }
    const int operand = e->left >= 0 ? e->left : e->right;
    if (!find_step(e, &m)) {
        if (e->function != ONNX_F_DIV || e->left >= 0) return -2;
        m = (mapping){.kind = TANDEM_OP_MAP, .function = TANDEM_FUNCTION_RECIPROCAL}; /* number / x */
        const int one = onnx_build_expression(import, e->right);
        const int turned = one < 0 ? one : add_mapping(import, &m, one, e->node);
        m = (mapping){.kind = TANDEM_OP_MAP, .function = TANDEM_FUNCTION_LINEAR, .alpha = e->number};
        return turned < 0 ? turned : e->number == 1 ? turned : add_mapping(import, &m, turned, e->node);
    }
    const int record = onnx_build_expression(import, operand);
    return record < 0 ? record : add_mapping(import, &m, record, e->node);
}

int onnx_build_expression(onnx_import *import, int expression)
{
    const onnx_expression e = import->expression[expression];
    mapping m;
    if (e.record != -1) return e.record;
    const int made = find_mapping(import, expression, &m) ? add_mapping(import, &m, e.base, e.node)
                                                          : build_last_step(import, &e);
    if (made == -2) {
        onnx_node *const node = &import->node[e.node];
        if (!node->refused) node->refused = "this function of each element";
    }
    import->expression[expression].record = made;
    return made;
}
