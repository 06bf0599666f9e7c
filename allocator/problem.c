/* problem.c: what every policy and every query asks of an allocation problem: shares, limits, base plans. */
#include "allocator/problem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/quantity.h"

static const tandem_graph *problem_graph_of(const tandem_allocation_problem *problem, int c)
{
    return tandem_replayer_step(problem->replayer, c)->graph;
}

unsigned tandem_op_precisions(const tandem_allocation_problem *problem, int c, int op)
{
    const tandem_device *device = &tandem_replayer_cluster(problem->replayer)->classes[c].device;
    unsigned precisions = tandem_op_row_get(problem->graph->op[op].kind)->precisions & device->precisions;
    for (int p = 0; p < TANDEM_N_PRECISION && problem->without_f16_gradients; p++)
        if (problem->graph->op[op].needs_gradient &&
            tandem_precision_has_f16_gradient((tandem_precision)p, device->amp_dtype))
            precisions &= ~(1u << p);
    return precisions;
}

int tandem_allocation_allows(const tandem_allocation_problem *problem, int c,
                             const tandem_precision *precision)
{
    for (int i = 0; i < problem->graph->n_op; i++)
        if (tandem_op_is_adjustable(&problem->graph->op[i]) &&
            !(tandem_op_precisions(problem, c, i) >> precision[i] & 1))
            return 0;
    return 1;
}

tandem_goal tandem_goal_without_limit(const tandem_policy *policy, const char *method)
{
    const tandem_sensitivity_method *row = NULL;
    const int counts_samples =
        method && tandem_sensitivity_find(&row, method, NULL) == TANDEM_OK && strcmp(row->unit, "%") == 0;
    return (tandem_goal){counts_samples && !policy->ignores_target ? TANDEM_MINIMIZE_TRAINING_TIME
                                                                   : TANDEM_MINIMIZE_SENSITIVITY,
                         INT64_MAX};
}

uint64_t tandem_max_peak_bytes(const uint64_t *peak_bytes, int n_class)
{
    uint64_t max_bytes = 0;
    for (int c = 0; c < n_class; c++)
        if (peak_bytes[c] > max_bytes) max_bytes = peak_bytes[c];
    return max_bytes;
}

int64_t tandem_allocation_sensitivity(const tandem_allocation_problem *problem)
{
    int64_t sum = 0;
    for (int c = 0; c < tandem_replayer_cluster(problem->replayer)->n_class; c++)
        for (int i = 0; i < problem->graph->n_op; i++)
            sum += tandem_op_sensitivity(problem, c, i, tandem_replayer_get(problem->replayer, c, i));
    return sum;
}

static double sensitivity_unit(const tandem_allocation_problem *problem)
{
    return problem->sensitivity_unit > 0 ? problem->sensitivity_unit : 1;
}

double tandem_sensitivity_value(const tandem_allocation_problem *problem, int64_t units)
{
    return units < 0 ? NAN : units == INT64_MAX ? INFINITY : (double)units * sensitivity_unit(problem);
}

int64_t tandem_sensitivity_units(const tandem_allocation_problem *problem, double value)
{
    if (isnan(value)) return -1;
    /* what was made of whole units comes back */
    const double units = value / sensitivity_unit(problem), whole = nearbyint(units);
    if (units >= 0x1p62) return INT64_MAX;
    return (int64_t)(fabs(units - whole) <= 1e-12 * units ? whole : floor(units));
}

tandem_status tandem_allocation_is_gap_small(int *is_small, const tandem_allocation_problem *problem,
                                             int64_t gap, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_plan_sensitivity of;
    *is_small = 0;
    if (!problem->estimate || gap > tandem_sensitivity_units(problem, 1)) return TANDEM_OK;
    tandem_status status = tandem_allocation_open_plan(&plan, problem, "", error);
    if (status == TANDEM_OK) {
        tandem_replayer_store(problem->replayer, &plan->assignment);
        status = tandem_plan_sensitivity_estimate(&of, problem->estimate, plan, problem->graph, error);
    }
    if (status == TANDEM_OK)
        *is_small = gap <= tandem_sensitivity_units(problem, 100 * fmax(of.estimate.high - of.estimate.value,
                                                                        of.estimate.value - of.estimate.low));
    tandem_plan_close(plan);
    return status;
}

/* --- Limits --------------------------------------------------------------------------------------------- */

uint64_t tandem_allocation_limit_bytes(const tandem_allocation_problem *problem, int c)
{
    const uint64_t class_bytes = tandem_cluster_memory_limit(tandem_replayer_cluster(problem->replayer), c),
                   all_bytes = problem->memory_limit_bytes;
    return all_bytes && (!class_bytes || all_bytes < class_bytes) ? all_bytes : class_bytes;
}

uint64_t tandem_allocation_excess_bytes(const tandem_allocation_problem *problem, int c, uint64_t peak_bytes)
{
    const uint64_t limit_bytes = tandem_allocation_limit_bytes(problem, c);
    return limit_bytes && peak_bytes > limit_bytes ? peak_bytes - limit_bytes : 0;
}

tandem_status tandem_allocation_infeasible(const tandem_allocation_problem *problem, int c,
                                           uint64_t peak_bytes, tandem_error *error)
{
    const uint64_t limit_bytes = tandem_allocation_limit_bytes(problem, c);
    return tandem_error_set(
        error, TANDEM_INFEASIBLE,
        "no plan fits %s: the smallest one found takes %s (%" PRIu64 " B) per rank at batch %" PRId64
        ", the limit is %s (%" PRIu64 " B). Use a smaller batch",
        tandem_replayer_cluster(problem->replayer)->classes[c].device.name,
        tandem_quantity_bytes(peak_bytes).text, peak_bytes, problem_graph_of(problem, c)->batch,
        tandem_quantity_bytes(limit_bytes).text, limit_bytes);
}

tandem_status tandem_allocation_check_memory(const tandem_allocation_problem *problem,
                                             const tandem_replay *replay, tandem_error *error)
{
    for (int c = 0; c < replay->n_class; c++)
        if (tandem_allocation_excess_bytes(problem, c, replay->classes[c].peak_bytes))
            return tandem_allocation_infeasible(problem, c, replay->classes[c].peak_bytes, error);
    return TANDEM_OK;
}

int64_t tandem_allocation_target_ns(const tandem_allocation_problem *problem, int64_t fastest_ns)
{
    if (problem->target_ns) return problem->target_ns;
    return fastest_ns + (int64_t)fmin((double)fastest_ns * problem->slowdown, 0x1p61);
}

/* --- Plans ---------------------------------------------------------------------------------------------- */

tandem_status tandem_allocation_open_plan(tandem_plan **plan, const tandem_allocation_problem *problem,
                                          const char *name, tandem_error *error)
{
    tandem_cluster cluster = *tandem_replayer_cluster(problem->replayer);
    for (int c = 0; c < cluster.n_class; c++) cluster.classes[c].batch = problem_graph_of(problem, c)->batch;
    const tandem_status status = tandem_plan_open(plan, problem->graph, &cluster, name, error);
    if (status == TANDEM_OK) (*plan)->step = tandem_replayer_step(problem->replayer, 0)->options;
    return status;
}

tandem_status tandem_allocation_open_base_plan(tandem_plan **out, const tandem_allocation_problem *problem,
                                               tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_status status = tandem_allocation_open_plan(&plan, problem, "base", error);
    for (int c = 0; status == TANDEM_OK && c < plan->cluster.n_class; c++)
        status = tandem_plan_uniform(plan, problem->graph, c, problem->base_precision, error);
    if (status == TANDEM_OK)
        *out = plan;
    else
        tandem_plan_close(plan);
    return status;
}

tandem_status tandem_allocation_replay_base(tandem_plan **out, tandem_replay *replay,
                                            const tandem_allocation_problem *problem, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_status status = tandem_allocation_open_base_plan(&plan, problem, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_load(problem->replayer, &plan->assignment);
    status = tandem_replayer_run(problem->replayer, replay, TANDEM_REPLAY_MEMORY, error);
    if (status == TANDEM_OK)
        *out = plan;
    else
        tandem_plan_close(plan);
    return status;
}
