/* allocator.h: chooses a precision for every adjustable operator of every class, and says how far from the best it is.
 *
 * Minimise the plan's sensitivity subject to the step target and each class's memory. A plan's sensitivity is
 * Σ_c share_c · Σ_op harm_c(op, precision), share_c = the class's part of the global batch. docs/allocation.md states the
 * problem in full.
 *
 * A class that would only wait keeps the base precision: such classes are *held*. Unless a target is given, it is the
 * step of the fastest plan found that keeps them, times 1 + slowdown. The fastest class in base is held whenever it fits
 * its memory and no target asks for more. */
#ifndef TANDEM_ALLOCATOR_H
#define TANDEM_ALLOCATOR_H

#include "tandem/predictor.h"
#include "tandem/replayer.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_allocation_problem {
    tandem_replayer *replayer;            /* its precisions are changed freely */
    const tandem_graph *graph;            /* operators are the same in every class */
    const double *harm[TANDEM_MAX_CLASS]; /* [n_op × TANDEM_N_PRECISION] of each class; see predictor.h */
    tandem_precision base;
    tandem_precision uniform; /* policy "uniform": what lowered classes get */
    double slowdown;     /* 0.03 = the step may be 3 % longer than the fastest; not looked at with a target */
    int64_t target_ns;   /* 0 = none given: fastest · (1 + slowdown) */
    double most_seconds; /* for policies that search until they have proven their answer; 0 = 10 s */
} tandem_allocation_problem;

/* What is known of how good a plan is. It is about plans that keep the held classes in base. */
typedef struct tandem_certificate {
    double lower_bound; /* no plan within the same target and memory has less sensitivity; NAN = none computed */
    double gap;         /* (sensitivity − lower_bound) / sensitivity; 0 where the sensitivity is 0 */
    char proof[24];     /* which method proved it: "search", "labels", "lagrangian", "zero" */
} tandem_certificate;

typedef struct tandem_allocation {
    int64_t step_ns, target_ns, base_ns, fastest_ns; /* of the plan; allowed; all classes in base; fastest plan found */
    double sensitivity, base_sensitivity, fastest_sensitivity;
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    int64_t replays;
    int lowered;   /* the slowest class in base where it was lowered; −1 = it was not */
    unsigned held; /* bit c: class c keeps the base precision */
    tandem_certificate certificate;
} tandem_allocation;

typedef struct tandem_policy {
    const char *name, *meaning;
    /* Leaves its plan in the replayer. TANDEM_NO_FIT where no plan it can reach fits memory: says which device, the bytes of
     * the smallest plan and the limit. */
    tandem_status (*allocate)(const tandem_allocation_problem *problem, tandem_allocation *allocation,
                              tandem_error *error);
} tandem_policy;

/* Every policy, one a file in allocator/; NULL behind the last. The first is meant where none is named. */
const tandem_policy *tandem_policy_get(int index);
/* TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_policy_find(const tandem_policy **policy, const char *name, tandem_error *error);

/* tandem_allocate: run a policy and write its plan. Every figure in *allocation is replayed anew from the finished plan.
 * *plan (new, the caller closes it) and *allocation are unchanged on error. */
tandem_status tandem_allocate(tandem_plan **plan, tandem_allocation *allocation, const tandem_policy *policy,
                              const tandem_allocation_problem *problem, const char *method, tandem_error *error);

/* tandem_certify: bound the sensitivity of every plan within target_ns and memory that keeps the `held` classes in base,
 * and compare `sensitivity` with it. Trusts nothing but the problem's costs. Takes at most most_seconds (0 = 10 s).
 * *certificate unchanged on error. */
tandem_status tandem_certify(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                             int64_t target_ns, unsigned held, double sensitivity, double most_seconds,
                             tandem_error *error);

/* tandem_plan_verify: whether a plan is what it says, by the public replay call alone: precisions that exist, step and peak
 * memory as replayed, within its target and the cluster's memory, its sensitivity, and its bound anew.
 * TANDEM_OK with what was found in *allocation; TANDEM_NO_FIT where it breaks a limit; TANDEM_MALFORMED where a figure in
 * it is not what comes out here: names it, both values. */
tandem_status tandem_plan_verify(tandem_allocation *allocation, const tandem_plan *plan,
                                 const tandem_allocation_problem *problem, tandem_error *error);

/* Sensitivity of the replayer's current precisions. */
double tandem_allocation_sensitivity(const tandem_allocation_problem *problem);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
