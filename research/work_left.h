/* work_left.h: what a part of the study has left to run, and the seconds of a core that it takes, by short
 * trials of the same work. A part reports it before it starts. */
#ifndef TANDEM_RESEARCH_WORK_LEFT_H
#define TANDEM_RESEARCH_WORK_LEFT_H

#include "cli/cli.h"
#include "runtime/estimate/estimate.h"

/* Seconds of a core: what does not grow with the units, and each unit. */
typedef struct work_cost {
    double once_s, unit_s;
} work_cost;

/* A trial: n units of the work, from its beginning. */
typedef tandem_status work_trial(const void *work, int64_t n, tandem_error *error);
/* work_cost_measure: by two trials, of `few` and of `more` units. Errors of the trial: *cost unchanged. */
tandem_status work_cost_measure(work_cost *cost, work_trial *trial, const void *work, int64_t few,
                                int64_t more, tandem_error *error);
double work_cost_seconds(const work_cost *cost, int64_t n);

/* Of a step in which options->model trains in fp32, as it does for `steps` steps: by a 40th of them, and by
 * a 20th. Cost and errors of held_weights_train. */
tandem_status work_cost_of_training(work_cost *cost, const cli_options *options, int64_t steps,
                                    tandem_error *error);
/* Of a replicate of the request at one training point, at weights that are not trained. Two trials, of 3 and
 * 6 replicates. Errors of estimate_run. */
tandem_status work_cost_of_estimate(work_cost *cost, const tandem_workload *workload,
                                    const cli_options *options, const estimate_request *request,
                                    tandem_error *error);

/* "TASK: n_left of n UNITS left, some S s of a core" */
void work_left_note(const cli_options *options, const char *task, int n_left, int n, const char *units,
                    double seconds);
/* The last line, of all tasks. */
void work_left_note_all(const cli_options *options, double seconds);

#endif
