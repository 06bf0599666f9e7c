/* timings.h: tables of measured operator times, as others publish them: CSV with one operator per row.
 *
 * The first line names the columns, in any order. Columns that this table does not know are skipped.
 *
 *   device, source, method, operator, precision, pass, group   text; pass is "forward" where it is not stated
 *   algorithm                of a convolution: the kernel that ran, where its name says so
 *   batch, m, k, n           of linear and matmul: (m, k) by (k, n), `batch` of them
 *   rows, columns            of streams of elements
 *   images, channels_in, height, width, channels_out, kernel_h, kernel_w, pad_h, pad_w, stride_h, stride_w
 *                            of convolutions; a table without `operator` holds them alone
 *   time_ns, time_us or time_ms   one of them, where times are needed
 *   repeats                  how often it occurs in its group; 1 where it is not stated
 *
 * A header field "name=value" is no column, but the value of all rows. "count=N" is the number of rows: a
 * table with more or fewer is refused. A line that begins with "device=" is the header of another table;
 * lines that begin with # are skipped.
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

enum { TANDEM_TIMING_LINE = 16384 };

/* tandem_timings_read: visits every row of a stream; `name` is used in errors. needs_times: a table without a
 * column of times is refused. TANDEM_MALFORMED names line, column, and what is allowed: no unit of time or
 * two, a line with more or fewer fields, a field that is no number, a number that is not finite, not positive
 * or a size above 2^53, an unclosed quote, a line above TANDEM_TIMING_LINE bytes. TANDEM_IO. Memory: one
 * line. Cost: about 1 us per row. */
tandem_status tandem_timings_read(FILE *stream, const char *name, int needs_times,
                                  tandem_timing_visitor *visit, void *context, tandem_error *error);
/* The same of a file. */
tandem_status tandem_timings_read_file(const char *path, int needs_times, tandem_timing_visitor *visit,
                                       void *context, tandem_error *error);

/* tandem_timing_work: the work of a row. TANDEM_UNKNOWN_NAME: the operator or the precision, with the nearest
 * one. TANDEM_MALFORMED: a size that the operator needs is not stated, or the sizes leave nothing to compute.
 * Operators without a key in the step program ("mul", "pow") have a work, too. */
tandem_status tandem_timing_work(tandem_work *work, const tandem_timing *timing, tandem_error *error);
/* tandem_timing_check: whether a row can be true of a device. TANDEM_MISSING: the device has no units for its
 * precision. TANDEM_MALFORMED: its time is below a quarter of what its plain FLOPs or bytes take at the
 * peaks of the datasheet, with both figures: Winograd's transforms and the cache beat plain counts up to
 * 2.5 times, a wrong unit a thousand times. `force` accepts such a time. */
tandem_status tandem_timing_check(const tandem_timing *timing, const tandem_work *work,
                                  const tandem_device *device, int force, tandem_error *error);
/* How it was timed, of TANDEM_TIMED_…: `method` begins with "events" where the events of a host enclosed
 * one call, whose time is no part of a prediction; it names "zeros" where the operands were zeros, whose
 * products take little power, so that clocks stay up. */
int tandem_timing_timed(const tandem_timing *timing);
/* The described device that a table means, by tandem_device_find (cluster.h). TANDEM_UNKNOWN_NAME names the
 * nearest described one and what a description takes; TANDEM_NO_DEVICE says the same of a device without
 * description, such as a CPU. */
tandem_status tandem_timing_device(tandem_device *device, const char *name, tandem_error *error);

/* --- Import (predictor/import.c) ------------------------------------------------------------------------ */
enum { TANDEM_IMPORT_DEVICES = 64, TANDEM_IMPORT_REASONS = 16 };
/* What became of the rows. */
typedef struct tandem_import_summary {
    int64_t n_row;   /* read */
    int64_t n_filed; /* new */
    int64_t n_known; /* equal to one that was filed before, or twice in the tables */
    int64_t n_left_out;
    int n_device, n_reason;
    char device[TANDEM_IMPORT_DEVICES][TANDEM_DEVICE_NAME]; /* described ones with rows */
    struct tandem_import_reason {                           /* why rows were left out, the first of them */
        int64_t n_row, line;
        char why[TANDEM_ERROR_TEXT];
    } reason[TANDEM_IMPORT_REASONS];
} tandem_import_summary;

/* tandem_import: files rows of timing tables in a store. The caller begins a transaction before it opens the
 * import and commits after the last table, so that half an import never stays.
 *
 * A row of a device without a description, of an operator or a precision that is not known, or that the
 * device has no units for, is left out and counted with its reason. TANDEM_MALFORMED ends the import: what
 * tandem_timings_read and tandem_timing_check refuse, and a time over 10 times from another of the same
 * operator, sizes, precision and pass on the device, in the tables or in the store. `force` keeps those. A
 * row that is equal to one before it is filed once.
 *
 * store NULL: rows are only checked. device: of rows that name none, or NULL. Memory: about 100 bytes a
 * row, and those of the store on the same devices. Cost: about 4 us per row. */
typedef struct tandem_import tandem_import;
tandem_status tandem_import_open(tandem_import **import, tandem_store *store, const char *device, int force,
                                 tandem_error *error);
tandem_status tandem_import_read(tandem_import *import, FILE *stream, const char *name, tandem_error *error);
const tandem_import_summary *tandem_import_summary_of(const tandem_import *import);
void tandem_import_close(tandem_import *import); /* NULL is fine */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
