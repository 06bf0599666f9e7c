/* study_runs.h: trainings and sensings as the options of a part ask for them, on the study's data. */
#ifndef TANDEM_RESEARCH_STUDY_RUNS_H
#define TANDEM_RESEARCH_STUDY_RUNS_H

#include "cli/cli.h"
#include "runtime/sense/sensing.h"

/* The study's data, which is read once; NULL before it is open. */
const tandem_data *study_data(void);
void study_data_set(const tandem_data *data);

/* training_rank_open of the only rank. What the caller has set of rank->extra is kept. */
tandem_status study_rank_open(training_rank *rank, const tandem_workload *workload,
                              const cli_options *options, tandem_error *error);
/* sensing_run. */
tandem_status sense_by_options(tandem_sensing *sensing, const tandem_workload *workload,
                               const cli_options *options, const sensing_request *request,
                               tandem_error *error);

#endif
