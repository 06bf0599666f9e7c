/* train_log.h: the training log: one JSON object per step and line. */
#pragma once

#include <jansson.h>
#include <math.h>

#include "tandem/advanced/backend.h"
#include "tandem/runtime.h"

static inline json_t *json_number_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

typedef struct train_log {
    const char *path;
    int file;                /* < 0 = no log */
    int has_lines;           /* of this run; the first one says what made it: */
    const tandem_made *made; /* borrowed; NULL = nothing */
} train_log;

typedef struct train_log_line {
    int64_t step; /* from 1 */
    double loss, rate, samples_per_s, accuracy;
    int64_t step_ns;
    tandem_step_report report; /* of the step; norm and loss scale are written if they are in use */
    json_t *estimate;          /* borrowed; what was estimated after the step; NULL: nothing */
    int is_emulated;           /* then it has no times */
    int is_evaluated;          /* whether the line has an accuracy */
} train_log_line;

/* path NULL: no log. A resumed run appends; another run overwrites. TANDEM_IO. */
tandem_status train_log_open(train_log *log, const char *path, int resumed, const tandem_made *made,
                             tandem_error *error);
void train_log_close(train_log *log);
/* Writes one line with one write, so that readers see whole lines. Removes a partial line on a full disk.
 * TANDEM_IO. */
tandem_status train_log_add(train_log *log, const train_log_line *line, tandem_error *error);
