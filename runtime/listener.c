#include "runtime/listener.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/printable.h"

void runtime_progress(const tandem_listener *listener, int64_t left_ns, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (!listener->progress) return;
    va_start(arguments, format);
    (void)tandem_printable_format(text, sizeof text, "", format, arguments);
    va_end(arguments);
    listener->progress(listener->context, left_ns, text);
}

void runtime_note(const tandem_listener *listener, const char *format, ...)
{
    static const char kept[] = "\n\t\r";
    va_list arguments;
    if (!listener->note) return;
    va_start(arguments, format);
    const size_t n = tandem_printable_format(NULL, 0, kept, format, arguments);
    va_end(arguments);
    char *const text = malloc(n + 1);
    va_start(arguments, format);
    if (text) (void)tandem_printable_format(text, n + 1, kept, format, arguments);
    va_end(arguments);
    listener->note(listener->context, text ? text : "no memory for a note");
    free(text);
}
