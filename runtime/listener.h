/* listener.h: what a listener gets, as printf text. Names in it cannot command a terminal
 * (base/printable.h). */
#pragma once

#include "tandem/runtime.h"

void runtime_progress(const tandem_listener *listener, int64_t left_ns, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void runtime_note(const tandem_listener *listener, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
