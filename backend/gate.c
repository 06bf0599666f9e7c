#include "backend/gate.h"

#include <math.h>

void tandem_gate_open(tandem_gate *gate, const tandem_executor_options *options)
{
    const int is_dynamic = options->loss_scale < 0;
    *gate = (tandem_gate){.clip = options->clip,
                          .scales = is_dynamic || options->loss_scale > 0,
                          .is_dynamic = is_dynamic,
                          .scaling = {.scale = 1},
                          .step_scale = 1};
    if (gate->scales) gate->scaling.scale = is_dynamic ? tandem_scale_begin : options->loss_scale;
}

/* Eight sums side by side, so that additions need not wait for each other; their order is fixed. */
static double square_sum(const float *x, int64_t n)
{
    double sum[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) sum[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++) sum[i & 7] += (double)x[i] * (double)x[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static void multiply(const tandem_step *step, float *gradient, float factor)
{
    for (int p = 0; p < step->graph->n_parameter; p++) {
        float *g = gradient + step->parameter_start[p];
        for (int64_t i = 0; i < step->graph->parameter[p].elements; i++) g[i] *= factor;
    }
}

/* A sum of squares of floats fits into a double: it is finite where all of them are. */
void tandem_gate_judge(tandem_gate *gate, const tandem_step *step, float *gradient)
{
    const tandem_graph *graph = step->graph;
    double sum = 0;
    for (int k = 0; k < graph->n_parameter; k++) {
        const int p = step->parameter_order[k];
        sum += square_sum(gradient + step->parameter_start[p], graph->parameter[p].elements);
    }
    const int is_finite = isfinite(sum);
    gate->step_scale = gate->scaling.scale;
    gate->norm = sqrt(sum) / (double)gate->scaling.scale;
    /* at a scale of 1 nothing can be gained by a smaller one: the step fails as it would without */
    gate->skips = gate->scales && !is_finite && (!gate->is_dynamic || gate->scaling.scale > 1);
    if (!is_finite) return;
    const double clipped = gate->clip > 0 ? fmin(gate->clip / (gate->norm + 1e-6), 1) : 1;
    const float factor = (float)(clipped / (double)gate->scaling.scale);
    if (factor < 1) multiply(step, gradient, factor);
}

void tandem_gate_adapt(tandem_gate *gate)
{
    tandem_scaling *s = &gate->scaling;
    s->skipped += gate->skips;
    s->good = gate->skips ? 0 : s->good + (s->good < INT32_MAX);
    if (!gate->is_dynamic) return;
    if (gate->skips) s->scale = fmaxf(s->scale / 2, 1);
    /* a fixed scale, taken up again as dynamic, has more */
    else if (s->good >= TANDEM_SCALE_INTERVAL && s->scale < 0x1p24f)
        s->scale *= 2, s->good = 0;
}
