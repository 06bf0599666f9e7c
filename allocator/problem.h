/* problem.h: what every policy and every query asks of an allocation problem; private to allocator/. */
#pragma once

#include "tandem/advanced/allocator.h"

/* Bits of n classes. n may be the number of bits. */
static inline unsigned tandem_all_classes(int n) { return (unsigned)((UINT64_C(1) << n) - 1); }
_Static_assert(TANDEM_MAX_CLASS <= 8 * sizeof(unsigned), "a bit for each class");

/* What is asked for where there is no limit. TANDEM_MINIMIZE_TRAINING_TIME: the method (NULL = none) counts
 * samples, and the policy has more than one plan. Else TANDEM_MINIMIZE_SENSITIVITY. */
tandem_goal tandem_goal_without_limit(const tandem_policy *policy, const char *method);

/* Plans that need a loss scale have a norm in their step. One operator less in f16 does not save it, all of
 * them together do: so a search looks at each kind apart, with the step that the kind has. Where no plan has
 * a norm of its own, all plans are of the second kind. */
typedef enum tandem_plan_kind {
    TANDEM_PLANS_WITHOUT_F16,
    TANDEM_PLANS_WITH_NORM,
    TANDEM_N_PLAN_KIND
} tandem_plan_kind;

/* The fastest plans of each kind, which many allocations of one problem begin with: they do not depend on the
 * target. One that is all zero may be closed. */
typedef struct tandem_known_fastest {
    int is_known;
    unsigned pinned; /* bit c: class c was kept in base */
    uint64_t memory_limit_bytes;
    tandem_assignment of_kind[TANDEM_N_PLAN_KIND]; /* n_op 0: there are none */
} tandem_known_fastest;
void tandem_known_fastest_close(tandem_known_fastest *known);

/* Copies an error that was kept apart; returns its status. */
static inline tandem_status tandem_error_forward(tandem_status status, const tandem_error *why,
                                                 tandem_error *error)
{
    if (error) *error = *why;
    return status;
}

/* Bit p: operator `op` and the device of class c both have precision p, and the problem does not exclude it.
 */
unsigned tandem_op_precisions(const tandem_allocation_problem *problem, int c, int op);
/* Whether every adjustable operator of class c has such a precision in precision[n_op]. */
int tandem_allocation_allows(const tandem_allocation_problem *problem, int c,
                             const tandem_precision *precision);

/* Writes a baseline's precisions into an open plan. TANDEM_NO_KERNEL: a device lacks one. */
tandem_status tandem_baseline_assign(tandem_plan *plan, const tandem_graph *graph,
                                     tandem_precision base_precision, const tandem_baseline *baseline,
                                     tandem_error *error);

static inline int64_t tandem_op_sensitivity(const tandem_allocation_problem *problem, int c, int op,
                                            tandem_precision precision)
{
    return problem->sensitivity[c][op * TANDEM_N_PRECISION + (int)precision];
}

/* Whether a gap of the replayer's plan is smaller than what is known of its sensitivity: half of its 95 %
 * interval, and 1 % of the samples. 0 without an estimate. Errors of tandem_plan_sensitivity_estimate. */
tandem_status tandem_allocation_is_gap_small(int *is_small, const tandem_allocation_problem *problem,
                                             int64_t gap, tandem_error *error);

/* The certificate, or none where its bound is 0 and the plan's sensitivity is not: such a bound says nothing.
 */
tandem_certificate tandem_certificate_without_empty(const tandem_certificate *certificate,
                                                    int64_t sensitivity);

/* The largest of peak_bytes[n_class]. */
uint64_t tandem_max_peak_bytes(const uint64_t *peak_bytes, int n_class);

/* Bytes that a rank of class c may take; 0 = no limit. */
uint64_t tandem_allocation_limit_bytes(const tandem_allocation_problem *problem, int c);

/* Bytes by which `peak_bytes` exceeds the limit of class c; 0 = within. */
uint64_t tandem_allocation_excess_bytes(const tandem_allocation_problem *problem, int c, uint64_t peak_bytes);

/* TANDEM_INFEASIBLE: the smallest plan found for class c takes peak_bytes, more than its limit. */
tandem_status tandem_allocation_infeasible(const tandem_allocation_problem *problem, int c,
                                           uint64_t peak_bytes, tandem_error *error);

/* TANDEM_INFEASIBLE where a class exceeds its limit in a replay with memory; names the first such class. */
tandem_status tandem_allocation_check_memory(const tandem_allocation_problem *problem,
                                             const tandem_replay *replay, tandem_error *error);

/* The target that a step of fastest_ns gives: the problem's own, or fastest_ns × (1 + slowdown). */
int64_t tandem_allocation_target_ns(const tandem_allocation_problem *problem, int64_t fastest_ns);

/* Opens an fp32 plan of the problem's model and cluster, with every batch filled in. The caller closes it.
 * TANDEM_NO_MEMORY. */
tandem_status tandem_allocation_open_plan(tandem_plan **plan, const tandem_allocation_problem *problem,
                                          const char *name, tandem_error *error);

/* Opens the same plan with every class in the base precision. TANDEM_NO_KERNEL: a device lacks it. */
tandem_status tandem_allocation_open_base_plan(tandem_plan **plan, const tandem_allocation_problem *problem,
                                               tandem_error *error);

/* tandem_allocation_replay_base: opens the base plan, loads it into the replayer and replays it with memory.
 * TANDEM_MISSING: a cost of the base plan is missing. Outputs unchanged on error. */
tandem_status tandem_allocation_replay_base(tandem_plan **plan, tandem_replay *replay,
                                            const tandem_allocation_problem *problem, tandem_error *error);
