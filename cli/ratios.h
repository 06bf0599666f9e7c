/* ratios.h: prints whether a plan holds across what is not known of ratios between predicted times. */
#pragma once

#include "cli/cli.h"
#include "tandem/planner.h"

/* ratios_print: a line where another plan would save 1 % of the step or more, and what to measure; else
 * nothing. ratios_print_details: a table of all ratios. */
void ratios_print(const tandem_ratio_check *check);
int ratios_print_details(const tandem_ratio_check *check); /* the exit code */
/* An array, empty where nothing was checked. */
json_t *ratios_json(const tandem_ratio_check *check);
