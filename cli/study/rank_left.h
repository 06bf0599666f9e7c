/* rank_left.h: what the jobs of a task of `tandem study rank` have left, before they start. */
#ifndef TANDEM_CLI_STUDY_RANK_LEFT_H
#define TANDEM_CLI_STUDY_RANK_LEFT_H

#include "cli/study/noise_tasks.h"

/* Of the jobs without a record. Each trains up to the last age. */
typedef struct rank_left {
    int n_job;
    int n_probe;                /* of an age, for `probe` */
    int n_step;                 /* of an age: steps' worth of gradients, for `sensed_probe` */
    int n_sensing, n_replicate; /* of an age: sensings of all operators in one precision, and their sum */
} rank_left;

/* Seconds of a core, by trials. TANDEM_NO_MEMORY, and errors of sensing_run. */
tandem_status rank_left_seconds(double *seconds, const noise_lab *lab, const rank_left *left,
                                tandem_error *error);

#endif
