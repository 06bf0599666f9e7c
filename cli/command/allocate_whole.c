/* allocate_whole.c: `tandem allocate --data`: the plan as a whole, and whether it is to be trusted. */
#include <stdio.h>
#include <stdlib.h>

#include "base/append.h"
#include "cli/command/allocate.h"

enum { MAX_TRIES = 4 };

static int rounds_nothing(const tandem_plan *plan, const tandem_graph *graph)
{
    for (int c = 0; c < plan->cluster.n_class; c++)
        for (int i = 0; i < graph->n_op; i++)
            if (plan->assignment.precision[c][i] != TANDEM_PRECISION_FP32) return 0;
    return 1;
}

static tandem_status estimate_whole(tandem_plan_estimate *to, const allocate_context *a,
                                    const tandem_plan *plan, tandem_error *error)
{
    const tandem_plan_estimate_request request = {.workload = {.seed = a->options->seed},
                                                  .plan = plan,
                                                  .graph = a->problem->graph,
                                                  .listener = cli_listener(a->options),
                                                  .data = a->options->data};
    const tandem_status status = tandem_plan_estimate_measure(to, &request, error);
    cli_progress_end();
    return status;
}

/* " The model's estimate has most for fc1 in int8 (3.1 %), fc2 in int8 (2 %)." */
static void append_largest(char *text, size_t size, const tandem_goodput *goodput)
{
    for (int k = 0; k < goodput->n_largest && goodput->is_known; k++)
        (void)tandem_append(text, size, "%s'%s' in %s (%s%%)%s",
                            k ? ", " : " The model's estimate has most for ", goodput->largest[k].name,
                            tandem_precision_get(goodput->largest[k].precision)->name,
                            tandem_quantity_plain(goodput->largest[k].sensitivity, 2).text,
                            k + 1 < goodput->n_largest ? "" : ".");
}

/* Plans with half of the extra samples, a quarter and so on, until one is to be trusted: names it. Not where
 * the question limits the step, or has one plan alone. */
static tandem_status find_trusted(char *text, size_t size, allocate_context *a, tandem_error *error)
{
    tandem_allocation_request request = a->request;
    const tandem_goodput *asked = &a->answer.goodput;
    tandem_status status = TANDEM_OK;
    if (!asked->is_known || request.uniform || request.slowdown_is_given || request.max_step_ns ||
        request.minimize)
        return TANDEM_OK;
    request.max_sensitivity_is_given = 1;
    for (int k = 0; k < MAX_TRIES && status == TANDEM_OK; k++) {
        tandem_answer answer = {.plan = NULL};
        tandem_plan_estimate whole = {.steps = 0};
        char percent[32]; /* as it is printed, so that the same is asked again */
        (void)snprintf(percent, sizeof percent, "%.3g", asked->sensitivity / (double)(2 << k));
        request.max_sensitivity = strtod(percent, NULL) / 100;
        status = tandem_planner_ask(&answer, a->planner, &request, error);
        const int is_exact = status == TANDEM_OK && rounds_nothing(answer.plan, a->problem->graph);
        if (status == TANDEM_OK && !is_exact) status = estimate_whole(&whole, a, answer.plan, error);
        const int is_found =
            status == TANDEM_OK && (is_exact || !(tandem_plan_estimate_beyond(&whole) & TANDEM_BEYOND_TRUST));
        if (is_found)
            (void)tandem_append(text, size, " --max-sensitivity %s%% has one that is: a step of %s.", percent,
                                tandem_quantity_ns(answer.plan->step_ns).text);
        tandem_answer_close(&answer);
        if (is_found) break;
    }
    return status == TANDEM_INFEASIBLE ? TANDEM_OK : status; /* no plan needs so little */
}

static tandem_status refuse_whole(allocate_context *a, tandem_error *error)
{
    char why[192] = "", largest[512] = "", other[256] = "";
    const unsigned beyond = tandem_plan_estimate_beyond(&a->whole);
    if (beyond & TANDEM_BEYOND_SAMPLES)
        (void)tandem_append(why, sizeof why, "%s%% extra samples, above %g%%",
                            tandem_quantity_plain(100 * a->whole.samples, 2).text,
                            100 * TANDEM_MAX_EXTRA_SAMPLES);
    if (beyond & TANDEM_BEYOND_STABILITY)
        (void)tandem_append(why, sizeof why, "%sa stability of %s, below %g", *why ? ", and " : "",
                            tandem_quantity_plain(a->whole.stability, 2).text, TANDEM_MIN_STABILITY);
    if (beyond & TANDEM_BEYOND_BIAS)
        (void)tandem_append(why, sizeof why, "%sa mean error of %s%%, above %g%%", *why ? ", and " : "",
                            tandem_quantity_plain(100 * a->whole.across, 2).text,
                            100 * TANDEM_MAX_MEAN_ERROR);
    if (beyond & TANDEM_BEYOND_STEP)
        (void)tandem_append(why, sizeof why, "%sgradients that vanish", *why ? ", and " : "");
    if (beyond & TANDEM_BEYOND_FINITE)
        (void)tandem_append(why, sizeof why, "%sa loss that is not finite", *why ? ", and " : "");
    append_largest(largest, sizeof largest, &a->answer.goodput);
    const tandem_status status = find_trusted(other, sizeof other, a, error);
    if (status != TANDEM_OK) return status;
    return tandem_error_set(
        error, TANDEM_LIMIT_EXCEEDED,
        "as a whole the plan is not to be trusted: %s.%s%s --beyond-limits takes it as it is", why, largest,
        other);
}

tandem_status allocate_estimate_whole(allocate_context *a, tandem_error *error)
{
    if (rounds_nothing(a->answer.plan, a->problem->graph)) return TANDEM_OK;
    const tandem_status status = estimate_whole(&a->whole, a, a->answer.plan, error);
    if (status != TANDEM_OK) return status;
    a->has_whole = 1;
    if (a->options->beyond_limits || !(tandem_plan_estimate_beyond(&a->whole) & TANDEM_BEYOND_TRUST))
        return TANDEM_OK;
    return refuse_whole(a, error);
}
