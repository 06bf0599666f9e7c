/* profile_import.c: `tandem profile --import`: files rows of timing tables in the store, all or none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "cli/calibration_text.h"
#include "cli/command/profile_import.h"
#include "tandem/advanced/timings.h"

static tandem_status import_file(tandem_import *import, const char *path, tandem_error *error)
{
    FILE *const stream = fopen(path, "r");
    if (!stream) return tandem_error_set(error, TANDEM_IO, "cannot open '%s': %s", path, strerror(errno));
    const tandem_status status = tandem_import_read(import, stream, path, error);
    (void)fclose(stream);
    return status;
}

/* The files of "a.csv,b.csv", one after another. */
static tandem_status import_files(tandem_import *import, const char *list, tandem_error *error)
{
    char *const names = strdup(list), *rest = NULL;
    if (!names) return tandem_no_memory(error, "for the names of tables");
    tandem_status status = TANDEM_OK;
    int n = 0;
    for (char *name = strtok_r(names, ",", &rest); name && status == TANDEM_OK;
         name = strtok_r(NULL, ",", &rest), n++)
        status = import_file(import, name, error);
    free(names);
    if (n == 0 && status == TANDEM_OK)
        return tandem_error_set(error, TANDEM_USAGE, "--import takes FILE.csv,..., got '%s'", list);
    return status;
}

/* All rows left out: the first reason is the answer. */
static tandem_status check_imported(const tandem_import_summary *s, tandem_error *error)
{
    if (s->n_row == 0) return tandem_error_set(error, TANDEM_MALFORMED, "the tables have no rows");
    if (s->n_left_out < s->n_row) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MISSING, "none of %lld rows can be filed; line %lld: %.800s",
                            (long long)s->n_row, (long long)s->reason[0].line, s->reason[0].why);
}

static tandem_status run_import_in(tandem_store *store, tandem_import_summary *summary,
                                   const cli_options *options, tandem_error *error)
{
    tandem_import *import = NULL;
    tandem_status status = tandem_store_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = tandem_import_open(&import, store, options->device, options->force, error);
    if (status == TANDEM_OK) status = import_files(import, options->import, error);
    if (status == TANDEM_OK) {
        *summary = *tandem_import_summary_of(import);
        status = check_imported(summary, error);
    }
    tandem_import_close(import);
    if (status == TANDEM_OK) return tandem_store_commit(store, error);
    tandem_store_rollback(store);
    return status;
}

/* --- Report --------------------------------------------------------------------------------------------- */

/* What the store's rows say of each device. */
static tandem_status calibrate_imported(tandem_calibration **calibration, tandem_store *store,
                                        const tandem_import_summary *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int d = 0; d < s->n_device && status == TANDEM_OK; d++) {
        tandem_device device;
        char notes[TANDEM_CALIBRATION_NOTES];
        status = tandem_device_find(&device, s->device[d], error);
        if (status == TANDEM_OK) status = tandem_calibration_open(&calibration[d], &device, error);
        if (status == TANDEM_OK) status = tandem_calibration_add_stored(calibration[d], store, error);
        if (status == TANDEM_OK) tandem_calibration_finish(calibration[d], notes);
    }
    return status;
}

static int print_import_json(const tandem_import_summary *s, tandem_calibration *const *of,
                             const cli_options *options, double seconds)
{
    json_t *result = cli_json_new("profile"), *devices = json_array(), *reasons = json_array();
    for (int d = 0; d < s->n_device; d++) json_array_append_new(devices, calibration_json(of[d]));
    for (int i = 0; i < s->n_reason; i++)
        json_array_append_new(reasons,
                              json_pack("{s:I,s:I,s:s}", "rows", (json_int_t)s->reason[i].n_row, "line",
                                        (json_int_t)s->reason[i].line, "why", s->reason[i].why));
    json_object_set_new(result, "store", json_string(options->db));
    json_object_set_new(result, "rows", json_integer((json_int_t)s->n_row));
    json_object_set_new(result, "filed", json_integer((json_int_t)s->n_filed));
    json_object_set_new(result, "known", json_integer((json_int_t)s->n_known));
    json_object_set_new(result, "left_out", json_integer((json_int_t)s->n_left_out));
    json_object_set_new(result, "reasons", reasons);
    json_object_set_new(result, "devices", devices);
    json_object_set_new(result, "seconds", json_real(seconds));
    return cli_print_json(result);
}

static int print_import_text(const tandem_import_summary *s, tandem_calibration *const *of,
                             const cli_options *options, int64_t ns)
{
    char time[TANDEM_QUANTITY_TEXT], rate[TANDEM_QUANTITY_TEXT], text[CALIBRATION_TEXT];
    printf("%lld rows into %s in %s, %s; %lld were there already\n", (long long)s->n_filed, options->db,
           tandem_quantity_print_ns(time, sizeof time, ns),
           tandem_quantity_print_per_second(rate, sizeof rate, 1e9 * (double)s->n_row / (double)ns, "rows"),
           (long long)s->n_known);
    for (int i = 0; i < s->n_reason; i++)
        printf("left out, %lld rows from line %lld on: %s\n", (long long)s->reason[i].n_row,
               (long long)s->reason[i].line, s->reason[i].why);
    for (int d = 0; d < s->n_device; d++) printf("%s\n", calibration_text(text, sizeof text, of[d]));
    return 0;
}

int profile_import(const cli_options *options)
{
    tandem_error error = {0};
    tandem_store *store = NULL;
    tandem_import_summary *const summary = calloc(1, sizeof *summary);
    tandem_calibration *calibration[TANDEM_IMPORT_DEVICES] = {NULL};
    int64_t ns = 0;
    tandem_status status = summary ? TANDEM_OK : tandem_no_memory(&error, "for an import");
    if (status == TANDEM_OK) status = tandem_store_open(&store, options->db, TANDEM_STORE_WRITE, &error);
    if (status == TANDEM_OK) {
        const int64_t begin = tandem_now_ns();
        status = run_import_in(store, summary, options, &error);
        ns = tandem_now_ns() - begin;
    }
    if (status == TANDEM_OK) status = calibrate_imported(calibration, store, summary, &error);
    const int code = status != TANDEM_OK ? cli_fail(&error)
                     : options->json     ? print_import_json(summary, calibration, options, 1e-9 * (double)ns)
                                         : print_import_text(summary, calibration, options, ns);
    for (int d = 0; d < TANDEM_IMPORT_DEVICES; d++) tandem_calibration_close(calibration[d]);
    tandem_store_close(store);
    free(summary);
    return code;
}
