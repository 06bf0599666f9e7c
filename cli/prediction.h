/* prediction.h: what the store says about a subject. */
#ifndef TANDEM_CLI_PREDICTION_H
#define TANDEM_CLI_PREDICTION_H

#include "cli/cli.h"
#include "tandem/planner.h"

/* What the options ask of a store (--db, --sensitivity, --base, --bucket, --predict); model and cluster are the caller's to say. */
tandem_request cli_request(const cli_options *options);

/* A planner for the subject by the options (--db, --sensitivity, --base, --bucket, --predict), its replayer under the subject's plan.
 * times_only: without sensitivities. The caller closes it before the subject, whose graphs it borrows. */
tandem_status cli_planner_open(tandem_planner **planner, const cli_options *options,
                               const cli_subject *subject, int times_only, tandem_error *error);

/* A method of sensitivity with the unit of its numbers: "fisher, nats", "qsync, no unit". Text of static
 * storage. */
const char *cli_method_text(const char *method);

/* Of the plan of the replayer's last run: for each class whose times were not all measured, a line that says where they come
 * from, and one where all-reduces lie beyond what was measured; the times of class c as an object. */
void cli_provenance_print(const tandem_replayer *replayer);
json_t *cli_provenance_json(const tandem_replayer *replayer, int c);

#endif
