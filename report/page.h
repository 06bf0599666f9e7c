/* page.h: a page of HTML from plans, traces, logs and results: what it is drawn from, and how it is written.
 * A contract between report/ and cli/.
 *
 * The page is one file: inline SVG, a style sheet and a script of our own, nothing from outside. It can be
 * read without the script. Files of different models are drawn apart. A value that is missing or no number is
 * a gap. Equal inputs give equal bytes. */
#pragma once

#include <jansson.h>

#include "tandem/plan.h"
#include "trace/reader/step_timeline.h"

/* One line of a training log; NaN = not there. */
typedef struct report_log_line {
    int64_t step;
    double loss, accuracy;
} report_log_line;

typedef struct report_log {
    report_log_line *line;
    int n;
} report_log;

/* A file: exactly one of result, plan, timeline and log is there. */
typedef struct report_item {
    char *source;
    char model[TANDEM_MODEL_NAME]; /* canonical; "" = unknown */
    json_t *result;                /* what a command printed with --json */
    tandem_plan *plan;
    tandem_graph *graph; /* of the plan */
    tandem_step_timeline *timeline;
    report_log log;
    tandem_made made; /* filled in by report_page_add, but for a log */
} report_item;

typedef struct report_page {
    report_item *item;
    int n, capacity;
} report_page;

/* Reads the member `made` of a result or of a log's line. What is absent or of another type stays. */
void report_made_read(tandem_made *origin, const json_t *object);

/* report_page_add: takes over what `item` holds, but copies its source; also on error. An item without a
 * model gets the one that its content names. TANDEM_NO_MEMORY. */
tandem_status report_page_add(report_page *page, report_item *item, const char *source, tandem_error *error);
void report_item_close(report_item *item);
void report_page_close(report_page *page); /* all zero is fine; all zero afterwards */

/* report_page_draw: the page's n bytes, which the caller frees. TANDEM_MISSING, TANDEM_NO_MEMORY: outputs
 * unchanged. */
tandem_status report_page_draw(char **html, size_t *n, const report_page *page, tandem_error *error);
/* report_page_write: writes the page to a path; "-" = stdout. TANDEM_MISSING: there is nothing to draw; names
 * a command that makes something. TANDEM_IO, TANDEM_NO_MEMORY. An old file is unchanged on error. Cost:
 * O(items · tasks); the page is held in memory once. */
tandem_status report_page_write(const report_page *page, const char *path, tandem_error *error);
