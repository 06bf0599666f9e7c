/* graph.c: questions about a finished graph, and its initial weights. */
#include "base/nearest.h"
#include "base/philox.h"
#include "tandem/graph.h"
#include "tandem/record.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t tandem_shape_elements(const tandem_shape *shape)
{
    int64_t elements = 1;
    for (int d = 0; d < shape->n_dim; d++) elements *= shape->dim[d];
    return elements;
}

int64_t tandem_shape_last(const tandem_shape *shape)
{
    return shape->n_dim ? shape->dim[shape->n_dim - 1] : 1;
}

int tandem_op_is_batchnorm(const tandem_op *op)
{
    return op->kind == TANDEM_OP_BATCHNORM || op->kind == TANDEM_OP_BATCHNORM_RELU ||
           op->kind == TANDEM_OP_BATCHNORM_ADD_RELU;
}

char *tandem_parameter_name(char text[TANDEM_PARAMETER_NAME], const tandem_graph *graph, int parameter)
{
    const tandem_op *op = &graph->op[graph->parameter[parameter].op];
    const char *part = "";
    switch (op->kind) {
    case TANDEM_OP_LINEAR:
    case TANDEM_OP_CONV2D:
    case TANDEM_OP_GROUPED_CONV2D:
    case TANDEM_OP_EMBEDDING: part = ".weight"; break;
    case TANDEM_OP_LAYERNORM:
    case TANDEM_OP_BATCHNORM:
    case TANDEM_OP_BATCHNORM_RELU:
    case TANDEM_OP_BATCHNORM_ADD_RELU: part = parameter == op->parameter[0] ? ".weight" : ".bias"; break;
    default: break;
    }
    (void)snprintf(text, TANDEM_PARAMETER_NAME, "%s%s", op->name, part);
    return text;
}

int tandem_parameter_matches(const tandem_graph *graph, int parameter, const char *patterns)
{
    char name[TANDEM_PARAMETER_NAME], pattern[TANDEM_PARAMETER_NAME];
    tandem_parameter_name(name, graph, parameter);
    for (size_t n; *patterns; patterns += n + (patterns[n] == ',')) {
        n = strcspn(patterns, ",");
        if (n == 0 || n >= sizeof pattern) continue; /* no name is that long */
        memcpy(pattern, patterns, n);
        pattern[n] = '\0';
        if (fnmatch(pattern, name, 0) == 0) return 1;
    }
    return 0;
}

int tandem_conv2d_is_pointwise(const tandem_op *op)
{
    return op->kernel_h == 1 && op->kernel_w == 1 && op->stride == 1 && op->pad == 0;
}

int64_t tandem_bias_period(const tandem_op *bias, const tandem_parameter *own)
{
    int64_t period = 1;
    for (int d = 1; d <= own->shape.n_dim; d++) period *= bias->shape.dim[bias->shape.n_dim - d];
    return period;
}

void tandem_graph_close(tandem_graph *graph)
{
    if (!graph) return;
    if (graph->source) graph->source->close(graph->source);
    for (int c = 0; c < graph->n_constant; c++) free(graph->constant[c]);
    free(graph->constant);
    tandem_recorded_memory_close(graph->memory);
    free(graph->view);
    free(graph->consumer);
    free(graph->consumer_start);
    free(graph->parameter);
    free(graph->op);
    free(graph);
}

int64_t tandem_graph_n_weight(const tandem_graph *graph)
{
    int64_t n = 0;
    for (int p = 0; p < graph->n_parameter; p++) n += graph->parameter[p].elements;
    return n;
}

int64_t tandem_graph_n_prediction(const tandem_graph *graph)
{
    return graph->n_masked ? graph->n_masked : graph->length;
}

double tandem_graph_flops(const tandem_graph *graph)
{
    double flops = 0;
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op *op = &graph->op[i];
        flops += op->flops;
        if (op->kind != TANDEM_OP_LINEAR && op->kind != TANDEM_OP_CONV2D && op->kind != TANDEM_OP_MATMUL &&
            op->kind != TANDEM_OP_GROUPED_CONV2D)
            continue;
        /* The gradients of the first input, and of the weight or second input, cost as much each. */
        const int second = op->kind == TANDEM_OP_MATMUL ? graph->op[op->input[1]].needs_gradient : 1;
        flops += op->flops * (graph->op[op->input[0]].needs_gradient + second);
    }
    return flops;
}

tandem_status tandem_graph_find(int *op, const tandem_graph *graph, const char *name, tandem_error *error)
{
    for (int i = 0; i < graph->n_op; i++) {
        if (strcmp(graph->op[i].name, name) == 0) {
            *op = i;
            return TANDEM_OK;
        }
    }
    tandem_hint hint = {""};
    const char **candidates = malloc((size_t)graph->n_op * sizeof *candidates);
    for (int i = 0; candidates && i < graph->n_op; i++) candidates[i] = graph->op[i].name;
    if (candidates) /* without memory there is no suggestion */
        hint = tandem_nearest_hint(name, candidates, (size_t)graph->n_op);
    tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                     "model %s has no operator '%.60s'.%s `tandem graph show` lists them.", graph->model,
                     name, hint.text);
    free(candidates);
    return TANDEM_UNKNOWN_NAME;
}

/* --- Initial weights ------------------------------------------------------------------------------------ */
/* ln x for x in (0, 1], from ln((1+z)/(1−z)) = 2(z + z³/3 + z⁵/5 + …). Only +, −, ×, ÷ on doubles: these
 * round alike everywhere, while libm picks its code by processor, and ranks on different hosts must agree to
 * the last bit. */
static double portable_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent); /* exact; [½, 1) */
    if (m < 0x1.6a09e667f3bcdp-1) { /* √½ */
        m *= 2;
        exponent--;
    }
    const double z = (m - 1) / (m + 1), z2 = z * z; /* |z| < 0.172: z²³ is below a double's last bit */
    double sum = 0;
    for (int n = 21; n >= 1; n -= 2) sum = sum * z2 + 1.0 / n;
    return 2 * z * sum + exponent * 0x1.62e42fefa39efp-1; /* ln 2 */
}

/* cos and sin of 2πu for u in [0, 1) by their Taylor series about the nearest quarter turn. */
static void portable_cos_sin(double *cosine, double *sine, double u)
{
    const int quarter = (int)(4 * u + 0.5);
    const double angle = (u - 0.25 * quarter) * 0x1.921fb54442d18p+2; /* 2π; |angle| ≤ π/4 */
    const double a2 = angle * angle;
    double c = 0, s = 0;
    for (int n = 16; n >= 2; n -= 2) {
        c = (1 - c) * a2 / ((n - 1) * n);
        s = (1 - s) * a2 / (n * (n + 1));
    }
    c = 1 - c;
    s = angle * (1 - s);
    const int turns = quarter & 3;
    *cosine = turns == 0 ? c : turns == 1 ? -s : turns == 2 ? -c : s;
    *sine = turns == 0 ? s : turns == 1 ? c : turns == 2 ? -s : -c;
}

/* Two normal numbers from two words. Source: Box, Muller, Annals of Mathematical Statistics 29 (1958). */
static void draw_normal_pair(float pair[2], uint32_t a, uint32_t b, float deviation)
{
    const double radius = sqrt(-2 * portable_log(1 - (double)tandem_philox_uniform(a))); /* of (0, 1] */
    double cosine, sine;
    portable_cos_sin(&cosine, &sine, tandem_philox_uniform(b));
    pair[0] = (float)(deviation * radius * cosine);
    pair[1] = (float)(deviation * radius * sine);
}

static void fill_normal(float *weight, const tandem_parameter *p, uint32_t index, uint64_t seed)
{
    for (int64_t start = 0; start < p->elements; start += 4) {
        const uint64_t block = (uint64_t)start / 4;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), index, TANDEM_RNG_INIT};
        const tandem_philox_block draw = tandem_philox(counter, seed);
        float four[4];
        draw_normal_pair(four, draw.word[0], draw.word[1], p->deviation);
        draw_normal_pair(four + 2, draw.word[2], draw.word[3], p->deviation);
        const int64_t left = p->elements - start;
        memcpy(weight + start, four, (size_t)(left < 4 ? left : 4) * sizeof *four);
    }
}

tandem_status tandem_graph_init(const tandem_graph *graph, uint64_t seed, float *const *weight,
                                tandem_error *error)
{
    for (int i = 0; i < graph->n_parameter; i++) {
        const tandem_parameter *p = &graph->parameter[i];
        if (p->init == TANDEM_INIT_NORMAL)
            fill_normal(weight[i], p, (uint32_t)i, seed);
        else
            for (int64_t e = 0; e < p->elements; e++) weight[i][e] = p->init == TANDEM_INIT_ONE ? 1.0f : 0.0f;
    }
    return graph->source ? graph->source->read(graph->source, weight, error) : TANDEM_OK;
}
