/* prediction.h: what the store says about a subject. */
#ifndef TANDEM_CLI_PREDICTION_H
#define TANDEM_CLI_PREDICTION_H

#include "cli/cli.h"
#include "tandem/planner.h"

/* What the options ask of a store (--db, --sensitivity, --base-precision, --bucket, --predict); model and
 * cluster are the caller's to say. */
tandem_request cli_planner_request(const cli_options *options);

/* A planner for the subject by the options (--db, --sensitivity, --base-precision, --bucket, --predict), its
 * replayer under the subject's plan. times_only: without sensitivities. The caller closes it before the
 * subject, whose graphs it borrows. */
tandem_status cli_planner_open(tandem_planner **planner, const cli_options *options,
                               const cli_workload *workload, int times_only, tandem_error *error);

/* A method of sensitivity with the unit of its numbers: "fisher, nats", "qsync, no unit". Text of static
 * storage. */
const char *cli_method_text(const char *method);

/* Where the times of a step come from, class by class. */
typedef struct cli_cost_sources {
    int n_class;
    char device[TANDEM_MAX_CLASS][TANDEM_DEVICE_NAME];
    tandem_provenance of[TANDEM_MAX_CLASS];
    tandem_allreduce_source allreduce_source;
} cli_cost_sources;
/* Of the plan of the replayer's last run. */
void cli_cost_sources_collect(cli_cost_sources *sources, const tandem_replayer *replayer);
void cli_cost_sources_print(const cli_cost_sources *sources);
json_t *cli_cost_sources_json(const cli_cost_sources *sources, int c);
/* Significant digits that its times are worth: 3, and 2 where some are predicted. */
int cli_cost_sources_digits(const cli_cost_sources *sources);
/* Whether all of them follow from descriptions alone. */
int cli_cost_sources_are_described(const cli_cost_sources *sources);

/* Of the plan of the replayer's last run: for each class whose times were not all measured, a line that says
 * where they come from, and one where all-reduces lie beyond what was measured; the times of class c as an
 * object. */
/* cli_cost_sources_collect and cli_cost_sources_print or cli_cost_sources_json. */
void cli_provenance_print(const tandem_replayer *replayer);
json_t *cli_provenance_json(const tandem_replayer *replayer, int c);

#endif
