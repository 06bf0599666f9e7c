/* status.c: the table of statuses, and how errors are written. */
#include "tandem/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

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

/* A text that does not fit, with long words, such as paths, cut in their middle: an error's end says what to
 * do. */
static void fit_text(char *to, size_t room, const char *text)
{
    enum { LONG_WORD = 160, HEAD = 40, TAIL = 100 };
    size_t used = 0;
    while (*text && used + LONG_WORD + sizeof "… " < room) {
        size_t n = strcspn(text, " "), kept = n > LONG_WORD ? HEAD : n;
        while (kept < n && ((unsigned char)text[kept] & 0xc0) == 0x80) kept++; /* not within a letter */
        memcpy(to + used, text, kept);
        used += kept;
        if (kept < n) {
            size_t last = n - TAIL;
            while (((unsigned char)text[last] & 0xc0) == 0x80) last--;
            memcpy(to + used, "…", sizeof "…" - 1);
            memcpy(to + used + sizeof "…" - 1, text + last, n - last);
            used += sizeof "…" - 1 + n - last;
        }
        text += n;
        if (*text) to[used++] = *text++;
    }
    (void)snprintf(to + used, room - used, "%s", text);
}

tandem_status tandem_error_set(tandem_error *error, tandem_status status, const char *format, ...)
{
    if (error) {
        error->status = status;
        error->rank = -1;
        va_list arguments;
        va_start(arguments, format);
        char whole[1 << 14];
        (void)tandem_printable_format(whole, sizeof whole, "", format, arguments);
        va_end(arguments);
        if (strlen(whole) < sizeof error->text)
            memcpy(error->text, whole, strlen(whole) + 1);
        else
            fit_text(error->text, sizeof error->text, whole);
    }
    return status;
}

tandem_status tandem_no_memory(tandem_error *error, const char *format, ...)
{
    char what[TANDEM_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    (void)tandem_printable_format(what, sizeof what, "", format, arguments);
    va_end(arguments);
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory %s", what);
}

const char *tandem_status_name(tandem_status status) { return rows[status_in_table(status)].name; }
int tandem_status_exit_code(tandem_status status) { return rows[status_in_table(status)].exit_code; }
const char *tandem_status_meaning(tandem_status status) { return rows[status_in_table(status)].meaning; }
