/* bound.h: a lower bound of the sensitivity of all plans within a target, and the enumeration of plans that
 * proves it tight; private to allocator/. */
#pragma once

#include "allocator/bound/relaxation.h"

/* Whose plans: steps with and without a norm have limits of their own. */
typedef enum tandem_bound_kind {
    TANDEM_BOUND_WITHOUT_NORM, /* plans that need no loss scale */
    TANDEM_BOUND_WITH_NORM,    /* plans that need one */
    TANDEM_BOUND_ALL           /* all plans: they have the same program */
} tandem_bound_kind;

/* Of the plans of one kind. */
typedef struct tandem_bound {
    tandem_bound_kind kind;
    /* the caller's, which sets and replays plans; the same with the program of this kind, which limits them
     */
    const tandem_allocation_problem *asked;
    tandem_allocation_problem problem;
    int64_t target_ns;
    unsigned keeps_base; /* bit c: class c keeps the base precision */
    int n_class;
    tandem_relaxation relaxation[TANDEM_MAX_CLASS]; /* of classes that do not keep the base precision */
    int has_relaxation[TANDEM_MAX_CLASS];
    int64_t class_bound[TANDEM_MAX_CLASS];    /* INT64_MAX: no plan of the class fits */
    tandem_precision *plan[TANDEM_MAX_CLASS]; /* [n_op] that reached the bound, where has_plan */
    int has_plan[TANDEM_MAX_CLASS];
    int64_t lower_bound; /* Σ class_bound, or what the enumeration proved; INT64_MAX: no plan fits */
    const char *method;
} tandem_bound;

/* tandem_bound_open: relaxations of the classes that do not keep the base precision. The others must have it
 * in the replayer, whose program of this kind is replayed once with memory. It stays where it is: its
 * relaxations point into it. A zeroed bound may be closed, and so may one after an error. TANDEM_MISSING
 * names a cost; TANDEM_NO_MEMORY. */
tandem_status tandem_bound_open(tandem_bound *bound, tandem_bound_kind kind,
                                const tandem_allocation_problem *problem, int64_t target_ns,
                                unsigned keeps_base, tandem_error *error);
void tandem_bound_close(tandem_bound *bound);

/* tandem_bound_compute: bounds every class's sensitivity; spends at most `work`. lower_bound INT64_MAX: no
 * plan within the target fits. */
tandem_status tandem_bound_compute(tandem_bound *bound, tandem_effort *work, tandem_error *error);

/* The plan that reached class c's bound, [n_op], or NULL; the bound owns it. */
const tandem_precision *tandem_bound_plan(const tandem_bound *bound, int c);

/* tandem_bound_enumerate: replays plans of its kind in order of sensitivity. It ends at the first that fits,
 * which is the optimum and stays in the replayer (*found); where no plan of less than `sensitivity` is left;
 * or where the work or the memory for the enumeration runs out. Raises lower_bound to what is proven. Adds to
 * *replays. */
tandem_status tandem_bound_enumerate(tandem_bound *bound, int64_t sensitivity, tandem_effort *work,
                                     int *found, int64_t *replays, tandem_error *error);

/* --- Of plans of both kinds (kinds.c)         --------------------------------------------------------- */

enum { TANDEM_N_BOUND_KIND = 2 };
typedef struct tandem_bounds {
    tandem_bound of[TANDEM_N_BOUND_KIND];
    int n; /* kinds that have plans; 0: no plan keeps these classes in base */
} tandem_bounds;

/* The same for each kind of plans that there is. With a time for the norm missing, plans that need a loss
 * scale cannot be replayed: no bound covers them. */
tandem_status tandem_bounds_open(tandem_bounds *bounds, const tandem_allocation_problem *problem,
                                 int64_t target_ns, unsigned keeps_base, tandem_error *error);
void tandem_bounds_close(tandem_bounds *bounds);
tandem_status tandem_bounds_compute(tandem_bounds *bounds, tandem_effort *work, tandem_error *error);
tandem_status tandem_bounds_enumerate(tandem_bounds *bounds, int64_t sensitivity, tandem_effort *work,
                                      int *found, int64_t *replays, tandem_error *error);
/* The least of all kinds; INT64_MAX: no plan fits. */
int64_t tandem_bounds_lower(const tandem_bounds *bounds);

/* The certificate of a plan with this sensitivity. */
void tandem_bounds_certify(tandem_certificate *certificate, const tandem_bounds *bounds, int64_t sensitivity);

/* tandem_certify_claim: tandem_certify for a plan with a claimed bound. While its own bound is lower, it
 * enumerates until the work limit. */
tandem_status tandem_certify_claim(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                                   int64_t target_ns, unsigned keeps_base, int64_t sensitivity,
                                   int64_t claimed, tandem_error *error);
