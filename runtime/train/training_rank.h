/* training_rank.h: what a rank of `train` holds open, and what it reports to rank 0. */
#pragma once

#include "runtime/backend_library.h"
#include "runtime/listener.h"
#include "runtime/process/ranks.h"
#include "runtime/train/train_config.h"
#include "tandem/advanced/store.h"

enum {
    WARM_UP_STEPS = 2, /* first steps run with cold caches; medians leave them out */
    KEPT_STEPS = 128   /* number of kept steps, with the times of their tasks */
};

/* What only other parts of tandem ask of a rank; set it before it opens. All zero: a plain training. */
typedef struct training_extras {
    int exact_micro_steps;   /* of the emulation, if any; counts for executors that open after it is set */
    int hold_weights;        /* no step changes them */
    int late_results;        /* a step's loss is taken while the next one runs */
    const tandem_data *data; /* is not read again where the request names it */
} training_extras;

typedef struct training_rank {
    const tandem_backend_api *backend;
    tandem_rank_place self;
    int class_index; /* class of this rank */
    int is_sharding_known;
    training_extras extra;
    train_config config;
    tandem_sharding sharding; /* of the step */
    tandem_step *step;
    tandem_data data;
    uint64_t data_hash;   /* tandem_data_hash of it; 0 where neither another rank nor a checkpoint asks */
    int64_t global_batch; /* samples per step of all ranks */
    tandem_worker *worker;
    tandem_executor *executor;
} training_rank;

/* Checks a file of initial weights before a rank opens; what does not fit is a note. Errors of
 * tensors_inspect (backend.h). */
tandem_status training_rank_inspect_init(const tandem_backend_api *backend, const tandem_graph *graph,
                                         const char *init, const tandem_listener *listener,
                                         tandem_error *error);
/* Opens everything that a rank needs to run its part of the workload's plan. request->data NULL = noise;
 * rank->extra is kept. */
tandem_status training_rank_open(training_rank *rank, const tandem_workload *workload,
                                 const tandem_train_request *request, const tandem_rank_place *self,
                                 tandem_error *error);
/* All ranks, between two steps, `done` of them done: saves the executor to a new temporary file, whose name
 * rank 0 writes to path, and closes it. The caller removes the file (scratch_file_remove), after errors
 * too. Then resume opens it again, for the plan that the workload has now; on error there is no executor, and
 * training_rank_close is all that may follow. weight: any weights, [step->n_flat], so that none are drawn
 * that the file then replaces; NULL: drawn. */
tandem_status training_rank_suspend(training_rank *rank, char path[SCRATCH_JSON], int64_t done,
                                    tandem_error *error);
tandem_status training_rank_resume(training_rank *rank, const tandem_workload *workload,
                                   const tandem_train_request *request, const char *path, const float *weight,
                                   tandem_error *error);
/* All ranks, between two steps, `done` of them done: the run goes on under another plan, as one that was
 * stopped here and resumed. Errors and state of the two. */
tandem_status training_rank_change_plan(training_rank *rank, const tandem_workload *workload,
                                        const tandem_train_request *request, const tandem_assignment *chosen,
                                        int64_t done, tandem_error *error);
void training_rank_close(training_rank *rank);
/* Each rank notes how many strangers came while it joined. Rank 0 notes why ranks cannot share memory: the
 * run then differs from the replayed plan. */
void training_rank_note_transport(const tandem_backend_api *backend, const tandem_worker *worker, int rank,
                                  const tandem_listener *listener);
/* Gives the device the algorithms of the store (NULL = none). autotune: the device tries algorithms for other
 * work. */
tandem_status training_rank_load_algorithms(const tandem_backend_api *backend, tandem_worker *worker,
                                            tandem_store *store, int autotune, tandem_error *error);
/* Opens a data set and checks it against the workload: sample shapes, and at least one batch of all ranks.
 * shared: is borrowed where it has this name; NULL: none. */
tandem_status training_rank_open_data(tandem_data *data, const tandem_backend_api *backend,
                                      const tandem_workload *workload, const char *source,
                                      const tandem_data *shared, tandem_error *error);
/* The same for one class's graph, without the batch check. */
tandem_status training_rank_open_samples(tandem_data *data, const tandem_backend_api *backend,
                                         const tandem_graph *graph, const char *source, tandem_error *error);
/* Says what becomes of the samples, where they do not go to the model as they are. */
void training_rank_note_data(const tandem_data *data, const tandem_backend_api *backend,
                             const tandem_graph *graph, const tandem_listener *listener);
/* Opens only the step program of class rank->class_index under the workload's plan. */
tandem_status training_rank_open_step(training_rank *rank, const tandem_workload *workload,
                                      const tandem_train_request *request, tandem_error *error);

/* Measured steps; times in ns. */
typedef struct rank_times {
    int64_t n_counted;  /* steps after the warm-up */
    int64_t *period_ns; /* [steps] from the start of a step to the start of the next */
    int64_t *wait_ns;   /* [steps] the compute stream waits for buckets */
    /* [steps] period less the time of other processes on the rank's core; −1 = unknown */
    int64_t *undisturbed_ns;
    int64_t *busy_ns;           /* [steps] the same less the waits */
    int64_t *start_ns, *end_ns; /* [n_micro × n_task] of the last step, for the trace */
} rank_times;
