/* step.h: the step program: one training step of one class as a flat list of tasks. The executor runs this
 * list, the replayer prices it, the memory plan is computed from it, a trace is the same list with times; so
 * they cannot drift apart.
 *
 * Every task that any choice of precisions could need has its place in the list, once and for all; a choice
 * of precisions switches tasks on and off and sets their types. So a task has the same id in every class and
 * every plan of a model, and changing one operator's precision changes a handful of tasks.
 *
 * Order: for each operator its weight cast, its forward task, the casts of its output to the types its
 * readers want; then the operators in reverse: casts of the output gradient, conversions of what was saved,
 * wgrad, dgrad, sums of gradients that arrive over several edges; each bucket's all-reduce behind the task
 * that completes the bucket; last the optimizer, bucket by bucket. Gradients of weights are written into
 * their bucket where they are computed, so nothing is packed: parameters lie in memory in the order in which
 * backward finishes them.
 *
 * Two variants of it (tandem_step_options): with micro-steps, all tasks but all-reduces and updates run
 * several times a step, each time on other samples, and a task behind each wgrad adds its result to what the
 * step has so far; with recomputation, forward tasks stand in the list a second time, before the backward
 * tasks that read what they write. A third: training that clips gradients, or scales its loss, must know the
 * norm of all of them before it updates anything; the task that finds it stands before the updates, waits for
 * every bucket, and the updates then follow one another.
 *
 * The gradient of a tensor has the type of the tensor.
 *
 * On devices that multiply types of a byte along both operands' summed dimension
 * (tandem_step_options.columnwise), a cast to such a type writes the transpose of its matrices as well, where
 * products read it: the second value of its writes. */
#ifndef TANDEM_STEP_H
#define TANDEM_STEP_H

#include "tandem/graph.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum tandem_task_kind {
    TANDEM_TASK_WEIGHT_CAST, /* parameter, f32 → to */
    TANDEM_TASK_FORWARD,
    TANDEM_TASK_CAST,          /* output of op, from → to */
    TANDEM_TASK_GRADIENT_CAST, /* gradient of the output of op, from → to */
    TANDEM_TASK_SAVED_CAST,    /* a saved input of op, from → to, for its backward pass */
    TANDEM_TASK_WGRAD,
    TANDEM_TASK_DGRAD,
    /* gradient of a tensor that arrives over several edges, or (parameter ≥ 0) of a parameter over
     * several micro-steps: sum so far + one more. In the first micro-step the sum so far is nothing */
    TANDEM_TASK_ACCUMULATE,
    TANDEM_TASK_REDUCE, /* all-reduce of a bucket, on the communication stream */
    /* of all gradients, once every bucket is reduced; they are multiplied by what follows from it */
    TANDEM_TASK_NORM,
    TANDEM_TASK_UPDATE, /* optimizer over the parameters of a bucket */
    TANDEM_N_TASK_KIND
} tandem_task_kind;
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

enum { TANDEM_TASK_READS = 5, TANDEM_TASK_WRITES = 4, TANDEM_MAX_VARIANT = 21 };

/* A number array that exists for part of the step, in the arena. Ids are fixed like task ids; bytes = 0: not
 * in this plan. */
typedef struct tandem_value {
    int op; /* whose output, gradient or parameter it is */
    tandem_dtype dtype;
    uint64_t bytes;
    int first, last; /* tasks between which it lives, both included */
} tandem_value;

typedef struct tandem_task {
    tandem_task_kind kind;
    tandem_stream stream;
    int active;    /* whether this plan has it */
    int op;        /* −1 for reduce, norm and update */
    int parameter; /* weight cast, accumulate over micro-steps: which; else −1 */
    int slot;      /* which input of op: restore, accumulate; which parameter (0, 1): weight cast; else 0 */
    /* dgrad, wgrad, accumulate: 1: the result is added to what its last read is, the sum so far, and written
     * over it: write[0] takes its place in memory, and nobody reads the sum so far again. The same in all
     * plans */
    int accumulate;
    int bucket;                 /* reduce, update: which; else −1 */
    tandem_precision precision; /* of adjustable operators' tasks */
    tandem_dtype from; /* operand type; of a cast: what it reads; of a backward product: the gradient's */
    /* of an adjustable operator's dgrad and wgrad: its other operand's, the weight's or the saved
     * input's; of a dgrad that brings the gradients of both inputs: the second one's; else `from` */
    tandem_dtype other_operand_dtype;
    tandem_dtype to; /* type of the result; of such a dgrad the first one's */
    int variant; /* 0 … TANDEM_MAX_VARIANT−1: which of the forms of this task this is: names its cost */
    int n_read, n_write;
    /* What it reads and writes, in the order in which kernels take them (backend.h). ≥ 0: a value; −1:
     * nothing; TANDEM_PARAMETER(p): of parameter p the f32 master copy where it is read, the gradient where
     * it is written. */
    int read[TANDEM_TASK_READS];
    int write[TANDEM_TASK_WRITES];
} tandem_task;

typedef struct tandem_bucket {
    int first_parameter_position, n_parameter; /* places in parameter_order */
    /* within the flat arrays of weights, gradients and optimizer state; aligned to 16 elements */
    int64_t start, elements;
    int ready_task; /* the task that completes it */
    int reduce_task, update_task;
} tandem_bucket;

/* What a step program can be laid out for beside a graph; all zero = one batch a step, all activations kept.
 * */
enum { TANDEM_RECOMPUTE_SQRT = -1, TANDEM_MAX_MICRO = 1024 };
typedef struct tandem_step_options {
    /* micro-steps: gradients of so many local batches are summed before the one all-reduce and update; 0 = 1
     * */
    int n_micro;
    /* recomputation: the graph is cut into so many segments, as far as it has places where one tensor only is
     * handed on; of all but the last, only this tensor is kept. 0, 1 = none; TANDEM_RECOMPUTE_SQRT = as many
     * as the root of the number of such places (Chen, Xu, Zhang, Guestrin, arXiv:1604.06174, 2016) */
    int n_recompute_segment;
    struct tandem_cast_scaling {
        /* > 0: delayed scaling, from the largest magnitudes of so many casts before; 0, −1 = from the tensor
         * itself */
        int window;
        int margin; /* the range is 2^margin times the largest of them */
    } scaling;      /* of casts to s8 whose range is not known in advance (docs/rounding.md) */
    /* of the device (cluster.h), as `wider` is: 1: casts to types of a byte write column-wise copies */
    int transposed_copy;
    int with_norm; /* 1: no update before the norm of all gradients is known */
    /* 1: every part of a tensor's gradient has memory of its own, and no dgrad adds to another one's: for
     * those who look at the parts */
    int separate_partial_grads;
} tandem_step_options;
typedef struct tandem_cast_scaling tandem_cast_scaling;
/* n_recompute_segment as a word: "none", "sqrt" or a whole number. TANDEM_USAGE says which words there are.
 * */
tandem_status tandem_recompute_parse(int *n_recompute_segment, const char *word, tandem_error *error);
enum { TANDEM_RECOMPUTE_TEXT = 16 };
char *tandem_recompute_print(char text[TANDEM_RECOMPUTE_TEXT], int n_recompute_segment); /* returns text */
/* "current" (window −1: it was said) or "delayed:window=16,margin=0", each of the two as given here where it
 * is left out. TANDEM_USAGE says what there is. */
tandem_status tandem_cast_scaling_parse(tandem_cast_scaling *scaling, const char *text, tandem_error *error);
enum { TANDEM_CAST_SCALING_TEXT = 48 };
/* returns text */
char *tandem_cast_scaling_print(char text[TANDEM_CAST_SCALING_TEXT], tandem_cast_scaling scaling);

typedef struct tandem_step {
    const tandem_graph *graph; /* borrowed */
    tandem_dtype amp_dtype;    /* of the device: what TANDEM_AMP means (f32, bf16 or f16) */
    /* most bytes of gradients reduced together; a larger parameter has a bucket of its own */
    uint64_t bucket_bytes;
    tandem_precision *precision; /* [n_op] of adjustable operators; fp32 elsewhere */
    tandem_dtype *output_dtype;  /* [n_op] type in which the operator writes its output */
    int n_task, n_value, n_bucket;
    int norm_task; /* −1 = there is none */
    tandem_task *task;
    tandem_value *value;
    tandem_bucket *bucket;
    int *parameter_order;     /* [n_parameter] parameter ids in the order of the flat arrays */
    int64_t *parameter_start; /* [n_parameter] by parameter id: first element in the flat arrays */
    int64_t n_flat; /* elements of the flat arrays: every bucket's, its padding included; the last element of
                                   a bucket is spare (bucket 0's carries the loss through the all-reduce) */
    struct tandem_step_index *index; /* internal: graph/step/step_index.h */
    tandem_step_options options;     /* as asked for, but n_micro ≥ 1 */
    int n_recompute_segment;         /* that the graph was cut into, 1 = it was not */
} tandem_step;

/* tandem_step_open: the step program of a graph, all operators in fp32. bucket_bytes: gradients reduced
 * together (0 = 25 MiB). Borrows the graph. TANDEM_NO_MEMORY. Cost: O(operators + edges). */
tandem_status tandem_step_open(tandem_step **step, const tandem_graph *graph, tandem_dtype amp_dtype,
                               uint64_t bucket_bytes, tandem_error *error);
/* tandem_step_open_with: the same with micro-steps or recomputation; options NULL = all zero. TANDEM_USAGE:
 * more than TANDEM_MAX_MICRO micro-steps, or a number below 0. */
tandem_status tandem_step_open_with(tandem_step **step, const tandem_graph *graph, tandem_dtype amp_dtype,
                                    uint64_t bucket_bytes, const tandem_step_options *options,
                                    tandem_error *error);
void tandem_step_close(tandem_step *step); /* NULL is fine */
/* The most segments that its graph can be cut into, whatever options it was opened with. Cost: O(operators
 * squared). */
int tandem_step_max_segments(const tandem_step *step);
/* Whether a forward task or a cast of its output computes again what was dropped after the forward pass. */
int tandem_step_is_recomputed(const tandem_step *step, int task);
/* Whether a task follows the last bucket's all-reduce, and the next step's forward pass follows it: the last
 * update; with a norm, that and all updates. */
int tandem_task_wraps_iteration(const tandem_step *step, int task);
/* How often a task of the list runs in one step. */
int tandem_step_runs_per_step(const tandem_step *step, const tandem_task *task);

/* tandem_step_set: give one adjustable operator a precision; the field `precision` is for reading. Undone by
 * setting the old one. The caller has checked that the operator exists in it (op row). Types and activity are
 * brought up to date by tandem_step_resolve, once for any number of changes. Cost: O(1). */
void tandem_step_set(tandem_step *step, int op, tandem_precision precision);
/* tandem_step_resolve: brings native types, active tasks, variants, values and lifetimes up to date:
 * everything is as in a new program of these precisions, whatever the way. Tasks and values that are not in
 * the plan are as they were laid out. Cost: O(what the changes touch): the operators that were set, the casts
 * of what they read and write in both directions, the dependent operators behind them; some hundred
 * nanoseconds an operator, whatever the size of the graph. */
void tandem_step_resolve(tandem_step *step);

/* Where a cast to s8 has its range from: found in the tensor by a pass of its own, known in advance (op row),
 * or that of the casts before, whose history the pass that quantises goes on with. */
typedef enum tandem_range_source {
    TANDEM_RANGE_FOUND,
    TANDEM_RANGE_KNOWN,
    TANDEM_RANGE_DELAYED,
    TANDEM_N_RANGE_SOURCE
} tandem_range_source;
const char *tandem_range_source_name(tandem_range_source range); /* "found", "known", "delayed" */
/* The task with whose amax history (amax_history.h) task t of the current plan quantises: t itself, or the
 * cast that a cast of recomputation repeats; −1: with none. */
int tandem_step_amax_history(const tandem_step *step, int task);
/* What a history takes in memory, padding included; 0 where the step has none. */
uint64_t tandem_step_amax_history_bytes(const tandem_step *step);

/* The matrices of which an active cast with two writes makes column-wise copies: write[0] is (batch, rows,
 * columns), write[1] (batch, columns, rows). Cost: O(readers). */
typedef struct tandem_matrices {
    int64_t batch, rows, columns;
} tandem_matrices;
tandem_matrices tandem_step_matrices(const tandem_step *step, int task);
/* Of a column-wise copy the value that it is of; of other values themselves. The two have one scale. */
int tandem_value_untransposed(const tandem_step *step, int value);

/* What a task's cost is filed under. Strings belong to the graph or are static. */
typedef enum tandem_cost_kind { TANDEM_COST_OP, TANDEM_COST_CAST, TANDEM_COST_COLLECTIVE } tandem_cost_kind;
typedef struct tandem_cost_key {
    tandem_cost_kind kind;
    char signature[TANDEM_MAX_SIGNATURE]; /* operator, or "accumulate n=…", "adamw n=…" */
    const char *precision; /* of the operator; for the others the name of the type they compute in */
    tandem_pass pass;
    tandem_dtype from, to; /* of a cast; of an operator: type of the operands and of the result */
    int64_t elements;      /* of a cast or a reduce */
    /* of a cast to one byte: FOUND takes two passes, the others one; else FOUND */
    tandem_range_source range_source;
    int transposed_copy; /* 1: of a cast that writes a column-wise copy, too */
} tandem_cost_key;
/* tandem_step_cost_key: the cost key of a task in its form `variant`; pass task->variant for the current
 * plan's. Returns 0 where the task has no such form. */
int tandem_step_cost_key(const tandem_step *step, int task, int variant, tandem_cost_key *key);
/* Bit v: with plans of these precisions (bit p: precision p) the task may take form v. Others need no cost.
 * */
unsigned tandem_step_variants(const tandem_step *step, int task, unsigned precisions);

/* --- Values --------------------------------------------------------------------------------------------- */
/* Ids of the values an executor binds itself. All follow views and gradients passed on unchanged. */
int tandem_value_activation(const tandem_step *step, int tensor, tandem_dtype dtype);
int tandem_value_gradient(const tandem_step *step, int tensor, tandem_dtype dtype);
/* Weight of an adjustable operator in `dtype`: a value id, or TANDEM_PARAMETER(p) for f32: the master copy.
 * */
int tandem_value_weight(const tandem_step *step, int op, tandem_dtype dtype);
int tandem_value_aux(const tandem_step *step, int op);

/* --- Memory (graph/step/memory.c) ----------------------------------------------------------------------- */
typedef struct tandem_memory {
    /* over the whole run, bytes */
    uint64_t weights, gradients, optimizer; /* flat arrays: master weights, buckets, state */
    uint64_t histories;                     /* of casts with delayed scaling */
    /* the arena: what lives for part of the step */
    uint64_t arena;      /* its size: the highest offset reached */
    uint64_t arena_live; /* largest sum of bytes alive at once: no placement can be smaller */
    int peak_task;       /* where that is */
    /* what is alive there, by kind */
    uint64_t activations, activation_gradients, weight_copies, workspace;
    /* weights + gradients + optimizer + histories + arena + evaluation: what the executor allocates, to the
     * byte */
    uint64_t peak;
    uint64_t weight_gradients; /* alive at the arena's peak: of one micro-step, not yet summed */
    /* what an evaluation between steps needs beyond the arena, in which it runs; 0 in most plans */
    uint64_t evaluation;
} tandem_memory;

/* tandem_memory_plan: place every value and workspace of the current plan in one arena.
 *   workspace [in]   bytes each task needs beside its operands, [n_task]; NULL = none
 *   offset    [out]  [n_value] of each value, −1 where it is not in the plan; may be NULL
 *   workspace_offset [out] [n_task]; may be NULL
 * Placement: first fit in order of birth over a sorted list of holes; offsets are multiples of 64.
 * TANDEM_NO_MEMORY. Cost: O(values in the plan × holes), of which there are seldom more than six. */
tandem_status tandem_memory_plan(tandem_memory *memory, const tandem_step *step, const uint64_t *workspace,
                                 int64_t *offset, int64_t *workspace_offset, tandem_error *error);

/* --- Memory over the step (graph/step/memory_timeline.c) ------------------------------------------------ */
/* What bytes of a rank are for. Buckets are the gradients themselves: nothing is packed, so they need nothing
 * besides. */
typedef enum tandem_memory_category {
    TANDEM_MEMORY_WEIGHTS,   /* f32 master copies, for the whole run, as the next three */
    TANDEM_MEMORY_GRADIENTS, /* of weights: the buckets */
    TANDEM_MEMORY_OPTIMIZER,
    TANDEM_MEMORY_HISTORIES,
    TANDEM_MEMORY_WEIGHT_COPIES,   /* in other types than f32 */
    TANDEM_MEMORY_ACTIVATIONS_F32, /* outputs of operators by the type in which they are stored */
    TANDEM_MEMORY_ACTIVATIONS_BF16,
    TANDEM_MEMORY_ACTIVATIONS_S8,
    TANDEM_MEMORY_ACTIVATIONS_F16,
    TANDEM_MEMORY_ACTIVATIONS_E4M3,
    TANDEM_MEMORY_ACTIVATIONS_S32, /* tokens and labels */
    TANDEM_MEMORY_SIDE_RESULTS, /* statistics, places of maxima, probabilities: kept for the backward pass */
    TANDEM_MEMORY_ACTIVATION_GRADIENTS,
    TANDEM_MEMORY_WEIGHT_GRADIENTS, /* of one micro-step, before they are added to those of the step */
    TANDEM_MEMORY_WORKSPACE,
    TANDEM_MEMORY_UNUSED, /* of the arena: what does not live at that task; at the peak: gaps */
    TANDEM_N_MEMORY_CATEGORY
} tandem_memory_category;
/* "weights", "activations f32", … */
const char *tandem_memory_category_name(tandem_memory_category category);

typedef struct tandem_memory_row {
    uint64_t bytes[TANDEM_N_MEMORY_CATEGORY]; /* by category; their sum is the plan's peak, at every task */
} tandem_memory_row;

/* tandem_memory_timeline: what memory holds while each task of the current plan runs.
 *   workspace [in]   as for tandem_memory_plan
 *   row       [out]  [n_task], by task id; of tasks that are not in the plan all zero
 * The row of tandem_memory_plan's peak_task is the peak. TANDEM_NO_MEMORY; *row unchanged on error. Cost:
 * that of a memory plan and O(tasks × categories). */
tandem_status tandem_memory_timeline(tandem_memory_row *row, const tandem_step *step,
                                     const uint64_t *workspace, tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
