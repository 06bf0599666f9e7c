/* read_json.h: JSON of any size, pulled value by value; private to replayer/.
 *
 * What is not asked for is skipped by its quotes and brackets alone: it may hold NaN, control characters,
 * wrong escapes and any depth. Memory is the window of the input, whatever the size of the text. Errors name
 * file and byte and say what was expected; after one, nothing more is to be read. */
#ifndef TANDEM_REPLAYER_JSON_STREAM_H
#define TANDEM_REPLAYER_JSON_STREAM_H

#include "trace/reader/read_input.h"

enum { TANDEM_JSON_STREAM_DEPTH = 8 /* of objects and arrays that are entered */ };

typedef struct tandem_json_stream {
    tandem_input *input;
    tandem_error *error;
    tandem_status status;
    int depth;
    /* whether the object or array has had a value yet */
    unsigned char has_value[TANDEM_JSON_STREAM_DEPTH + 1];
} tandem_json_stream;

/* Part of the window: valid until the next call. */
typedef struct tandem_json_stream_slice {
    const char *text; /* NULL: there is none */
    size_t n;
} tandem_json_stream_slice;

/* The first byte of the next value: '{', '[', '"', of a number or a word; 0 at the end of the text or after
 * an error. */
char tandem_json_stream_peek(tandem_json_stream *r);

/* Enter an object or array whose bracket comes next. */
tandem_status tandem_json_stream_enter(tandem_json_stream *r, char bracket);
/* The name of the next member, unescaped; text NULL where the object ended, which is left then. */
tandem_status tandem_json_stream_member(tandem_json_stream *r, tandem_json_stream_slice *name);
/* Whether there is another element; where not, the array is left. */
tandem_status tandem_json_stream_element(tandem_json_stream *r, int *is_there);

/* Leave the object or array that was entered last, whatever it still holds. */
tandem_status tandem_json_stream_leave(tandem_json_stream *r);

/* The next value: a string, unescaped; a number as it is written; anything as it is written; nothing of it.
 * `what` says in an error what the value would have been. */
tandem_status tandem_json_stream_text(tandem_json_stream *r, const char *what,
                                      tandem_json_stream_slice *text);
tandem_status tandem_json_stream_number(tandem_json_stream *r, const char *what,
                                        tandem_json_stream_slice *number);
tandem_status tandem_json_stream_raw(tandem_json_stream *r, tandem_json_stream_slice *raw);
tandem_status tandem_json_stream_skip(tandem_json_stream *r);

/* That nothing but white space is left. */
tandem_status tandem_json_stream_finish(tandem_json_stream *r);

/* TANDEM_MALFORMED: "'file', byte N: expected …, got …" about what comes next. */
tandem_status tandem_json_stream_expected(tandem_json_stream *r, const char *what);
/* … about a value that has just been read. */
tandem_status tandem_json_stream_wrong(tandem_json_stream *r, tandem_json_stream_slice got, const char *what);

#endif
