/* section.h: the parts of a page; private to report/. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "report/html.h"
#include "report/page.h"
#include "report/plot.h"

/* What belongs to one model. */
typedef struct report_part {
    const report_page *page;
    const char *model; /* "" = of files that name none */
    const report_item **item;
    int n;
    int number; /* 0, 1, …: makes the names of its anchors */
} report_part;

typedef struct report_section {
    const char *id, *title;
    /* Writes nothing where the part has nothing for it. 0 = no memory. */
    int (*draw)(FILE *out, const report_part *part);
    const char *makes_it; /* a command, for the list of what is not shown; NULL = not listed */
} report_section;

extern const report_section report_verdict, report_cluster, report_timeline, report_precision_map,
    report_tradeoff, report_memory, report_profile, report_sensitivity, report_training, report_straggler,
    report_provenance;

/* --- Results: values that are absent, null or of another type are gaps --------------------------------- */
double report_get_number(const json_t *object, const char *member);    /* NaN = a gap */
const char *report_get_text(const json_t *object, const char *member); /* "" = a gap */
/* Of a row of `sensitivity --json`, by a method; of an estimate by "sampled", one number. */
double report_row_sensitivity(const json_t *row, const char *method);
/* Whether a method's sensitivities are extra samples, in percent, with an interval. */
int report_is_extra_samples(const char *method);
/* The title of an axis of the method's sensitivities. */
const char *report_sensitivity_title(const char *method);
/* A sensitivity of an object, by a method. Extra samples have the digits that the object's sensitivity_low
 * and sensitivity_high allow; another, or one without an interval, has two. */
report_quantity report_sensitivity_text(const json_t *object, double value, const char *method);
int report_is_true(const json_t *object, const char *member);
/* Whether an item is a result of this command. */
int report_is_result(const report_item *item, const char *command);
/* The first result of the command, from item *k on, which then is after it; NULL = none. */
const json_t *report_next_result(const report_part *part, const char *command, int *k);
/* The same for results of `compare` and `demo`: their cases, one by one. */
typedef struct report_case_cursor {
    int item;
    size_t index;
} report_case_cursor;
const json_t *report_next_case(const report_part *part, report_case_cursor *cursor);

/* --- Pieces that several sections share ---------------------------------------------------------------- */
/* A coloured square and its meaning; `tone` names a class of the style sheet. */
void report_legend(FILE *out, const char *tone, const char *meaning);
/* "c1" to "c7". */
const char *report_tone(int index);
const char *report_precision_tone(const char *precision);
