/* uniform.c: the policy every other one is compared with: one precision for all of the lowered class.
 *
 * The class that is slowest with every class in base precision gets problem->uniform wherever an operator
 * has it (elsewhere what tandem_plan_uniform says); the others keep the base. It knows no target: target_ns
 * and fastest_ns are the step of its one plan, and the slowdown is not looked at. */
#include "allocator/policies.h"

static tandem_status allocate_uniform(const tandem_allocation_problem *problem, tandem_allocation *allocation,
                                      tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_replay base, lowered;
    tandem_status status = tandem_allocation_replay_base(&plan, &base, problem, error);
    if (status != TANDEM_OK) return status;
    const double base_sensitivity = tandem_allocation_sensitivity(problem);
    status = tandem_plan_uniform(plan, problem->graph, base.slowest, problem->uniform, error);
    if (status != TANDEM_OK) goto out;
    tandem_replayer_set_plan(problem->replayer, plan);
    status = tandem_replayer_run(problem->replayer, &lowered, TANDEM_REPLAY_MEMORY, error);
    for (int c = 0; c < base.n_class && status == TANDEM_OK; c++) {
        const uint64_t limit_bytes = tandem_allocation_limit_bytes(problem, c);
        if (limit_bytes && lowered.classes[c].peak_bytes > limit_bytes)
            status = tandem_allocation_infeasible(problem, c, lowered.classes[c].peak_bytes, error);
    }
    if (status != TANDEM_OK) goto out;
    *allocation = (tandem_allocation){
        .step_ns = lowered.step_ns,
        .target_ns = lowered.step_ns,
        .base_ns = base.step_ns,
        .fastest_ns = lowered.step_ns,
        .base_sensitivity = base_sensitivity,
        .fastest_sensitivity = tandem_allocation_sensitivity(problem),
        .replays = 2,
        .keeps_base = tandem_all_classes(base.n_class) & ~(1u << base.slowest),
    };
out:
    tandem_plan_close(plan);
    return status;
}

const tandem_policy tandem_policy_uniform = {
    .name = "uniform",
    .meaning = "one precision for the whole of the slowest class",
    .allocate = allocate_uniform,
};
