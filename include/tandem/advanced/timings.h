/* timings.h: tables of measured operator times, as others publish them: CSV with one operator per row.
 *
 * The first line names the columns, in any order. Columns that this table does not know are skipped.
 *
 *   device, source, method, operator, precision, pass, group   text; pass is "forward" where it is not stated
 *   batch, m, k, n           of linear and matmul: (m, k) by (k, n), `batch` of them
 *   rows, columns            of streams of elements
 *   images, channels_in, height, width, channels_out, kernel_h, kernel_w, pad_h, pad_w, stride_h, stride_w
 *                            of convolutions; a table without `operator` holds them alone
 *   time_ns, time_us or time_ms   one of them, where times are needed
 *   repeats                  how often it stands in its group; 1 where it is not stated
 *
 * Quotes as in RFC 4180, but no line break within them; CRLF and a byte order mark are fine. An empty field
 * is not stated. */
#ifndef TANDEM_TIMINGS_H
#define TANDEM_TIMINGS_H

#include <stdio.h>

#include "tandem/advanced/predictor.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { TANDEM_TIMING_TEXT = 64, TANDEM_TIMING_LINE = 16384 };

/* One row. Texts are cut to fit; numbers that are not stated are 0. */
typedef struct tandem_timing {
    int64_t line; /* in its file, from 1 */
    char device[TANDEM_TIMING_TEXT], source[TANDEM_TIMING_TEXT], method[TANDEM_TIMING_TEXT],
        kind[TANDEM_TIMING_TEXT], precision[TANDEM_TIMING_TEXT], group[TANDEM_TIMING_TEXT];
    tandem_pass pass;
    double batch, m, k, n, rows, columns, repeats;
    tandem_convolution convolution;
    double time_ns;
} tandem_timing;

/* Called for each row, in order; an error ends the reading and is returned. */
typedef tandem_status tandem_timing_visitor(void *context, const tandem_timing *timing, tandem_error *error);

/* tandem_timings_read: visits every row of a stream; `name` stands in errors. needs_times: a table without a
 * column of times is refused. TANDEM_MALFORMED names line, column, and what is allowed: no unit of time or
 * two, a line with more or fewer fields, a number that is none, not finite, not positive or a size above
 * 2^53, an unclosed quote, a line above TANDEM_TIMING_LINE bytes. TANDEM_IO. Memory: one line. Cost: about
 * 1 us per row. */
tandem_status tandem_timings_read(FILE *stream, const char *name, int needs_times,
                                  tandem_timing_visitor *visit, void *context, tandem_error *error);
/* The same of a file. */
tandem_status tandem_timings_read_file(const char *path, int needs_times, tandem_timing_visitor *visit,
                                       void *context, tandem_error *error);

/* tandem_timing_work: the work of a row. TANDEM_UNKNOWN_NAME: the operator or the precision, with the nearest
 * one. TANDEM_MALFORMED: a size that the operator needs is not stated, or the sizes leave nothing to compute.
 * Operators without a key in the step program ("mul", "pow") have a work, too. */
tandem_status tandem_timing_work(tandem_work *work, const tandem_timing *timing, tandem_error *error);
/* How it was timed, of TANDEM_TIMED_…: `method` begins with "events" where the events of a host stood around
 * one call, whose time is no part of a prediction; it names "zeros" where the operands were zeros, whose
 * products take little power, so that clocks stay up. */
int tandem_timing_timed(const tandem_timing *timing);
/* The described device that a table means: one of tandem_device_find, or a spelling with its form, such as
 * "V100-PCIe-32GB". TANDEM_UNKNOWN_NAME names the nearest. */
tandem_status tandem_timing_device(tandem_device *device, const char *name, tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
