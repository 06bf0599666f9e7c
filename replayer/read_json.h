/* read_json.h: JSON of any size, pulled value by value; private to replayer/.
 *
 * What is not asked for is skipped by its quotes and brackets alone: it may hold NaN, control characters,
 * wrong escapes and any depth. Memory is the window of the input, whatever the size of the text. Errors name
 * file and byte and say what was expected; after one, nothing more is to be read. */
#ifndef TANDEM_REPLAYER_READ_JSON_H
#define TANDEM_REPLAYER_READ_JSON_H

#include "replayer/read_input.h"

enum { TANDEM_PULL_DEPTH = 8 /* of objects and arrays that are entered */ };

typedef struct tandem_pull {
    tandem_input *input;
    tandem_error *error;
    tandem_status status;
    int depth;
    unsigned char begun[TANDEM_PULL_DEPTH + 1]; /* whether the object or array has had a value yet */
} tandem_pull;

/* Part of the window: valid until the next call. */
typedef struct tandem_pull_slice {
    const char *text; /* NULL: there is none */
    size_t n;
} tandem_pull_slice;

/* The first byte of the next value: '{', '[', '"', of a number or a word; 0 at the end of the text or after
 * an error. */
char tandem_pull_peek(tandem_pull *r);

/* Enter an object or array whose bracket comes next. */
tandem_status tandem_pull_enter(tandem_pull *r, char bracket);
/* The name of the next member, unescaped; text NULL where the object ended, which is left then. */
tandem_status tandem_pull_member(tandem_pull *r, tandem_pull_slice *name);
/* Whether there is another element; where not, the array is left. */
tandem_status tandem_pull_element(tandem_pull *r, int *is_there);

/* Leave the object or array that was entered last, whatever it still holds. */
tandem_status tandem_pull_leave(tandem_pull *r);

/* The next value: a string, unescaped; a number as it is written; anything as it is written; nothing of it.
 * `what` says in an error what the value would have been. */
tandem_status tandem_pull_text(tandem_pull *r, const char *what, tandem_pull_slice *text);
tandem_status tandem_pull_number(tandem_pull *r, const char *what, tandem_pull_slice *number);
tandem_status tandem_pull_raw(tandem_pull *r, tandem_pull_slice *raw);
tandem_status tandem_pull_skip(tandem_pull *r);

/* That nothing but white space is left. */
tandem_status tandem_pull_finish(tandem_pull *r);

/* TANDEM_MALFORMED: "'file', byte N: expected …, got …" about what comes next. */
tandem_status tandem_pull_expected(tandem_pull *r, const char *what);
/* … about a value that has just been read. */
tandem_status tandem_pull_wrong(tandem_pull *r, tandem_pull_slice got, const char *what);

#endif
