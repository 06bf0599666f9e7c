/* device_backend.h: the table that a kind of device implements ("cpu", "cuda"). The executor calls it;
 * programs that train use backend.h instead. */
#ifndef TANDEM_DEVICE_BACKEND_H
#define TANDEM_DEVICE_BACKEND_H

#include "tandem/amax_history.h"
#include "tandem/device.h"
#include "tandem/advanced/data.h"
#include "tandem/advanced/format.h"
#include "tandem/advanced/step.h"

TANDEM_BEGIN_DECLARATIONS

/* The random words that a stochastic rounding or a dropout draws (base/philox.h): key = seed, counter
 * {block, stream…}. */
typedef struct tandem_rng_stream {
    uint64_t seed;
    uint32_t stream[3];            /* step, operator, purpose | rank << 8 */
    const uint32_t *stream_offset; /* in device memory: the kernel adds it to stream[0]; NULL = 0 */
} tandem_rng_stream;

/* Operands of one run of a kernel, in the order of the task's read[] and write[]. Data of type s8 represents
 * scale·q. g: the gradient of the output.
 *
 *   forward   inputs…, parameters… → output, aux
 *             cross_entropy: logits, labels → loss (one float: Σ rows × row_weight), aux (probabilities; on
 *             devices with narrow_rows the largest logit of each row, then Σ e^(logit − that) of each)
 *             gather_labelled: x, labels → rows of x, aux (s32: the index of each row)
 *             embedding: the table is f32 for every type of the rows
 *             images, tokens, labels: the executor fills them
 *   wgrad     linear, conv2d: x, g → gradient of the weight (f32)
 *             matmul: a, g → gradient of b
 *             embedding: tokens, g → gradient of the table (f32): all of it is written, or, where the table
 *             is tied, added to
 *             bias, concat_token: g → gradient of the parameter (f32)
 *   dgrad     dropout: g → gradient of x, by the forward pass's mask, drawn again
 *             linear, conv2d: g, weight → gradient of x
 *             matmul: g, b → gradient of a
 *             relu, softmax, tanh: g, output → gradient of x
 *             gelu: g, x → gradient of x
 *             bias_gelu: g, x, bias → gradient of x, of the bias
 *             layernorm, batchnorm: g, x, aux, scale → gradient of x, of scale, of shift
 *             batchnorm_relu: g, x, aux, scale, shift → the same
 *             batchnorm_add_relu: g, x, output, aux, scale → gradient of x, residual, scale and shift
 *             maxpool, gather_labelled: g, aux → gradient of x
 *             avgpool, transpose, slice, concat_token: g → gradient of x
 *             cross_entropy: labels, logits where they are saved (op.def), aux → gradient of the logits, ×
 *             row_weight
 *   casts     source → result; a cast to s8 writes out_scale
 *   accumulate  a, b → a + b, which may be a or b
 *
 * A wgrad or dgrad that accumulates into a sum reads one operand more, the last: the sum so far, which lies
 * at out[0]. */
typedef struct tandem_kernel_call {
    const void *in[TANDEM_TASK_READS];
    const float *in_scale[TANDEM_TASK_READS]; /* of s8 operands, else NULL */
    void *out[TANDEM_TASK_WRITES];
    float *out_scale[TANDEM_TASK_WRITES]; /* of s8 results, else NULL */
    void *workspace;                      /* 64-byte aligned */
    tandem_rng_stream rng;                /* of casts to s8 and of dropout */
    /* Casts to s8: delayed scaling reads and updates this history, which lies where operands lie. NULL: the
     * cast finds the tensor's own range. reuse_range: the cast repeats an earlier one, takes that one's
     * range and leaves the history unchanged. may_lack_range: the history is likely to have no range yet;
     * it changes no bits. */
    tandem_amax_history *history;
    int reuse_range, may_lack_range;
    /* cross_entropy: 1 / (global batch × predictions per sample), × the loss scale in the backward pass;
     * rows labelled −1 are not predicted. row_factor: in device memory, multiplies it in the backward pass;
     * NULL = 1. */
    float row_weight;
    const float *row_factor;
    /* cross_entropy: the share of a label that is spread over all classes (Szegedy et al., CVPR 2016,
     * section 7) */
    float smoothing;
    int is_evaluation;    /* dropout drops nothing */
    int64_t first_sample; /* dropout: index in the global batch of the first of these samples */
    /* Of a step that is emulated (step_options.h): how, and the factor of this task's errors. */
    const tandem_emulation *emulation;
    double error_scale;
    /* batchnorm normalises by these means, then variances, and does not write aux; NULL: by the batch's */
    const float *running_stats;
} tandem_kernel_call;

typedef struct tandem_kernel tandem_kernel; /* one task, prepared for one device */

enum { TANDEM_FAULT_BYTES = 64 };

/* Streams of a device with its own memory: kernels, copies of gradients to the host and back, and of batches
 * to the device. Work on one
 * stream runs in order; streams run concurrently. */
typedef enum tandem_device_stream {
    TANDEM_DEVICE_STREAM_COMPUTE,
    TANDEM_DEVICE_STREAM_D2H,
    TANDEM_DEVICE_STREAM_H2D,
    TANDEM_DEVICE_STREAM_INPUT,
    TANDEM_N_DEVICE_STREAM
} tandem_device_stream;

typedef struct tandem_device_backend {
    /* Describes a device in a text, without opening it; the errors of `open`. NULL: cluster.h describes it.
     * */
    tandem_status (*describe)(char *text, size_t size, const char *name, tandem_error *error);
    /* Opens the device for this process. A process opens one device only, because the libraries may fix
     * their instruction set once. TANDEM_UNKNOWN_NAME, TANDEM_NO_DEVICE, TANDEM_NO_MEMORY. */
    tandem_status (*open)(void **device, const char *name, tandem_error *error);
    void (*close)(void *device);
    /* Makes the kernel of a task in its current variant, and gives the workspace that it needs.
     * TANDEM_NO_KERNEL, TANDEM_NO_MEMORY. */
    tandem_status (*prepare)(void *device, const tandem_step *step, int task, tandem_kernel **kernel,
                             uint64_t *workspace_bytes, tandem_error *error);
    /* Of a product of floats (linear, matmul, conv2d: forward, wgrad, dgrad): the library's own kernel for
     * comparison, with every operand in the library's best layout. It takes in[0], in[1], out[0], whose
     * bytes it gives, and a workspace. NULL, or TANDEM_NO_KERNEL: the device has none. */
    tandem_status (*prepare_library)(void *device, const tandem_step *step, int task, tandem_kernel **kernel,
                                     uint64_t bytes[3], uint64_t *workspace_bytes, tandem_error *error);
    void (*release)(tandem_kernel *kernel);
    tandem_status (*run)(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error);
    /* Runs n tasks, in order, that a step says are one launch (tandem_step_is_merged), at most
     * TANDEM_MAX_MERGED_CASTS of them, with the bits of `run`. What all but the last one write is written
     * only where a later task reads it. NULL: the device has no such steps. */
    tandem_status (*run_merged)(const tandem_kernel *const *kernel, const tandem_kernel_call *const *call,
                                int n, tandem_error *error);
    /* Takes the algorithms that were tuned before; those of other GPUs and library versions are ignored.
     * autotune 1: `prepare` then times every algorithm of work without a choice and takes the fastest; 0: it
     * takes the library's first guess. NULL, both: the libraries offer one algorithm each. */
    tandem_status (*load_algorithms)(void *device, const tandem_algorithm *choice, int n, int autotune,
                                     tandem_error *error);
    /* The algorithms that were tuned since the device was opened; valid until the next `prepare`. */
    const tandem_algorithm *(*tuned_algorithms)(const void *device, int *n);
    /* Runs the optimizer over n consecutive weights. state: one or two arrays; t: optimizer steps, this one
     * included. Returns whether the whole gradient is finite; the weights are updated in either case.
     * A device with its own memory returns 1 and reports by device_sync; `weight` begins at a multiple of 16
     * elements, and the padding of the last 16 is updated too. decay_mask[i / 16], there, says whether
     * weight i decays; NULL: `decays` holds for all. rates, there: the learning rate, and 1 / (1 − beta^t)
     * for both moments of AdamW; NULL: computed from options and t. */
    int (*update)(void *device, const tandem_optimizer_options *options, int decays,
                  const unsigned char *decay_mask, float *weight, float *const *state, const float *gradient,
                  int64_t n, int64_t t, const float *rates);
    /* The names and versions of the libraries that it uses. */
    const char *(*version)(void);

    /* --- Of a device with its own memory; the CPU leaves all of the following NULL --- */
    /* Memory for operands, scales, weights and workspace: cleared, 256-byte aligned. is_staging: page-locked
     * host memory, for copies that run concurrently with kernels. TANDEM_NO_MEMORY. */
    tandem_status (*alloc)(void *device, void **memory, uint64_t bytes, int is_staging, tandem_error *error);
    void (*free)(void *device, void *memory, int is_staging);
    /* Page-locks whole pages of host memory that was allocated elsewhere, so that copies from and to it run
     * as with staging memory. No page is locked twice. `unlock` waits for all of the device's work. Where
     * `lock` fails (TANDEM_NO_DEVICE: the driver refuses), nothing is locked. */
    tandem_status (*lock)(void *device, void *memory, uint64_t bytes, tandem_error *error);
    void (*unlock)(void *device, void *memory);
    uint64_t (*free_bytes)(void *device); /* that `alloc` could still allocate; 0 = not known */
    /* Memory that runs take beside their plans: kernels that libraries load when they first run, and graphs.
     * seen: what a run has taken so far, 0 = only asked. The most of it is returned, and kept with the tuned
     * algorithms where autotune is 1. */
    uint64_t (*unplanned_bytes)(void *device, uint64_t seen);
    int (*clocks)(void *device, tandem_clocks *now); /* 0: they are not known */
    /* Copies in any direction, after all work that was queued before, and waits for the copy. */
    tandem_status (*copy)(void *device, void *to, const void *from, uint64_t bytes, tandem_error *error);
    /* Waits for the compute stream and reports its errors: TANDEM_MALFORMED (a label or token out of range),
     * TANDEM_NO_DEVICE (the device failed). *is_finite: whether all gradients that `update` applied since
     * the last call were finite. */
    tandem_status (*device_sync)(void *device, int *is_finite, tandem_error *error);
    /* The same without waiting. queue_faults: on the compute stream, copies the report of the work so far to
     * `staged`, TANDEM_FAULT_BYTES of staging memory, and begins a new one; TANDEM_NO_DEVICE: a launch
     * failed, or the copy cannot be queued. read_faults, of memory that has arrived: *nonfinite: the number
     * of the first 16 elements, counted from the begin of an `update`, whose gradient was not finite; −1: all
     * were. TANDEM_MALFORMED as above. */
    tandem_status (*queue_faults)(void *device, void *staged, tandem_error *error);
    tandem_status (*read_faults)(int64_t *nonfinite, const void *staged, tandem_error *error);

    /* Kernels and updates run on TANDEM_DEVICE_STREAM_COMPUTE. All of these but event_sync return at once;
     * TANDEM_NO_DEVICE.
     * events_create: from now on there are n events, numbered from 0.
     * event_record: the event completes when all work that is now queued on the stream has.
     * stream_wait_stream: later work on `stream` starts after all work that is now queued on `leader`.
     * event_sync: the host waits for an event; any thread may call it.
     * event_elapsed: ns between two completed events. */
    tandem_status (*events_create)(void *device, int n, tandem_error *error);
    tandem_status (*event_record)(void *device, tandem_device_stream stream, int event, tandem_error *error);
    tandem_status (*stream_wait_stream)(void *device, tandem_device_stream stream,
                                        tandem_device_stream leader, tandem_error *error);
    tandem_status (*event_sync)(void *device, int event, tandem_error *error);
    tandem_status (*event_elapsed)(int64_t *ns, void *device, int from, int to, tandem_error *error);
    tandem_status (*copy_async)(void *device, tandem_device_stream stream, void *to, const void *from,
                                uint64_t bytes, tandem_error *error);
    /* Fills x (batch, n) with the samples of a run without a data set (backend/executor/batch.h), on the
     * compute stream. Sample b has number first + *index·global_batch + b; *index lies on the device. */
    tandem_status (*fill_noise)(void *device, float *x, int64_t batch, int64_t n, uint64_t seed,
                                uint32_t first, uint32_t global_batch, const uint32_t *index,
                                tandem_error *error);
    /* From a slot of images: x (dim[0] samples of dim[1] × dim[2] × dim[3]), with the bits of
     * tandem_data_read_resized; the labels of n samples. On the compute stream. */
    tandem_status (*fill_images)(void *device, float *x, const int64_t *dim, const tandem_image_slots *slots,
                                 tandem_error *error);
    tandem_status (*fill_labels)(void *device, int32_t *label, int64_t n, const tandem_image_slots *slots,
                                 tandem_error *error);
    /* Updates a batchnorm's running[2 × channels] from batch[2 × channels], each means, then variances, over
     * n numbers per channel, by the operator's momentum (backend/executor/batchnorm_stats.h). */
    tandem_status (*batchnorm_update)(void *device, float *running, const float *batch, int64_t channels,
                                      int64_t n, float momentum, tandem_error *error);

    /* Device graphs; NULL, all four: the device has none.
     * graph_begin_capture: work that this thread queues from now on is captured with its arguments and does
     * not run. Meanwhile nothing may be allocated or waited for. Work on another stream begins with
     * stream_wait_stream.
     * graph_end_capture: ends the capture after success and failure. *graph, which the caller owns, holds
     * the captured work. TANDEM_NO_DEVICE: there is no graph, and the device is as it was before.
     * graph_launch: queues the graph, its events included, on the compute stream; later work there starts
     * after all of it. */
    tandem_status (*graph_begin_capture)(void *device, tandem_error *error);
    tandem_status (*graph_end_capture)(void *device, void **graph, tandem_error *error);
    tandem_status (*graph_launch)(void *device, void *graph, tandem_error *error);
    void (*graph_destroy)(void *device, void *graph); /* NULL is fine */
} tandem_device_backend;

TANDEM_END_DECLARATIONS
#endif
