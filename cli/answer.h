/* answer.h: the first lines of an output: a label, and what a reader wants to know first. A table follows
 * them; what only explains them is printed with --details. */
#pragma once

#include "base/quantity.h"
#include "cli/goodput.h"
#include "tandem/provenance.h"

/* Prints "label          text". */
void answer_line(const char *label, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct answer_text {
    char text[4 * TANDEM_QUANTITY_TEXT];
} answer_text;
/* "0.12% (95%: -0.10 to 0.34%)", of a trial's mean and interval, whose ends may be infinite (trial.h). */
answer_text answer_interval(double mean, double low, double high, const char *unit);

/* The line "extra samples": more samples to the same loss, their interval, and the goodput; or why they are
 * not known. */
void answer_extra_samples(const tandem_goodput *goodput);
/* With --details: the parts of the extra samples and the operators that need most of them. */
void answer_extra_samples_details(const tandem_goodput *goodput);

/* The line "times": how the times of each device are known, and those of all-reduces. profile_interval: of
 * tandem_profile_interval; NaN: there is none. */
void answer_times(const tandem_time_sources *sources, double profile_interval);
/* With --details: the tasks, fits and rows of that line. */
void answer_times_details(const tandem_time_sources *sources);
