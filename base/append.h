/* append.h: text that grows at its end. */
#pragma once

#include <stddef.h>

/* Appends printf text to the string `text` of `size` bytes, cut to fit, the same in every locale.
 * Returns text. */
char *tandem_append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
