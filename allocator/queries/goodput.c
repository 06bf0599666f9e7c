/* goodput.c: the sensitivity of a whole plan, and the rate that it leaves. */
#include "allocator/opening.h"
#include "allocator/problem.h"
#include "allocator/queries/goodput.h"

#include <math.h>
#include <stdio.h>

_Static_assert((int)TANDEM_GOODPUT_POINTS == (int)TANDEM_MAX_TRAINING_POINT &&
                   (int)TANDEM_GOODPUT_LARGEST == (int)TANDEM_N_LARGEST,
               "planner.h has room for what is known");

static int is_all_fp32(const tandem_plan *plan)
{
    for (int c = 0; c < plan->cluster.n_class; c++)
        for (int op = 0; op < plan->assignment.n_op; op++)
            if (plan->assignment.precision[c][op] != TANDEM_PRECISION_FP32) return 0;
    return 1;
}

static int scales_tensor(tandem_precision precision)
{
    const tandem_dtype saved = tandem_precision_get(precision)->saved;
    return tandem_dtype_bytes(saved) == 1 && !tandem_dtype_is_in_blocks(saved);
}

/* Whether the plan scales tensors by their largest number, and the estimate does not say how noise grows
 * with that at another batch. */
static int has_unconverted_ranges(const tandem_estimate *estimate, const tandem_plan *plan)
{
    if (estimate->range_batch > 0 || plan->step.scaling.window > 0) return 0;
    for (int c = 0; c < plan->cluster.n_class; c++)
        for (int op = 0; op < plan->assignment.n_op && plan->cluster.classes[c].batch != estimate->batch;
             op++)
            if (scales_tensor(plan->assignment.precision[c][op])) return 1;
    return 0;
}

/* From shares to percent. */
static void set_sensitivity(tandem_goodput *g, const tandem_plan_sensitivity *of, const tandem_graph *graph)
{
    const tandem_sensitivity_estimate *e = &of->estimate;
    g->is_known = 1;
    g->sensitivity = 100 * e->value;
    g->low = 100 * e->low;
    g->high = 100 * e->high;
    const tandem_prediction prediction = tandem_prediction_interval(g->sensitivity, g->low, g->high);
    g->prediction_low = prediction.low;
    g->prediction_high = prediction.high;
    g->noise = 100 * e->noise;
    g->bias = 100 * e->bias;
    g->n_point = of->n_point;
    for (int a = 0; a < of->n_point; a++) {
        g->point[a] = 100 * of->point_share[a];
        g->sensitivity_at[a] = 100 * e->at_point[a];
    }
    g->n_largest = of->n_largest;
    for (int k = 0; k < of->n_largest; k++) {
        const tandem_largest_sensitivity *one = &of->largest[k];
        struct tandem_goodput_operator *to = &g->largest[k];
        to->precision = one->precision;
        to->sensitivity = 100 * one->value;
        to->low = 100 * one->low;
        to->high = 100 * one->high;
        (void)snprintf(to->name, sizeof to->name, "%s", graph->op[one->op].name);
    }
}

/* All in fp32, a plan has no error but that of the exchange. */
static void set_fp32_sensitivity(tandem_goodput *g, double exchange, const tandem_graph *graph)
{
    const tandem_plan_sensitivity of = {
        .estimate = {.value = exchange, .low = exchange, .high = exchange, .noise = exchange}};
    set_sensitivity(g, &of, graph);
    g->is_fp32 = exchange == 0;
}

/* Errors of one kind: of casts to 8-bit integers, to 8-bit floats, to each type in blocks, or to wider
 * numbers. */
static tandem_dtype error_kind(tandem_precision precision)
{
    const tandem_dtype saved = tandem_precision_get(precision)->saved;
    return tandem_dtype_bytes(saved) == 1 ? saved : TANDEM_F32;
}

/* By trials of other plans whose largest part is of the same kind. */
static tandem_status correct_sensitivity(tandem_goodput *g, tandem_planner *planner, const tandem_plan *plan,
                                         const tandem_estimate *estimate, const tandem_plan_sensitivity *of,
                                         tandem_error *error)
{
    tandem_tried_plan same[TANDEM_STORE_TRIED_PLANS];
    const tandem_tried *tried = NULL;
    const uint64_t hash = tandem_trial_plan_hash(plan);
    int n = 0, n_same = 0;
    if (of->n_largest == 0 || !(of->estimate.value > 0)) return TANDEM_OK;
    const tandem_status status = tandem_planner_tried(&tried, &n, planner, estimate, error);
    for (int k = 0; k < n; k++)
        if (tried[k].plan_hash != hash &&
            error_kind(tried[k].precision) == error_kind(of->largest[0].precision))
            same[n_same++] = tried[k].plan;
    const tandem_correction found = tandem_correction_find(same, n_same);
    g->corrected = (struct tandem_goodput_corrected){.n_trial = found.n_trial,
                                                     .sensitivity = g->sensitivity * found.factor,
                                                     .low = g->sensitivity * found.low,
                                                     .high = g->sensitivity * found.high};
    return status;
}

static tandem_status estimate_sensitivity(tandem_goodput *g, tandem_planner *planner,
                                          const tandem_estimate *estimate, const tandem_plan *plan,
                                          const tandem_graph *graph, tandem_error *error)
{
    tandem_plan_sensitivity of;
    tandem_error why = {0};
    const tandem_status status = tandem_plan_sensitivity_estimate(&of, estimate, plan, graph, &why);
    if (status == TANDEM_OK) {
        set_sensitivity(g, &of, graph);
        return correct_sensitivity(g, planner, plan, estimate, &of, error);
    }
    if (status != TANDEM_MISSING) return tandem_error_forward(status, &why, error);
    (void)snprintf(g->unknown, sizeof g->unknown, "%s", why.text);
    return TANDEM_OK;
}

/* What a trial of the plan found, in percent. */
static void add_trial(tandem_goodput *g, const tandem_planner *planner, const tandem_plan *plan)
{
    const tandem_trial_record *found = tandem_planner_trial(planner, plan);
    if (!found) return;
    g->trial = (struct tandem_goodput_trial){.n_pair = found->n_pair,
                                             .n_diverged = found->n_diverged,
                                             .is_emulated = found->is_emulated,
                                             .n_step = found->n_step,
                                             .extra = 100 * found->extra,
                                             .low = 100 * found->extra_low,
                                             .high = 100 * found->extra_high};
    (void)snprintf(g->trial.data, sizeof g->trial.data, "%.63s", found->data);
}

void tandem_goodput_set_rate(tandem_goodput *goodput, double samples_per_s)
{
    goodput->samples_per_s = samples_per_s;
    goodput->goodput = goodput->is_known ? samples_per_s / (1 + goodput->sensitivity / 100) : NAN;
}

tandem_status tandem_goodput_find(tandem_goodput *goodput, tandem_planner *planner, const tandem_plan *plan,
                                  tandem_error *error)
{
    const tandem_graph *graph = tandem_planner_graph(planner, 0);
    tandem_goodput g = {.sensitivity = NAN,
                        .low = NAN,
                        .high = NAN,
                        .prediction_low = NAN,
                        .prediction_high = NAN,
                        .noise = NAN,
                        .bias = NAN,
                        .fp32_samples_per_s = NAN};
    const tandem_estimate *estimate = NULL;
    const char *why_none = "";
    tandem_status status = tandem_planner_estimate(&estimate, &why_none, planner, error);
    if (status != TANDEM_OK) return status;
    (void)snprintf(g.unknown, sizeof g.unknown, "%s", why_none);
    if (is_all_fp32(plan))
        set_fp32_sensitivity(&g, tandem_allreduce_noise(&plan->cluster), graph);
    else if (estimate)
        status = estimate_sensitivity(&g, planner, estimate, plan, graph, error);
    if (status != TANDEM_OK) return status;
    if (!is_all_fp32(plan)) add_trial(&g, planner, plan);
    if (g.is_known && estimate && has_unconverted_ranges(estimate, plan)) g.range_batch = estimate->batch;
    const double samples = (double)tandem_cluster_samples(&plan->cluster, plan->step.n_micro);
    tandem_goodput_set_rate(&g, plan->step_ns > 0 ? samples / ((double)plan->step_ns * 1e-9) : NAN);
    *goodput = g;
    return TANDEM_OK;
}

tandem_status tandem_planner_goodput(tandem_goodput *goodput, tandem_planner *planner,
                                     const tandem_plan *plan, tandem_error *error)
{
    tandem_goodput g;
    int64_t fp32_ns = -1;
    tandem_status status = tandem_goodput_find(&g, planner, plan, error);
    if (status == TANDEM_OK && g.is_known && !g.is_fp32)
        status = tandem_planner_fp32_step(&fp32_ns, planner, error);
    if (status != TANDEM_OK) return status;
    if (fp32_ns > 0)
        g.fp32_samples_per_s =
            (double)tandem_cluster_samples(&plan->cluster, plan->step.n_micro) / ((double)fp32_ns * 1e-9);
    *goodput = g;
    return TANDEM_OK;
}

tandem_status tandem_baseline_goodput(tandem_goodput *goodput, tandem_planner *planner,
                                      const tandem_baseline *baseline, const tandem_plan *plan,
                                      tandem_error *error)
{
    const tandem_graph *graph = tandem_planner_graph(planner, 0);
    const tandem_precision base = tandem_planner_problem(planner)->base_precision;
    tandem_plan *uniform = NULL;
    tandem_status status = tandem_plan_open(&uniform, graph, &plan->cluster, baseline->name, error);
    if (status == TANDEM_OK) status = tandem_baseline_assign(uniform, graph, base, baseline, error);
    if (status == TANDEM_OK) {
        uniform->step = plan->step;
        uniform->step_ns = baseline->step_ns;
        status = tandem_planner_goodput(goodput, planner, uniform, error);
    }
    tandem_plan_close(uniform);
    return status;
}
