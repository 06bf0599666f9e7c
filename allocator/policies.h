/* policies.h: the policies, one a file, and what all of them need; private to allocator/. */
#ifndef TANDEM_ALLOCATOR_POLICIES_H
#define TANDEM_ALLOCATOR_POLICIES_H

#include "tandem/allocator.h"

extern const tandem_policy tandem_policy_greedy, tandem_policy_uniform;
extern const tandem_policy *const tandem_policies[]; /* all, then NULL */

/* tandem_allocation_begin: every class in the base precision, replayed with memory. *plan (new, the caller
 * closes it) holds that plan, and its cluster has every batch filled in. TANDEM_NO_KERNEL where a device
 * lacks the base precision, TANDEM_MISSING where a cost of the base plan is missing. Unchanged on error. */
tandem_status tandem_allocation_begin(tandem_plan **plan, tandem_replay *replay,
                                      const tandem_allocation_problem *problem, tandem_error *error);

/* Whether class c has the base precision now; overwrites `plan` there. */
int tandem_allocation_is_base(const tandem_allocation_problem *problem, tandem_plan *plan, int c);

/* A class's part of the global batch. */
double tandem_allocation_share(const tandem_allocation_problem *problem, int c);

/* Bytes that a rank of class c may take; 0 = no limit. */
uint64_t tandem_allocation_limit_bytes(const tandem_allocation_problem *problem, int c);

/* TANDEM_NO_FIT: the smallest plan of class c that was found takes peak_bytes, more than the limit. */
tandem_status tandem_allocation_no_fit(const tandem_allocation_problem *problem, int c, uint64_t peak_bytes,
                                       tandem_error *error);

#endif
