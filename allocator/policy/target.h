/* target.h: how long the step may be, and which classes must be lowered for it; private to allocator/. */
#pragma once

#include "allocator/policy/search.h"
#include "allocator/problem.h"

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
    /* the fastest plans found that need no loss scale, and of all, with a norm in the step where some need
     * one; n_op 0: there are none. Close them after errors, too */
    tandem_assignment fastest[TANDEM_N_PLAN_KIND];
} tandem_target;

/* tandem_target_find: allocator.h states the rule. Leaves in the replayer the classes of keeps_base in base
 * and the others at the fastest plans found that fit. TANDEM_INFEASIBLE: memory, or a target that even the
 * fastest plans miss. */
tandem_status tandem_target_find(tandem_target *target, const tandem_allocation_problem *problem,
                                 tandem_error *error);
void tandem_target_close(tandem_target *target); /* all zero is fine */

/* tandem_target_begin: the problem of one kind, with the step of the kind for every plan, and in its replayer
 * the classes of keeps_base in base and the others at the fastest plans of the kind. *is_within: they are
 * within the target and the memory; 0 also where there are none. Errors of tandem_replayer_run. */
tandem_status tandem_target_begin(int *is_within, tandem_allocation_problem *of_kind, tandem_plan_kind kind,
                                  const tandem_target *target, const tandem_allocation_problem *problem,
                                  tandem_error *error);

/* The best plan of any kind: its sensitivity is the least, and of such plans its step. */
typedef struct tandem_best_plan {
    tandem_assignment *assignment; /* the caller's */
    int64_t sensitivity, step_ns;  /* INT64_MAX: there is none yet */
} tandem_best_plan;
/* tandem_best_plan_offer: keeps the plan in `searched`, a replayer of the problem or of one of its kinds,
 * where it is within target_ns and memory as it is costed by its own need, and better. Leaves it in the
 * problem's replayer. */
tandem_status tandem_best_plan_offer(tandem_best_plan *best, const tandem_allocation_problem *problem,
                                     const tandem_replayer *searched, int64_t target_ns, tandem_error *error);

/* Copies the fields of an allocation that its target determines. */
void tandem_target_fill_allocation(tandem_allocation *allocation, const tandem_target *target);
