/* rest_of_step.h: what a step spends outside its products, by kind of work. */
#pragma once

#include <jansson.h>

#include "cli/table.h"
#include "tandem/advanced/step.h"

enum { REST_KINDS = 10 };

/* Sums of medians over the tasks of a kind. All zero: nothing was added. */
typedef struct rest_of_step {
    struct {
        int count;
        int64_t ns;
    } of[REST_KINDS];
} rest_of_step;

/* rest_of_step_add: counts one task that is no product. */
void rest_of_step_add(rest_of_step *rest, const tandem_step *step, int task, int64_t median_ns);

/* rest_of_step_json: an array of {"kind", "tasks", "step_ns"}, then what no task took: the step less its
 * tasks. NULL without memory.
 *   products_ns, step_ns [in]  medians, in ns */
json_t *rest_of_step_json(const rest_of_step *rest, int64_t products_ns, int64_t step_ns);

/* rest_of_step_rows: the same as rows of a table, the longest first, with shares of the step. */
void rest_of_step_rows(const rest_of_step *rest, int64_t products_ns, int64_t step_ns, cli_table *table);
