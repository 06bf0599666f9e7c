/* job.h: recorded jobs while they are read; private to replayer/. */
#ifndef TANDEM_REPLAYER_JOB_H
#define TANDEM_REPLAYER_JOB_H

#include "replayer/read_input.h"
#include "tandem/whatif.h"

/* The table of operator types (whatif.h). */
const char *tandem_job_kind_name(int kind);  /* in a trace */
const char *tandem_job_kind_shown(int kind); /* the row of a report it counts for */
int tandem_job_kind_is_comm(int kind);
/* −1 = there is no such type. */
int tandem_job_kind_find(const char *name, size_t n);

/* What is known of a job whose operators still carry the number of their step in `step`, in any order. */
typedef struct tandem_job_rows {
    tandem_job_op *op;
    int n, capacity;
    int64_t n_negative; /* durations below 0 */
} tandem_job_rows;
tandem_status tandem_job_rows_add(tandem_job_rows *rows, const tandem_job_op *op, const char *source,
                                  tandem_error *error);

/* tandem_job_open: sorts the rows, numbers the steps, finds the sizes. Takes the rows over, also on error.
 * TANDEM_MALFORMED without rows; TANDEM_NO_MEMORY. */
tandem_status tandem_job_open(tandem_job **job, tandem_job_rows *rows, const char *source,
                              tandem_error *error);

#endif
