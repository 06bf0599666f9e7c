/* prediction.h: what the store says about a subject. */
#ifndef TANDEM_CLI_PREDICTION_H
#define TANDEM_CLI_PREDICTION_H

#include "cli/cli.h"
#include "tandem/planner.h"

/* What the options ask of a store (--db, --sensitivity, --base, --bucket, --predict); model and cluster are
 * the caller's to say. */
tandem_request cli_request(const cli_options *options);

/* A planner for the subject by the options (--db, --sensitivity, --base, --bucket, --predict), its replayer
 * under the subject's plan. times_only: without sensitivities. The caller closes it before the subject, whose
 * graphs it borrows. */
tandem_status cli_planner_open(tandem_planner **planner, const cli_options *options,
                               const cli_subject *subject, int times_only, tandem_error *error);

/* A method of sensitivity with the unit of its numbers: "fisher, nats", "qsync, no unit". Text of static
 * storage. */
const char *cli_method_text(const char *method);

/* Where the times of a step come from, class by class. */
typedef struct cli_basis {
    int n_class;
    char device[TANDEM_MAX_CLASS][TANDEM_DEVICE_NAME];
    tandem_provenance of[TANDEM_MAX_CLASS];
    tandem_allreduce_source allreduce_source;
} cli_basis;
/* Of the plan of the replayer's last run. */
void cli_basis_take(cli_basis *basis, const tandem_replayer *replayer);
void cli_basis_print(const cli_basis *basis);
json_t *cli_basis_json(const cli_basis *basis, int c);
/* Significant digits that its times are worth: 3, and 2 where some are predicted. */
int cli_basis_digits(const cli_basis *basis);
/* Whether all of them follow from descriptions alone. */
int cli_basis_is_described(const cli_basis *basis);

/* Of the plan of the replayer's last run: for each class whose times were not all measured, a line that says
 * where they come from, and one where all-reduces lie beyond what was measured; the times of class c as an
 * object. */
/* cli_basis_take and cli_basis_print or cli_basis_json. */
void cli_provenance_print(const tandem_replayer *replayer);
json_t *cli_provenance_json(const tandem_replayer *replayer, int c);

#endif
