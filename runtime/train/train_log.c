#include "runtime/train/train_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"

static tandem_status fail_log_write(const train_log *log, int code, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_IO, "cannot write the log '%.200s': %s", log->path, strerror(code));
}

tandem_status train_log_open(train_log *log, const char *path, int resumed, const tandem_made *made,
                             tandem_error *error)
{
    *log = (train_log){.path = path, .file = -1, .made = made};
    if (!path) return TANDEM_OK;
    tandem_error why = {0};
    log->file = tandem_path_open(path, O_CREAT | O_APPEND | (resumed ? 0 : O_TRUNC), &why);
    return log->file >= 0 ? TANDEM_OK
                          : tandem_error_set(error, why.status, "cannot write the log: %s", why.text);
}

void train_log_close(train_log *log)
{
    if (log->file >= 0) (void)close(log->file);
    log->file = -1;
}

static json_t *made_json(const tandem_made *made)
{
    json_t *const object =
        json_pack("{s:s,s:s,s:s}", "command", made->command, "version", made->version, "host", made->host);
    if (object && made->seed[0])
        json_object_set_new(object, "seed", json_integer((json_int_t)strtoll(made->seed, NULL, 10)));
    return object;
}

/* made: NULL but in the first line. */
static char *log_line_text(const train_log_line *line, const tandem_made *made)
{
    json_t *object =
        json_pack("{s:I,s:o,s:o,s:o,s:o,s:i}", "step", (json_int_t)line->step, "loss",
                  json_number_or_null(line->loss), "lr", json_number_or_null(line->rate), "step_ns",
                  line->is_emulated ? json_null() : json_integer(line->step_ns), "samples_per_s",
                  json_number_or_null(line->is_emulated ? NAN : line->samples_per_s), "rank", 0);
    if (object && line->is_emulated) json_object_set_new(object, "emulated", json_true());
    const tandem_step_report *report = &line->report;
    if (object && report->gradient_norm >= 0) /* NaN is written as null */
        json_object_set_new(object, "gradient_norm", json_number_or_null(report->gradient_norm));
    if (object && report->loss_scale != 1)
        json_object_set_new(object, "loss_scale", json_number_or_null((double)report->loss_scale));
    if (object && report->skipped) json_object_set_new(object, "skipped", json_true());
    if (object && line->is_evaluated)
        json_object_set_new(object, "accuracy", json_number_or_null(line->accuracy));
    if (object && line->estimate) json_object_set(object, "estimate", line->estimate);
    if (object && made) json_object_set_new(object, "made", made_json(made));
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    return text;
}

tandem_status train_log_add(train_log *log, const train_log_line *line, tandem_error *error)
{
    if (log->file < 0) return TANDEM_OK;
    char *text = log_line_text(line, log->has_lines ? NULL : log->made);
    if (!text) return tandem_no_memory(error, "for a line of log '%.200s'", log->path);
    const size_t n = strlen(text);
    text[n] = '\n'; /* replaces the terminator: the text is written by its length */
    size_t done = 0;
    ssize_t written =
        1; /* what is left of a line that was cut is tried once more: the system then says why */
    while (done <= n && (written = write(log->file, text + done, n + 1 - done)) > 0) done += (size_t)written;
    int code = written < 0 ? errno : ENOSPC;
    free(text);
    log->has_lines |= done == n + 1;
    if (done == n + 1) return TANDEM_OK;
    if (done > 0 && ftruncate(log->file, lseek(log->file, 0, SEEK_END) - (off_t)done) != 0) code = errno;
    return fail_log_write(log, code, error);
}
