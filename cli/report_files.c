/* report_files.c: finds out what a file is, and reads it with the reader of its format. */
#include "cli/report_files.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/grow.h"
#include "tandem/advanced/whatif.h"

enum { MAX_FILE = 1 << 28, MAX_LINES = 1 << 26 };

static const char *base_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static tandem_status refuse_report_file(const char *path, tandem_error *error)
{
    return tandem_error_set(
        error, TANDEM_WRONG_FORMAT,
        "'%.200s' holds nothing that a page shows. Expected a plan, a step's trace, a training "
        "log (train --log), a profile store (.db) or what a command printed with --json",
        path);
}

/* --- Results and plans ---------------------------------------------------------------------------------- */

tandem_status cli_report_add_result(report_page *page, json_t *result, const char *source,
                                    tandem_error *error)
{
    report_item item = {.result = result};
    return result ? report_page_add(page, &item, source, error) : TANDEM_OK;
}

static tandem_status add_plan_file(report_page *page, const char *path, const char *source,
                                   tandem_error *error)
{
    report_item item = {.source = NULL};
    const tandem_status status = tandem_plan_read(&item.plan, &item.graph, path, error);
    return status == TANDEM_OK ? report_page_add(page, &item, source, error) : status;
}

/* --- Logs ----------------------------------------------------------------------------------------------- */

/* jansson takes some 70 bytes for a value of two. */
static bool has_few_values(const char *text, size_t n)
{
    enum { MAX_VALUES = 1 << 20 };
    size_t n_value = 0;
    for (size_t i = 0; i < n; i++) n_value += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return n_value <= MAX_VALUES;
}

static double log_number(const json_t *line, const char *member)
{
    const json_t *const value = json_object_get(line, member);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* One line; a last line that a killed run left unfinished is dropped. */
static tandem_status add_log_line(report_item *item, int *capacity, const char *text, size_t n, int is_last,
                                  int number, const char *path, tandem_error *error)
{
    json_error_t where;
    report_log *const log = &item->log;
    const bool is_short = has_few_values(text, n);
    json_t *const line = is_short ? json_loadb(text, n, 0, &where) : NULL;
    const json_t *const step = json_object_get(line, "step");
    tandem_status status = TANDEM_OK;
    if (!json_is_integer(step)) {
        if (!is_last || line)
            status = tandem_error_set(error, TANDEM_MALFORMED,
                                      "'%.200s', line %d: expected an object with \"step\", a whole number",
                                      path, number);
    } else {
        report_log_line *const more = tandem_grow(log->line, capacity, log->n, sizeof *more, MAX_LINES);
        if (more) {
            log->line = more;
            log->line[log->n++] = (report_log_line){json_integer_value(step), log_number(line, "loss"),
                                                    log_number(line, "accuracy")};
            report_made_read(&item->made, json_object_get(line, "made"));
        } else {
            status = tandem_no_memory(error, "to read '%.200s'", path);
        }
    }
    json_decref(line);
    return status;
}

static tandem_status add_log(report_page *page, const char *path, const char *bytes, size_t n,
                             tandem_error *error)
{
    report_item item = {.source = NULL};
    int capacity = 0, number = 0;
    tandem_status status = TANDEM_OK;
    for (size_t at = 0; at < n && status == TANDEM_OK;) {
        const char *const end = memchr(bytes + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - bytes) - at : n - at;
        number++;
        if (length > 0)
            status = add_log_line(&item, &capacity, bytes + at, length, !end, number, path, error);
        at += length + 1;
    }
    if (status == TANDEM_OK && item.log.n == 0) status = refuse_report_file(path, error);
    if (status == TANDEM_OK) return report_page_add(page, &item, base_name(path), error);
    report_item_close(&item);
    return status;
}

/* --- JSON of any kind ----------------------------------------------------------------------------------- */

/* Whether the first line is that of a log: an object with a step and no schema. */
static int is_log(const char *bytes, size_t n)
{
    const char *const end = memchr(bytes, '\n', n);
    json_error_t where;
    const size_t length = end ? (size_t)(end - bytes) : n;
    if (!has_few_values(bytes, length)) return 0;
    json_t *const line = json_loadb(bytes, length, 0, &where);
    const int has_step = json_is_integer(json_object_get(line, "step")) && !json_object_get(line, "schema");
    json_decref(line);
    return has_step;
}

static tandem_status add_json(report_page *page, const char *path, const char *bytes, size_t n,
                              tandem_error *error)
{
    static const char prefix[] = "tandem.";
    json_error_t where;
    tandem_status status =
        has_few_values(bytes, n)
            ? TANDEM_OK
            : tandem_error_set(error, TANDEM_MALFORMED,
                               "'%s' has more than 2^20 values, which no result of tandem has", path);
    if (status != TANDEM_OK) return status;
    json_t *const root = json_loadb(bytes, n, 0, &where);
    const char *const schema = json_string_value(json_object_get(root, "schema"));
    if (!root)
        return tandem_error_set(error, TANDEM_MALFORMED, "'%.200s', line %d, column %d: %s", path, where.line,
                                where.column, where.text);
    if (schema && strcmp(schema, "tandem.plan/1") == 0)
        status = add_plan_file(page, path, base_name(path), error);
    else if (!schema || strncmp(schema, prefix, sizeof prefix - 1) != 0)
        status = refuse_report_file(path, error);
    else
        return cli_report_add_result(page, root, base_name(path), error);
    json_decref(root);
    return status;
}

static tandem_status add_text_file(report_page *page, const char *path, tandem_error *error)
{
    char *bytes = NULL;
    size_t n = 0;
    tandem_status status = tandem_file_read(&bytes, &n, path, MAX_FILE, error);
    if (status == TANDEM_OK) status = (is_log(bytes, n) ? add_log : add_json)(page, path, bytes, n, error);
    free(bytes);
    return status;
}

/* --- Traces --------------------------------------------------------------------------------------------- */

/* A recorded job is analysed by `whatif`, whose result is what the page shows. */
static tandem_status add_recording(report_page *page, const cli_options *options, const char *path,
                                   tandem_error *error)
{
    const char *const argument[] = {path, NULL};
    int code = 0;
    json_t *const result = cli_run_inner(&command_whatif, options, argument, &code);
    if (code == 0) return cli_report_add_result(page, result, base_name(path), error);
    json_decref(result);
    return tandem_error_set(error, TANDEM_MALFORMED, "`tandem whatif %.200s` failed with exit code %d", path,
                            code);
}

tandem_status cli_report_add_trace(report_page *page, const char *path, const char *source,
                                   tandem_error *error)
{
    report_item item = {.source = NULL};
    const tandem_status status = tandem_step_timeline_read(&item.timeline, path, error);
    return status == TANDEM_OK ? report_page_add(page, &item, source, error) : status;
}

/* What the first bytes show. */
typedef enum file_guess { GUESS_JSON, GUESS_TRACE, GUESS_STORE } file_guess;

static tandem_status guess_file(file_guess *guess, const char *path, tandem_error *error)
{
    enum { BEGIN = 4096 };
    char begin[BEGIN + 1] = "";
    FILE *const file = fopen(path, "rb");
    if (!file) return tandem_error_set(error, TANDEM_IO, "cannot read '%.200s': %s", path, strerror(errno));
    const size_t n = fread(begin, 1, BEGIN, file);
    const int failed = ferror(file);
    (void)fclose(file);
    if (failed) return tandem_error_set(error, TANDEM_IO, "cannot read '%.200s'", path);
    if (cli_report_is_store(path, begin, n)) {
        *guess = GUESS_STORE;
        return TANDEM_OK;
    }
    const size_t blank = strspn(begin, " \t\r\n");
    const int is_json = blank < n && begin[blank] == '{';
    *guess = is_json && !strstr(begin, "\"traceEvents\"") && !strstr(begin, "\"displayTimeUnit\"")
                 ? GUESS_JSON
                 : GUESS_TRACE;
    return n ? TANDEM_OK : refuse_report_file(path, error);
}

tandem_status cli_report_add_file(report_page *page, const cli_options *options, const char *path,
                                  tandem_error *error)
{
    file_guess guess = GUESS_JSON;
    tandem_trace_format format = TANDEM_TRACE_FORMAT_STEP;
    tandem_status status = guess_file(&guess, path, error);
    if (status != TANDEM_OK) return status;
    if (guess == GUESS_STORE) return cli_report_add_store(page, path, error);
    if (guess == GUESS_JSON) return add_text_file(page, path, error);
    status = tandem_trace_format_detect(&format, path, error);
    if (status != TANDEM_OK) return status;
    return format == TANDEM_TRACE_FORMAT_STEP ? cli_report_add_trace(page, path, base_name(path), error)
                                              : add_recording(page, options, path, error);
}

/* --- --report ------------------------------------------------------------------------------------------- */

tandem_status cli_report_check(const cli_options *options, tandem_error *error)
{
    tandem_file file = {0};
    if (!options->report) return TANDEM_OK;
    const tandem_status status = tandem_file_open(&file, options->report, error);
    tandem_file_discard(&file);
    return status;
}

static tandem_status add_replay(report_page *page, const cli_options *options, const char *plan_path,
                                tandem_error *error)
{
    char trace_path[SCRATCH_JSON];
    const char *argument[20] = {"--db",        options->db,         "--plan",  plan_path,
                                "--operators", "--memory-timeline", "--trace", trace_path};
    int n = 8, code = 0;
    tandem_status status = scratch_json_make(trace_path, error);
    if (status != TANDEM_OK) return status;
    if (options->predict) argument[n++] = "--predict";
    if (options->kernels != TANDEM_KERNELS_TANDEM) {
        argument[n++] = "--kernels";
        argument[n++] = tandem_kernel_set_name(options->kernels);
    }
    if (options->without_update) argument[n++] = "--without-update";
    if (options->from_description) argument[n++] = "--from-description";
    if (cli_option_given(options, OPTION_COLLECTIVE)) {
        argument[n++] = "--collective";
        argument[n++] = tandem_collective_algorithm_name(options->collective);
    }
    status = cli_report_add_result(page, cli_run_inner(&command_replay, options, argument, &code), "replay",
                                   error);
    if (status == TANDEM_OK && code == 0)
        status = cli_report_add_trace(page, trace_path, "replay --trace", error);
    scratch_file_remove(trace_path);
    return status;
}

tandem_status cli_report_add_plan(report_page *page, const cli_options *options, const tandem_plan *plan,
                                  const tandem_cluster *cluster, const tandem_graph *graph, int replays,
                                  tandem_error *error)
{
    char path[SCRATCH_JSON];
    tandem_plan on_cluster = *plan; /* shares the precisions of the plan */
    on_cluster.cluster = *cluster;
    tandem_status status = scratch_json_make(path, error);
    if (status != TANDEM_OK) return status;
    status = tandem_plan_write(&on_cluster, graph, path, error);
    if (status == TANDEM_OK) status = add_plan_file(page, path, "plan", error);
    if (status == TANDEM_OK && replays) status = add_replay(page, options, path, error);
    scratch_file_remove(path);
    return status;
}

int cli_report_write_result(const cli_options *options, json_t *result, const char *source)
{
    tandem_error error = {0};
    report_page page = {0};
    const tandem_status status = cli_report_add_result(&page, result, source, &error);
    return cli_report_finish(&page, options, status, &error);
}

int cli_report_finish(report_page *page, const cli_options *options, tandem_status status,
                      const tandem_error *error)
{
    tandem_error failed = *error;
    if (status == TANDEM_OK) status = report_page_write(page, options->report, &failed);
    report_page_close(page);
    if (status != TANDEM_OK) return cli_fail(&failed);
    cli_note(options, "page written to %s", options->report);
    return 0;
}
