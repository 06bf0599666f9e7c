/* study_records.c: what a part of the study has finished, in a file, one JSON object a line: {"name": "…",
 * "value": […]}. The first line names the plan, and the margins by which its results are judged. A line is
 * written at once, so that a killed study loses the work that it was in. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "research/study_records.h"

enum { MAX_RECORD_BYTES = 1 << 24 };

static tandem_status read_record(study_records *records, const char *line, size_t n, int number,
                                 tandem_error *error)
{
    json_error_t why;
    json_t *object = json_loadb(line, n, 0, &why);
    const char *name = json_string_value(json_object_get(object, "name")),
               *of = json_string_value(json_object_get(object, "plan"));
    json_t *value = json_object_get(object, "value");
    tandem_status status = TANDEM_OK;
    if (number == 1 && of && strcmp(of, records->plan) != 0)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "'%s' has records of another plan (%s), not of this study (%s). Give "
                                  "another file, or move this one away",
                                  records->path, of, records->plan);
    else if ((number == 1) != !!of || (number > 1 && (!name || json_array_size(value) == 0)))
        status = tandem_error_set(error, TANDEM_MALFORMED,
                                  "line %d of '%s' is no record of this study. Remove the line", number,
                                  records->path);
    else if (number == 1 && records->margins)
        study_margins_compare(records->margins, object);
    else if (number > 1 && json_object_set(records->value, name, value) != 0)
        status = tandem_no_memory(error, "for the study's records");
    json_decref(object);
    return status;
}

/* *whole: the bytes of whole lines. */
static tandem_status read_records(study_records *records, size_t *whole, tandem_error *error)
{
    char *bytes = NULL;
    size_t n = 0;
    int number = 0;
    tandem_status status = tandem_file_read(&bytes, &n, records->path, MAX_RECORD_BYTES, error);
    *whole = 0;
    while (status == TANDEM_OK) {
        const char *line = bytes + *whole, *end = memchr(line, '\n', n - *whole);
        if (!end) break;
        status = read_record(records, line, (size_t)(end - line), ++number, error);
        *whole = (size_t)(end - bytes) + 1;
    }
    free(bytes);
    return status;
}

static tandem_status fail_records(const char *path, const char *what, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_IO, "cannot %s '%s': %s. Give a file that can be written", what,
                            path, strerror(errno));
}

static tandem_status write_line(FILE *file, json_t *object, tandem_error *error)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text) return tandem_no_memory(error, "for a record of the study");
    const int is_written = fprintf(file, "%s\n", text) > 0 && fflush(file) == 0;
    free(text);
    return is_written ? TANDEM_OK
                      : tandem_error_set(error, TANDEM_IO,
                                         "cannot write a record of the study: %s. Make room "
                                         "and run it again: it goes on from there",
                                         strerror(errno));
}

/* The first line of a new file. */
static tandem_status write_head(const study_records *records, tandem_error *error)
{
    char hash[STUDY_MARGINS_HASH];
    json_t *margins = study_margins_json(records->margins), *head = NULL;
    study_margins_hash(hash, records->margins);
    if (margins)
        head = json_pack("{s:s,s:s,s:o}", "plan", records->plan, "margins_hash", hash, "margins", margins);
    return head ? write_line(records->file, head, error)
                : tandem_no_memory(error, "for the head of the study's records");
}

tandem_status study_records_open(study_records *records, const char *path, const char *plan,
                                 study_margins *margins, tandem_error *error)
{
    size_t whole = 0;
    *records = (study_records){.value = json_object(), .path = path, .margins = margins};
    if (!records->value) return tandem_no_memory(error, "for the study's records");
    if (!path) return TANDEM_OK;
    (void)snprintf(records->plan, sizeof records->plan, "%s", plan);
    tandem_status status = TANDEM_OK;
    tandem_error why = {.status = TANDEM_IO};
    const int opened = tandem_path_open(path, O_CREAT | O_APPEND, &why);
    if (opened < 0) status = tandem_error_set(error, why.status, "%s", why.text);
    if (opened >= 0 && !(records->file = fdopen(opened, "a"))) status = fail_records(path, "open", error);
    if (opened >= 0 && !records->file) (void)close(opened);
    if (status == TANDEM_OK && flock(fileno(records->file), LOCK_EX | LOCK_NB) != 0)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "another study writes to '%s'. Wait for it, or give another file", path);
    if (status == TANDEM_OK) status = read_records(records, &whole, error);
    if (status == TANDEM_OK && ftruncate(fileno(records->file), (off_t)whole) != 0)
        status = fail_records(path, "write", error);
    if (status == TANDEM_OK && whole == 0) status = write_head(records, error);
    if (status != TANDEM_OK) study_records_close(records);
    return status;
}

tandem_status study_records_read(study_records *records, tandem_error *error)
{
    size_t whole = 0;
    return records->file ? read_records(records, &whole, error) : TANDEM_OK;
}

void study_records_close(study_records *records)
{
    if (records->file) (void)fclose(records->file);
    json_decref(records->value);
    *records = (study_records){0};
}

int study_records_has(const study_records *records, const char *name, int n)
{
    const json_t *of = json_object_get(records->value, name);
    return of && (int)json_array_size(of) == n;
}

int study_records_find(double *value, int n, const study_records *records, const char *name)
{
    const json_t *of = json_object_get(records->value, name);
    if (!study_records_has(records, name, n)) return 0;
    for (int i = 0; i < n; i++) {
        const json_t *number = json_array_get(of, (size_t)i);
        value[i] = json_is_number(number) ? json_number_value(number) : NAN;
    }
    return 1;
}

tandem_status study_records_add(study_records *records, const char *name, const double *value, int n,
                                tandem_error *error)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(array, cli_json_number(value[i]));
    if (!array || json_object_set(records->value, name, array) != 0) {
        json_decref(array);
        return tandem_no_memory(error, "for the study's records");
    }
    json_t *line = json_pack("{s:s,s:o}", "name", name, "value", array);
    if (records->file) return write_line(records->file, line, error);
    json_decref(line);
    return TANDEM_OK;
}
