/* backend.h: runs a step program: one worker per rank, an executor on each, and data sets, checkpoints and
 * measurements for them.
 *
 * Programs open libtandem_backend.so with dlopen. It exports one function, tandem_backend_get, which returns
 * the table of all others. What a device implements is in device_backend.h. */
#ifndef TANDEM_BACKEND_H
#define TANDEM_BACKEND_H

#include "tandem/advanced/data.h"
#include "tandem/advanced/format.h"
#include "tandem/device.h"
#include "tandem/advanced/step.h"

TANDEM_BEGIN_DECLARATIONS

/* --- A worker: this process as one rank of a run --------------------------------------------------------
 * */
typedef struct tandem_worker tandem_worker;
typedef struct tandem_worker_options {
    const char *device; /* "cpu:avx2", "cpu:avx2:8", "cuda:0" */
    int rank, n_rank;
    const char *store;  /* rendezvous directory, fresh for this run; NULL for one rank */
    int cpu;            /* core to pin to; −1 = none */
    int64_t timeout_ns; /* a rank that is silent for longer counts as failed */
    int over_network;  /* 1: gradients go over the network even where all ranks share a machine (cluster.h) */
    tandem_dtype wire; /* what gradients travel in between ranks (cluster.h); the same on every rank */
    /* Lines "key: value" that must be the same on every rank; borrowed while opening; NULL = none. */
    const char *agreement;
    /* The cores of a device with several, `cpu` first; borrowed while opening. NULL: it has `cpu` alone. */
    const int *core;
    int n_core;
} tandem_worker_options;

/* --- An executor: a step program with its memory, weights and kernels -----------------------------------
 * */
typedef struct tandem_executor tandem_executor;
typedef struct tandem_executor_options {
    const tandem_step *step; /* resolved; borrowed; must not change while the executor lives */
    /* Borrowed, as it was opened; its samples are those that data_fit makes, whose errors are those of
     * opening. NULL = uniform noise as inputs, labels by Philox */
    const tandem_data *data;
    uint64_t seed;
    /* [step->n_flat] in the order of executor_get_weights: what it begins with; borrowed while opening.
     * NULL = drawn by the seed. */
    const float *weight;
    /* Seeds of samples and labels, and of stochastic rounding; borrowed while opening; NULL = seed. */
    const uint64_t *data_seed, *rounding_seed;
    /* Emulates dtypes; copied. Its step is laid out as emulated, for its recipe, and no other is. CPU
     * devices only: others are TANDEM_USAGE. Times of such steps say nothing of any device. NULL = its own
     * kernels. */
    const tandem_emulation *emulation;
    int hold_weights; /* 1: steps compute gradients, and leave weights and running statistics; one rank, or
                           * without_all_reduce */
    /* An executor of the same worker and the same flat arrays, whose weights, gradients and order of samples
     * this one uses, and its arena where that is large enough. It outlives this one, and both step in turns.
     * This one holds weights, has its memory on the host, and reduces nothing; else TANDEM_USAGE. NULL: its
     * own memory. */
    tandem_executor *lender;
    int64_t global_batch; /* over all ranks and micro-steps */
    int64_t
        first_sample; /* of this rank in the global batch; its micro-steps take consecutive local batches */
    const uint64_t *memory_limit_bytes; /* NULL = none; TANDEM_INFEASIBLE where the plan needs more */
    int without_all_reduce;             /* 1: the rank trains alone, for a profile of one device */
    int with_task_times; /* 1: executor_times has times of single tasks, which cost time on a GPU */
    /* 1: where the host decides nothing between two steps, executor_step does not wait for the device: what
     * a step gives is read while the next one runs. That is so on a device with its own memory, for a rank
     * that neither all-reduces nor clips nor scales its loss, without task times. TANDEM_LATE=0 in the
     * environment: nowhere. */
    int late_results;
    const tandem_optimizer_options
        *optimizer; /* borrowed while opening; of the model's kind; NULL = the model's */
    const char
        *no_decay; /* patterns of parameters without weight decay (tandem_parameter_matches); NULL = none;
                           * borrowed while opening */
    float label_smoothing;
    /* Largest norm of all gradients together: larger ones are scaled down to it. 0 = no limit. Pascanu,
     * Mikolov, Bengio, ICML 2013, algorithm 1. `clip` and `loss_scale` need a step with_norm (step.h);
     * without them the step must have none. */
    double clip;
    /* The loss is multiplied by it in the backward pass, for gradients in narrow dtypes. 0 = no scaling; < 0:
     * 65536, halved at overflow, doubled after 2000 good steps. Micikevicius et al., ICLR 2018, section 3.2.
     * */
    float loss_scale;
    int with_evaluation; /* 1: executor_evaluate may be called; its kernels and memory are prepared at once */
    int evaluate_in_plan; /* 1: an evaluation has the step's precisions and emulation; 0: it is in fp32 */
    int allow_nan;        /* 1: a loss or gradient that is not finite does not fail the step */
    /* [n_op], borrowed while opening, NULL = not wanted: where executor_open fails with TANDEM_NO_KERNEL, 1
     * for each operator that lacks a kernel in its precision; the others are unchanged. */
    unsigned char *lacks_kernel;
} tandem_executor_options;

/* --- A checkpoint: a training in a file, resumed to the bit (docs/training.md, backend/checkpoint.h) ----
 * */
enum { TANDEM_CHECKPOINT_VERSION = 3, TANDEM_CHECKPOINT_TRAIN_CONFIG = 2048 };
enum { TANDEM_TENSORS_SAID = 768 };
typedef struct tandem_checkpoint_info {
    int64_t step;                                      /* steps done */
    char train_config[TANDEM_CHECKPOINT_TRAIN_CONFIG]; /* the caller's text that says how it was trained */
} tandem_checkpoint_info;

/* Called after each task. executor_value's pointers are valid during the call only. */
typedef void tandem_observer(void *context, const tandem_executor *executor, int task);

/* Times of one step, in ns since it began; −1 = the task is not active or was not timed. */
typedef struct tandem_step_times {
    int n_event;
    int64_t step_ns;
    int64_t *start_ns, *end_ns; /* [n_task], in the last micro-step; an update starts after its wait */
    int64_t *wait_ns;           /* [n_bucket] the compute stream's wait for each bucket */
    int n_micro;
    int64_t *all_start_ns,
        *all_end_ns; /* [n_micro × n_task], of every micro-step; −1 also where a task runs in the
                                         * last one only */
} tandem_step_times;

/* The last step, where gradients are clipped or the loss is scaled. */
typedef struct tandem_step_report {
    double gradient_norm; /* of all gradients, before clipping; < 0: not computed */
    float loss_scale;     /* of that step; 1 without scaling */
    int skipped;          /* 1: a gradient was not finite, and the step updated nothing */
} tandem_step_report;

/* What an evaluation saw on one rank. */
typedef struct tandem_evaluation {
    int64_t correct, total; /* predictions: right ones, and all */
    double loss,
        loss_square; /* sums over the predictions, in nats: of −ln p of the label, and of its square */
} tandem_evaluation;

/* "All ranks": a collective call, which every rank of the run makes together. */
enum { TANDEM_DATA_SAID = 256 };
typedef struct tandem_backend_api {
    int version;
    /* Writes the libraries' names and versions, "oneDNN 2.6.3, Gloo 0.5.0", cut to fit; returns `text`. */
    const char *(*libraries)(char *text, size_t size);

    /* Describes a device without opening it: "" for CPUs. TANDEM_NO_DEVICE: it cannot be opened here; the
     * error says what is missing. */
    tandem_status (*device_describe)(char *text, size_t size, const char *name, tandem_error *error);

    /* The functions of data.h, for programs that do not link this library. */
    tandem_status (*data_open)(tandem_data *data, const char *source, int length, tandem_error *error);
    uint64_t (*data_hash)(const tandem_data *data);
    void (*data_close)(tandem_data *data);
    /* Makes *data what `graph` takes, or refuses it; no byte is copied. It is said what becomes of images,
     * unless the model has them as (height, width, channels) or, in a file, (channels, height, width); ""
     * where nothing is:
     *   - the same numbers in another order: channels first or last, flattened row by row (colour: channel by
     *     channel), without or with dimensions of size 1;
     *   - a grey image in each of three channels; of a model of the zoo in any number;
     *   - an image of another size, bilinear, where the model takes images. Those of a file have the data's
     *     proportions, to a factor of 2, and more than one row and column.
     * Labels are one per image or text with classes; one, or one per character, else. said: NULL is fine.
     * TANDEM_MALFORMED: another kind or shape, more classes than outputs, more characters than the
     * vocabulary, or another number of labels; both shapes are named. TANDEM_USAGE: *data was fitted to a
     * model with other samples; one that was fitted to this model stays as it is. *data and said unchanged on
     * error. O(1). */
    tandem_status (*data_fit)(tandem_data *data, const tandem_graph *graph, char said[TANDEM_DATA_SAID],
                              tandem_error *error);
    const tandem_data_set *(*data_set_at)(int i);
    tandem_status (*data_find)(char *path, size_t size, const char *name, tandem_error *error);

    /* All ranks. TANDEM_NO_DEVICE, TANDEM_UNKNOWN_NAME, TANDEM_USAGE, TANDEM_IO, TANDEM_NO_MEMORY,
     * TANDEM_RANK_FAILED (a rank did not join within the timeout).
     * TANDEM_USAGE, too, on every rank: their `wire`, `agreement` or version differs; the error names the
     * first difference, with both values. */
    tandem_status (*worker_open)(tandem_worker **worker, const tandem_worker_options *options,
                                 tandem_error *error);
    void (*worker_close)(tandem_worker *worker);
    /* Whether the ranks sum gradients in shared memory: they run on one machine, over_network is 0, and
     * sharing has not failed so far. Opening an executor or measuring may find that it fails. The same on
     * every rank. */
    int (*worker_shares_memory)(const tandem_worker *worker);
    /* How many connections came while the ranks joined that were none of the run's; they were closed. */
    int64_t (*worker_n_stranger)(const tandem_worker *worker);
    /* Why they share no memory although over_network is 0: a clause, the same on every rank; else "". */
    const char *(*worker_shared_memory_error)(const tandem_worker *worker);
    /* Which algorithms the device's libraries use: load_algorithms and tuned_algorithms of device_backend.h.
     * */
    tandem_status (*worker_load_algorithms)(tandem_worker *worker, const tandem_algorithm *choice, int n,
                                            int autotune, tandem_error *error);
    const tandem_algorithm *(*worker_tuned_algorithms)(const tandem_worker *worker, int *n);
    /* Reads the device's clocks; returns 0 where they are not known, as for CPUs. */
    int (*worker_clocks)(const tandem_worker *worker, tandem_clocks *now);
    /* All ranks, each: TANDEM_RANK_FAILED, with error->rank. */
    tandem_status (*worker_barrier)(tandem_worker *worker, tandem_error *error);
    tandem_status (*worker_gather)(tandem_worker *worker, const void *mine, void *all, size_t bytes,
                                   tandem_error *error);
    tandem_status (*worker_broadcast)(tandem_worker *worker, void *data, size_t bytes, int root,
                                      tandem_error *error);

    /* All ranks, unless without_all_reduce. Before it allocates anything large, it compares each rank's plan
     * with that rank's limit (TANDEM_INFEASIBLE), and the plans of a machine with the memory available there
     * (TANDEM_NO_MEMORY). Every rank gets the same error, with the bytes per category and a batch that fits.
     * */
    tandem_status (*executor_open)(tandem_executor **executor, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error);
    /* What the executor would take, without memory or other ranks: the plan with its kernels' workspaces.
     * Errors of executor_open that do not depend on memory. */
    tandem_status (*executor_plan)(tandem_memory *memory, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error);
    void (*executor_close)(tandem_executor *executor);
    /* Sets the learning rate of the following steps; before the first call it is the optimizer's. */
    void (*executor_set_rate)(tandem_executor *executor, float rate);
    /* Changes the emulation of the following steps. TANDEM_USAGE: the executor was opened without one, or its
     * step is laid out for another recipe. */
    tandem_status (*executor_set_emulation)(tandem_executor *executor, const tandem_emulation *emulation,
                                            tandem_error *error);
    /* Copies all weights from the executor, or into it: [step->n_flat], in the order of the flat arrays. */
    tandem_status (*executor_get_weights)(const tandem_executor *executor, float *weight,
                                          tandem_error *error);
    tandem_status (*executor_put_weights)(tandem_executor *executor, const float *weight,
                                          tandem_error *error);
    /* The arrays themselves, [step->n_flat], which may be changed between two steps: the weights, and AdamW's
     * mean squares of the gradient. NULL: on a device with memory of its own, and mean squares of SGD. */
    float *(*executor_weights)(tandem_executor *executor);
    float *(*executor_mean_squares)(tandem_executor *executor);
    /* What an executor does not use of a borrowed arena, which is the caller's between the lender's steps; of
     * cache lines. *bytes: 0 where there is none. */
    void *(*executor_spare)(const tandem_executor *executor, uint64_t *bytes);
    /* Copies AdamW's mean squares of the gradient, [step->n_flat], as they are kept: without the correction
     * by 1 − β₂^steps. TANDEM_USAGE: the optimizer is SGD. */
    tandem_status (*executor_get_mean_squares)(const tandem_executor *executor, float *mean_square,
                                               tandem_error *error);
    /* All ranks. Runs one training step. *loss: mean over the global batch, the same on every rank. `index`
     * decides samples and random draws. TANDEM_LIMIT_EXCEEDED: the loss or a reduced gradient is not finite;
     * the error names the first such operator in backward order and the step, counted from 1; the weights
     * are then of no use. */
    tandem_status (*executor_step)(tandem_executor *executor, int64_t index, double *loss,
                                   tandem_error *error);
    /* With late_results: whether the last step's loss and faults have not been read yet. The next step reads
     * them: its *loss is then that of the step before, its error names the step that failed; where none is
     * pending, *loss stays as it is. executor_times has nothing of such a step but its time on the host. */
    int (*executor_is_pending)(const tandem_executor *executor);
    /* Waits for a pending step and reads its loss and faults, with the errors of executor_step; *loss stays
     * as it is where none is pending. To be called before anything else uses the weights. */
    tandem_status (*executor_settle)(tandem_executor *executor, double *loss, tandem_error *error);
    tandem_step_report (*executor_report)(const tandem_executor *executor);
    /* A clause about how this device runs steps, such as why it uses no graphs; "" where there is nothing to
     * say. */
    const char *(*executor_note)(const tandem_executor *executor);
    /* Times of the last step. The executor owns the arrays and overwrites them in the next step. */
    const tandem_step_times *(*executor_times)(const tandem_executor *executor);
    /* Bytes that the executor allocated: equals the plan's peak. */
    uint64_t (*executor_allocated_bytes)(const tandem_executor *executor);
    /* Peak resident memory of this rank since the executor was opened, less what it had before, by the
     * system's count: the plan's peak, and generated code and libraries' memory, which no plan counts. On a
     * device with its own memory: how much less is free there now than then, for all processes. −1 = not
     * known. Cost: some 50 us. */
    int64_t (*executor_resident_bytes)(const tandem_executor *executor);
    const tandem_memory *(*executor_memory)(const tandem_executor *executor);
    uint64_t (*executor_workspace_bytes)(const tandem_executor *executor, int task);
    /* No step may be pending. With an observer, steps of several buckets are not left pending. */
    void (*executor_observe)(tandem_executor *executor, tandem_observer *observer, void *context);
    /* The data of a value id or of TANDEM_PARAMETER(p): its weight, or with `gradient` 1 its gradient;
     * *scale of an s8 value. From device memory: a copy, which is valid until the same value is asked for
     * again. NULL: no copy could be made. */
    const void *(*executor_value)(const tandem_executor *executor, int value, int gradient, float *scale);
    /* All ranks. What a forward pass in fp32 predicts of the first n test samples, with the batchnorms'
     * running statistics, without dropout and label smoothing. Ranks take samples in turn; *seen is of this
     * rank's part. A probability below the least normal f32 counts as that. Allocates nothing. TANDEM_USAGE:
     * the executor was opened without with_evaluation. */
    tandem_status (*executor_evaluate)(tandem_executor *executor, const tandem_data *data, int64_t n,
                                       tandem_evaluation *seen, tandem_error *error);

    /* --- Checkpoints --- */
    /* All ranks. Rank 0 writes the file whole or not at all. `step`: steps done. TANDEM_IO,
     * TANDEM_NO_MEMORY; TANDEM_BUG: a rank's weights differ from rank 0's. The same on every rank. Cost: a
     * CRC over the state, and the file. */
    tandem_status (*executor_save)(tandem_executor *executor, const char *path, int64_t step,
                                   const char *train_config, tandem_error *error);
    /* All ranks. Rank 0 reads and broadcasts. Buckets, ranks, precisions and batches may differ from the
     * file's. Errors of checkpoint_inspect, the same on every rank; *info is then unchanged. */
    tandem_status (*executor_restore)(tandem_executor *executor, const char *path,
                                      tandem_checkpoint_info *info, tandem_error *error);
    /* Reads the whole file and compares it with its checksums and the graph. TANDEM_WRONG_FORMAT (no
     * checkpoint, or another version), TANDEM_MALFORMED (cut short, damaged), TANDEM_WRONG_MODEL (another
     * model or optimizer), TANDEM_IO. */
    tandem_status (*checkpoint_inspect)(tandem_checkpoint_info *info, const char *path,
                                        const tandem_graph *graph, tandem_error *error);

    /* --- Weights in safetensors files (docs/training.md, backend/safetensors.h) --- */
    /* All ranks. Rank 0 reads weights and running statistics and broadcasts them. TANDEM_MALFORMED,
     * TANDEM_WRONG_MODEL (a name or shape that the model does not have), TANDEM_IO: the same on every rank.
     * */
    tandem_status (*executor_import)(tandem_executor *executor, const char *path, tandem_error *error);
    /* All ranks. Rank 0 writes the file whole or not at all. TANDEM_IO, TANDEM_NO_MEMORY. */
    tandem_status (*executor_export)(tandem_executor *executor, const char *path, tandem_error *error);
    /* Checks that the file holds the graph's weights: the errors of executor_import. said: of a file with
     * published names, what does not fit; "" = all does. Cost: the file's header. */
    tandem_status (*tensors_inspect)(char said[TANDEM_TENSORS_SAID], const char *path,
                                     const tandem_graph *graph, tandem_error *error);

    /* --- Measuring --- */
    /* Times one product of the step alone (an active forward, wgrad or dgrad task of linear, matmul or
     * conv2d): n repetitions in ns, [n], after one warm-up. use_library 1: the library's own kernel in its
     * best layouts, or TANDEM_NO_KERNEL; 0: the step's kernel. TANDEM_USAGE: another task, or a device with
     * its own memory. TANDEM_NO_MEMORY. */
    tandem_status (*executor_benchmark_product)(const tandem_executor *executor, int task, int use_library,
                                                int64_t *sample_ns, int n, tandem_error *error);
    /* All ranks. Times a collective of `bytes` (a kind of tandem_task_is_collective; shards are equal) from
     * the device's gradients and back: n repetitions in ns, [n], each from when the last rank begins. loaded
     * 1: a compute loop runs on the same core meanwhile; *slowdown (may be NULL) is its time with the
     * collective over its time alone. Only all-reduces are timed under load. */
    tandem_status (*measure_collective)(tandem_worker *worker, tandem_task_kind kind, uint64_t bytes,
                                        int loaded, int64_t *sample_ns, int n, double *slowdown,
                                        tandem_error *error);
} tandem_backend_api;

/* The table; NULL where `version` is not TANDEM_BACKEND_VERSION of this library's build. */
const tandem_backend_api *tandem_backend_get(int version);

TANDEM_END_DECLARATIONS
#endif
