#include "base/append.h"

#include <stdarg.h>
#include <string.h>

#include "base/plain_text.h"

char *tandem_append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)tandem_plain_print_list(text + used, size - used, format, arguments);
    va_end(arguments);
    return text;
}
