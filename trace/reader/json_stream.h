/* json_stream.h: a pull parser for JSON of any size; private to trace/.
 *
 * Values that the caller skips are scanned for quotes and brackets only: they may hold NaN, control
 * characters, wrong escapes and any depth. Memory is the input's window, for texts of any size.
 * Errors name file and byte and what was expected. After an error nothing more may be read. */
#pragma once

#include "trace/reader/read_input.h"

enum { TANDEM_JSON_STREAM_DEPTH = 8 /* entered objects and arrays */ };

typedef struct tandem_json_stream {
    tandem_input *input;
    tandem_error *error;
    tandem_status status;
    int depth;
    /* whether the entered object or array had a value yet */
    unsigned char has_value[TANDEM_JSON_STREAM_DEPTH + 1];
} tandem_json_stream;

/* Part of the window: valid until the next call. */
typedef struct tandem_json_stream_slice {
    const char *text; /* NULL = none */
    size_t n;
} tandem_json_stream_slice;

/* The first byte of the next value: '{', '[', '"', or of a number or word; 0 at the end of the text and
 * after an error. */
char tandem_json_stream_peek(tandem_json_stream *r);

/* Enters the object or array whose bracket comes next. */
tandem_status tandem_json_stream_enter(tandem_json_stream *r, char bracket);
/* The name of the next member, unescaped. At the end of the object its text is NULL, and the object is
 * left. */
tandem_status tandem_json_stream_member(tandem_json_stream *r, tandem_json_stream_slice *name);
/* Whether there is another element. At the end of the array it is left. */
tandem_status tandem_json_stream_element(tandem_json_stream *r, int *is_there);

/* Leaves the innermost entered object or array and skips the rest of it. */
tandem_status tandem_json_stream_leave(tandem_json_stream *r);

/* The next value: a string, unescaped; a number as written; any value as written; or skipped. `what`
 * describes the expected value in an error. */
tandem_status tandem_json_stream_text(tandem_json_stream *r, const char *what,
                                      tandem_json_stream_slice *text);
tandem_status tandem_json_stream_number(tandem_json_stream *r, const char *what,
                                        tandem_json_stream_slice *number);
tandem_status tandem_json_stream_raw(tandem_json_stream *r, tandem_json_stream_slice *raw);
tandem_status tandem_json_stream_skip(tandem_json_stream *r);

/* TANDEM_MALFORMED unless only white space is left. */
tandem_status tandem_json_stream_finish(tandem_json_stream *r);

/* TANDEM_MALFORMED: "'file', byte N: expected …, got …", about the next value. */
tandem_status tandem_json_stream_expected(tandem_json_stream *r, const char *what);
/* The same about a value that was just read. */
tandem_status tandem_json_stream_wrong(tandem_json_stream *r, tandem_json_stream_slice got, const char *what);
