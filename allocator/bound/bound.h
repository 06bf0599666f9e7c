/* bound.h: bounding the sensitivity of all plans within a target, and searching them in order; private to
 * allocator/. */
#ifndef TANDEM_ALLOCATOR_BOUND_H
#define TANDEM_ALLOCATOR_BOUND_H

#include "allocator/bound/relaxation.h"

typedef struct tandem_bound {
    const tandem_allocation_problem *problem;
    int64_t target_ns;
    unsigned keeps_base;
    int n_class;
    tandem_relaxation relaxation[TANDEM_MAX_CLASS];
    int has_relaxation[TANDEM_MAX_CLASS]; /* whether the class has a relaxation */
    double share[TANDEM_MAX_CLASS];       /* of the global batch */
    /* of the class's sensitivity, unweighted; of held ones, what they have in base */
    double class_bound[TANDEM_MAX_CLASS];
    tandem_precision *plan[TANDEM_MAX_CLASS]; /* [n_op] that reached the bound */
    int has_plan[TANDEM_MAX_CLASS];           /* whether one did */
    double lower_bound;                       /* Σ share · bound */
    const char *method;
} tandem_bound;

/* tandem_bound_open: networks and relaxations of the classes that are not held. Held classes must be in base
 * in the replayer, which is replayed once with memory. On error there is nothing to close but what
 * tandem_bound_close closes: it may be called on a zeroed proof, or after an error. */
tandem_status tandem_bound_open(tandem_bound *bound, const tandem_allocation_problem *problem,
                                int64_t target_ns, unsigned keeps_base, tandem_error *error);
void tandem_bound_close(tandem_bound *bound);

/* Bounds every class's sensitivity. lower_bound INFINITY: no plan within the target fits. */
tandem_status tandem_bound_compute(tandem_bound *bound, double time_limit_s, tandem_error *error);

/* The plan that reached class c's bound, [n_op]; NULL where there is none. Belongs to the proof. */
const tandem_precision *tandem_bound_plan(const tandem_bound *bound, int c);

/* tandem_bound_enumerate: replays plans in order of sensitivity until one fits, which then is the best there
 * is and is left in the replayer (*found), or none of less than `sensitivity` is left, or time or room is
 * over. Raises lower_bound to what is proven. Adds to *replays. */
tandem_status tandem_bound_enumerate(tandem_bound *bound, double sensitivity, double time_limit_s, int *found,
                                     int64_t *replays, tandem_error *error);

/* The certificate of a plan with this sensitivity. */
void tandem_bound_certify(tandem_certificate *certificate, const tandem_bound *bound, double sensitivity);

#endif
