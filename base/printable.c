/* printable.c: formats text for terminals. A name in a file may hold escape sequences (ECMA-48), which would
 * set a title, paste into the input, or show another text than there is. */
#include "base/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/plain_text.h"

typedef struct writer {
    char *text;
    size_t size, n; /* n: written, or needed */
} writer;

static void put_printable_text(writer *w, const char *text, size_t n)
{
    const size_t left = w->n + 1 < w->size ? w->size - 1 - w->n : 0;
    if (w->text && left > 0) memcpy(w->text + w->n, text, n < left ? n : left);
    w->n += n;
}

/* --- One argument that is a text ------------------------------------------------------------------------ */

/* The bytes of the character at `at`, of n that are left; 0: it is no UTF-8 (RFC 3629). */
static int decode_character(uint32_t *code, const unsigned char *at, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const int bytes = *at < 0x80 ? 1 : *at >> 5 == 6 ? 2 : *at >> 4 == 14 ? 3 : *at >> 3 == 30 ? 4 : 0;
    if (bytes == 0 || (size_t)bytes > n) return 0;
    *code = bytes == 1 ? *at : *at & (0x7Fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((at[i] & 0xC0) != 0x80) return 0;
        *code = *code << 6 | (at[i] & 0x3F);
    }
    const bool is_surrogate = *code >= 0xD800 && *code <= 0xDFFF;
    return *code < least[bytes] || *code > 0x10FFFF || is_surrogate ? 0 : bytes;
}

/* Controls, and what changes the direction, breaks lines or has no width. */
static bool is_shown_as_code(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0, 0x1F},        {0x7F, 0x9F},     {0xAD, 0xAD},      {0x61C, 0x61C},
                  {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E},  {0x2060, 0x206F},
                  {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last) return true;
    return false;
}

/* How many bytes at the beginning are printable ASCII, which most texts are as a whole. */
static size_t count_plain(const char *text, size_t n)
{
    size_t count = 0;
    while (count < n && text[count] >= ' ' && text[count] <= '~') count++;
    return count;
}

static void put_argument(writer *w, const char *text, size_t n, const char *kept)
{
    char shown[16];
    for (size_t i = 0; i < n;) {
        const size_t n_plain = count_plain(text + i, n - i);
        put_printable_text(w, text + i, n_plain);
        i += n_plain;
        if (i == n) return;
        uint32_t code = 0;
        const int bytes = decode_character(&code, (const unsigned char *)text + i, n - i);
        const bool is_kept = bytes == 1 && text[i] && strchr(kept, text[i]);
        if (bytes && (is_kept || !is_shown_as_code(code))) {
            put_printable_text(w, text + i, (size_t)bytes);
        } else {
            const int length = bytes < 2 ? snprintf(shown, sizeof shown, "\\x%02x", (unsigned char)text[i])
                                         : snprintf(shown, sizeof shown, "\\u%04x", (unsigned)code);
            put_printable_text(w, shown, (size_t)length);
        }
        i += bytes ? (size_t)bytes : 1;
    }
}

/* --- The conversions of a format ------------------------------------------------------------------------ */

/* va_list is an array on some machines: only within a structure can its address be passed on. */
typedef struct remaining {
    va_list arguments;
} remaining;

typedef struct conversion {
    char spec[48];        /* "%-8.3lld" with the numbers for its stars */
    int width, precision; /* −1: none */
    bool is_left;
    char length[3], kind;
} conversion;

static const char *parse_number(int *value, const char *at, remaining *rest)
{
    if (*at == '*') {
        *value = va_arg(rest->arguments, int);
        return at + 1;
    }
    for (*value = 0; *at >= '0' && *at <= '9'; at++)
        if (*value < 100000) *value = *value * 10 + (*at - '0');
    return at;
}

/* From after the '%'; returns what follows the conversion. */
static const char *parse_conversion(conversion *c, const char *at, remaining *rest)
{
    char flags[8] = "";
    size_t n_flag = 0, n_length = 0;
    *c = (conversion){.width = -1, .precision = -1};
    for (; *at && strchr("-+ #0'", *at) && n_flag + 1 < sizeof flags; at++) flags[n_flag++] = *at;
    if (*at == '*' || (*at >= '1' && *at <= '9')) at = parse_number(&c->width, at, rest);
    if (*at == '.') at = parse_number(&c->precision, at + 1, rest);
    for (; *at && strchr("hlLzjt", *at) && n_length < 2; at++) c->length[n_length++] = *at;
    c->kind = *at;
    c->is_left = strchr(flags, '-') || c->width < -1;
    if (c->width < -1) c->width = -c->width;
    if (c->kind == 's') return at + 1; /* is printed without a spec */
    char numbers[32] = "";
    if (c->width >= 0) (void)snprintf(numbers, sizeof numbers, "%d", c->width);
    if (c->precision >= 0)
        (void)snprintf(numbers + strlen(numbers), sizeof numbers - strlen(numbers), ".%d", c->precision);
    (void)snprintf(c->spec, sizeof c->spec, "%%%s%s%s%s%c", flags, c->is_left ? "-" : "", numbers, c->length,
                   c->kind);
    return *at ? at + 1 : at;
}

/* NOLINTBEGIN(clang-diagnostic-format-nonliteral, bugprone-branch-clone): the compiler has checked the format
 * of each spec; branches differ by the type that they take */
static int print_integer(char *text, size_t size, const conversion *c, remaining *rest)
{
    if (strcmp(c->length, "ll") == 0)
        return snprintf(text, size, c->spec, va_arg(rest->arguments, long long));
    switch (c->length[0]) {
    case 'l': return snprintf(text, size, c->spec, va_arg(rest->arguments, long));
    case 'z': return snprintf(text, size, c->spec, va_arg(rest->arguments, size_t));
    case 'j': return snprintf(text, size, c->spec, va_arg(rest->arguments, intmax_t));
    case 't': return snprintf(text, size, c->spec, va_arg(rest->arguments, ptrdiff_t));
    default: return snprintf(text, size, c->spec, va_arg(rest->arguments, int));
    }
}

static int print_number(char *text, size_t size, const conversion *c, remaining *rest)
{
    if (strchr("diouxX", c->kind)) return print_integer(text, size, c, rest);
    if (c->kind == 'p') return snprintf(text, size, c->spec, va_arg(rest->arguments, void *));
    if (c->length[0] == 'L') return snprintf(text, size, c->spec, va_arg(rest->arguments, long double));
    return snprintf(text, size, c->spec, va_arg(rest->arguments, double));
}
/* NOLINTEND(clang-diagnostic-format-nonliteral, bugprone-branch-clone) */

static void put_blanks(writer *w, int n)
{
    for (int i = 0; i < n; i++) put_printable_text(w, " ", 1);
}

/* The width counts bytes of what is printed, as printf does. */
static void put_string(writer *w, const conversion *c, const char *text, size_t n, const char *kept)
{
    writer measure = {.size = 0};
    if (c->width > 0) put_argument(&measure, text, n, kept);
    const int fill = c->width > (int)measure.n ? c->width - (int)measure.n : 0;
    if (!c->is_left) put_blanks(w, fill);
    put_argument(w, text, n, kept);
    if (c->is_left) put_blanks(w, fill);
}

static void put_printable_conversion(writer *w, const conversion *c, remaining *rest, const char *kept)
{
    char number[512];
    if (c->kind == '%') {
        put_printable_text(w, "%", 1);
    } else if (c->kind == 's') {
        const char *const given = va_arg(rest->arguments, const char *), *const text =
                                                                             given ? given : "(null)";
        const size_t n = c->precision >= 0 ? strnlen(text, (size_t)c->precision) : strlen(text);
        put_string(w, c, text, n, kept);
    } else if (c->kind == 'c') {
        const char one = (char)va_arg(rest->arguments, int);
        put_string(w, c, &one, 1, kept);
    } else {
        const int n = print_number(number, sizeof number, c, rest);
        if (n > 0) put_printable_text(w, number, (size_t)n < sizeof number ? (size_t)n : sizeof number - 1);
    }
}

size_t tandem_printable_format(char *text, size_t size, const char *kept, const char *format,
                               va_list arguments)
{
    writer w = {text, size, 0};
    remaining rest;
    const locale_t before = tandem_plain_begin(); /* numbers in it are the same in every locale */
    va_copy(rest.arguments, arguments);
    while (*format) {
        const size_t n = strcspn(format, "%");
        put_printable_text(&w, format, n);
        format += n;
        if (!*format) break;
        conversion c;
        format = parse_conversion(&c, format + 1, &rest);
        put_printable_conversion(&w, &c, &rest, kept);
    }
    va_end(rest.arguments);
    tandem_plain_end(before);
    if (size > 0) text[w.n < size ? w.n : size - 1] = '\0';
    return w.n;
}
