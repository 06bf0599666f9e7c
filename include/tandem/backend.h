/* backend.h: running a step program for real: devices' kernels, the executor, the ranks of a run.
 *
 * libtandem_backend is opened with dlopen by commands that run kernels; it exports one function,
 * tandem_backend_get, and everything else is reached through the table that returns. */
#ifndef TANDEM_BACKEND_H
#define TANDEM_BACKEND_H

#include "tandem/amax_history.h"
#include "tandem/data.h"
#include "tandem/step.h"
#include "tandem/store.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* --- What a device backend provides: one row for each kind of device ("cpu", "cuda") -------------------- */

/* Which stream of random words a stochastic rounding draws from (base/philox.h): key = seed, counter {block,
 * stream…}. */
typedef struct tandem_rng_stream {
    uint64_t seed;
    uint32_t stream[3]; /* step, operator, purpose | rank << 8 */
    /* of a device with memory of its own: there, what is added to stream[0]; NULL = nothing */
    const uint32_t *stream_offset;
} tandem_rng_stream;

/* Operands of one run of a kernel, in the order of the task's read[] and write[]. Data of type s8 stands for
 * scale·q.
 *   forward   in: inputs…, parameters…                      out: output, aux
 *             cross_entropy: in: logits, labels             out: loss (one float: sum over rows ×
 *             row_weight), aux (probabilities) gather_labelled: in: x, labels                       out: rows
 *             of x, aux (s32: the place of each row) embedding: the table is f32 whatever the type of the
 *             rows images, tokens, labels: filled by the executor itself
 *   wgrad     linear, conv2d: in: x, g                      out: gradient of the weight (f32)
 *             matmul: in: a, g                              out: gradient of b
 *             embedding: in: tokens, g                      out: gradient of the table (f32; all of it is
 *             written; added to it
 *                                                                where the table is tied)
 *             bias, concat_token: in: g                          out: gradient of the parameter (f32)
 *   dgrad     dropout: in: g                                out: gradient of x, by the mask of the forward
 *             pass, drawn again linear, conv2d: in: g, weight                 out: gradient of x
 *             matmul: in: g, b                              out: gradient of a
 *             relu, softmax, tanh: in: g, output            out: gradient of x
 *             gelu: in: g, x                                out: gradient of x
 *             bias_gelu: in: g, x, bias                     out: gradient of x, of the bias
 *             layernorm, batchnorm: in: g, x, aux, scale parameter  out: gradient of x, of scale, of shift
 *             batchnorm_relu: the same, and in: shift parameter
 *             batchnorm_add_relu: in: g, x, output, aux, scale parameter
 *                                                         out: gradient of x, of the residual, of scale, of
 *                                                         shift
 *             maxpool, gather_labelled: in: g, aux    avgpool, transpose, slice, concat_token: in: g
 *             out: gradient of x cross_entropy: in: labels, aux                out: gradient of the logits, ×
 *             row_weight
 *   cast, weight cast, gradient cast, restore: in: source   out: result; to s8: out_scale is written
 *   accumulate: in: a, b                                    out: a + b, which may be a or b
 * A wgrad or dgrad that adds (task->adds) has one operand more, the last: the sum so far, which is where
 * out[0] is. */
typedef struct tandem_kernel_call {
    const void *in[TANDEM_TASK_READS];
    const float *in_scale[TANDEM_TASK_READS]; /* of s8 operands, else NULL */
    void *out[TANDEM_TASK_WRITES];
    float *out_scale[TANDEM_TASK_WRITES]; /* of s8 results, else NULL */
    void *workspace;                      /* 64-byte aligned */
    tandem_rng_stream rng;                /* of casts to s8 */
    /* casts to s8: delayed scaling with this history, which lies where the operands lie and is gone on with;
     * NULL = with the tensor's own range. reuse_range: the cast before is done again: with the range that one
     * took, and the history stays. */
    tandem_amax_history *history;
    int reuse_range;
    /* cross_entropy: 1 / (global batch × predictions a sample), × the loss's scale backward; rows labelled −1
     * are not predicted */
    float row_weight;
    /* cross_entropy, backward: as `stream_offset`, what row_weight is multiplied by; NULL = 1 */
    const float *row_factor;
    /* cross_entropy: the share of a label that all classes have alike (Szegedy et al., CVPR 2016, section 7)
     * */
    float smoothing;
    int64_t first_sample; /* dropout: samples of the global batch before the first of these */
    int is_evaluation;    /* dropout lets all through */
    /* batchnorm: normalises by these means, then variances, and leaves aux alone; NULL = the batch's */
    const float *running_stats;
} tandem_kernel_call;

typedef struct tandem_kernel tandem_kernel; /* one task, prepared for one device */

/* What runs beside each other on a device that has memory of its own: kernels, copies to the host, copies
 * from there. */
typedef enum tandem_device_stream {
    TANDEM_DEVICE_STREAM_COMPUTE,
    TANDEM_DEVICE_STREAM_D2H,
    TANDEM_DEVICE_STREAM_H2D,
    TANDEM_N_DEVICE_STREAM
} tandem_device_stream;

/* At which a device runs. */
typedef struct tandem_clocks {
    int compute_mhz, memory_mhz;
} tandem_clocks;

typedef struct tandem_device_backend {
    const char *prefix; /* "cpu" */
    /* What the device is, as a text, without opening it; the errors of `open`. NULL: tandem_device_require
     * (cluster.h) knows. */
    tandem_status (*describe)(char *text, size_t size, const char *name, tandem_error *error);
    /* Opens the device for this process. A process opens one device only (kernels may be held to its
     * instruction set). */
    tandem_status (*open)(void **device, const char *name, tandem_error *error);
    void (*close)(void *device);
    /* A kernel for a task in its current form (kind, op, precision, from, to). Tells the workspace it needs.
     * TANDEM_NO_KERNEL. */
    tandem_status (*prepare)(void *device, const tandem_step *step, int task, tandem_kernel **kernel,
                             uint64_t *workspace_bytes, tandem_error *error);
    /* Of a product of floats (linear, matmul, conv2d: forward, wgrad, dgrad): the library's own kernel, to
     * compare with, all operands in the layouts that it likes best. It takes in[0], in[1], out[0] and a
     * workspace; bytes: of these three. NULL, TANDEM_NO_KERNEL: there is none. */
    tandem_status (*prepare_library)(void *device, const tandem_step *step, int task, tandem_kernel **kernel,
                                     uint64_t bytes[3], uint64_t *workspace_bytes, tandem_error *error);
    void (*release)(tandem_kernel *kernel);
    tandem_status (*run)(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error);
    /* Where libraries offer several algorithms for a piece of work: takes those that were chosen before, in
     * the texts of `tuned_algorithms`; those for other cards and versions are passed over. autotune 1: from
     * now on, when a kernel is prepared for work without a choice, each way is tried and the fastest chosen;
     * 0: it is done as the library thinks best. NULL, both: there is nothing to choose. */
    tandem_status (*load_algorithms)(void *device, const tandem_algorithm *choice, int n, int autotune,
                                     tandem_error *error);
    /* What was chosen by autotuning since the device was opened; valid until the next prepare. */
    const tandem_algorithm *(*tuned_algorithms)(const void *device, int *n);
    /* The optimizer over n consecutive weights; state: one or two arrays; t: steps done, this one included.
     * Returns whether all of the gradient is finite; it is applied in either case. Where the device has
     * memory of its own, `weight` begins at a multiple of 16, what pads the last 16 is updated too, and
     * decay_mask[i / 16] there says whether weight i decays; NULL: `decays` does for all. rates, there: the
     * learning rate, and 1/(1 − beta^t) for both moments of AdamW; NULL: of options and t. */
    int (*update)(void *device, const tandem_optimizer_options *options, int decays,
                  const unsigned char *decay_mask, float *weight, float *const *state, const float *gradient,
                  int64_t n, int64_t t, const float *rates);
    /* A text about the libraries behind it, with versions. */
    const char *(*version)(void);

    /* Memory that operands, scales, weights and workspace lie in. NULL, from here on: the host's.
     * alloc: cleared, 256-byte aligned; is_staging: of the host, as the device copies from and to beside
     * other work. TANDEM_NO_MEMORY. */
    tandem_status (*alloc)(void *device, void **memory, uint64_t bytes, int is_staging, tandem_error *error);
    void (*free)(void *device, void *memory, int is_staging);
    /* Memory of the host that somebody else took, in whole pages, no two of which are locked twice: the
     * device can copy from and to it beside other work, as it can with staging, until it is unlocked, which
     * waits for all that it does. Where `lock` fails (TANDEM_NO_DEVICE: the driver refuses), all is as
     * before. */
    tandem_status (*lock)(void *device, void *memory, uint64_t bytes, tandem_error *error);
    void (*unlock)(void *device, void *memory);
    uint64_t (*free_bytes)(void *device);            /* that alloc could have; 0 = not known */
    int (*clocks)(void *device, tandem_clocks *now); /* 0: they are not known */
    /* In any direction, behind all work that was given to the device before; done when it returns. */
    tandem_status (*copy)(void *device, void *to, const void *from, uint64_t bytes, tandem_error *error);
    /* Waits for all work of the first stream, and says what went wrong in it: labels and tokens that are none
     * (TANDEM_MALFORMED), a device that failed (TANDEM_NO_DEVICE). *is_finite: whether all gradients that
     * were applied since the last call were; update then returns 1. */
    tandem_status (*device_sync)(void *device, int *is_finite, tandem_error *error);

    /* Streams: what is put on one is done in its order, beside the others. Kernels and updates are on
     * TANDEM_DEVICE_STREAM_COMPUTE. All return at once, but event_sync; TANDEM_NO_DEVICE.
     * events_create: there are n from here on, numbered from 0. event_record: this one is where its stream
     * has come to now, until it is set anew. stream_wait_stream: what `stream` is given from now on comes
     * behind all that `leader` was given. event_sync: the host waits for an event; any thread may.
     * event_elapsed: between two events that were reached. */
    tandem_status (*events_create)(void *device, int n, tandem_error *error);
    tandem_status (*event_record)(void *device, tandem_device_stream stream, int event, tandem_error *error);
    tandem_status (*stream_wait_stream)(void *device, tandem_device_stream stream,
                                        tandem_device_stream leader, tandem_error *error);
    tandem_status (*event_sync)(void *device, int event, tandem_error *error);
    tandem_status (*event_elapsed)(int64_t *ns, void *device, int from, int to, tandem_error *error);
    tandem_status (*copy_async)(void *device, tandem_device_stream stream, void *to, const void *from,
                                uint64_t bytes, tandem_error *error);
    /* Samples of no data set, put on the first stream: x (batch, n), sample b by Philox as number first +
     * *index·global_batch + b (backend/executor/noise.h), *index on the device. */
    tandem_status (*fill_noise)(void *device, float *x, int64_t batch, int64_t n, uint64_t seed,
                                uint32_t first, uint32_t global_batch, const uint32_t *index,
                                tandem_error *error);
    /* Running statistics of a batchnorm over n numbers a channel (backend/executor/batchnorm_stats.h):
     * running[2 × channels] follows batch[2 × channels]: means, then variances. */
    tandem_status (*batchnorm_update)(void *device, float *running, const float *batch, int64_t channels,
                                      int64_t n, tandem_error *error);

    /* Graphs; NULL, all four: there are none. graph_begin_capture: what streams are given by this thread from
     * here on is put down with its arguments and not done; nothing may be taken or waited for meanwhile; a
     * stream beside the first begins with stream_wait_stream. graph_end_capture: ends that, whether or not
     * all went well; *graph, the caller's, is all that was put down, and where there is none
     * (TANDEM_NO_DEVICE) the device is as it was before. graph_launch: puts it on the first stream, events
     * too; what is behind it there comes behind all of it. */
    tandem_status (*graph_begin_capture)(void *device, tandem_error *error);
    tandem_status (*graph_end_capture)(void *device, void **graph, tandem_error *error);
    tandem_status (*graph_launch)(void *device, void *graph, tandem_error *error);
    void (*graph_destroy)(void *device, void *graph); /* NULL is fine */
} tandem_device_backend;

/* --- A worker: this process as one rank of a run -------------------------------------------------------- */
typedef struct tandem_worker tandem_worker;
typedef struct tandem_worker_options {
    const char *device;
    int rank, n_rank;
    const char *store; /* rendezvous directory; NULL for one rank */
    int cpu;           /* core to pin to; −1 = not */
    int64_t timeout_ns;
    int over_network; /* 1: gradients go over the network even if all ranks are on this machine (cluster.h) */
} tandem_worker_options;

/* --- An executor: a step program with its memory, weights and kernels ----------------------------------- */
typedef struct tandem_executor tandem_executor;
typedef struct tandem_executor_options {
    const tandem_step *step; /* resolved; borrowed; not changed while the executor lives */
    const tandem_data *data; /* borrowed; NULL = uniform noise for inputs, labels by Philox */
    uint64_t seed;
    int64_t global_batch; /* over all ranks and micro-steps */
    /* of this rank within it; its micro-steps take one local batch behind the other from there */
    int64_t first_sample;
    /* NULL = none; more than that is TANDEM_INFEASIBLE before anything is allocated */
    const uint64_t *memory_limit_bytes;
    int without_all_reduce; /* 1: no all-reduce: a profile of one device */
    /* 1: times of single tasks are wanted. Where taking them costs something (a card) there are none
     * otherwise */
    int with_task_times;
    /* borrowed while opening; of the model's kind; NULL = the model's */
    const tandem_optimizer_options *optimizer;
    /* patterns of parameters that have no weight decay (tandem_parameter_matches); NULL = none. Borrowed
     * while opening */
    const char *no_decay;
    float label_smoothing;
    /* largest norm of all gradients together; they are scaled down to it. 0 = any. Pascanu, Mikolov, Bengio,
     * ICML 2013, algorithm 1. It and a loss_scale need a step with_norm (step.h), and no other has one */
    double clip;
    /* the loss is multiplied by it backward, for gradients in narrow types; < 0: 65536, halved at overflow,
     * doubled behind 2000 good steps; 0 = none. Micikevicius et al., ICLR 2018, section 3.2 */
    float loss_scale;
    /* 1: executor_evaluate may be called: its kernels are made, and have a place in memory, from the begin */
    int with_evaluation;
    /* 1: a loss or gradient that is not finite does not end the step with TANDEM_LIMIT_EXCEEDED */
    int allow_nan;
} tandem_executor_options;

/* --- A checkpoint: a training in a file, taken up again to the bit (docs/training.md, backend/checkpoint.h) ---- */
enum { TANDEM_CHECKPOINT_VERSION = 3, TANDEM_CHECKPOINT_TRAIN_CONFIG = 2048 };
typedef struct tandem_checkpoint_info {
    int64_t step;                                      /* steps done */
    char train_config[TANDEM_CHECKPOINT_TRAIN_CONFIG]; /* how it was trained, in the words of who saved it */
} tandem_checkpoint_info;

/* What an observer sees after each task: pointers are valid during the call only. */
typedef void tandem_observer(void *context, const tandem_executor *executor, int task);

typedef struct tandem_step_times {
    int n_event;
    int64_t step_ns;
    /* [n_task] relative to the begin of the step; −1 = not active, not timed; of an update:
     * behind its wait */
    int64_t *start_ns, *end_ns;
    int64_t *wait_ns; /* [n_bucket] time the compute stream stood still for bucket b */
    /* start_ns and end_ns are of the last micro-step; of all of them, [n_micro × n_task]; −1 also where a
     * task runs in the last one only */
    int n_micro;
    int64_t *all_start_ns, *all_end_ns;
} tandem_step_times;

/* How the last step was, where gradients are clipped or the loss is scaled. */
typedef struct tandem_step_report {
    double gradient_norm; /* of all gradients, before they are clipped; < 0: it was not asked for */
    float loss_scale;     /* of that step; 1 where there is none */
    int skipped; /* 1: gradients were not finite, and a smaller scale may help: nothing was updated */
} tandem_step_report;

typedef struct tandem_backend_api {
    int version;
    /* Text about the libraries behind it, "oneDNN 2.6.3, Gloo 0.5.0", cut to fit; returns `text`. */
    const char *(*libraries)(char *text, size_t size);

    /* Whether a device can be opened here, and what it is, without opening it: "" for CPUs. TANDEM_NO_DEVICE
     * says what is missing. */
    tandem_status (*device_describe)(char *text, size_t size, const char *name, tandem_error *error);

    /* The functions of data.h, which this library holds: for programs that open it and link nothing of it. */
    tandem_status (*data_open)(tandem_data *data, const char *source, int length, tandem_error *error);
    void (*data_close)(tandem_data *data);
    const tandem_data_set *(*data_set_at)(int i);
    tandem_status (*data_find)(char *path, size_t size, const char *name, tandem_error *error);

    tandem_status (*worker_open)(tandem_worker **worker, const tandem_worker_options *options,
                                 tandem_error *error);
    void (*worker_close)(tandem_worker *worker);
    /* Whether the ranks exchange gradients in memory that they share: all on one machine, where nobody chose
     * the network, and as far as it has been tried; an executor or a measurement that is opened may find that
     * they cannot. */
    int (*worker_shares_memory)(const tandem_worker *worker);
    /* Why they do not, where nobody chose so: a sentence without its end, the same on every rank; else "". */
    const char *(*worker_shared_memory_error)(const tandem_worker *worker);
    /* How this rank's device does what its libraries can do in several ways (tandem_device_backend:
     * load_algorithms, tuned_algorithms). */
    tandem_status (*worker_load_algorithms)(tandem_worker *worker, const tandem_algorithm *choice, int n,
                                            int autotune, tandem_error *error);
    const tandem_algorithm *(*worker_tuned_algorithms)(const tandem_worker *worker, int *n);
    /* The clocks of this rank's device at this moment; 0: they are not known, as those of CPUs. */
    int (*worker_clocks)(const tandem_worker *worker, tandem_clocks *now);
    tandem_status (*worker_barrier)(tandem_worker *worker, tandem_error *error);
    tandem_status (*worker_sum)(tandem_worker *worker, float *data, size_t n, tandem_error *error);
    tandem_status (*worker_gather)(tandem_worker *worker, const void *mine, void *all, size_t bytes,
                                   tandem_error *error);
    tandem_status (*worker_broadcast)(tandem_worker *worker, void *data, size_t bytes, int root,
                                      tandem_error *error);

    /* All ranks together, but with without_all_reduce. Before anything large is allocated, memory is held
     * against the limit of every rank (TANDEM_INFEASIBLE) and what the ranks of a machine need against what
     * is available there (TANDEM_NO_MEMORY): the same error on every rank, with the bytes by category and a
     * batch that fits. */
    tandem_status (*executor_open)(tandem_executor **executor, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error);
    void (*executor_close)(tandem_executor *executor);
    /* The learning rate from the next step on; the optimizer's before the first call. */
    void (*executor_set_rate)(tandem_executor *executor, float rate);
    /* One training step. *loss: mean over the global batch, the same on every rank. Step `index` decides
     * samples and draws. TANDEM_LIMIT_EXCEEDED where the loss or a reduced gradient is not finite: names the
     * first such operator in backward order and the step (counted from 1); the weights are then of no use. */
    tandem_status (*executor_step)(tandem_executor *executor, int64_t index, double *loss,
                                   tandem_error *error);
    tandem_step_report (*executor_report)(const tandem_executor *executor);
    /* What is to be said of how steps are run on this rank's device, a sentence without its end; "" where
     * there is nothing. */
    const char *(*executor_note)(const tandem_executor *executor);
    /* Times of the last step; arrays belong to the executor and are overwritten by the next. */
    const tandem_step_times *(*executor_times)(const tandem_executor *executor);
    /* Bytes that were asked for, all of the run's: equals the plan's peak. */
    uint64_t (*executor_allocated_bytes)(const tandem_executor *executor);
    /* The most that this rank has had in memory since just before the executor was opened, less what it had
     * then, as the system tells it: the plan's peak, and what no plan knows (code that kernels are made of,
     * libraries' own memory). Of a device that has memory of its own: what is free there now less than then,
     * whoever took it. −1 = not known. Some 50 us. */
    int64_t (*executor_resident_bytes)(const tandem_executor *executor);
    const tandem_memory *(*executor_memory)(const tandem_executor *executor);
    uint64_t (*executor_workspace_bytes)(const tandem_executor *executor, int task);
    void (*executor_observe)(tandem_executor *executor, tandem_observer *observer, void *context);
    /* Data behind a value id or TANDEM_PARAMETER(p) (weight; `gradient` 1: its gradient); scale of an s8
     * value. Of a device with memory of its own: a copy, which stays as it is until the value is asked for
     * again; NULL where none could be made. */
    const void *(*executor_value)(const tandem_executor *executor, int value, int gradient, float *scale);
    /* Share of the first n test samples that this executor's rank gets right, by a forward pass in fp32 over
     * its own weights, with the running statistics of batchnorms and without dropout; correct and total are
     * of this rank's part (ranks take samples in turn). It needs an executor that was opened to evaluate,
     * else TANDEM_USAGE, and takes no memory. All ranks together. */
    tandem_status (*executor_evaluate)(tandem_executor *executor, const tandem_data *data, int64_t n,
                                       int64_t *correct, int64_t *total, tandem_error *error);

    /* --- Checkpoints (all ranks call together, but inspect) --- */
    /* Rank 0 writes: old file or new, never half. `step`: steps done. TANDEM_IO, TANDEM_NO_MEMORY, the same
     * on every rank; TANDEM_BUG where a rank's weights are not those of rank 0. Cost: a CRC over the state,
     * and the file. */
    tandem_status (*executor_save)(tandem_executor *executor, const char *path, int64_t step,
                                   const char *train_config, tandem_error *error);
    /* Rank 0 reads, the others get it from there. Buckets, ranks, precisions and batches may differ from
     * those of the file. Errors of checkpoint_inspect, the same on every rank; *info unchanged. */
    tandem_status (*executor_restore)(tandem_executor *executor, const char *path,
                                      tandem_checkpoint_info *info, tandem_error *error);
    /* Reads all of a file, against its checksums and the graph. TANDEM_WRONG_FORMAT (no checkpoint, or of
     * another version), TANDEM_MALFORMED (cut short, damaged), TANDEM_WRONG_MODEL (another model or
     * optimizer), TANDEM_IO. */
    tandem_status (*checkpoint_inspect)(tandem_checkpoint_info *info, const char *path,
                                        const tandem_graph *graph, tandem_error *error);

    /* --- Weights in files of safetensors (docs/training.md, backend/safetensors.h; all ranks call together, but inspect) --- */
    /* Rank 0 reads weights and running statistics, the others get them from there. TANDEM_MALFORMED,
     * TANDEM_WRONG_MODEL (a name or shape that is not the model's), TANDEM_IO: the same on every rank. */
    tandem_status (*executor_import)(tandem_executor *executor, const char *path, tandem_error *error);
    /* Rank 0 writes, old or new, never half. TANDEM_IO, TANDEM_NO_MEMORY. */
    tandem_status (*executor_export)(tandem_executor *executor, const char *path, tandem_error *error);
    /* Whether the file holds the graph's weights: the errors of import. Cost: its header. */
    tandem_status (*tensors_inspect)(const char *path, const tandem_graph *graph, tandem_error *error);

    /* --- Measuring --- */
    /* One product of the step (linear, matmul, conv2d: an active forward, wgrad or dgrad task) by itself:
     * again and again on operands of its own, in ns, [n], behind one run that is not counted. use_library 1:
     * the library's own kernel, in layouts of its choice, and TANDEM_NO_KERNEL where it has none; 0: the
     * kernel that the step runs. Of devices that have their operands in the host's memory, else TANDEM_USAGE.
     * TANDEM_NO_MEMORY. */
    tandem_status (*executor_benchmark_product)(const tandem_executor *executor, int task, int use_library,
                                                int64_t *sample_ns, int n, tandem_error *error);
    /* All ranks call this together. */
    /* All-reduce of `bytes`, from where the device has gradients and back: repetitions in ns (from the moment
     * the last rank is there), [n]; loaded: with a compute loop on the same core meanwhile. slowdown (may be
     * NULL): of that loop, against the same loop alone. */
    tandem_status (*measure_all_reduce)(tandem_worker *worker, uint64_t bytes, int loaded, int64_t *sample_ns,
                                        int n, double *slowdown, tandem_error *error);
} tandem_backend_api;

enum { TANDEM_BACKEND_VERSION = 8 };
/* The table, or NULL where `version` is not the one this library was built for. */
const tandem_backend_api *tandem_backend_get(int version);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
