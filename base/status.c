/* status.c: the table of statuses, and how errors are written. */
#include "tandem/status.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    int exit_code;
    const char *meaning;
} rows[TANDEM_N_STATUS] = {
#define ROW(name, exit_code, meaning) {#name, exit_code, meaning},
    TANDEM_STATUS_TABLE(ROW)
#undef ROW
};

static tandem_status status_in_table(tandem_status status)
{
    return (int)status >= 0 && status < TANDEM_N_STATUS ? status : TANDEM_BUG;
}

tandem_status tandem_error_set(tandem_error *error, tandem_status status, const char *format, ...)
{
    if (error) {
        error->status = status;
        error->rank = -1;
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return status;
}

tandem_status tandem_no_memory(tandem_error *error, const char *format, ...)
{
    char what[TANDEM_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory %s", what);
}

const char *tandem_status_name(tandem_status status) { return rows[status_in_table(status)].name; }
int tandem_status_exit_code(tandem_status status) { return rows[status_in_table(status)].exit_code; }
const char *tandem_status_meaning(tandem_status status) { return rows[status_in_table(status)].meaning; }
