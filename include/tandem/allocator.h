/* allocator.h: chooses a precision for every adjustable operator of every class.
 *
 * Minimise the plan's sensitivity subject to the step target and each class's memory. A plan's sensitivity is
 * Σ_c share_c · Σ_op harm_c(op, precision), share_c = the class's part of the global batch.
 *
 * A class that would only wait keeps the base precision: the class that is slowest with every class in base precision is
 * the one that is lowered. The target is the step of the fastest plan under that rule, times 1 + slowdown. */
#ifndef TANDEM_ALLOCATOR_H
#define TANDEM_ALLOCATOR_H

#include "tandem/predictor.h"
#include "tandem/replayer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tandem_allocation_problem {
    tandem_replayer *replayer;            /* its precisions are changed freely */
    const tandem_graph *graph;            /* operators are the same in every class */
    const double *harm[TANDEM_MAX_CLASS]; /* [n_op × TANDEM_N_PRECISION] of each class; see predictor.h */
    tandem_precision base;
    tandem_precision uniform; /* policy "uniform": what lowered classes get */
    double slowdown;          /* 0.03 = the step may be 3 % longer than the fastest */
} tandem_allocation_problem;

typedef struct tandem_allocation {
    int64_t step_ns, target_ns, base_ns, fastest_ns; /* of the plan; allowed; all classes in base; fastest plan found */
    double sensitivity, base_sensitivity, fastest_sensitivity;
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    int64_t replays;
    int lowered; /* the class that was lowered, −1 = none */
} tandem_allocation;

typedef struct tandem_policy {
    const char *name, *meaning;
    /* Leaves its plan in the replayer. TANDEM_NO_FIT where no plan it can reach fits memory: says which device, the bytes of
     * the smallest plan and the limit. */
    tandem_status (*allocate)(const tandem_allocation_problem *problem, tandem_allocation *allocation,
                              tandem_error *error);
} tandem_policy;

/* NULL-terminated array of all policies, one a file in allocator/. */
extern const tandem_policy *const tandem_policies[];
/* TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_policy_find(const tandem_policy **policy, const char *name, tandem_error *error);

/* tandem_allocate: run a policy and write its plan. Every figure in *allocation is replayed anew from the finished plan.
 * *plan (new, the caller closes it) and *allocation are unchanged on error. */
tandem_status tandem_allocate(tandem_plan **plan, tandem_allocation *allocation, const tandem_policy *policy,
                              const tandem_allocation_problem *problem, const char *method, tandem_error *error);

/* Sensitivity of the replayer's current precisions. */
double tandem_allocation_sensitivity(const tandem_allocation_problem *problem);

#ifdef __cplusplus
}
#endif
#endif
