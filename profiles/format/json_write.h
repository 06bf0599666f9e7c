/* json_write.h: the two values of JSON that are not trivial to write; private to profiles/.
 *
 * Files are written with these rather than with jansson, which drops characters where memory runs out and
 * says nothing; errors of the stream are found at its end, where it is closed. */
#ifndef TANDEM_PROFILES_JSON_WRITE_H
#define TANDEM_PROFILES_JSON_WRITE_H

#include <stdio.h>

/* A string, quotes and all. Bytes that are no UTF-8 become U+FFFD: names may come from users. */
void tandem_json_write_text(FILE *stream, const char *text);

/* The shortest digits that read back as the same number, with a point in every locale; null for what is
 * not finite. */
void tandem_json_write_real(FILE *stream, double value);

#endif
