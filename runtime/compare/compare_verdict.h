/* compare_verdict.h: whether a prediction is off, or the machine has moved since its profile. */
#ifndef TANDEM_RUNTIME_COMPARE_VERDICT_H
#define TANDEM_RUNTIME_COMPARE_VERDICT_H

#include "tandem/runtime.h"

/* A kind of task on a device class. Times at the speed of the run, and without what others took; both > 0. */
typedef struct compare_kind {
    const char *device, *name;
    int64_t predicted_ns, measured_ns;
    double step_effect; /* change of the simulated step, of its time, with the measured time of this kind */
} compare_kind;

/* compare_verdict_decide: sets moved_by, verdict, steps_needed and kind from the rest, from the plain error,
 * and from the kinds of tasks. tolerance: errors up to it count as correct. Both errors small, the prediction
 * holds. An error is known where its interval, with the profile's, is narrower than it or than the tolerance.
 * Beyond both, a plain error is the machine's where the other error is small. */
void compare_verdict_decide(tandem_compare_speed *s, double error, double tolerance, const compare_kind *kind,
                            int n_kind);

#endif
