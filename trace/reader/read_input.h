/* read_input.h: a moving window over a file of any size; private to trace/.
 *
 * The first two bytes show whether a file is compressed with gzip (also in several members). A UTF-8
 * byte-order mark before the text is skipped. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

enum { TANDEM_INPUT_WINDOW = 1 << 20, TANDEM_INPUT_PADDING = 64 };

typedef struct tandem_input {
    const char *source;   /* its name in errors; borrowed */
    unsigned char *bytes; /* [end + TANDEM_INPUT_PADDING] readable; zeros after `end` */
    size_t at, end;       /* unread: bytes[at … end−1] */
    /* size of the window: TANDEM_INPUT_WINDOW; tests make it smaller before they read */
    size_t capacity;
    uint64_t offset; /* of bytes[0] in the (inflated) text */
    struct tandem_input_source *from;
} tandem_input;

/* Opens a path, or borrowed bytes in memory. TANDEM_MALFORMED if the path is no regular file: a trace is
 * read more than once, and a pipe or a device may never end. TANDEM_IO; TANDEM_NO_MEMORY. *input unchanged
 * on error. */
tandem_status tandem_input_open(tandem_input *input, const char *path, tandem_error *error);
tandem_status tandem_input_open_bytes(tandem_input *input, const void *bytes, size_t n, const char *source,
                                      tandem_error *error);
void tandem_input_close(tandem_input *input); /* all zero is fine */

/* tandem_input_refill: drops what precedes `at`, which becomes 0 (3 after a byte-order mark), and reads on
 * after `end`. *got = whether there was more. TANDEM_MALFORMED if the window is full (`capacity` bytes from
 * `at` on), or if compressed data are damaged, cut off or inflate too far (base/gzip_limit.h). TANDEM_IO. */
tandem_status tandem_input_refill(tandem_input *input, int *got, tandem_error *error);

/* tandem_input_read_line: the next line without its end (LF or CR LF), valid until the next call. *line
 * NULL at the end of the text. */
tandem_status tandem_input_read_line(tandem_input *input, const char **line, size_t *n, tandem_error *error);

/* tandem_input_parse_us: a decimal number of µs ("12", "-1.5", "1.7e15") in ns, rounded. Returns 0; −1 = no
 * number; −2 = beyond ±2^61 ns (73 years). */
int tandem_input_parse_us(int64_t *ns, const char *text, size_t n);

/* tandem_input_clamp_duration: a duration from −10 ms on becomes 0 and is counted in *n_negative: clocks
 * that are set during a measurement produce such durations. Returns whether it is valid: −10 ms to 2^53 ns
 * (104 days). */
#define TANDEM_INPUT_DURATIONS "from -10000 us (below 0 counts as 0: clocks differ) to 9e12 us (104 days)"
int tandem_input_clamp_duration(int64_t *duration_ns, int64_t *n_negative);
