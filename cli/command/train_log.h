/* train_log.h: the steps of a run as lines of JSON, one object a step, for `tail -f` and for plots. */
#ifndef TANDEM_CLI_TRAIN_LOG_H
#define TANDEM_CLI_TRAIN_LOG_H

#include "cli/cli.h"

typedef struct train_log {
    const char *path;
    int file; /* < 0: none is written */
} train_log;

typedef struct train_log_line {
    int64_t step; /* from 1 */
    double loss, rate, samples_per_s, accuracy;
    int64_t step_ns;
    tandem_step_report report; /* of the step: its norm and scale are told where they are in use */
    int is_evaluated;          /* whether the line has an accuracy */
} train_log_line;

/* path NULL: none. A resumed run's lines follow those that are there; another one begins anew. TANDEM_IO. */
tandem_status train_log_open(train_log *log, const char *path, int resumed, tandem_error *error);
void train_log_close(train_log *log);
/* Writes one line by one write: a reader never sees half of it, and where no space is left none of it stays.
 * TANDEM_IO. */
tandem_status train_log_add(train_log *log, const train_log_line *line, tandem_error *error);

#endif
