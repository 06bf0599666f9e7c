/* late_results.h: losses and faults of a step on a device with its own memory, read while the next step runs:
 * the host queues a step without waiting for the one before.
 *
 * After each step the compute stream copies losses and faults to the host and records an event. The next
 * step is queued, then the host waits for that event, and reads, and only then are that step's copies queued.
 * So at most two steps are under way: one place on the host is enough for results, and the arguments of steps
 * have two. A fault names its step and its operator: the update reports where the first gradient that is not
 * finite lies, since the next step overwrites the gradients. That step has changed weights that are of no use
 * anyway. */
#pragma once

#include "tandem/advanced/backend.h"

typedef struct tandem_late_results {
    int is_enabled;
    unsigned char *staged; /* faults, then a loss for each micro-step */
    int is_pending;        /* whether a step's results have not been read */
    int64_t index;         /* of that step */
} tandem_late_results;

/* What a step ends with: *loss, the mean over all ranks, or TANDEM_LIMIT_EXCEEDED, with the step and
 * nonfinite_parameter. */
tandem_status tandem_late_finish_step(const tandem_executor *executor, int64_t index, float carried,
                                      double *loss, tandem_error *error);
/* After the work of step `index`. Reads at once where several launches update the weights, as with an
 * observer; then, as without late results, *loss and the errors are of this step. */
tandem_status tandem_late_queue(tandem_executor *executor, int64_t index, double *loss, tandem_error *error);
void tandem_late_close(const tandem_executor *executor); /* waits for what is under way */
/* What is pending: *loss, and the errors of executor_step. Then nothing of the device's is under way on an
 * error. */
tandem_status tandem_late_read(tandem_executor *executor, double *loss, tandem_error *error);
