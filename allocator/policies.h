/* policies.h: the policies, one a file, and what all of them need; private to allocator/. */
#ifndef TANDEM_ALLOCATOR_POLICIES_H
#define TANDEM_ALLOCATOR_POLICIES_H

#include "allocator/policy/target.h"

extern const tandem_policy tandem_policy_exact, tandem_policy_greedy, tandem_policy_qsync,
    tandem_policy_uniform;
extern const tandem_policy *const tandem_policies[]; /* all, then NULL */

/* Bits of n classes: there may be as many as there are bits. */
static inline unsigned tandem_all_classes(int n) { return (unsigned)((UINT64_C(1) << n) - 1); }
_Static_assert(TANDEM_MAX_CLASS <= 8 * sizeof(unsigned), "a bit for each class");

/* tandem_allocation_replay_base: every class in the base precision, replayed with memory. *plan (new, the
 * caller closes it) holds that plan, and its cluster has every batch filled in. TANDEM_NO_KERNEL where a
 * device lacks the base precision, TANDEM_MISSING where a cost of the base plan is missing. Unchanged on
 * error. */
tandem_status tandem_allocation_replay_base(tandem_plan **plan, tandem_replay *replay,
                                            const tandem_allocation_problem *problem, tandem_error *error);

/* An fp32 plan of the problem's model and cluster, every batch filled in. TANDEM_NO_MEMORY. */
tandem_status tandem_allocation_open_plan(tandem_plan **plan, const tandem_allocation_problem *problem,
                                          const char *name, tandem_error *error);

/* The same with every class in the problem's base precision. TANDEM_NO_KERNEL where a device lacks it. */
tandem_status tandem_allocation_open_base_plan(tandem_plan **plan, const tandem_allocation_problem *problem,
                                               tandem_error *error);

/* A class's part of the global batch. */
double tandem_allocation_batch_share(const tandem_allocation_problem *problem, int c);

/* Bytes that a rank of class c may take; 0 = no limit. */
uint64_t tandem_allocation_limit_bytes(const tandem_allocation_problem *problem, int c);

/* TANDEM_INFEASIBLE: the smallest plan of class c that was found takes peak_bytes, more than the limit. */
tandem_status tandem_allocation_infeasible(const tandem_allocation_problem *problem, int c,
                                           uint64_t peak_bytes, tandem_error *error);

/* The figures of an allocation that its target says. */
void tandem_target_fill_allocation(tandem_allocation *allocation, const tandem_target *target);

/* tandem_greedy_improve_class: the plan of class c in the replayer is within target_ns and fits; leaves the
 * least harm found within them, from that plan, from its uniform plans, and from offered[n_op] (NULL = none),
 * which is lowered until it is within. Adds to *replays. */
tandem_status tandem_greedy_improve_class(const tandem_allocation_problem *problem, int c,
                                          const tandem_precision *offered, int64_t target_ns,
                                          int64_t *replays, tandem_error *error);

/* tandem_qsync_find_plan: policy qsync for a target and held classes that are given, so that no other policy
 * need be worse. *found = 0: its initial setting exceeds the target or memory; the replayer's precisions are
 * anything then. */
tandem_status tandem_qsync_find_plan(const tandem_allocation_problem *problem, int64_t target_ns,
                                     unsigned keeps_base, int *found, int64_t *replays, tandem_error *error);

/* tandem_allocation_fill_plan: writes into the plan what tandem_plan_verify holds against a replay. */
void tandem_allocation_fill_plan(tandem_plan *plan, const tandem_allocation_problem *problem,
                                 const tandem_allocation *allocation);

/* certify.c: tandem_certify, of a plan for which a bound is claimed: where its own is lower, it searches for
 * as long as it may. */
tandem_status tandem_certify_claim(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                                   int64_t target_ns, unsigned keeps_base, double sensitivity, double claimed,
                                   double time_limit_s, tandem_error *error);

#endif
