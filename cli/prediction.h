/* prediction.h: opens planners from options, and prints where the times of a step come from. */
#pragma once

#include "cli/cli.h"
#include "tandem/planner.h"

/* The planner request of the options (--db, --sensitivity, --base-precision, --bucket, --predict). The caller
 * adds model and cluster. */
tandem_request cli_planner_request(const cli_options *options);

/* Opens a planner for the workload, its replayer with the workload's plan. times_only: without sensitivities.
 * Close it before the workload, whose graphs it borrows. */
tandem_status cli_planner_open(tandem_planner **planner, const cli_options *options,
                               const tandem_workload *workload, int times_only, tandem_error *error);

/* Whether a method counts more samples in percent: then its sensitivities are prices. */
int cli_method_is_percent(const char *method);
/* " %", " nats" or "": what follows a sensitivity of the method. Static text. */
const char *cli_method_unit(const char *method);
/* A sensitivity method with its unit: "fisher, nats", "qsync, no unit". Static text. */
const char *cli_method_text(const char *method);

/* The peak of a rank's memory; "-" for 0: not known. It lives as tandem_quantity_bytes does. */
#define CLI_PEAK_TEXT(bytes) ((bytes) ? tandem_quantity_bytes(bytes).text : "-")
/* The same as a number, or null. */
json_t *cli_peak_json(uint64_t bytes);

/* Where the times of a step come from, per class. */
typedef struct cli_cost_sources {
    int n_class;
    char device[TANDEM_MAX_CLASS][TANDEM_DEVICE_NAME];
    tandem_provenance of[TANDEM_MAX_CLASS];
    tandem_allreduce_source allreduce_source;
    int is_net_within_nodes; /* ranks of one node are joined by net=, for want of link= and node= */
} cli_cost_sources;
/* Of the plan of the replayer's last run. */
void cli_cost_sources_collect(cli_cost_sources *sources, const tandem_replayer *replayer);
void cli_cost_sources_print(const cli_cost_sources *sources);
json_t *cli_cost_sources_json(const cli_cost_sources *sources, int c);
/* Significant digits of the times: 3, or 2 if some are predicted. */
int cli_cost_sources_digits(const cli_cost_sources *sources);
/* How far the step of a plan may be off because of the profile alone: half the widest interval of the
 * cluster's devices over the step, from the options' store; NaN where it is not known. */
double cli_profile_interval(const cli_options *options, const tandem_cluster *cluster);
/* Significant digits of times from such a profile: 3, or 2 from 5 % on. */
int cli_profile_interval_digits(double interval);
/* Prints it from 2 % on. */
void cli_profile_interval_print(double interval);
/* Whether all times are predicted from device descriptions alone. */
int cli_cost_sources_are_described(const cli_cost_sources *sources);

/* cli_cost_sources_collect, then cli_cost_sources_print or cli_cost_sources_json. */
void cli_provenance_print(const tandem_replayer *replayer);
json_t *cli_provenance_json(const tandem_replayer *replayer, int c);
