/* json_write.h: writes JSON strings and numbers; private to profiles/.
 *
 * Not with jansson, which drops characters when memory runs out and does not report it. Closing the stream
 * reports its errors. */
#pragma once

#include <stdio.h>

/* A string with quotes. Invalid UTF-8 becomes U+FFFD: names may come from users. */
void tandem_json_write_text(FILE *stream, const char *text);

/* The shortest digits that parse to the same number, with '.' in every locale; null for non-finite numbers.
 * */
void tandem_json_write_real(FILE *stream, double value);
