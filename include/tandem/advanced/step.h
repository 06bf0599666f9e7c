/* step.h: the step program: one training step of one class of ranks as a flat list of tasks. The executor
 * runs this list, the replayer costs it, the memory plan is computed from it, and a trace is the same list
 * with times. So they cannot disagree.
 *
 * The list holds every task that some choice of precisions needs. A plan switches tasks on and off and sets
 * their dtypes. So a task has the same id in every class and every plan of a model, and changing the
 * precision of one operator changes a handful of tasks.
 *
 * Order of the tasks:
 *   forward    for each operator: its weight cast, its forward task, the casts of its output to the dtypes
 * in
 *              which other operators read it
 *   backward   for each operator, in reverse: casts of the output gradient, saved casts, wgrad, dgrad, sums
 *              of gradients that arrive over several edges. The all-reduce of a bucket follows the task that
 *              completes the bucket.
 *   update     the optimizer, bucket by bucket
 * Tasks write weight gradients directly into their bucket, so nothing is packed: parameters lie in memory in
 * the order in which the backward pass completes them.
 *
 * Options (tandem_step_options) add or move tasks:
 *   micro-steps        all tasks but all-reduces and updates run several times per step, each time on other
 *                      samples. A task after each wgrad adds its result to the sum of the step.
 *   recomputation      forward tasks are in the list a second time, before the backward tasks that read
 *                      their results.
 *   gradient norm      clipping and loss scaling need the norm of all gradients before the first update. One
 *                      task computes it after the last bucket's all-reduce; the updates follow.
 *   transposed copies  a cast to a one-byte dtype also writes the transposed matrices, where products read
 *                      them: the second value of its writes. Devices need this whose products take both
 *                      operands along the dimension that they sum over.
 *   merged tasks       the forward pass's weight casts come before all operators, to be one launch; so do
 *                      the products of linears that read one tensor, in both passes
 *   sharding           a bucket is reduce-scattered where it would be all-reduced; each rank updates its
 *                      shard of the weights, and they are all-gathered (ZeRO)
 *
 * The gradient of a tensor has the dtype of the tensor. */
#ifndef TANDEM_STEP_H
#define TANDEM_STEP_H

#include "tandem/step_options.h"

TANDEM_BEGIN_DECLARATIONS

typedef enum tandem_task_kind {
    TANDEM_TASK_WEIGHT_CAST, /* parameter, f32 → to */
    TANDEM_TASK_FORWARD,
    TANDEM_TASK_CAST,          /* output of op, from → to */
    TANDEM_TASK_GRADIENT_CAST, /* gradient of the output of op, from → to */
    TANDEM_TASK_SAVED_CAST,    /* a saved input of op, from → to, for its backward pass */
    TANDEM_TASK_WGRAD,
    TANDEM_TASK_DGRAD,
    /* Adds one term to a sum: of the gradients of a tensor that arrive over several edges, or (parameter ≥
     * 0) of a parameter's gradients over micro-steps. In the first micro-step that sum is empty. */
    TANDEM_TASK_ACCUMULATE,
    TANDEM_TASK_REDUCE, /* all-reduce of a bucket, on the communication stream */
    TANDEM_TASK_NORM,   /* of all gradients, after every all-reduce; gives the factor of the updates */
    TANDEM_TASK_UPDATE, /* optimizer over the parameters of a bucket, or this rank's shard of them */
    /* In place of an all-reduce where ranks share state (tandem_sharding), on the communication stream: */
    TANDEM_TASK_SCATTER, /* reduce-scatter of a bucket's gradients */
    TANDEM_TASK_GATHER,  /* all-gather of a bucket's weights, after its update; the step ends with them */
    TANDEM_N_TASK_KIND
} tandem_task_kind;
/* Whether ranks exchange data in tasks of this kind. */
static inline int tandem_task_is_collective(tandem_task_kind kind)
{
    return kind == TANDEM_TASK_REDUCE || kind == TANDEM_TASK_SCATTER || kind == TANDEM_TASK_GATHER;
}
const char *tandem_task_kind_name(tandem_task_kind kind); /* "weight cast", "forward", … */

typedef enum tandem_pass {
    TANDEM_PASS_FORWARD,
    TANDEM_PASS_DGRAD,
    TANDEM_PASS_WGRAD,
    TANDEM_PASS_UPDATE,
    TANDEM_N_PASS
} tandem_pass;
const char *tandem_pass_name(tandem_pass pass); /* "forward", "dgrad", "wgrad", "update" */

typedef enum tandem_stream { TANDEM_STREAM_COMPUTE, TANDEM_STREAM_COMM } tandem_stream;

#define TANDEM_PARAMETER(p) (-2 - (p)) /* its own inverse */

/* Variants of a task from TANDEM_ATTENTION_VARIANT on are those of an attention (tandem_step_attention); they
 * have another signature than those before. */
enum {
    TANDEM_TASK_READS = 6,
    TANDEM_TASK_WRITES = 4,
    TANDEM_ATTENTION_VARIANT = 27,
    TANDEM_MAX_VARIANT = 36
};

/* An array in the arena that exists for part of the step. Ids are fixed, as task ids are; bytes = 0: the
 * current plan does not have it. */
typedef struct tandem_value {
    int op; /* whose output, gradient or parameter it is */
    tandem_dtype dtype;
    uint64_t bytes;
    int first, last; /* tasks between which it lives, both included */
} tandem_value;

typedef struct tandem_task {
    tandem_task_kind kind;
    tandem_stream stream;
    int active;    /* whether the current plan has it */
    int op;        /* −1 for reduce, norm and update */
    int parameter; /* of a weight cast, or of an accumulate task over micro-steps; else −1 */
    int slot;      /* input of op (saved cast, accumulate), its parameter 0 or 1 (weight cast); else 0 */
    /* dgrad, wgrad, accumulate: 1: the task adds its result to the sum so far, its last read, in place:
     * write[0] takes over that memory, and no other task reads that sum again. The same in all plans. */
    int accumulate;
    int bucket;                 /* of a reduce or an update; else −1 */
    tandem_precision precision; /* of tasks of adjustable operators */
    tandem_dtype from; /* of the operands; of a cast: of its input; of a backward product: of the gradient */
    /* Of an adjustable operator's dgrad and wgrad: of the operand that is not the gradient (the weight, the
     * saved input). Of a dgrad that computes both inputs' gradients: of the second one. Else `from`. */
    tandem_dtype other_operand_dtype;
    tandem_dtype to; /* of the result; of a dgrad that computes both gradients: of the first */
    int variant;     /* < TANDEM_MAX_VARIANT: a combination of precision and dtypes; each has one cost */
    int n_read, n_write;
    /* In the order in which kernels take them (backend.h). ≥ 0: a value. −1: nothing. TANDEM_PARAMETER(p):
     * the f32 master copy of parameter p where it is read, its gradient where it is written. */
    int read[TANDEM_TASK_READS];
    int write[TANDEM_TASK_WRITES];
} tandem_task;

typedef struct tandem_bucket {
    int first_parameter_position, n_parameter; /* positions in parameter_order */
    int64_t start, elements;      /* in the flat arrays of weights, gradients and state; multiples of 16 */
    int ready_task;               /* the task that completes the bucket */
    int reduce_task, update_task; /* reduce: or reduce-scatter */
    int gather_task;              /* −1: there is none */
} tandem_bucket;

typedef struct tandem_step {
    const tandem_graph *graph;   /* borrowed */
    tandem_dtype amp_dtype;      /* of the device: what TANDEM_AMP means (f32, bf16 or f16) */
    uint64_t bucket_bytes;       /* largest bucket; a larger parameter has a bucket of its own */
    tandem_precision *precision; /* [n_op] of adjustable operators; fp32 elsewhere */
    tandem_dtype *output_dtype;  /* [n_op] in which the operator writes its output, before any cast */
    int n_task, n_value, n_bucket;
    int norm_task; /* −1: there is none */
    tandem_task *task;
    tandem_value *value;
    tandem_bucket *bucket;
    uint64_t *active;                  /* bit t % 64 of word t / 64: task t is active */
    int *changed_task, n_changed_task; /* what the last tandem_step_resolve changed; each task once */
    int *parameter_order;              /* [n_parameter] parameter ids in the order of the flat arrays */
    int64_t *parameter_start;          /* [n_parameter] by parameter id: first element in the flat arrays */
    /* Elements of the flat arrays: of every bucket with its padding. The last element of a bucket is spare;
     * that of bucket 0 carries the loss through the all-reduce. */
    int64_t n_flat;
    struct tandem_step_index *index; /* internal */
    tandem_step_options options;     /* as given, but n_micro ≥ 1 */
    int n_recompute_segment;         /* into which the graph was cut; 1: it was not */
} tandem_step;

/* tandem_step_open: the step program of a graph, all operators in fp32. Borrows the graph. bucket_bytes 0:
 * 25 MiB. TANDEM_NO_MEMORY. Cost: O(operators + edges). */
tandem_status tandem_step_open(tandem_step **step, const tandem_graph *graph, tandem_dtype amp_dtype,
                               uint64_t bucket_bytes, tandem_error *error);
/* tandem_step_open_with: the same with options; NULL: all zero. TANDEM_USAGE: n_micro above
 * TANDEM_MAX_MICRO, a negative number, or a window or margin out of range. */
tandem_status tandem_step_open_with(tandem_step **step, const tandem_graph *graph, tandem_dtype amp_dtype,
                                    uint64_t bucket_bytes, const tandem_step_options *options,
                                    tandem_error *error);
void tandem_step_close(tandem_step *step); /* NULL is fine */
/* The largest number of segments for its graph, for all of its options. Cost: O(operators²). */
int tandem_step_max_segments(const tandem_step *step);
/* Whether the task, a forward task or a cast of its output, recomputes what the forward pass dropped. */
int tandem_step_is_recomputed(const tandem_step *step, int task);
/* Whether the task runs after the last all-reduce, so that the next step begins right after it: the last
 * update; with a norm task, that task and all updates. */
int tandem_task_wraps_iteration(const tandem_step *step, int task);
int tandem_step_runs_per_step(const tandem_step *step, const tandem_task *task); /* 1 or n_micro */

/* This rank's shard of a bucket, all of it without sharding. */
typedef struct tandem_shard {
    int64_t first, elements; /* in the bucket */
    int64_t start;           /* in arrays that hold shards only, bucket by bucket */
} tandem_shard;
tandem_shard tandem_step_shard(const tandem_step *step, int b); /* cost: O(b) */
int64_t tandem_step_shard_elements(const tandem_step *step);    /* of all buckets; n_flat without sharding */
uint64_t tandem_step_state_bytes(const tandem_step *step);      /* of all state, of all ranks */

/* The tasks that compute an operator's forward pass, wgrad and dgrad; −1: it has none. */
typedef struct tandem_op_tasks {
    int forward, wgrad, dgrad;
} tandem_op_tasks;
tandem_op_tasks tandem_step_op_tasks(const tandem_step *step, int op);
/* softmax(scale · q·kᵀ)·v: the product of the scores, its softmax, a dropout where dropout ≥ 0, and the
 * product with v. Operators, by id. Shapes are (heads, rows, depth) of q, (heads, columns, depth) of k and v:
 * heads are those of all samples. */
typedef struct tandem_attention {
    int scores, softmax, dropout, mix;
    int64_t heads, rows, columns, depth;
} tandem_attention;
/* The largest depth, the precisions that may fuse, and the bytes of the statistics that backward reads beside
 * q, k, v and the result: the logarithm of each row's sum, f32. */
enum {
    TANDEM_ATTENTION_DEPTH = 128,
    TANDEM_ATTENTION_PRECISIONS =
        1 << TANDEM_PRECISION_FP32 | 1 << TANDEM_PRECISION_BF16 | 1 << TANDEM_PRECISION_FP16
};
uint64_t tandem_attention_statistics_bytes(const tandem_attention *attention);
/* tandem_step_attention: whether task t runs an attention in the current plan of a step with fused_attention.
 * It does where both products have one precision of that set; its forward task is that of `mix` (reads q,
 * k, v; writes the result and the statistics), its backward task the dgrad of `mix` (reads the gradient, q,
 * k, v, the result, the statistics; writes the gradients of q, k, v). All other tasks of the four operators
 * are then inactive. Cost: O(1). */
int tandem_step_attention(const tandem_step *step, int t, tandem_attention *attention);
/* Whether some plan fuses operator op into an attention: which one. Cost: O(1). */
int tandem_step_may_fuse(const tandem_step *step, int op, tandem_attention *attention);

/* The variant of such a task of an adjustable operator, in `precision`, whose result has dtype `to`. */
int tandem_precision_variant(tandem_precision precision, tandem_dtype to);
/* All of them, as bits: they differ in `to`. */
uint64_t tandem_precision_variants(tandem_precision precision);
/* Whether task t is a pass of an adjustable operator, whose variants these are. */
int tandem_step_is_product(const tandem_step *step, int t);

/* The first active task from t on; n_task where there is none. */
static inline int tandem_step_next_active(const tandem_step *step, int t)
{
    if (t >= step->n_task) return step->n_task;
    const int n_word = (step->n_task + 63) / 64;
    int w = t / 64;
    uint64_t word = step->active[w] >> t % 64 << t % 64;
    while (!word) {
        if (++w == n_word) return step->n_task;
        word = step->active[w];
    }
    return w * 64 + __builtin_ctzll(word);
}

/* tandem_step_set: gives an adjustable operator a precision, which its op row must allow (the caller
 * checks). Callers only read the field `precision`. tandem_step_resolve then updates the program, once for
 * any number of changes. Setting the old precision undoes it. Cost: O(1). */
void tandem_step_set(tandem_step *step, int op, tandem_precision precision);
/* tandem_step_load: sets all adjustable operators, precision[n_op], and resolves the step. */
void tandem_step_load(tandem_step *step, const tandem_precision *precision);
/* tandem_step_resolve: updates output dtypes, active tasks, variants, values and lifetimes. The program is
 * then the same as a new one with these precisions. Inactive tasks and values are as they were laid out.
 * Cost: O(what the changes affect): the operators that were set, the casts of what they read and write in
 * both passes, and the dependent operators after them. Some hundred ns per operator, for every graph
 * size. */
void tandem_step_resolve(tandem_step *step);

/* Where a cast to a one-byte dtype takes its range from: a pass of its own over the tensor, a bound that is
 * known in advance (op row), or the history of earlier casts, to which it adds its own amax. */
typedef enum tandem_range_source {
    TANDEM_RANGE_FOUND,
    TANDEM_RANGE_KNOWN,
    TANDEM_RANGE_DELAYED,
    TANDEM_N_RANGE_SOURCE
} tandem_range_source;
const char *tandem_range_source_name(tandem_range_source source); /* "measured", "known", "delayed" */
/* The task whose amax history (amax_history.h) task t of the current plan uses: t itself, or the cast that a
 * recomputed cast repeats; −1: none. */
int tandem_step_amax_history(const tandem_step *step, int task);
/* Bytes of one history, with padding; 0: the step has none. */
uint64_t tandem_step_amax_history_bytes(const tandem_step *step);

/* Kernels, products of a library and memsets that the backend for cards launches for an active task. Copies
 * between host and card, and the host's own work, are none. It supposes that cuDNN has an algorithm for each
 * convolution of floats. Cost: O(1). */
int tandem_step_launches(const tandem_step *step, int task);
/* Whether an active task of a step with merged_tasks is launched as one with the active task before it: casts
 * of weights, which are at the beginning of such a step; a bias and a transpose; a bias, a sum and a
 * layernorm, or the last two; backward, a transpose and a bias's sums; updates, where no gradient goes over
 * the host; products of one tensor, forward and wgrads, and what follows or comes before each of them of a
 * bias and a transpose; a layernorm or a bias with gelu, and the first cast of its result to a byte, with the
 * range of a history. The result of a task that is merged into a later one is nowhere in memory, except for
 * sums and what products and transposes write. Cost: O(tasks before it that are not active). */
int tandem_step_is_merged(const tandem_step *step, int task);
enum { TANDEM_MAX_MERGED_CASTS = 96, TANDEM_MAX_MERGED_PRODUCTS = 3 };
/* Of a layernorm's rows, up to which it writes the codes of its result itself. */
enum { TANDEM_MAX_CODED_COLUMNS = 1024 };
/* Of the bytes that an active task reads and writes alone, those that it does not move where it is merged: a
 * value that an earlier task of its launch makes is not read again, and one that no task after the launch
 * reads is not written. Cost: as tandem_step_is_merged, for each task of the launch. */
uint64_t tandem_step_unmoved_bytes(const tandem_step *step, int task);
/* tandem_step_merged_products: of a launch of products of one tensor, forward or wgrad, whose last task is
 * `task`: how many they are, and how far one's second operand and result lie from those of the product
 * before, in elements. n = 0: it is the last task of no such launch. Cost: as tandem_step_is_merged. */
typedef struct tandem_merged_products {
    int n;
    int64_t operand_apart, result_apart;
} tandem_merged_products;
tandem_merged_products tandem_step_merged_products(const tandem_step *step, int task);

/* Of a step with padded_rows: elements from one row to the next of the tensor that operator op writes, or, of
 * a cross-entropy, of the logits that it reads; 0: rows have no gaps. Rows of logits, and of their gradient,
 * have gaps where the loss reads them from a tied linear, with or without a bias, and nothing else does, and
 * their columns are no multiple of 8. Every value of such a tensor or gradient has them, in each dtype. The
 * gaps of a gradient are 0, those of logits are not set. Steps without narrow_rows, emulated ones, and those
 * with separate_partial_grads have none. Cost: O(1). */
int64_t tandem_step_padded_row(const tandem_step *step, int op);

/* The matrices that an active cast transposes. With two writes, write[0] is (batch, rows, columns), write[1]
 * (batch, columns, rows). With one it is a convolution's weight of two bytes, and write[0] its transposed
 * copy. Cost: O(readers). */
typedef struct tandem_matrices {
    int64_t batch, rows, columns;
} tandem_matrices;
tandem_matrices tandem_step_matrices(const tandem_step *step, int task);
/* The value whose transposed copy `value` is; else `value` itself. The two have one scale. */
int tandem_value_untransposed(const tandem_step *step, int value);

/* The key of a task's cost. Strings belong to the graph or are static. */
typedef enum tandem_cost_kind { TANDEM_COST_OP, TANDEM_COST_CAST, TANDEM_COST_COLLECTIVE } tandem_cost_kind;
typedef struct tandem_cost_key {
    tandem_cost_kind kind;
    char signature[TANDEM_MAX_SIGNATURE]; /* of the operator, or "accumulate n=…", "adamw n=…" */
    const char *precision;                /* of the operator; else the name of the dtype it computes in */
    tandem_pass pass;
    tandem_dtype from, to;            /* of a cast; of an operator: of the operands and of the result */
    int64_t elements;                 /* of a cast or a reduce */
    tandem_range_source range_source; /* of a cast to one byte: FOUND takes two passes; else FOUND */
    int transposed_copy;              /* 1: of a cast that also writes a transposed copy */
} tandem_cost_key;
/* tandem_step_cost_key: the cost key of a variant of a task; task->variant is that of the current plan.
 * Returns 0 where the task has no such variant. */
int tandem_step_cost_key(const tandem_step *step, int task, int variant, tandem_cost_key *key);
/* Bit v: the task may take variant v in plans of these precisions (bit p: precision p). Only these need
 * costs. */
uint64_t tandem_step_variants(const tandem_step *step, int task, unsigned precisions);

/* --- Values ---------------------------------------------------------------------------------------------
 * */
/* Value ids, for executors that bind memory themselves. All of them follow views and gradients that are
 * passed on unchanged. */
int tandem_value_activation(const tandem_step *step, int tensor, tandem_dtype dtype);
int tandem_value_gradient(const tandem_step *step, int tensor, tandem_dtype dtype);
int tandem_value_aux(const tandem_step *step, int op);
/* What `value` is to operator *op: 0 an activation, 1 a gradient (in any dtype), from 2 on auxiliary
 * results, saved casts and terms of sums, each kind and input by itself. −1: a weight copy, or a value that
 * only micro-steps or recomputation need. */
enum { TANDEM_N_VALUE_ROLE = 3 + 3 * TANDEM_MAX_INPUT };
int tandem_value_role(const tandem_step *step, int value, int *op);

/* --- Memory (step/program/memory.c) -----------------------------------------------------------------------
 * */
typedef struct tandem_memory {
    /* over the whole run, bytes */
    uint64_t weights, gradients, optimizer; /* flat arrays: master weights, buckets, state */
    uint64_t histories;                     /* of casts with delayed scaling */
    /* the arena: values that live for part of the step */
    uint64_t arena;      /* its size: the highest offset reached */
    uint64_t arena_live; /* largest sum of bytes alive at once: a lower bound of any arena */
    int peak_task;       /* the task at which that is */
    /* alive at peak_task, by kind; weight_copies: without those that lie in the gradients */
    uint64_t activations, activation_gradients, weight_copies, workspace;
    /* weights + gradients + optimizer + histories + arena + evaluation: what the executor allocates, to the
     * byte. Of a graph that another framework runs: what that allocates; 0 = not known (record.h). */
    uint64_t peak;
    uint64_t weight_gradients; /* alive at peak_task: of one micro-step, not yet summed */
    /* what an evaluation between steps needs beyond the arena, in which it runs; often 0 */
    uint64_t evaluation;
} tandem_memory;

/* The offset of a value that lies from this byte on in the gradients' array, not in the arena: a narrow copy
 * of a weight, until the gradient of the weight is written. Its own inverse. */
#define TANDEM_IN_GRADIENTS(byte) (-2 - (byte))

/* The room of a rank whose memory with equal shards of the optimizer's state is `even`; limit 0 = none.
 * Shards of other sizes are rounded to 16 elements a bucket, which is set aside. */
tandem_shard_room tandem_step_shard_room(const tandem_step *step, const tandem_memory *even, uint64_t limit);

/* tandem_memory_plan: places every value and workspace of the current plan in one arena.
 *   workspace [in]   bytes that each task needs beside its operands, [n_task]; NULL: none
 *   offset    [out]  [n_value] of each value, −1 where the plan does not have it, below −1 as
 *                    TANDEM_IN_GRADIENTS says; may be NULL
 *   workspace_offset [out] [n_task]; may be NULL
 * Placement: first fit in order of birth over a sorted list of holes; offsets are multiples of 64.
 * TANDEM_NO_MEMORY. Cost: O(values in the plan × holes); there are seldom more than six holes. */
tandem_status tandem_memory_plan(tandem_memory *memory, const tandem_step *step, const uint64_t *workspace,
                                 int64_t *offset, int64_t *workspace_offset, tandem_error *error);

/* tandem_memory_of_graph: the memory of one rank in fp32, or in `precision`, [n_op], of the operators that
 * have it. options NULL: all zero. For those who have no times, and so no replayer. TANDEM_USAGE: a precision
 * that an operator lacks. TANDEM_NO_MEMORY. *memory unchanged on error. Cost: that of opening a step program,
 * and of a memory plan. */
tandem_status tandem_memory_of_graph(tandem_memory *memory, const tandem_graph *graph,
                                     const tandem_precision *precision, const tandem_step_options *options,
                                     tandem_error *error);

/* --- Memory over the step (step/program/memory_timeline.c) ------------------------------------------------
 * */
/* What the bytes of a rank hold. Buckets are the gradients themselves: nothing is packed. */
typedef enum tandem_memory_category {
    TANDEM_MEMORY_WEIGHTS,   /* f32 master copies; for the whole run, as the next three */
    TANDEM_MEMORY_GRADIENTS, /* of weights: the buckets */
    TANDEM_MEMORY_OPTIMIZER,
    TANDEM_MEMORY_HISTORIES,
    TANDEM_MEMORY_WEIGHT_COPIES,   /* in other dtypes than f32 */
    TANDEM_MEMORY_ACTIVATIONS_F32, /* outputs of operators, by the dtype in which they are stored */
    TANDEM_MEMORY_ACTIVATIONS_BF16,
    TANDEM_MEMORY_ACTIVATIONS_S8,
    TANDEM_MEMORY_ACTIVATIONS_F16,
    TANDEM_MEMORY_ACTIVATIONS_E4M3,
    TANDEM_MEMORY_ACTIVATIONS_MXFP8,
    TANDEM_MEMORY_ACTIVATIONS_NVFP4,
    TANDEM_MEMORY_ACTIVATIONS_S32, /* tokens and labels */
    TANDEM_MEMORY_SIDE_RESULTS,    /* statistics, argmax, probabilities: saved for the backward pass */
    TANDEM_MEMORY_ACTIVATION_GRADIENTS,
    TANDEM_MEMORY_WEIGHT_GRADIENTS, /* of one micro-step, before they are added to those of the step */
    TANDEM_MEMORY_WORKSPACE,
    TANDEM_MEMORY_UNUSED, /* of the arena: bytes that hold nothing at that task; at the peak: gaps */
    TANDEM_N_MEMORY_CATEGORY
} tandem_memory_category;
/* "weights", "activations f32", … */
const char *tandem_memory_category_name(tandem_memory_category category);

typedef struct tandem_memory_row {
    uint64_t bytes[TANDEM_N_MEMORY_CATEGORY]; /* their sum is the plan's peak, at every task */
} tandem_memory_row;

/* tandem_memory_timeline: what memory holds while each task of the current plan runs.
 *   workspace [in]   as for tandem_memory_plan
 *   row       [out]  [n_task], by task id; all zero for tasks that are not in the plan
 * The row of tandem_memory_plan's peak_task is the peak. TANDEM_NO_MEMORY: *row unchanged. Cost: that of a
 * memory plan, and O(tasks × categories). */
tandem_status tandem_memory_timeline(tandem_memory_row *row, const tandem_step *step,
                                     const uint64_t *workspace, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
