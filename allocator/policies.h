/* policies.h: the policies, one per file, and what they use of each other; private to allocator/. */
#pragma once

#include "allocator/policy/target.h"
#include "allocator/problem.h"

extern const tandem_policy tandem_policy_base, tandem_policy_exact, tandem_policy_greedy, tandem_policy_qsync,
    tandem_policy_uniform;

/* tandem_greedy_improve_class: lowers the sensitivity of class c, the other classes as they are. The replayer
 * has a plan of class c within target_ns and memory; afterwards it has the best plan found. Starts from that
 * plan, from the uniform plans, and from offered[n_op] (NULL = none), which may exceed the target. Adds to
 * *replays. */
tandem_status tandem_greedy_improve_class(const tandem_allocation_problem *problem, int c,
                                          const tandem_precision *offered, int64_t target_ns,
                                          int64_t *replays, tandem_error *error);

/* tandem_qsync_find_plan: policy qsync for a given target and given classes in base, so that other policies
 * need not do worse. Leaves the plan in the replayer. *found = 0: its initial setting exceeds the target or
 * memory; the replayer's precisions are then unspecified. */
tandem_status tandem_qsync_find_plan(const tandem_allocation_problem *problem, int64_t target_ns,
                                     unsigned keeps_base, int *found, int64_t *replays, tandem_error *error);

/* tandem_allocation_fill_plan: writes into the plan what tandem_plan_verify compares with a replay. */
void tandem_allocation_fill_plan(tandem_plan *plan, const tandem_allocation_problem *problem,
                                 const tandem_allocation *allocation);
