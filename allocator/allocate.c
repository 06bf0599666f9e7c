/* allocate.c: runs a policy and makes a plan of what it leaves; what all policies need. */
#include "allocator/policies.h"
#include "base/quantity.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const tandem_graph *problem_graph_of(const tandem_allocation_problem *problem, int c)
{
    return tandem_replayer_step(problem->replayer, c)->graph;
}

/* --- What all policies need ----------------------------------------------------------------------------- */

double tandem_allocation_batch_share(const tandem_allocation_problem *problem, int c)
{
    const tandem_cluster *cluster = tandem_replayer_cluster(problem->replayer);
    double all = 0;
    for (int i = 0; i < cluster->n_class; i++)
        all += (double)cluster->classes[i].n_rank * (double)problem_graph_of(problem, i)->batch;
    return (double)cluster->classes[c].n_rank * (double)problem_graph_of(problem, c)->batch / all;
}

uint64_t tandem_allocation_limit_bytes(const tandem_allocation_problem *problem, int c)
{
    const uint64_t own_bytes = tandem_cluster_memory_limit(tandem_replayer_cluster(problem->replayer), c);
    return problem->memory_limit_bytes && (!own_bytes || problem->memory_limit_bytes < own_bytes)
               ? problem->memory_limit_bytes
               : own_bytes;
}

tandem_status tandem_allocation_infeasible(const tandem_allocation_problem *problem, int c,
                                           uint64_t peak_bytes, tandem_error *error)
{
    char need[TANDEM_QUANTITY_TEXT], limit[TANDEM_QUANTITY_TEXT];
    const uint64_t limit_bytes = tandem_allocation_limit_bytes(problem, c);
    return tandem_error_set(error, TANDEM_INFEASIBLE,
                            "no plan fits %s: the smallest one found takes %s (%" PRIu64 " B) a rank at "
                            "batch %" PRId64 ", the limit is %s (%" PRIu64 " B); a smaller batch takes less",
                            tandem_replayer_cluster(problem->replayer)->classes[c].device.name,
                            tandem_quantity_print_bytes(need, sizeof need, peak_bytes), peak_bytes,
                            problem_graph_of(problem, c)->batch,
                            tandem_quantity_print_bytes(limit, sizeof limit, limit_bytes), limit_bytes);
}

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
    tandem_replayer_set_plan(problem->replayer, plan);
    status = tandem_replayer_run(problem->replayer, replay, TANDEM_REPLAY_MEMORY, error);
    if (status == TANDEM_OK)
        *out = plan;
    else
        tandem_plan_close(plan);
    return status;
}

/* --- Public --------------------------------------------------------------------------------------------- */

double tandem_allocation_sensitivity(const tandem_allocation_problem *problem)
{
    double sum = 0;
    const int n_class = tandem_replayer_cluster(problem->replayer)->n_class;
    for (int c = 0; c < n_class; c++) {
        double of_class = 0;
        for (int i = 0; i < problem->graph->n_op; i++)
            of_class += problem->sensitivity[c][i * TANDEM_N_PRECISION +
                                                (int)tandem_replayer_get(problem->replayer, c, i)];
        sum += tandem_allocation_batch_share(problem, c) * of_class;
    }
    return sum;
}

static tandem_status check_class_sensitivities(const tandem_allocation_problem *problem, int c,
                                               tandem_error *error)
{
    for (int i = 0; i < problem->graph->n_op; i++)
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            const double sensitivity = problem->sensitivity[c][i * TANDEM_N_PRECISION + p];
            if (sensitivity >= 0 && sensitivity <= DBL_MAX) continue;
            return tandem_error_set(error, TANDEM_USAGE,
                                    "the sensitivity of '%s' to %s is %g; it must be a number from 0 upwards",
                                    problem->graph->op[i].name,
                                    tandem_precision_get((tandem_precision)p)->name, sensitivity);
        }
    return TANDEM_OK;
}

static tandem_status check_problem(const tandem_allocation_problem *problem, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    if (!(problem->slowdown >= 0 && problem->slowdown <= DBL_MAX))
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "a slowdown of %g%%: the step may be 0%% or more longer than the fastest "
                                  "one",
                                  100 * problem->slowdown);
    for (int c = 0; c < tandem_replayer_cluster(problem->replayer)->n_class && status == TANDEM_OK; c++) {
        assert(problem->sensitivity[c]);
        status = check_class_sensitivities(problem, c, error);
    }
    return status;
}

tandem_status tandem_allocate(tandem_plan **out, tandem_allocation *allocation, const tandem_policy *policy,
                              const tandem_allocation_problem *problem, const char *method,
                              tandem_error *error)
{
    tandem_plan *plan = NULL;
    const tandem_certificate none = {.lower_bound = NAN, .gap = NAN};
    tandem_allocation result = {.keeps_base = 0};
    tandem_replay replay;
    char name[sizeof plan->name] = "allocated";
    tandem_status status = check_problem(problem, error);
    if (status == TANDEM_OK) status = policy->allocate(problem, &result, error);
    if (status == TANDEM_OK && !result.certificate.proof[0]) result.certificate = none;
    if (status == TANDEM_OK)
        status = tandem_replayer_run(problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    if (policy == &tandem_policy_uniform)
        (void)snprintf(name, sizeof name, "uniform %s", tandem_precision_get(problem->uniform)->name);
    if (status == TANDEM_OK) status = tandem_allocation_open_plan(&plan, problem, name, error);
    if (status != TANDEM_OK) return status;
    result.replays++;
    result.step_ns = replay.step_ns;
    result.sensitivity = tandem_allocation_sensitivity(problem);
    if (isnan(result.certificate.lower_bound) && !problem->without_certificate)
        status = tandem_certify(&result.certificate, problem, result.target_ns, result.keeps_base,
                                result.sensitivity, problem->time_limit_s, error);
    if (status != TANDEM_OK) {
        tandem_plan_close(plan);
        return status;
    }
    for (int c = 0; c < plan->cluster.n_class; c++) {
        for (int i = 0; i < plan->n_op; i++)
            plan->precision[c][i] = tandem_replayer_get(problem->replayer, c, i);
        result.peak_bytes[c] = replay.classes[c].peak_bytes;
    }
    (void)snprintf(plan->policy, sizeof plan->policy, "%s", policy->name);
    (void)snprintf(plan->method, sizeof plan->method, "%s", method ? method : "");
    tandem_allocation_fill_plan(plan, problem, &result);
    *allocation = result;
    *out = plan;
    return TANDEM_OK;
}
