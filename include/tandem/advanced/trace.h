/* trace.h: writes the events of a step, simulated or measured, as Chrome trace JSON (for Perfetto) or as
 * MLCommons Chakra execution traces. */
#ifndef TANDEM_TRACE_H
#define TANDEM_TRACE_H

#include "tandem/advanced/step.h"
#include "tandem/plan.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_trace_event {
    int64_t start_ns, end_ns; /* from the begin of the step */
    int task;                 /* of the class's step program; −1 = waiting for a bucket */
} tandem_trace_event;

typedef struct tandem_trace_track { /* one representative rank of a class */
    const char *device;
    int rank, n_rank; /* its number; how many ranks it represents */
    const tandem_step *step;
    const tandem_trace_event *event;
    int n_event;
    int is_measured;           /* 1: the events are those of a run; 0: of a simulation */
    const uint64_t *workspace; /* [n_task] bytes each task needs beside its operands; NULL = unknown */
    const tandem_made *made;   /* what made it, of the first track; NULL = unknown */
} tandem_trace_track;

/* tandem_trace_write: the end of the path decides the format.
 *
 * JSON, unless it ends in .et; "-" = stdout. {"displayTimeUnit":"ns","traceEvents":[…]}; otherData has
 * `title`, `model`, `origin` ("simulated" or "measured", of the first track), and what made it: `command`,
 * `version`, `host`, `seed`. pid = rank, named by its
 * device; tid 0 = compute, 1 = communication; ts and dur in µs with three decimals.
 *   "X"       a task: name = operator, category = task kind; args = op, kind, precision, from, to,
 *   variant,
 *             task. precision is that of an adjustable operator, otherwise the type read.
 *             Waiting is on tid 1.
 *   "C"       memory during each compute task: bytes by category (step.h)
 *   "s", "f"  from the task that completes a bucket's gradients to its all-reduce, and on to its update
 *
 * .et: MLCommons Chakra, schema 0.0.4 (profiles/format/chakra.proto), one file per track: step.et becomes
 * step.0.et, step.4.et, … by rank. One node per task: id = task, duration_micros rounded, attributes
 * tandem_duration_ns and tandem_start_ns exact. data_deps are the tasks that wrote its operands; ctrl_deps
 * is the previous task on its stream. Compute tasks are COMP_NODEs with attributes kind, op, precision,
 * from, to; all-reduces are COMM_COLL_NODEs, also with comm_type and comm_size. Waits are not written: the
 * waiting rank's part of a collective covers them.
 *
 * Each file is written to path.tmp and renamed. TANDEM_IO; TANDEM_NO_MEMORY; TANDEM_USAGE if an event's
 * task is not in the step. Cost: O(events), and for JSON a memory plan per track; memory is O(tasks), for
 * any number of events. */
tandem_status tandem_trace_write(const char *path, const char *title, const tandem_trace_track *track,
                                 int n_track, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
