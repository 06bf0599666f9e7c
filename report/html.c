#include "report/html.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/plain_text.h"
#include "base/quantity.h"

/* --- Text ----------------------------------------------------------------------------------------------- */

/* The code point at `text` and its bytes in *length; −1 for a byte that begins none. */
static int32_t decode_utf8(const unsigned char *text, int *length)
{
    static const int32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const int n = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    *length = 1;
    if (n == 1) return text[0];
    if (n == 0 || text[0] > 0xf4) return -1;
    int32_t code = text[0] & (0x7f >> n);
    for (int k = 1; k < n; k++) {
        if ((text[k] & 0xc0) != 0x80) return -1; /* also at the end of the text */
        code = code << 6 | (text[k] & 0x3f);
    }
    if (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return -1;
    *length = n;
    return code;
}

/* Controls, and what changes the direction of the text around it. */
static int is_control(int32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0xfeff || (code & 0xfffe) == 0xfffe;
}

static void put_character(FILE *out, int32_t code, const char *bytes, int length)
{
    switch (code) {
    case '&': (void)fputs("&amp;", out); break;
    case '<': (void)fputs("&lt;", out); break;
    case '>': (void)fputs("&gt;", out); break;
    case '"': (void)fputs("&quot;", out); break;
    case '\'': (void)fputs("&#39;", out); break;
    case '\n':
    case '\t': (void)fputc(' ', out); break;
    case -1: (void)fputs("\xef\xbf\xbd", out); break;
    default:
        if (is_control(code))
            (void)fprintf(out, "[U+%04X]", (unsigned)code);
        else
            (void)fwrite(bytes, 1, (size_t)length, out);
    }
}

static void put_text(FILE *out, const char *text, size_t longest)
{
    const size_t n = strlen(text);
    if (n < longest) longest = n;
    for (size_t k = 0; k < longest;) {
        int length = 1;
        const int32_t code = decode_utf8((const unsigned char *)text + k, &length);
        put_character(out, code, text + k, length);
        k += (size_t)length;
    }
    if (longest < n) (void)fprintf(out, "\xe2\x80\xa6 (%zu bytes)", n);
}

/* --- Format --------------------------------------------------------------------------------------------- */

/* One conversion; returns what follows it. */
static const char *put_conversion(FILE *out, const char *format, size_t longest, va_list *arguments)
{
    char one[16];
    const size_t n = strcspn(format + 1, "sdgf%u") + 2;
    assert(n < sizeof one);
    memcpy(one, format, n);
    one[n] = '\0';
    const char kind = one[n - 1];
    /* Branches that look alike take arguments of other types, and clang's analyzer loses the caller's
     * va_start. NOLINTBEGIN(bugprone-branch-clone,clang-analyzer-valist.Uninitialized) */
    if (kind == '%')
        (void)fputc('%', out);
    else if (kind == 's')
        put_text(out, va_arg(*arguments, const char *), longest);
    else if (kind == 'g' || kind == 'f')
        (void)fprintf(out, one, va_arg(*arguments, double));
    else if (kind == 'u')
        (void)fprintf(out, one, va_arg(*arguments, size_t)); /* %zu */
    else if (strchr(one, 'l'))
        (void)fprintf(out, one, va_arg(*arguments, long long));
    else
        (void)fprintf(out, one, va_arg(*arguments, int));
    /* NOLINTEND(bugprone-branch-clone,clang-analyzer-valist.Uninitialized) */
    return format + n;
}

static void put_formatted(FILE *out, const char *format, size_t longest, va_list *arguments)
{
    const locale_t before = tandem_plain_begin();
    while (*format) {
        const size_t n = strcspn(format, "%");
        (void)fwrite(format, 1, n, out);
        format += n;
        if (*format) format = put_conversion(out, format, longest, arguments);
    }
    tandem_plain_end(before);
}

void report_put(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_formatted(out, format, REPORT_LONGEST, &arguments);
    va_end(arguments);
}

void report_put_whole(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_formatted(out, format, (size_t)16 * REPORT_LONGEST, &arguments);
    va_end(arguments);
}

/* --- Quantities ----------------------------------------------------------------------------------------- */

static const report_quantity gap = {"\xe2\x80\x93"};

report_quantity report_ns(double ns)
{
    report_quantity q = gap;
    if (isfinite(ns) && fabs(ns) < 0x1p62) (void)tandem_quantity_print_ns(q.text, sizeof q.text, (int64_t)ns);
    return q;
}

report_quantity report_bytes(double bytes)
{
    report_quantity q = gap;
    if (isfinite(bytes) && bytes >= 0 && bytes < 0x1p63)
        (void)tandem_quantity_print_bytes(q.text, sizeof q.text, (uint64_t)bytes);
    return q;
}

report_quantity report_ratio(double ratio)
{
    report_quantity q = gap;
    if (isfinite(ratio)) (void)tandem_quantity_print_ratio(q.text, sizeof q.text, ratio);
    return q;
}

report_quantity report_signed_ratio(double ratio)
{
    report_quantity q = report_ratio(ratio);
    if (!(ratio > 0) || !isfinite(ratio)) return q;
    memmove(q.text + 1, q.text, sizeof q.text - 1);
    q.text[0] = '+';
    q.text[sizeof q.text - 1] = '\0';
    return q;
}

report_quantity report_time_of_day(double ns)
{
    report_quantity q = gap;
    struct tm utc;
    const time_t s = isfinite(ns) && ns >= 0 && ns < 0x1p63 ? (time_t)(ns / 1e9) : -1;
    if (s >= 0 && gmtime_r(&s, &utc)) (void)strftime(q.text, sizeof q.text, "%Y-%m-%d %H:%M UTC", &utc);
    return q;
}

report_quantity report_number(double value)
{
    report_quantity q = gap;
    if (isfinite(value)) (void)tandem_plain_print(q.text, sizeof q.text, "%.4g", value);
    return q;
}
