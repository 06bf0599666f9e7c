/* study_runs.h: trainings and estimates as the options of a part ask for them, on the study's data. */
#ifndef TANDEM_RESEARCH_STUDY_RUNS_H
#define TANDEM_RESEARCH_STUDY_RUNS_H

#include "cli/cli.h"
#include "runtime/estimate/estimate.h"

/* Data sets are read once, before processes are forked. study_data_open: as tandem_data_open; a set that is
 * open already stays. TANDEM_LIMIT_EXCEEDED: there are more than the study has. */
tandem_status study_data_open(const char *name, int length, tandem_error *error);
/* An open set; NULL: none has that name. */
const tandem_data *study_data(const char *name);
void study_data_close(void); /* all of them */

/* training_rank_open of the only rank, on the data that the options name. What the caller has set of
 * rank->extra is kept. */
tandem_status study_rank_open(training_rank *rank, const tandem_workload *workload,
                              const cli_options *options, tandem_error *error);
/* estimate_run. */
tandem_status estimate_by_options(tandem_estimate *estimate, const tandem_workload *workload,
                                  const cli_options *options, const estimate_request *request,
                                  tandem_error *error);

#endif
