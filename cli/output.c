/* output.c: results go to stdout; errors, notes and progress go to stderr. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/printable.h"
#include "base/quantity.h"
#include "cli/program.h"

static int line_is_open; /* a progress line waits to be overwritten */
static json_t **capture; /* where a result goes; NULL: to standard output */

void cli_progress_end(void)
{
    if (line_is_open) fputs("\r\033[K", stderr);
    line_is_open = 0;
}

json_t **cli_capture(json_t **to)
{
    json_t **const before = capture;
    capture = to;
    return before;
}

char *cli_format(const char *kept, const char *format, va_list arguments)
{
    enum { USUAL = 256 }; /* most lines fit, and are formatted once */
    char *text = malloc(USUAL);
    const size_t n = tandem_printable_format(text, text ? USUAL : 0, kept, format, arguments);
    if (!text || n < USUAL) return text;
    free(text);
    text = malloc(n + 1);
    if (text) (void)tandem_printable_format(text, n + 1, kept, format, arguments);
    return text;
}

int cli_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *const text = cli_format("\n\t\r", format, arguments);
    va_end(arguments);
    if (!text) (void)cli_fail_with(TANDEM_NO_MEMORY, "no memory for the result");
    const int written = text ? fputs(text, stdout) : EOF;
    free(text);
    return written;
}

void cli_progress_clear(void)
{
    if (line_is_open) (void)!write(STDERR_FILENO, "\r\033[K", 4);
}

int cli_fail(const tandem_error *error)
{
    const char *text = error->text[0] ? error->text : tandem_status_meaning(error->status);
    rank_start_failed(text);
    cli_progress_end();
    fprintf(stderr, "%s: %s\n", cli_program_running()->name, text);
    return tandem_status_exit_code(error->status);
}

int cli_fail_on_rank(int rank, const tandem_error *error)
{
    const int is_reporter = error->status == TANDEM_RANK_FAILED || error->rank < 0 || error->rank == rank;
    return is_reporter ? cli_fail(error) : tandem_status_exit_code(error->status);
}

int cli_fail_with(tandem_status status, const char *format, ...)
{
    tandem_error error = {.status = status, .rank = -1};
    va_list arguments;
    va_start(arguments, format);
    (void)tandem_printable_format(error.text, sizeof error.text, "", format, arguments);
    va_end(arguments);
    return cli_fail(&error);
}

json_t *cli_json_new(const char *command)
{
    char schema[64];
    (void)snprintf(schema, sizeof schema, "tandem.%s/1", command);
    return json_pack("{s:s,s:o}", "schema", schema, "made", cli_made_json());
}

json_t *cli_json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

json_t *cli_json_known_integer(int64_t x) { return x < 0 ? json_null() : json_integer(x); }

json_t *cli_json_shares(const tandem_sharding *sharding)
{
    json_t *const shares = json_array();
    for (int c = 0; c < sharding->n_share; c++)
        json_array_append_new(shares, json_integer(sharding->class_units[c]));
    return shares;
}

int cli_print_json(json_t *object)
{
    if (capture) {
        *capture = object;
        return object ? 0 : cli_fail_with(TANDEM_NO_MEMORY, "no memory for the result");
    }
    cli_progress_end();
    const int written =
        object &&
        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) == 0 &&
        fputc('\n', stdout) != EOF && fflush(stdout) == 0;
    json_decref(object);
    if (written) return 0;
    return cli_fail_with(TANDEM_IO, "cannot write the result to standard output");
}

void cli_progress(const cli_options *options, int64_t left_ns, const char *format, ...)
{
    if (options->quiet || !isatty(STDERR_FILENO)) return;
    char text[256];
    tandem_quantity left = {""};
    va_list arguments;
    va_start(arguments, format);
    (void)tandem_printable_format(text, sizeof text, "", format, arguments);
    va_end(arguments);
    if (left_ns > 0) left = tandem_quantity_ns(left_ns);
    cli_progress_end();
    line_is_open = 1;
    fprintf(stderr, "%s%s%s%s", text, left_ns > 0 ? ", " : "", left.text, left_ns > 0 ? " left" : "");
    fflush(stderr);
}

void cli_note(const cli_options *options, const char *format, ...)
{
    if (options->quiet) return;
    cli_progress_end();
    va_list arguments;
    va_start(arguments, format);
    char *const text = cli_format("\n\t\r", format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", text ? text : "no memory for a note");
    free(text);
}
