/* allocate.c: runs a policy, replays the assignment that it returns, and makes a plan of it. */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "allocator/policies.h"

/* Adds the largest sensitivity of every operator to *sum. */
static tandem_status check_class_sensitivities(int64_t *sum, const tandem_allocation_problem *problem, int c,
                                               tandem_error *error)
{
    static const int64_t max_sum = INT64_C(1) << 53; /* the bounds compute in doubles: exact up to here */
    for (int i = 0; i < problem->graph->n_op; i++) {
        int64_t most = 0;
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            const int64_t sensitivity = problem->sensitivity[c][i * TANDEM_N_PRECISION + p];
            if (sensitivity < 0 || sensitivity > max_sum - *sum)
                return tandem_error_set(error, TANDEM_USAGE,
                                        "the sensitivity of '%s' to %s is %" PRId64
                                        " units; allowed are numbers from 0 upwards, with a largest sum over "
                                        "operators and classes of 2^53",
                                        problem->graph->op[i].name,
                                        tandem_precision_get((tandem_precision)p)->name, sensitivity);
            if (sensitivity > most) most = sensitivity;
        }
        *sum += most;
    }
    return TANDEM_OK;
}

static tandem_status check_problem(const tandem_allocation_problem *problem, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int64_t sum = 0;
    if (!(problem->slowdown >= 0 && problem->slowdown <= DBL_MAX))
        status =
            tandem_error_set(error, TANDEM_USAGE,
                             "a slowdown of %g%%: the step may be 0%% or more longer than the fastest one",
                             100 * problem->slowdown);
    for (int c = 0; c < tandem_replayer_cluster(problem->replayer)->n_class && status == TANDEM_OK; c++) {
        assert(problem->sensitivity[c]);
        status = check_class_sensitivities(&sum, problem, c, error);
    }
    return status;
}

/* Replays the plan again: no number of a policy's own is in its result. */
static tandem_status evaluate_plan(tandem_allocation *result, const tandem_allocation_problem *problem,
                                   const tandem_plan *plan, tandem_error *error)
{
    tandem_replay replay;
    tandem_replayer_load(problem->replayer, &plan->assignment);
    const tandem_status status = tandem_replayer_run(problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    if (status != TANDEM_OK) return status;
    result->replays++;
    result->step_ns = replay.step_ns;
    result->sensitivity_bound = tandem_allocation_sensitivity(problem);
    for (int c = 0; c < replay.n_class; c++) result->peak_bytes[c] = replay.classes[c].peak_bytes;
    if (result->certificate.proof[0]) return TANDEM_OK;
    result->certificate = (tandem_certificate){.lower_bound = -1, .gap = NAN};
    if (problem->without_certificate) return TANDEM_OK;
    return tandem_certify(&result->certificate, problem, result->target_ns, result->keeps_base,
                          result->sensitivity_bound, error);
}

tandem_status tandem_allocate(tandem_plan **out, tandem_allocation *allocation, const tandem_policy *policy,
                              const tandem_allocation_problem *problem, const char *method,
                              tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_allocation result = {.keeps_base = 0};
    tandem_status status = check_problem(problem, error);
    if (status == TANDEM_OK) status = tandem_allocation_open_plan(&plan, problem, "allocated", error);
    if (status == TANDEM_OK) status = policy->allocate(problem, &plan->assignment, &result, error);
    result.training_ns = result.training_bound_ns = NAN; /* policies know nothing of these */
    result.difference = result.difference_low = result.difference_high = NAN;
    if (status == TANDEM_OK) status = evaluate_plan(&result, problem, plan, error);
    if (status != TANDEM_OK) {
        tandem_plan_close(plan);
        return status;
    }
    if (result.name[0]) (void)snprintf(plan->name, sizeof plan->name, "%s", result.name);
    (void)snprintf(plan->policy, sizeof plan->policy, "%s", policy->name);
    (void)snprintf(plan->method, sizeof plan->method, "%s", method ? method : "");
    tandem_allocation_fill_plan(plan, problem, &result);
    plan->objective = TANDEM_MINIMIZE_SENSITIVITY;
    if (policy->ignores_target) plan->slowdown = 0; /* its step is its own target */
    *allocation = result;
    *out = plan;
    return TANDEM_OK;
}
