/* step_watch.h: what others took from each task of a rank's steps, and speed samples between steps. */
#ifndef TANDEM_CLI_STEP_WATCH_H
#define TANDEM_CLI_STEP_WATCH_H

#include "base/disturbance.h"
#include "base/speed_sample.h"
#include "tandem/advanced/backend.h"
#include "tandem/advanced/store.h"

/* Of a rank on a CPU. On other devices, and all zero, it knows nothing: delays −1 and no speed sample. */
typedef struct step_watch {
    int is_open;
    tandem_delay_probe probe;
    tandem_speed_sample_walk walk;
    tandem_speed_sample speed_sample; /* the last one; 0 = none */
    int64_t speed_sample_end_ns;      /* when it ended */
    int64_t speed_sample_cost_ns, all_speed_samples_ns;
    int n_task;
    /* [n_task] before each task's end and after that of the task before; −1 = unknown: in all micro-steps of
     * this step, and in the last one */
    int64_t *delay_ns, *last_delay_ns;
    int64_t step_delay_ns; /* in this step; −1 = unknown */
    int64_t seen;          /* the probe's last reading */
} step_watch;

/* step_watch_open: on this thread's core, if `device` is a CPU. Open it before the executor, so that its
 * memory counts for none of the executor's. TANDEM_NO_MEMORY. */
tandem_status step_watch_open(step_watch *watch, const char *device, tandem_error *error);
/* For steps of n_task tasks; once. TANDEM_NO_MEMORY. */
tandem_status step_watch_set_tasks(step_watch *watch, int n_task, tandem_error *error);
void step_watch_close(step_watch *watch);

/* Reads the delay after each task of `executor` from now on; it costs about 1 us a task, outside of the
 * tasks' times. `on` 0 stops it. */
void step_watch_tasks(step_watch *watch, const tandem_backend_api *backend, tandem_executor *executor,
                      int on);

void step_watch_begin(step_watch *watch); /* a step begins */
void step_watch_end(step_watch *watch);   /* it has ended */

/* Speed samples take at most 0.5 % of the time: one after 20 ms, or after 200 times its own time. */
int64_t step_watch_speed_sample_every_ns(const step_watch *watch);
int step_watch_is_speed_sample_due(const step_watch *watch);
/* Takes a speed sample; again, once, where others had the core meanwhile. */
void step_watch_take_speed_sample(step_watch *watch);

/* The share of a task's time that moving its operands takes at the sampled rate, at most 1; 0 where
 * unknown. */
double task_memory_share(const tandem_cost_key *key, int64_t ns, const tandem_speed_sample *steady);

#endif
