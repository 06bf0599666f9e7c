/* run_steadiness.h: the last steps of a rank's run, the speed sample beside each, and what others took. */
#ifndef TANDEM_RUNTIME_RUN_STEADINESS_H
#define TANDEM_RUNTIME_RUN_STEADINESS_H

#include "runtime/train/step_watch.h"
#include "runtime/train/training_rank.h"

enum { MAX_DELAYS = 2048 };

/* What others took in a kept step; task −1: somewhere in the step. */
typedef struct step_delay {
    int32_t step, task;
    int64_t ns;
} step_delay;

/* One rank's, as it is sent to rank 0. Steps in the order in which they ran. */
typedef struct run_steadiness {
    int32_t n_step, n_delay, is_delay_known;
    double speed_sample_share; /* of the run's time, speed samples took */
    int64_t step_ns[KEPT_STEPS];
    tandem_speed_sample speed_sample[KEPT_STEPS];
    step_delay delay[MAX_DELAYS];
} run_steadiness;

/* The same while the run goes on: counted steps at equal distances over the whole run. Where they would be
 * more than KEPT_STEPS, every second one is dropped, and the distance doubles. */
typedef struct kept_steps {
    int64_t n_counted, distance, last_step_ns; /* of the last counted step */
    int n_kept, n_task;
    int n_paired; /* of them that have the speed sample after them, too */
    int64_t step_ns[KEPT_STEPS], step_delay_ns[KEPT_STEPS];
    tandem_speed_sample speed_sample[KEPT_STEPS]; /* the mean of those before and after the step */
    int64_t *task_ns, *task_delay_ns;             /* [KEPT_STEPS][n_task]; delays: −1 = unknown; borrowed */
    /* the counted step before which the next speed sample is due */
    int64_t next_speed_sample, steps_per_speed_sample;
    int n_speed_sample;
} kept_steps;

/* Adds a counted step that `watch` has seen, with its tasks' times. Cost: O(n_task). */
void kept_steps_add(kept_steps *kept, const step_watch *watch, const tandem_step_times *times,
                    int64_t step_ns);
/* What it keeps; run_ns: the time of the whole run. */
void kept_steps_read(const kept_steps *kept, const step_watch *watch, int64_t run_ns, run_steadiness *out);
/* Of task t: the mean of the undisturbed times, or of all, less their delays, without those over three
 * times the median; 0 if it did not run. */
int64_t kept_steps_task_ns(const kept_steps *kept, int t);

/* All ranks: takes a speed sample where one is due, in the same steps on every rank, since each would wait
 * for the others' speed samples. Rank 0 counts the steps of 20 ms. Errors of worker_broadcast. */
tandem_status kept_steps_take_speed_sample(kept_steps *kept, step_watch *watch, training_rank *rank,
                                           tandem_error *error);

#endif
