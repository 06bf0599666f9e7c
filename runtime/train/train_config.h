/* train_config.h: the optimizer of a run and its learning rate at every step. */
#pragma once

#include "tandem/advanced/backend.h"
#include "tandem/runtime.h"

typedef enum rate_schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_COSINE,
    SCHEDULE_LINEAR,
    SCHEDULE_STEP,
    N_SCHEDULE
} rate_schedule;

typedef struct train_config {
    tandem_optimizer_options optimizer; /* its rate is the peak of the schedule */
    rate_schedule schedule;
    int64_t warmup, steps;
} train_config;

/* The model's own values, overridden by options. TANDEM_USAGE: an option of another optimizer, or a warm-up
 * longer than the run. TANDEM_UNKNOWN_NAME: unknown schedule. */
tandem_status train_config_open(train_config *out, const tandem_graph *graph,
                                const tandem_train_request *request, tandem_error *error);

/* train_config_rate: the learning rate of step s = 0, 1, …, of N steps with W of warm-up, at highest r:
 *   s < W     r · (s + 1) / W
 *   constant  r
 *   linear    r · (N − s) / (N − W)
 *   cosine    r · ½ (1 + cos(π (s − W) / (N − W)))          Loshchilov and Hutter 2017, equation 5, without
 *             restarts
 *   step      r, r/10 from N/2 on, r/100 from 3N/4 on        He et al. 2016, section 4.2 */
float train_config_rate(const train_config *r, int64_t s);

/* Everything that decides what a run learns, one line each ("seed: 0"), for checkpoints. Runs with equal
 * texts are the same run. data: of the samples (NULL = noise), and their tandem_data_hash. */
void train_config_print(char *text, size_t size, const train_config *r, const tandem_workload *workload,
                        const tandem_train_request *request, const tandem_data *data, uint64_t data_hash);
/* The same with a line for what is not used, too: "label smoothing: none". */
void train_config_print_all(char *text, size_t size, const train_config *r, const tandem_workload *workload,
                            const tandem_train_request *request, const tandem_data *data, uint64_t data_hash);
/* Notes every line in which `before`, a checkpoint's text, and `now` differ: those of `now` first, then those
 * that only `before` has. */
void train_config_note_changes(const tandem_listener *listener, const char *before, const char *now);
