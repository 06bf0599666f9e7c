/* base.c: the smallest policy: every class keeps the base precision. Copy it to write another one.
 *
 * It is not listed: `tandem allocate` prints this plan beside every other one. Batch splits use it. */
#include "allocator/policies.h"

static tandem_status allocate_base(const tandem_allocation_problem *problem, tandem_assignment *assignment,
                                   tandem_allocation *allocation, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_replay replay;
    tandem_status status = tandem_allocation_replay_base(&plan, &replay, problem, error);
    if (status == TANDEM_OK) status = tandem_allocation_check_memory(problem, &replay, error);
    if (status == TANDEM_OK) {
        const int64_t sensitivity = tandem_allocation_sensitivity(problem);
        tandem_assignment_copy(assignment, &plan->assignment);
        *allocation = (tandem_allocation){.name = "base",
                                          .target_ns = replay.step_ns,
                                          .base_ns = replay.step_ns,
                                          .fastest_ns = replay.step_ns,
                                          .base_sensitivity_bound = sensitivity,
                                          .fastest_sensitivity_bound = sensitivity,
                                          .keeps_base = tandem_all_classes(replay.n_class),
                                          .replays = 1};
    }
    tandem_plan_close(plan);
    return status;
}

const tandem_policy tandem_policy_base = {
    .name = "base",
    .meaning = "every class in the base precision",
    .ignores_target = 1,
    .allocate = allocate_base,
};
