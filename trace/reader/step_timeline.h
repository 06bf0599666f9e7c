/* step_timeline.h: the tasks of a step that tandem wrote (trace.h), with their names, as a page draws them. A
 * contract between trace/ and report/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/plan.h"

enum { TANDEM_TIMELINE_TITLE = 240 };

typedef struct tandem_timeline_task {
    int64_t start_ns, end_ns;      /* from the start of the first task */
    int32_t id;                    /* in the step program; −1 = waiting for a bucket */
    int32_t rank;                  /* index of its rank */
    int32_t name, kind, precision; /* indices of texts; precision 0 = "" */
} tandem_timeline_task;

typedef struct tandem_timeline_rank {
    int64_t number;
    char name[TANDEM_TIMELINE_TITLE]; /* "rank 0: cpu:avx2 (one of 4)" */
    int first, n;                     /* its tasks */
} tandem_timeline_rank;

typedef struct tandem_step_timeline {
    char title[TANDEM_TIMELINE_TITLE], model[TANDEM_TIMELINE_TITLE]; /* "" = unknown */
    int is_measured;                                                 /* −1 = unknown */
    tandem_made made;
    int n_rank, n_task, n_text;
    int64_t n_negative, span_ns; /* durations below 0, which count as 0; of the step, over all ranks */
    tandem_timeline_rank *rank;
    tandem_timeline_task *task; /* [n_task] by rank, start and id */
    char **text;                /* [n_text]; the first is "" */
} tandem_step_timeline;

/* tandem_step_timeline_read: reads a trace, plain or gzip, as a stream. The caller closes it.
 * TANDEM_MALFORMED with the byte and what was expected: no JSON, times out of range, no task at all.
 * TANDEM_IO, TANDEM_NO_MEMORY: *timeline unchanged. Cost: O(events · log events), 40 bytes per event.
 * tandem_step_timeline_parse: the same from memory; `source` is its name in errors. */
tandem_status tandem_step_timeline_read(tandem_step_timeline **timeline, const char *path,
                                        tandem_error *error);
tandem_status tandem_step_timeline_parse(tandem_step_timeline **timeline, const void *bytes, size_t n,
                                         const char *source, tandem_error *error);
void tandem_step_timeline_close(tandem_step_timeline *timeline); /* NULL is fine */
