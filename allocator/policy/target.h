/* target.h: how long the step may be, and which classes must be lowered for it; private to allocator/. */
#pragma once

#include "allocator/policy/search.h"

/* Plans of one class to start from: the uniform ones by their precision, the current one, and one that the
 * caller offers. NULL: there is none, or a cost of it is missing. */
enum { TANDEM_START_CURRENT = TANDEM_N_PRECISION, TANDEM_START_OFFERED, TANDEM_N_START };
typedef struct tandem_starting_plans {
    tandem_precision *plan[TANDEM_N_START];
    tandem_plan_metrics metrics[TANDEM_N_START];
} tandem_starting_plans;

/* Finds the starting plans of the search's class, offered[n_op] among them (NULL = none). The search ends at
 * one of them. Close them after errors, too. */
tandem_status tandem_starting_plans_find(tandem_starting_plans *starts, tandem_search *search,
                                         const tandem_precision *offered, tandem_error *error);
void tandem_starting_plans_close(tandem_starting_plans *starts);

typedef struct tandem_target {
    int64_t base_ns;    /* every class in base */
    int64_t fastest_ns; /* the classes of keeps_base in base, the others at their fastest */
    int64_t target_ns;
    int64_t base_sensitivity, fastest_sensitivity; /* −1 = unknown */
    unsigned keeps_base;                           /* bit c: class c keeps the base precision */
    int order[TANDEM_MAX_CLASS]; /* classes; the one that computes longest in base comes first */
    int64_t replays;
} tandem_target;

/* tandem_target_find: allocator.h states the rule. Leaves in the replayer the classes of keeps_base in base
 * and the others at the fastest plans found that fit. TANDEM_INFEASIBLE: memory, or a target that even the
 * fastest plans miss. */
tandem_status tandem_target_find(tandem_target *target, const tandem_allocation_problem *problem,
                                 tandem_error *error);
/* tandem_target_without_f16: where plans of `problem` may need a loss scale: the classes of keeps_base in base,
 * the others at the fastest plans that need none. *is_within: they are within the target, and in the replayer;
 * 0 also where every plan needs one, or there are none that do. TANDEM_NO_MEMORY. */
tandem_status tandem_target_without_f16(int *is_within, tandem_target *target,
                                        const tandem_allocation_problem *problem, tandem_error *error);
/* Copies the fields of an allocation that its target determines. */
void tandem_target_fill_allocation(tandem_allocation *allocation, const tandem_target *target);
