/* training_rank.h: what a rank of `train` holds from start to end, and what it reports to rank 0. */
#ifndef TANDEM_CLI_TRAINING_RANK_H
#define TANDEM_CLI_TRAINING_RANK_H

#include "cli/train_config.h"

enum {
    WARM_UP_STEPS = 2, /* not counted in medians: first steps pay for cold caches */
    KEPT_STEPS = 128   /* of a task's times, the last ones */
};

typedef struct training_rank {
    const tandem_backend_api *backend;
    cli_rank self;
    int class_index; /* its class */
    train_config config;
    tandem_step *step;
    tandem_data data;
    int64_t global_batch; /* samples a step over all ranks */
    tandem_worker *worker;
    tandem_executor *executor;
} training_rank;

/* Opens everything a rank needs to run its part of the subject's plan. `data`: NULL = noise. */
tandem_status training_rank_open(training_rank *rank, const cli_workload *workload,
                                 const cli_options *options, const cli_rank *self, tandem_error *error);
void training_rank_close(training_rank *rank);
/* Rank 0 says why ranks that were to share memory do not: what a plan was replayed with is then not what it
 * is run with. */
void training_rank_note_transport(const tandem_backend_api *backend, const tandem_worker *worker, int rank,
                                  const cli_options *options);
/* Hands the algorithms in the store (NULL: none) to the rank's device; tries: for work without one it is to
 * try them. */
tandem_status training_rank_load_algorithms(const tandem_backend_api *backend, tandem_worker *worker,
                                            tandem_store *store, int autotune, tandem_error *error);
/* Opens options->data and holds it against the subject: samples as the model takes them, at least one batch
 * of all ranks. */
tandem_status training_rank_open_data(tandem_data *data, const tandem_backend_api *backend,
                                      const cli_workload *workload, const cli_options *options,
                                      tandem_error *error);
/* The same for one class's graph, whatever the batch of all ranks. */
tandem_status training_rank_open_samples(tandem_data *data, const tandem_backend_api *backend,
                                         const tandem_graph *graph, const char *source, tandem_error *error);
/* Only the step program of class run->class_index under the subject's plan. */
tandem_status training_rank_open_step(training_rank *rank, const cli_workload *workload,
                                      const cli_options *options, tandem_error *error);

/* Steps that were run, times in ns. */
typedef struct rank_times {
    int64_t n_counted;  /* steps behind the warm-up */
    int64_t *period_ns; /* [steps] from the begin of a step to the begin of the next */
    int64_t *wait_ns;   /* [steps] the compute stream stood still for buckets */
    /* [steps] period, less what other processes had of the rank's core; −1 = not known */
    int64_t *undisturbed_ns;
    int64_t *busy_ns;           /* [steps] and less what the compute stream stood still */
    int64_t *task_ns;           /* [n_task][KEPT_STEPS], a ring over the counted steps */
    int64_t *start_ns, *end_ns; /* [n_micro × n_task] of the last step: the trace */
} rank_times;

/* One rank's figures, sent to rank 0. */
typedef struct rank_report {
    /* medians over the counted steps; −1 = not known */
    int64_t period_ns, p10_ns, p90_ns, wait_ns, undisturbed_ns, busy_ns;
    /* evaluation: what both have for it beyond the steps */
    uint64_t allocated_bytes, planned_bytes, evaluation_bytes;
    int64_t resident_bytes; /* beside the plan's, as the system tells them; −1 = not known */
} rank_report;

#endif
