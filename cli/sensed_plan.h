/* sensed_plan.h: the sensitivity of a whole plan, with its interval. */
#pragma once

#include "cli/cli.h"

/* Of a plan by the method sampled, from the replicates in the store; *is_known 0: the plan has another
 * method. Errors: those of tandem_store_load_sensing and tandem_sensing_estimate. */
tandem_status sensed_plan_estimate(tandem_sensitivity_estimate *estimate, int *is_known,
                                   const cli_options *options, const tandem_plan *plan,
                                   const tandem_graph *graph, tandem_error *error);
/* A line: "sensitivity  0.9 % more samples to the same loss (95 %: 0.6 to 1.3 %): noise 0.8 %, bias …". */
void sensed_plan_print(const tandem_sensitivity_estimate *estimate);
/* In percent: sensitivity, sensitivity_low, sensitivity_high, noise, bias; null where it is not known. */
json_t *sensed_plan_json(const tandem_sensitivity_estimate *estimate, int is_known);
