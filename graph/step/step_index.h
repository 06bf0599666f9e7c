/* step_index.h: the fixed structure behind a step program, shared by the files that lay it out, resolve it
 * and plan its memory. All arrays are [n_op] (or [n_op × TANDEM_MAX_INPUT] for edges); −1 = there is none. */
#ifndef TANDEM_GRAPH_STEP_INDEX_H
#define TANDEM_GRAPH_STEP_INDEX_H

#include "tandem/step.h"

/* Values of operator i begin at i·VALUES_PER_OP; activations and gradients have one version a type. */
enum {
    VALUE_ACTIVATION = 0,
    VALUE_GRADIENT = TANDEM_N_STORAGE_DTYPE,
    VALUE_AUX = 2 * TANDEM_N_STORAGE_DTYPE,
    VALUE_SAVED_CAST, /* one an input */
    /* gradient of input k that still has to be summed */
    VALUE_CONTRIBUTION = VALUE_SAVED_CAST + TANDEM_MAX_INPUT,
    VALUE_PARTIAL = VALUE_CONTRIBUTION + TANDEM_MAX_INPUT, /* sum of contributions so far */
    VALUES_PER_OP = VALUE_PARTIAL + TANDEM_MAX_INPUT,
    /* copies in other types than f32: its own, also where operators share a parameter */
    WEIGHT_COPIES_PER_OP = TANDEM_N_STORAGE_DTYPE - 1
};

/* Behind all these, where there are micro-steps or segments, of operator i from n_op·BASIC_VALUES_PER_OP +
 * i·EXTRA_VALUES_PER_OP on: */
enum {
    BASIC_VALUES_PER_OP = VALUES_PER_OP + WEIGHT_COPIES_PER_OP,
    EXTRA_ACTIVATION = 0,               /* computed again, one version a type */
    EXTRA_AUX = TANDEM_N_STORAGE_DTYPE, /* the same */
    EXTRA_WEIGHT_GRADIENT,              /* of a micro-step, one a parameter */
    EXTRA_VALUES_PER_OP = EXTRA_WEIGHT_GRADIENT + TANDEM_MAX_PARAMETER
};

enum {
    N_OP_ARRAY = 16,
    N_EDGE_ARRAY = 6,
    MAX_TASKS_PER_OP = 3 + 2 * TANDEM_N_STORAGE_DTYPE + 2 * TANDEM_MAX_INPUT + 3,
    EXTRA_TASKS_PER_OP = 1 + TANDEM_N_STORAGE_DTYPE + TANDEM_MAX_PARAMETER /* with micro-steps or segments */
};

/* What a change can make of an operator: tasks to resolve anew, in units that depend on the same types; needs
 * to gather anew. */
enum {
    DIRTY_FORWARD = 1,                 /* its weight cast and its forward task, also when it runs again */
    DIRTY_CASTS = 2,                   /* casts of its output, the same */
    DIRTY_GRADIENT_CASTS = 4,          /* casts of its output gradient */
    DIRTY_BACKWARD = 8,                /* restore, weight cast, wgrad, dgrad */
    DIRTY_SUMS = 16,                   /* its accumulate tasks */
    DIRTY_READER_DTYPES = 32,          /* who reads its output in which type */
    DIRTY_GRADIENT_READER_DTYPES = 64, /* … its output gradient */
    DIRTY_ALL = 127
};

/* A place in the list of those that read a value: read number k of task t is place TANDEM_TASK_READS·t + k.
 * */
typedef struct tandem_reader {
    int next, previous; /* −1 = none */
} tandem_reader;

struct tandem_step_index {
    int *block;                /* holds all int arrays of operators, edges and parameters */
    const tandem_op_row **row; /* of each operator */
    int *input_tensor;         /* of an edge: the tensor whose memory is read */
    /* gradients: tensors stand for what they are views of */
    /* edges that bring a gradient, in backward order; edge = MAX_INPUT · consumer + slot */
    int *n_contribution, *last_edge;
    int *gradient_root; /* the tensor whose gradient memory holds this tensor's gradient */
    /* tasks */
    int *forward, *cast, *gradient_cast, *weight_cast, *saved_cast, *backward_weight_cast, *wgrad, *dgrad;
    int *recomputed_forward, *recomputed_cast;
    /* of the operator that ends a segment to recompute, its first one; −1 = all others */
    int *recompute_segment_begin;
    int *sum; /* [n_op × TANDEM_MAX_PARAMETER] over micro-steps */
    /* values with ids below are as casts and operators write them; from there on, their column-wise copies */
    int n_untransposed;
    /* [n_untransposed] the cast that writes it writes a column-wise copy, too; NULL: none does */
    unsigned char *has_transposed_copy;
    int *edge_position;   /* place of an edge among the contributions to its tensor */
    int *previous_edge;   /* the edge at the place before */
    int *accumulate_task; /* of an edge whose place is not the first */
    int *bucket_of;       /* [n_parameter] */
    /* who a change reaches: CSR, both [n_op + 1] starts */
    int *reader_start, *reader; /* operators, no reshapes, that read the tensor or a view of it; each once */
    int *gradient_group_start, *gradient_group; /* operators whose gradient_root the tensor is */
    unsigned char *has_f32_contribution;        /* a fixed operator brings it a gradient */
    unsigned char *is_recomputed;               /* it is computed again for the backward pass */
    /* of the current plan */
    tandem_precision *resolved_precision; /* precisions as they were resolved last */
    tandem_dtype *gradient_dtype;         /* type in which a tensor's gradient is first written */
    unsigned char *reader_dtypes, *gradient_reader_dtypes; /* bit d: somebody reads it in type d */
    unsigned char *recompute_dtypes;                       /* the same, of what is computed again */
    uint64_t *active;                                      /* bit t: task t is active */
    tandem_reader *reader_node;                            /* [n_task × TANDEM_TASK_READS] */
    int *first_reader;                                     /* [n_value] a place, −1 = nobody reads it */
    /* of a change: operators whose type may change, as bits; stale operators; tasks that were stale or are
     * new; values whose lifetime may have changed */
    uint64_t *pending;
    int first_pending, last_pending; /* words */
    unsigned char *dirty;            /* [n_op] STALE_… */
    int *dirty_op, n_dirty;
    int *touched, n_touched;       /* tasks: [n_task], each once; until the next change is resolved */
    unsigned char *lifetime_dirty; /* [n_value] */
    int *dirty_value, n_dirty_value;
};

enum { WORD_BITS = 64 };

static inline const tandem_op_row *op_row_of(const tandem_step *step, int op) { return step->index->row[op]; }
static inline int input_tensor_of(const tandem_step *step, int op, int slot)
{
    return step->index->input_tensor[op * TANDEM_MAX_INPUT + slot];
}

/* The first active task from t on; n_task where there is none. */
static inline int next_active(const tandem_step *step, int t)
{
    const uint64_t *active = step->index->active;
    const int n_word = (step->n_task + WORD_BITS - 1) / WORD_BITS;
    int w = t / WORD_BITS;
    if (t >= step->n_task) return step->n_task;
    uint64_t word = active[w] >> t % WORD_BITS << t % WORD_BITS;
    while (!word) {
        if (++w == n_word) return step->n_task;
        word = active[w];
    }
    return w * WORD_BITS + __builtin_ctzll(word);
}

/* The type of operator `op` may change, or its precision has. */
static inline void mark_op_pending(struct tandem_step_index *index, int op)
{
    const int word = op / WORD_BITS;
    index->pending[word] |= (uint64_t)1 << op % WORD_BITS;
    if (word < index->first_pending) index->first_pending = word;
    if (word > index->last_pending) index->last_pending = word;
}

/* Whether an operator reads its weight in a copy of its own type. An embedding takes a few rows of its table,
 * and rounds those. */
static inline int uses_cast_weight(const tandem_op_row *row, tandem_op_kind kind)
{
    return row->op_class == TANDEM_ADJUSTABLE && row->n_parameter > 0 && kind != TANDEM_OP_EMBEDDING;
}

/* Whether one task brings the gradients of both inputs. A product's second one comes from its wgrad; labels
 * have none. */
static inline int computes_both_input_grads(const tandem_op_row *row)
{
    return row->n_input == 2 && row->dgrad == TANDEM_GRAD_TASK && row->wgrad == TANDEM_GRAD_FUSED;
}

/* Whether the backward pass reads input `slot`: of what is added to another, nothing is. */
static inline int op_saves_input(const tandem_op_row *row, int slot)
{
    return (row->saves & TANDEM_SAVES_INPUT) && (slot == 0 || row->n_parameter == 0);
}

/* Whether it reads tensor t, one of operator i's inputs. */
static inline int op_saves_tensor(const tandem_step *step, int i, int t)
{
    const tandem_op_row *row = op_row_of(step, i);
    for (int slot = 0; slot < row->n_input; slot++)
        if (input_tensor_of(step, i, slot) == t && op_saves_input(row, slot)) return 1;
    return 0;
}

/* Whether operator i has a wgrad task, a dgrad task, at all. */
static inline int has_wgrad(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    if (row->wgrad != TANDEM_GRAD_TASK || !op->needs_gradient) return 0;
    return row->n_parameter > 0 || row->n_input < 2 || graph->op[op->input[1]].needs_gradient;
}

static inline int has_dgrad(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    if (row->dgrad != TANDEM_GRAD_TASK || !op->needs_gradient) return 0;
    return graph->op[op->input[0]].needs_gradient || row->wgrad == TANDEM_GRAD_FUSED;
}

/* Whether kernels of operator i can add the gradient of an input to what is there: on every device, in every
 * precision. Products can: a 1x1 window without stride is one. */
static inline int can_accumulate_gradient(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    if (op->kind == TANDEM_OP_CONV2D)
        return op->kernel_h == 1 && op->kernel_w == 1 && op->stride == 1 && op->pad == 0;
    return op->kind == TANDEM_OP_LINEAR || op->kind == TANDEM_OP_MATMUL;
}

/* step_cut_segments (segments.c): cuts the graph into segments and finds what is computed again:
 * recompute_segment_begin and is_op_recomputed. Needs the lists of readers. Returns 0 without memory. Cost:
 * O(operators × segments). */
int step_cut_segments(tandem_step *step);

/* tandem_step_resolve_all: as tandem_step_resolve, of all operators, whatever changed: how a new program
 * begins. */
void tandem_step_resolve_all(tandem_step *step);

/* Value v's column-wise copy. */
static inline int step_transposed_copy(const tandem_step *step, int v)
{
    return step->index->n_untransposed + v;
}
static inline int step_has_transposed_copy(const tandem_step *step, int v)
{
    return v >= 0 && step->index->has_transposed_copy && step->index->has_transposed_copy[v];
}
/* The version in `type` of operator op's output that is computed again. */
static inline int step_recomputed_value(const tandem_step *step, int op, tandem_dtype type)
{
    return step->graph->n_op * BASIC_VALUES_PER_OP + op * EXTRA_VALUES_PER_OP + EXTRA_ACTIVATION + (int)type;
}
/* What a weight cast, a cast or a gradient cast to `type` writes; of one that runs again, what the first one
 * does. */
static inline int step_cast_value(const tandem_step *step, const tandem_task *task, tandem_dtype type)
{
    if (task->kind == TANDEM_TASK_WEIGHT_CAST) return tandem_value_weight(step, task->op, type);
    return task->kind == TANDEM_TASK_CAST ? tandem_value_activation(step, task->op, type)
                                          : tandem_value_gradient(step, task->op, type);
}

/* What a value is for. */
static inline tandem_memory_category step_value_category(const tandem_step *step, int id)
{
    static const tandem_memory_category activation[] = {
        [TANDEM_F32] = TANDEM_MEMORY_ACTIVATIONS_F32,   [TANDEM_BF16] = TANDEM_MEMORY_ACTIVATIONS_BF16,
        [TANDEM_S8] = TANDEM_MEMORY_ACTIVATIONS_S8,     [TANDEM_F16] = TANDEM_MEMORY_ACTIVATIONS_F16,
        [TANDEM_E4M3] = TANDEM_MEMORY_ACTIVATIONS_E4M3, [TANDEM_S32] = TANDEM_MEMORY_ACTIVATIONS_S32};
    const int n_op = step->graph->n_op, v = tandem_value_untransposed(step, id);
    if (v >= n_op * BASIC_VALUES_PER_OP) {
        const int role = (v - n_op * BASIC_VALUES_PER_OP) % EXTRA_VALUES_PER_OP;
        if (role >= EXTRA_WEIGHT_GRADIENT) return TANDEM_MEMORY_WEIGHT_GRADIENTS;
        return role == EXTRA_AUX ? TANDEM_MEMORY_SIDE_RESULTS : activation[step->value[v].dtype];
    }
    if (v >= n_op * VALUES_PER_OP) return TANDEM_MEMORY_WEIGHT_COPIES;
    const int role = v % VALUES_PER_OP;
    if (role == VALUE_AUX) return TANDEM_MEMORY_SIDE_RESULTS;
    if ((role >= VALUE_GRADIENT && role < VALUE_AUX) || role >= VALUE_CONTRIBUTION)
        return TANDEM_MEMORY_ACTIVATION_GRADIENTS;
    return activation[step->value[v].dtype];
}

/* Where a cast, weight cast or gradient cast to type `to` has its range from. */
static inline tandem_range_source step_range_source(const tandem_step *step, const tandem_task *task,
                                                    tandem_dtype to)
{
    if (tandem_dtype_bytes(to) != 1) return TANDEM_RANGE_FOUND;
    if (task->kind == TANDEM_TASK_CAST && op_row_of(step, task->op)->range > 0) return TANDEM_RANGE_KNOWN;
    return step->options.scaling.window > 0 ? TANDEM_RANGE_DELAYED : TANDEM_RANGE_FOUND;
}

/* What so many bytes take in the arena. */
enum { MEMORY_ALIGNMENT = 64 };
static inline uint64_t memory_padded(uint64_t bytes)
{
    return (bytes + MEMORY_ALIGNMENT - 1) & ~(uint64_t)(MEMORY_ALIGNMENT - 1);
}

/* What a type of the precision table is on the device of this step. */
static inline tandem_dtype device_dtype(const tandem_step *step, tandem_dtype dtype)
{
    return dtype == TANDEM_AMP ? step->amp_dtype : dtype;
}

#endif
