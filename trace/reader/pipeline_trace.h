/* pipeline_trace.h: pipeline traces while they are read; private to trace/. */
#pragma once

#include "trace/reader/read_input.h"
#include "tandem/advanced/whatif.h"

/* The table of operator types (whatif.h). */
const char *tandem_pipeline_op_kind_name(int kind);  /* in a trace */
const char *tandem_pipeline_op_report_row(int kind); /* the row of a report that it counts for */
int tandem_pipeline_op_kind_is_comm(int kind);
/* −1 = no such type */
int tandem_pipeline_op_kind_find(const char *name, size_t n);

/* Operators in any order, whose `step` is still the number of the step. */
typedef struct tandem_pipeline_ops {
    tandem_pipeline_op *op;
    int n, capacity;
    int64_t n_negative; /* durations below 0 */
} tandem_pipeline_ops;
tandem_status tandem_pipeline_ops_add(tandem_pipeline_ops *rows, const tandem_pipeline_op *op,
                                      const char *source, tandem_error *error);

/* tandem_pipeline_trace_open: sorts the operators and counts steps and ranks. Takes ownership of the
 * operators, on error too. TANDEM_MALFORMED without operators; TANDEM_NO_MEMORY. */
tandem_status tandem_pipeline_trace_open(tandem_pipeline_trace **pipeline, tandem_pipeline_ops *rows,
                                         const char *source, tandem_error *error);
