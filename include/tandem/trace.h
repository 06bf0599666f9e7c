/* trace.h: the events of a step, simulated or measured, in Chrome trace-event JSON that Perfetto opens, or as
 * execution traces of MLCommons Chakra. */
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

typedef struct tandem_trace_track { /* one representative rank of a class */
    const char *device;
    int rank, n_rank; /* its number; ranks it stands for */
    const tandem_step *step;
    const tandem_trace_event *event;
    int n_event;
    const uint64_t *workspace; /* [n_task] bytes each task needs beside its operands; NULL = none is known */
} tandem_trace_track;

/* tandem_trace_write: by what the path ends in.
 *
 * JSON, whatever else it ends in; "-" = stdout: {"displayTimeUnit":"ns","traceEvents":[…]}; pid = rank (named
 * by device), tid 0 = compute, 1 = communication (named); ts and dur in µs with three decimals.
 *   "X"       operator name, category = task kind; args = op, kind, precision, from, to, variant, task
 *             (precision: of an adjustable operator; else the type read). Waiting stands on tid 1.
 *   "C"       memory while each compute task runs, bytes by category (step.h)
 *   "s", "f"  from the task that completes a bucket's gradients to its all-reduce, and from there to its
 *             update
 * `title` goes to otherData.
 *
 * .et: MLCommons Chakra, schema 0.0.4 (profiles/format/chakra.proto), one file a lane: step.et is step.0.et,
 * step.4.et, … by rank. A node for each task, id = task, duration_micros rounded, attribute
 * tandem_duration_ns exact; likewise tandem_start_ns. data_deps: the tasks that wrote what it reads;
 * ctrl_deps: the task before it on its stream. Compute tasks are COMP_NODEs with attributes kind, op,
 * precision, from, to; all-reduces COMM_COLL_NODEs with comm_type and comm_size as well. Waits are not
 * written: whoever waits for a collective is no part of it.
 *
 * Each file is written to path.tmp and renamed. TANDEM_IO; TANDEM_NO_MEMORY; TANDEM_USAGE where an event's
 * task is none of the step's. Cost: O(events), and a memory plan a lane (JSON); memory is O(tasks), whatever
 * the number of events. */
tandem_status tandem_trace_write(const char *path, const char *title, const tandem_trace_track *track,
                                 int n_track, tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
