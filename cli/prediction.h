/* prediction.h: opens planners from options, and prints where the times of a step come from. */
#pragma once

#include "cli/cli.h"
#include "tandem/planner.h"

/* The planner request of the options (--db, --sensitivity, --base-precision, --bucket, --predict). The caller
 * adds model and cluster. */
tandem_request cli_planner_request(const cli_options *options);
/* The question of the options (requests.c); it borrows their texts. TANDEM_USAGE: --cluster and --device. */
tandem_status cli_allocation_request(tandem_allocation_request *request, const cli_options *options,
                                     tandem_error *error);

/* Opens a planner for the workload, its replayer with the workload's plan. times_only: without sensitivities.
 * Close it before the workload, whose graphs it borrows. */
tandem_status cli_planner_open(tandem_planner **planner, const cli_options *options,
                               const tandem_workload *workload, int times_only, tandem_error *error);

/* Whether a method counts extra samples, in percent. */
int cli_method_is_percent(const char *method);
/* " %", " nats" or "": what follows a sensitivity of the method. Static text. */
const char *cli_method_unit(const char *method);
/* A sensitivity method with its unit: "fisher, nats", "qsync, no unit". Static text. */
const char *cli_method_text(const char *method);

/* The peak of a rank's memory; "-" for 0: not known. It lives as tandem_quantity_bytes does. */
#define CLI_PEAK_TEXT(bytes) ((bytes) ? tandem_quantity_bytes(bytes).text : "-")
/* The same as a number, or null. */
json_t *cli_peak_json(uint64_t bytes);

/* Where the times of a step come from (printed: answer.h). */
double cli_origin_share(const tandem_provenance *provenance, tandem_origin origin);
json_t *cli_cost_sources_json(const tandem_time_sources *sources, int c);
/* Significant digits of the times: 3, or 2 if some are predicted. */
int cli_cost_sources_digits(const tandem_time_sources *sources);
/* Significant digits of times from a profile (tandem_profile_interval): 3, or 2 from 5 % on. */
int cli_profile_interval_digits(double interval);

/* Of the replayer's last run. */
json_t *cli_provenance_json(const tandem_replayer *replayer, int c);
