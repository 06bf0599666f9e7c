/* trace.h: the events of a step, simulated or measured, in Chrome trace-event JSON that Perfetto opens. */
#ifndef TANDEM_TRACE_H
#define TANDEM_TRACE_H

#include "tandem/step.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_trace_event {
    int64_t start_ns, end_ns; /* from the begin of the step */
    int task;                 /* of the class's step program; −1 = waiting for a bucket */
} tandem_trace_event;

typedef struct tandem_trace_lane { /* one representative rank of a class */
    const char *device;
    int rank, n_rank; /* its number; ranks it stands for */
    const tandem_step *step;
    const tandem_trace_event *event;
    int n_event;
} tandem_trace_lane;

/* tandem_trace_write: {"displayTimeUnit":"ns","traceEvents":[…]}; pid = rank (named by device), tid 0 = compute, 1 =
 * communication (named); complete events ("X") with operator name, category = task kind, ts and dur in µs with three
 * decimals, args = op, kind, precision, from, to, variant, task (precision: of an adjustable operator; else the type read). Waiting
 * stands on tid 1. `title` goes to otherData. Written to path.tmp and renamed. "-" = stdout.
 * TANDEM_IO; TANDEM_USAGE where an event's task is none of the step's. */
tandem_status tandem_trace_write(const char *path, const char *title, const tandem_trace_lane *lane,
                                 int n_lane, tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
