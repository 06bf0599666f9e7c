/* study_runs.h: trainings and estimates as the options of a part ask for them, on the study's data. */
#ifndef TANDEM_RESEARCH_STUDY_RUNS_H
#define TANDEM_RESEARCH_STUDY_RUNS_H

#include "cli/cli.h"
#include "runtime/estimate/estimate.h"

/* The study's data, which is read once; NULL before it is open. */
const tandem_data *study_data(void);
void study_data_set(const tandem_data *data);

/* training_rank_open of the only rank. What the caller has set of rank->extra is kept. */
tandem_status study_rank_open(training_rank *rank, const tandem_workload *workload,
                              const cli_options *options, tandem_error *error);
/* estimate_run. */
tandem_status estimate_by_options(tandem_estimate *estimate, const tandem_workload *workload,
                                  const cli_options *options, const estimate_request *request,
                                  tandem_error *error);

#endif
