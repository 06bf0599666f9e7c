/* measured_check.c: whether a file of measured times is whole and true (by_others.h). */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "predictor/by_others.h"
#include "tandem/advanced/timings.h"

#include "measured_tables.h"

const tandem_measured_file *tandem_measured_files(void) { return measured_tables; }

typedef struct measured_checking {
    const tandem_measured_file *file;
    tandem_timing last; /* of the row before */
    tandem_hash_index tables, rows;
    int64_t n_row;
    int n_table;
} measured_checking;

static int is_same_table(const tandem_timing *a, const tandem_timing *b)
{
    return a->pass == b->pass && strcmp(a->kind, b->kind) == 0 && strcmp(a->precision, b->precision) == 0 &&
           strcmp(a->method, b->method) == 0;
}

/* A table that was there before is a file that was doubled. */
static tandem_status note_table(measured_checking *c, const tandem_timing *t, tandem_error *error)
{
    uint64_t hash = tandem_hash_text(TANDEM_HASH_START, t->kind);
    hash = tandem_hash_text(hash ^ 1, t->precision);
    hash = tandem_hash_text(hash ^ 1, t->method) + (uint64_t)t->pass;
    if (tandem_hash_index_find(&c->tables, hash) >= 0)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "the table of %s in %s, %s, timed by '%s' is there twice; keep one", t->kind,
                                t->precision, tandem_pass_name(t->pass), t->method);
    return tandem_hash_index_add(&c->tables, hash, c->n_table++)
               ? TANDEM_OK
               : tandem_no_memory(error, "to check measured times");
}

/* A line that was copied counts twice. */
static tandem_status note_row(measured_checking *c, const tandem_timing *t, tandem_error *error)
{
    const uint64_t hash = tandem_timing_hash(t);
    if (tandem_hash_index_find(&c->rows, hash) >= 0)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "the row is there twice, with the same time; keep one");
    return tandem_hash_index_add(&c->rows, hash, (int)c->n_row)
               ? TANDEM_OK
               : tandem_no_memory(error, "to check measured times");
}

static tandem_status check_gpu(const tandem_timing *t, tandem_device *device, tandem_error *error)
{
    const tandem_status status = tandem_timing_device(device, t->device, error);
    if (status != TANDEM_OK || strcmp(device->name, t->device) == 0) return status;
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "'%s' is the card %s; name it so, in the file's name, too", t->device,
                            device->name);
}

static tandem_status check_measured_row(void *context, const tandem_timing *t, tandem_error *error)
{
    measured_checking *const c = context;
    char name[2 * TANDEM_TIMING_TEXT + 2];
    tandem_device device;
    tandem_work work;
    (void)snprintf(name, sizeof name, "%s_%s", t->device, t->source);
    if (strcmp(name, c->file->name) != 0)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "it is of the card '%s' by the source '%s'; %s holds its own alone",
                                t->device, t->source, c->file->name);
    tandem_status status = TANDEM_OK;
    const int begins_table = c->n_row++ == 0 || t->line != c->last.line + 1 || !is_same_table(t, &c->last);
    if (begins_table) status = note_table(c, t, error);
    c->last = *t;
    if (status == TANDEM_OK) status = note_row(c, t, error);
    if (status == TANDEM_OK) status = check_gpu(t, &device, error);
    if (status == TANDEM_OK) status = tandem_timing_work(&work, t, error);
    return status == TANDEM_OK ? tandem_timing_check(t, &work, &device, 0, error) : status;
}

/* The count shows whether lines were lost. */
static tandem_status check_counts_stated(const tandem_measured_file *file, tandem_error *error)
{
    int64_t line = 1;
    for (const char *at = file->text, *end; *at; at = end + 1, line++) {
        const char *const count = strstr(at, ",count=");
        end = strchr(at, '\n');
        if (strncmp(at, "device=", strlen("device=")) == 0 && (!count || count > end))
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "%s, line %lld: the header has no count= of its rows", file->name,
                                    (long long)line);
    }
    return TANDEM_OK;
}

tandem_status tandem_measured_check(int64_t *n_row, const tandem_measured_file *file, tandem_error *error)
{
    static const char end[] = "\n# end\n";
    const size_t size = strlen(file->text), n_end = strlen(end);
    measured_checking checking = {.file = file};
    if (size < n_end || strcmp(file->text + size - n_end, end) != 0)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s does not end with the line \"# end\": it is cut. Take the whole file",
                                file->name);
    tandem_status status = check_counts_stated(file, error);
    if (status != TANDEM_OK) return status;
    FILE *const stream = fmemopen((void *)(uintptr_t)file->text, size, "r");
    if (!stream) return tandem_no_memory(error, "to check %s", file->name);
    status = tandem_timings_read(stream, file->name, 1, check_measured_row, &checking, error);
    (void)fclose(stream);
    tandem_hash_index_free(&checking.tables);
    tandem_hash_index_free(&checking.rows);
    if (status == TANDEM_OK && n_row) *n_row = checking.n_row;
    return status;
}
