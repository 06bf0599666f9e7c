/* noise_tasks.h: the models whose noise of gradients `tandem-study rank` and `tandem-study add` measure. They
 * are fixed before a run: a file of records names them, and another plan does not take it. */
#ifndef TANDEM_RESEARCH_NOISE_TASKS_H
#define TANDEM_RESEARCH_NOISE_TASKS_H

#include "runtime/estimate/estimate.h"
#include "research/study.h"
#include "research/study_records.h"

enum { NOISE_MAX_POINT = 2, NOISE_MAX_TASKS = 8, NOISE_N_PRECISION = 3 };

typedef struct noise_task {
    const char *model, *data;
    int64_t batch, steps, point[NOISE_MAX_POINT]; /* steps: of the training in fp32; points are among them */
    int n_point;
} noise_task;

typedef struct noise_tasks {
    const noise_task *task; /* [n] */
    int n;
} noise_tasks;
extern const noise_tasks noise_tasks_full, noise_tasks_quick;

/* The precisions that operators get: from the least error to the largest, none with the AMP dtype. */
extern const tandem_precision noise_precisions[NOISE_N_PRECISION];

/* One task, opened; all zero is closed. */
typedef struct noise_lab {
    const noise_task *task;
    cli_options options; /* of a training of the task in fp32 */
    tandem_workload workload;
    int n_op, *op; /* adjustable operators with all of noise_precisions */
} noise_lab;
/* TANDEM_MISSING and TANDEM_UNKNOWN_NAME: the task's data set is not installed. */
tandem_status noise_lab_open(noise_lab *lab, const noise_task *task, const cli_options *options,
                             tandem_error *error);
void noise_lab_close(noise_lab *lab);
/* 1 where noise_lab_open's status says that the data set is not here: the report and a note say SKIP. */
int noise_task_skip(study_report *report, const noise_task *task, tandem_status status);

/* The plan's name in a file of records: `what`, the tasks, and numbers [n] that decide the values. */
void noise_plan_name(char text[STUDY_PLAN_NAME], const noise_tasks *tasks, const char *what,
                     const double *number, int n, uint64_t seed);

/* The estimate in a step of `batch` samples of a weighted sum of rows, the mean over training points: weights
 * of 1 and −1 give the difference of rows with common batches and draws.
 *   weight  [estimate->n_op], of rows in `precision` */
tandem_status noise_of_rows(tandem_sensitivity_estimate *to, const tandem_estimate *estimate,
                            tandem_precision precision, const double *weight, int64_t batch,
                            tandem_error *error);

/* Jobs of a part that are done, for the time left. */
typedef struct noise_progress {
    const char *part;
    int n_job, n_done, n_ran; /* n_done: with those of the records */
    int64_t ran_ns;
} noise_progress;
/* One more job that took ns; 0: the records had it. */
void noise_progress_add(noise_progress *progress, const cli_options *options, int64_t ns);

#endif
