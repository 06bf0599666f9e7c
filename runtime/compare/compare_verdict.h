/* compare_verdict.h: whether a prediction is off, or the machine has moved since its profile. */
#ifndef TANDEM_CLI_COMPARE_VERDICT_H
#define TANDEM_CLI_COMPARE_VERDICT_H

#include "cli/run_steadiness.h"

typedef enum compare_verdict {
    VERDICT_UNKNOWN, /* "cannot be told apart": too uncertain */
    VERDICT_HOLDS,   /* "prediction holds": both errors are small */
    VERDICT_MOVED,   /* "machine moved": the prediction is right at the run's speed */
    VERDICT_OFF,     /* "prediction off" */
    N_VERDICT
} compare_verdict;

/* Errors are (predicted − measured) / measured; NaN = unknown. */
typedef struct compare_steadiness {
    /* each kept step's own error: predicted at the pulse beside it, and measured less what the delays in it
     * add to the simulated step; their median, and an interval that holds it in 95 of 100 cases */
    double error_at_run_speed, low, high;
    int n_step, n_undisturbed; /* kept steps; those in which others took 1 % or less. Where these are 8 or
                                * more, the others do not count */
    double delay_share; /* of the kept steps' time, others took from the rank that they took most from */
    double pulse_share; /* of the run's time, pulses took */
    /* median pulse of the run over the profile's; of the slowest device */
    double compute_slowdown, memory_slowdown;
    double profile_noise; /* how far two profiles differ: √2 times the profile's interval */
    double moved_by; /* how much longer a step took than at the profile's speed without delays, of its time */
    compare_verdict verdict;
    int64_t steps_needed; /* for a verdict; 0 = no number of steps would do, or it is there */
    /* the kind of task that is off by most, of those that matter; "" = none is */
    char kind_device[TANDEM_DEVICE_NAME];
    const char *kind; /* static */
    double kind_error;
} compare_steadiness;

const char *compare_verdict_name(compare_verdict verdict);

/* A kind of task on a device class. Times at the speed of the run, and without what others took; both > 0. */
typedef struct compare_kind {
    const char *device, *name;
    int64_t predicted_ns, measured_ns;
    double step_effect; /* change of the simulated step, of its time, with the measured time of this kind */
} compare_kind;

/* compare_verdict_decide: sets moved_by, verdict, steps_needed and kind from the rest, from the plain error,
 * and from the kinds of tasks. tolerance: an error that is none. Both errors small, the prediction holds. An
 * error is known where its interval, with the profile's, is narrower than it or than the tolerance. Beyond
 * both, a plain error is the machine's where the other error is small. */
void compare_verdict_decide(compare_steadiness *s, double error, double tolerance, const compare_kind *kind,
                            int n_kind);

/* The verdict in words: what moved, what is off, or what would tell. Returns text. */
const char *compare_verdict_print(char *text, size_t size, const compare_steadiness *s);

#endif
