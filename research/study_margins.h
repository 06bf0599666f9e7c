/* study_margins.h: the margins of the study (margins.def), and whether they were fixed before a run. */
#ifndef TANDEM_RESEARCH_MARGINS_H
#define TANDEM_RESEARCH_MARGINS_H

#include <stdint.h>

#include <jansson.h>

/* study_margin.price_least_ratio, and so on. */
extern const struct study_margin_values {
#define MARGIN(part, name, value, meaning) double part##_##name;
#include "research/margins.def"
} study_margin;

enum { STUDY_MAX_MARGINS = 24, STUDY_MARGINS_HASH = 17, STUDY_LATE_TEXT = 160 };

/* What decides what a part says of its numbers, and not the numbers. */
typedef struct study_margins {
    struct {
        const char *name; /* borrowed */
        double value;
    } row[STUDY_MAX_MARGINS];
    int n;
    /* Filled in by the file of records: "" where its first line names the same margins, or where there is no
     * file, so that they were fixed before the run; else why they were not. */
    char late[STUDY_LATE_TEXT];
} study_margins;

/* The rows of a part. */
study_margins study_margins_of(const char *part);
/* One more, of the part's plan, such as its seeds. */
void study_margins_add(study_margins *margins, const char *name, double value);
/* As 16 hexadecimal digits. */
void study_margins_hash(char text[STUDY_MARGINS_HASH], const study_margins *margins);
/* {name: value}; NULL: no memory. */
json_t *study_margins_json(const study_margins *margins);
/* Fills in `late`, by the first line of a file of records. */
void study_margins_compare(study_margins *margins, const json_t *head);

#endif
