/* profile_samples.h: the repetitions of one cost key, and their summary. */
#ifndef TANDEM_RUNTIME_PROFILE_SAMPLES_H
#define TANDEM_RUNTIME_PROFILE_SAMPLES_H

#include "runtime/train/step_watch.h"

enum { PROFILE_MAX_ROUNDS = 24 };

typedef struct task_sample {
    int64_t ns;
    tandem_speed_sample speed_sample; /* beside it */
    int round;
    int is_disturbed; /* others had the core meanwhile, for the time that has been taken off ns */
} task_sample;

/* Repetitions of one key, from all tasks and plans that have it. */
typedef struct key_samples {
    char text[TANDEM_COST_KEY_TEXT];
    tandem_cost_key key;
    uint64_t workspace_bytes;
    task_sample *sample;
    int64_t n, capacity;
    int touched;                         /* by the current plan */
    tandem_cost cost;                    /* the summary; n 0 = none */
    double round_ns[PROFILE_MAX_ROUNDS]; /* its median in each round; 0 = none */
} key_samples;

void key_samples_free(key_samples *key);

/* key_samples_add: a repetition of `ns` during which others had the core for delay_ns (−1 = not known); it is
 * disturbed where that is over 1 % of it. A time below 0, by a clock that went back, counts as disturbed.
 * TANDEM_NO_MEMORY. */
tandem_status key_samples_add(key_samples *key, int64_t ns, int64_t delay_ns,
                              const tandem_speed_sample *speed, int round, tandem_error *error);

/* key_samples_summarise: sets key->cost from the repetitions that were not disturbed, or from all, less their
 * delays, where fewer than three were not. Times are brought to the speed sample `steady`. The interval holds
 * the sign test's, and that of the rounds' medians, because repetitions of one round share its moment.
 * TANDEM_NO_MEMORY. Cost: O(n log n). */
tandem_status key_samples_summarise(key_samples *key, const tandem_speed_sample *steady, tandem_error *error);

/* Half the width of the interval that holds the mean of 95 of 100 such samples of n independent numbers: by
 * Student's distribution. 0 for fewer than two. */
double half_interval_of_mean(const double *value, int n);

#endif
