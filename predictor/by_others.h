/* by_others.h: measured times that ship with the program (profiles/devices/measured/): what others published
 * of a described card, as residuals about the form. Private to predictor/. */
#ifndef TANDEM_PREDICTOR_BY_OTHERS_H
#define TANDEM_PREDICTOR_BY_OTHERS_H

#include <stddef.h>

#include "tandem/advanced/predictor.h"
#include "tandem/advanced/timings.h"

/* A table of the program's text: all of profiles/devices/measured/NAME.csv. */
typedef struct tandem_measured_file {
    const char *name; /* "t4_deepbench": the card and the source */
    const char *text;
} tandem_measured_file;
/* Ends with a row whose name is NULL. */
const tandem_measured_file *tandem_measured_files(void);

/* Alike of rows that say the same: time, source and method included. */
uint64_t tandem_timing_hash(const tandem_timing *timing);
/* tandem_measured_check: whether a file is whole and true: it ends with "# end"; every table names the
 * file's card, by its name in cards.def, and source, states its count and has so many rows; no table and no
 * row is there twice; every row is one that tandem_timing_check accepts. TANDEM_MALFORMED, or what that
 * gives, says which line is wrong, and why. *n_row may be NULL. */
tandem_status tandem_measured_check(int64_t *n_row, const tandem_measured_file *file, tandem_error *error);

/* Rows of one card. They are read when a task asks for its kernel's: the first question costs about 1 us a
 * row. Two threads must not ask at once. */
typedef struct tandem_by_others tandem_by_others;
/* tandem_by_others_open: *of becomes NULL where no row of the device ships. files: as
 * tandem_measured_files. TANDEM_NO_MEMORY. Cost: a look at each table's header. */
tandem_status tandem_by_others_open(tandem_by_others **of, const tandem_measured_file *files,
                                    const tandem_device *device, tandem_error *error);
void tandem_by_others_close(tandem_by_others *of); /* NULL is fine */

/* What is expected of a task. */
typedef struct tandem_by_others_time {
    tandem_kernel_time time; /* its own */
    double timed_ns;         /* as such a timing shows it */
    double events_ns;        /* what a host's events are of that */
    double unknown;          /* what own rows leave of its deviation; 1: all of it */
    int64_t n_row;           /* rows of its kernel */
} tandem_by_others_time;
/* tandem_by_others_ns: ns of a task from the rows of its kernel, class and type, and from own rows about
 * them; −1: there are none of others, of a convolution also of its pass. Without own rows it never falls
 * where the batch doubles. Cost: O(rows of the kernel), and some 30 us of a shape that was not asked for
 * lately; the same for each batch around it that might contradict that, some five. */
double tandem_by_others_ns(tandem_by_others_time *out, tandem_by_others *of, const tandem_work *work,
                           int timed);
/* Whether rows could not be read for want of memory: their tasks had −1. */
int tandem_by_others_lacks_memory(const tandem_by_others *of);
/* The rows of a task's kernel that tandem_by_others_ns would follow; 0 = it would give −1. */
int64_t tandem_by_others_rows(tandem_by_others *of, const tandem_work *work, int timed);
/* tandem_by_others_spread: the logarithmic standard deviation of rows of the task's kernel, timed as it is,
 * about what the others of them give, without rows of equal sizes; NaN: there are fewer than eight. Of up to
 * 64 rows evenly spaced: that which 80 % do not exceed over 1.2816. It grows outside of all rows, as what
 * near rows leave unknown does. Cost: 64 times tandem_by_others_ns, once. */
double tandem_by_others_spread(tandem_by_others *of, const tandem_work *work, int timed);
/* tandem_by_others_ratio_spread: how far the ratio of two tasks' times is off that differ in type alone. Of
 * rows of equal sizes in both kernels, timed alike, it compares the ratio with what rows of all other sizes
 * say. NaN where fewer than eight sizes are in both. Of up to 128 of them, evenly spaced: that which 80 % do
 * not exceed over 1.2816; a quarter of its square is shared. Outside of all rows of either kernel it grows as
 * the spread of times does. Cost: O(rows of one · rows of the other), and
 * 256 times tandem_by_others_ns, once. */
tandem_ratio_spread tandem_by_others_ratio_spread(tandem_by_others *of, const tandem_work *narrow,
                                                  const tandem_work *wide, int timed);
/* The user's own rows, whose residuals are taken about what the others' rows expect of such a timing; one off
 * by more than 3 times is left out, and counted. Before them, those between events show what the user's host
 * adds, where they are mostly that. TANDEM_NO_MEMORY. Cost: as tandem_by_others_ns. */
void tandem_by_others_note_events(tandem_by_others *of, const tandem_work *work, int timed, double ns);
tandem_status tandem_by_others_add_own(tandem_by_others *of, const tandem_work *work, int timed, double ns,
                                       tandem_error *error);
void tandem_by_others_forget_own(tandem_by_others *of);                                 /* all of them */
int64_t tandem_by_others_own(tandem_by_others *of, const tandem_work *work, int timed); /* of its kernel */
int64_t tandem_by_others_contradicting(const tandem_by_others *of);
/* Rows of a tandem_others_kernel that was asked for; all that ship. */
int64_t tandem_by_others_kernel_rows(const tandem_by_others *of, int kernel);
int64_t tandem_by_others_count(const tandem_by_others *of);

#endif
