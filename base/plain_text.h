/* plain_text.h: numbers as text, written and read the same in every locale. Programs that use the libraries
 * may have set one with another decimal point, or with letters of its own. `make lint` finds what depends on
 * it in the folders of libraries, and does not come from here. */
#pragma once

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Between these two, this thread's locale is C's: for calls of other libraries. glibc has that locale without
 * taking memory. */
static inline locale_t tandem_plain_begin(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static inline void tandem_plain_end(locale_t before)
{
    const locale_t plain = uselocale(before);
    if (plain != before && plain != LC_GLOBAL_LOCALE) freelocale(plain);
}

/* vsnprintf. */
static inline int __attribute__((format(printf, 3, 0)))
tandem_plain_print_list(char *text, size_t size, const char *format, va_list arguments)
{
    const locale_t before = tandem_plain_begin();
    const int n = vsnprintf(text, size, format, arguments);
    tandem_plain_end(before);
    return n;
}

/* snprintf. */
static inline int __attribute__((format(printf, 3, 4)))
tandem_plain_print(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = tandem_plain_print_list(text, size, format, arguments);
    va_end(arguments);
    return n;
}

/* strtod. */
static inline double tandem_plain_read(const char *text, char **end)
{
    const locale_t before = tandem_plain_begin();
    const double x = strtod(text, end);
    tandem_plain_end(before);
    return x;
}

static inline int tandem_is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static inline int tandem_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline int tandem_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
