/* uniform.c: the policy that others are compared with: one precision for the whole slowest class.
 *
 * The class that is slowest in the base precision gets problem->uniform wherever an operator has it, else
 * what tandem_plan_uniform substitutes. The other classes keep the base. The policy ignores the target and
 * the slowdown: both target_ns and fastest_ns are the step of its one plan. */
#include <stdio.h>

#include "allocator/policies.h"

static tandem_status allocate_uniform(const tandem_allocation_problem *problem, tandem_assignment *assignment,
                                      tandem_allocation *allocation, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_replay base, lowered;
    tandem_status status = tandem_allocation_replay_base(&plan, &base, problem, error);
    if (status != TANDEM_OK) return status;
    const int64_t base_sensitivity = tandem_allocation_sensitivity(problem);
    status = tandem_plan_uniform(plan, problem->graph, base.slowest, problem->uniform, error);
    if (status == TANDEM_OK) {
        tandem_replayer_load(problem->replayer, &plan->assignment);
        status = tandem_replayer_run(problem->replayer, &lowered, TANDEM_REPLAY_MEMORY, error);
    }
    if (status == TANDEM_OK) status = tandem_allocation_check_memory(problem, &lowered, error);
    if (status == TANDEM_OK) {
        tandem_assignment_copy(assignment, &plan->assignment);
        *allocation = (tandem_allocation){
            .target_ns = lowered.step_ns,
            .base_ns = base.step_ns,
            .fastest_ns = lowered.step_ns,
            .base_sensitivity_bound = base_sensitivity,
            .fastest_sensitivity_bound = tandem_allocation_sensitivity(problem),
            .replays = 2,
            .keeps_base = tandem_all_classes(base.n_class) & ~(1u << base.slowest),
        };
        (void)snprintf(allocation->name, sizeof allocation->name, "uniform %s",
                       tandem_precision_get(problem->uniform)->name);
    }
    tandem_plan_close(plan);
    return status;
}

const tandem_policy tandem_policy_uniform = {
    .name = "uniform",
    .meaning = "one precision for the whole of the slowest class",
    .ignores_target = 1,
    .takes_uniform = 1,
    .allocate = allocate_uniform,
};
