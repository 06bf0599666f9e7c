/* printable.h: text for people, in which names that others chose cannot command the terminal. */
#ifndef TANDEM_BASE_PRINTABLE_H
#define TANDEM_BASE_PRINTABLE_H

#include <stdarg.h>
#include <stddef.h>

/* tandem_printable_format: vsnprintf whose %s and %c are shown as text: control characters but those in
 * `kept`, characters that change the direction or have no width, and bytes that are no UTF-8 become \x1b or
 * \u202e. What the format itself has is kept. Knows the conversions of C11 but for %n and wide characters.
 * Returns the bytes that the whole text needs. */
size_t tandem_printable_format(char *text, size_t size, const char *kept, const char *format,
                               va_list arguments) __attribute__((format(printf, 4, 0)));

#endif
