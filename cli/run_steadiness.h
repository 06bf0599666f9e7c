/* run_steadiness.h: the last steps of a rank's run, the machine's pulse beside each, and what others took. */
#ifndef TANDEM_CLI_RUN_STEADINESS_H
#define TANDEM_CLI_RUN_STEADINESS_H

#include <jansson.h>

#include "cli/step_watch.h"
#include "cli/training_rank.h"

enum { MAX_DELAYS = 2048 };

/* What others took in a kept step; task −1: somewhere in the step. */
typedef struct step_delay {
    int32_t step, task;
    int64_t ns;
} step_delay;

/* One rank's, as it is sent to rank 0. Steps in the order in which they ran. */
typedef struct run_steadiness {
    int32_t n_step, n_delay, is_delay_known;
    double pulse_share; /* of the run's time, pulses took */
    int64_t step_ns[KEPT_STEPS];
    tandem_pulse pulse[KEPT_STEPS];
    step_delay delay[MAX_DELAYS];
} run_steadiness;

/* The same while the run goes on: a ring over the counted steps. */
typedef struct steadiness_ring {
    int64_t n_counted, step_ns[KEPT_STEPS], step_delay_ns[KEPT_STEPS];
    tandem_pulse pulse[KEPT_STEPS];
    int64_t *task_delay_ns; /* [n_task][KEPT_STEPS]; −1 = unknown; borrowed */
    int n_task;
    int64_t next_pulse, steps_per_pulse; /* the counted step before which the next pulse is due */
    int n_pulse;
} steadiness_ring;

/* Adds a counted step that `watch` has seen. Cost: O(n_task). */
void steadiness_ring_add(steadiness_ring *ring, const step_watch *watch, int64_t step_ns);
/* What the ring holds; run_ns: the time of the whole run. */
void steadiness_ring_read(const steadiness_ring *ring, const step_watch *watch, int64_t run_ns,
                          run_steadiness *out);

/* All ranks: takes a pulse where one is due, in the same steps on every rank, since each would wait for the
 * others' pulses. Rank 0 counts the steps of 20 ms. Errors of worker_broadcast. */
tandem_status steadiness_ring_pulse(steadiness_ring *ring, step_watch *watch, training_rank *rank,
                                    tandem_error *error);

json_t *run_steadiness_json(const run_steadiness *run);
/* 0 where the object is none of a run. */
int run_steadiness_from_json(run_steadiness *run, const json_t *object);

#endif
