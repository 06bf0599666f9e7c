/* bound.h: a lower bound of the sensitivity of all plans within a target, and the enumeration of plans that
 * proves it tight; private to allocator/. */
#pragma once

#include "allocator/bound/relaxation.h"

typedef struct tandem_bound {
    const tandem_allocation_problem *problem;
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
 * in the replayer, which is replayed once with memory. A zeroed bound may be closed, and so may one after an
 * error. TANDEM_MISSING names a cost; TANDEM_NO_MEMORY. */
tandem_status tandem_bound_open(tandem_bound *bound, const tandem_allocation_problem *problem,
                                int64_t target_ns, unsigned keeps_base, tandem_error *error);
void tandem_bound_close(tandem_bound *bound);

/* tandem_bound_compute: bounds every class's sensitivity. lower_bound INT64_MAX: no plan within the
 * target fits. */
tandem_status tandem_bound_compute(tandem_bound *bound, double time_limit_s, tandem_error *error);

/* The plan that reached class c's bound, [n_op], or NULL; the bound owns it. */
const tandem_precision *tandem_bound_plan(const tandem_bound *bound, int c);

/* tandem_bound_enumerate: replays plans in order of sensitivity. It ends at the first that fits, which is the
 * optimum and stays in the replayer (*found); where no plan of less than `sensitivity` is left; or where time
 * or memory for the enumeration runs out. Raises lower_bound to what is proven. Adds to *replays. */
tandem_status tandem_bound_enumerate(tandem_bound *bound, int64_t sensitivity, double time_limit_s,
                                     int *found, int64_t *replays, tandem_error *error);

/* The certificate of a plan with this sensitivity. */
void tandem_bound_certify(tandem_certificate *certificate, const tandem_bound *bound, int64_t sensitivity);

/* tandem_certify_claim: tandem_certify for a plan with a claimed bound. While its own bound is lower, it
 * enumerates until the time limit. */
tandem_status tandem_certify_claim(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                                   int64_t target_ns, unsigned keeps_base, int64_t sensitivity,
                                   int64_t claimed, double time_limit_s, tandem_error *error);
