/* prediction.h: what the store says about a subject: a replayer with its costs, and what low precision
 * harms. */
#ifndef TANDEM_CLI_PREDICTION_H
#define TANDEM_CLI_PREDICTION_H

#include "cli/cli.h"

/* A replayer of the subject's cluster under its plan, with costs from the store (options->db), which is
 * not kept open. The caller closes it before the subject, whose graphs it borrows. Errors of the store and
 * of tandem_replayer_open. */
tandem_status cli_replayer_open(tandem_replayer **replayer, const cli_options *options,
                                const cli_subject *subject, tandem_error *error);

/* Of the plan of the replayer's last run: for each class whose times were not all measured, a line that says where they come
 * from; the same of class c as an object. */
void cli_provenance_print(const tandem_replayer *replayer);
json_t *cli_provenance_json(const tandem_replayer *replayer, int c);

/* Harm of every operator in every precision on the device of each class, harm[c]: [n_op ×
 * TANDEM_N_PRECISION], by the method asked for [fisher]; cli_harm_free releases it. Unchanged on error.
 * Errors of the store and of tandem_sensitivity_load. */
tandem_status cli_harm_load(double *harm[TANDEM_MAX_CLASS], const cli_options *options,
                            const cli_subject *subject, tandem_error *error);
void cli_harm_free(double *harm[TANDEM_MAX_CLASS]);
const char *cli_harm_method(const cli_options *options);

/* The limit of a rank of class c; 0 = none. */
uint64_t cli_memory_limit(const cli_subject *subject, int c);

#endif
