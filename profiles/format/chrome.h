/* chrome.h: a writer of Chrome trace events with a buffer of fixed size; private to profiles/ and trace/.
 *
 *     tandem_chrome_begin(&chrome, file.stream, NULL);
 *     tandem_chrome_name(&chrome, "process_name", 0, 0, "rank 0");
 *     tandem_chrome_event(&chrome, 'X', "fc1", "forward", 0, 0, start_ns);
 *     tandem_chrome_put(&chrome, ",\"dur\":");
 *     tandem_chrome_us(&chrome, duration_ns);
 *     tandem_chrome_put(&chrome, "}");
 *     tandem_chrome_end(&chrome);
 *
 * Finishing the file reports the stream's errors. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* EVENT: maximum bytes of an event without its name. An event that has begun always has room for them. */
enum { TANDEM_CHROME_CAPACITY = 1 << 16, TANDEM_CHROME_EVENT = 1 << 11 };

typedef struct tandem_chrome {
    FILE *stream;
    int64_t n_event;
    /* bytes in `buffer`; at most TANDEM_CHROME_CAPACITY − TANDEM_CHROME_EVENT when an event begins */
    size_t n;
    char buffer[TANDEM_CHROME_CAPACITY];
} tandem_chrome;

/* Writes {"displayTimeUnit":"ns", …, "traceEvents":[ and its end. `about`: members of otherData, a name and a
 * value each, NULL last; NULL: none. */
void tandem_chrome_begin(tandem_chrome *chrome, FILE *stream, const char *const *about);
void tandem_chrome_end(tandem_chrome *chrome);

/* A whole metadata event; `kind` is process_name or thread_name. */
void tandem_chrome_name(tandem_chrome *chrome, const char *kind, int pid, int tid, const char *name);

/* An event up to its ts. The caller adds its other members, each with a comma, and the closing brace. The
 * category is written unescaped: it must not come from a user. */
void tandem_chrome_event(tandem_chrome *chrome, char phase, const char *name, const char *category, int pid,
                         int tid, int64_t ts_ns);
void tandem_chrome_integer(tandem_chrome *chrome, int64_t value);
/* µs with three decimals, in integer arithmetic: exact, with a '.' in every locale. */
void tandem_chrome_us(tandem_chrome *chrome, int64_t ns);

/* Text as it is. Inline, so that the length of a literal is a constant. */
static inline void tandem_chrome_put(tandem_chrome *chrome, const char *text)
{
    const size_t n = strlen(text);
    memcpy(chrome->buffer + chrome->n, text, n);
    chrome->n += n;
}
