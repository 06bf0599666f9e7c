/* compare_json.h: a comparison as `compare` and `demo` print it. */
#pragma once

#include "cli/goodput.h"

/* An element of "cases"; NULL without memory. */
json_t *cli_compare_json(const tandem_compare_result *out, const tandem_goodput *goodput);
/* Resident memory beyond the plan and evaluations; may be negative. resident_peak_bytes must be known. */
int64_t cli_unplanned_bytes(const tandem_compare_class *class);
/* What the plan of a workload needs more of samples; its rate is that of a run. Errors of the store. */
tandem_status cli_compare_goodput(tandem_goodput *goodput, const cli_options *options,
                                  const tandem_workload *workload, double samples_per_s, tandem_error *error);
