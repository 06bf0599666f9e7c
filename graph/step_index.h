/* step_index.h: the fixed structure behind a step program, shared by the files that lay it out, resolve it
 * and plan its memory. All arrays are [n_op] (or [n_op × TANDEM_MAX_INPUT] for edges); −1 = there is none. */
#ifndef TANDEM_GRAPH_STEP_INDEX_H
#define TANDEM_GRAPH_STEP_INDEX_H

#include "tandem/step.h"

/* Values of operator i begin at i·VALUES_AN_OP; activations and gradients have one version a type. */
enum {
    VALUE_ACTIVATION = 0,
    VALUE_GRADIENT = TANDEM_N_VERSION,
    VALUE_AUX = 2 * TANDEM_N_VERSION,
    VALUE_RESTORED, /* one an input */
    /* gradient of input k that still has to be summed */
    VALUE_CONTRIBUTION = VALUE_RESTORED + TANDEM_MAX_INPUT,
    VALUE_PARTIAL = VALUE_CONTRIBUTION + TANDEM_MAX_INPUT, /* sum of contributions so far */
    VALUES_AN_OP = VALUE_PARTIAL + TANDEM_MAX_INPUT,
    /* copies in other types than f32: its own, also where operators share a parameter */
    WEIGHTS_AN_OP = TANDEM_N_VERSION - 1
};

/* Behind all these, where there are micro-steps or segments, of operator i from n_op·FIRST_MORE +
 * i·MORE_AN_OP on: */
enum {
    FIRST_MORE = VALUES_AN_OP + WEIGHTS_AN_OP,
    MORE_ACTIVATION = 0,         /* computed again, one version a type */
    MORE_AUX = TANDEM_N_VERSION, /* the same */
    MORE_WEIGHT_GRADIENT,        /* of a micro-step, one a parameter */
    MORE_AN_OP = MORE_WEIGHT_GRADIENT + TANDEM_MAX_PARAMETER
};

enum {
    N_OP_ARRAY = 16,
    N_EDGE_ARRAY = 6,
    MOST_TASKS_AN_OP = 3 + 2 * TANDEM_N_VERSION + 2 * TANDEM_MAX_INPUT + 3,
    MORE_TASKS_AN_OP = 1 + TANDEM_N_VERSION + TANDEM_MAX_PARAMETER /* with micro-steps or segments */
};

/* What a change can make of an operator: tasks to resolve anew, in units that depend on the same types; needs
 * to gather anew. */
enum {
    STALE_FORWARD = 1,        /* its weight cast and its forward task, also when it runs again */
    STALE_CASTS = 2,          /* casts of its output, the same */
    STALE_GRADIENT_CASTS = 4, /* casts of its output gradient */
    STALE_BACKWARD = 8,       /* restore, weight cast, wgrad, dgrad */
    STALE_SUMS = 16,          /* its accumulate tasks */
    STALE_NEED = 32,          /* who reads its output in which type */
    STALE_GRADIENT_NEED = 64, /* … its output gradient */
    STALE_ALL = 127
};

/* A place in the list of those that read a value: read number k of task t is place TANDEM_TASK_READS·t + k.
 * */
typedef struct tandem_reader {
    int next, before; /* −1 = none */
} tandem_reader;

struct tandem_step_index {
    int *block;                /* holds all int arrays of operators, edges and parameters */
    const tandem_op_row **row; /* of each operator */
    int *source;               /* of an edge: the tensor whose memory is read */
    /* gradients: tensors stand for what they are views of */
    /* edges that bring a gradient, in backward order; edge = MAX_INPUT · consumer + slot */
    int *n_contribution, *last_edge;
    int *gradient_root; /* the tensor whose gradient memory holds this tensor's gradient */
    /* tasks */
    int *forward, *cast, *gradient_cast, *weight_cast, *restore, *backward_weight_cast, *wgrad, *dgrad;
    int *forward_again, *cast_again;
    int *segment_begin; /* of the operator that ends a segment to recompute, its first one; −1 = all others */
    int *sum;           /* [n_op × TANDEM_MAX_PARAMETER] over micro-steps */
    /* values with ids below are as casts and operators write them; from there on, their column-wise copies */
    int n_rowwise;
    /* [n_rowwise] the cast that writes it writes a column-wise copy, too; NULL: none does */
    unsigned char *has_columns;
    int *edge_place;  /* place of an edge among the contributions to its tensor */
    int *edge_before; /* the edge at the place before */
    int *accumulate;  /* of an edge whose place is not the first */
    int *bucket_of;   /* [n_parameter] */
    /* who a change reaches: CSR, both [n_op + 1] starts */
    int *reader_start, *reader;  /* operators, no reshapes, that read the tensor or a view of it; each once */
    int *member_start, *member;  /* operators whose gradient_root the tensor is */
    unsigned char *fixed_reader; /* a fixed operator brings it a gradient */
    unsigned char *is_again;     /* it is computed again for the backward pass */
    /* of the current plan */
    tandem_precision *resolved;                     /* precisions as they were resolved last */
    tandem_dtype *gradient_native;                  /* type in which a tensor's gradient is first written */
    unsigned char *activation_need, *gradient_need; /* bit d: somebody reads it in type d */
    unsigned char *again_need;                      /* the same, of what is computed again */
    uint64_t *active;                               /* bit t: task t is active */
    tandem_reader *read_place;                      /* [n_task × TANDEM_TASK_READS] */
    int *first_reader;                              /* [n_value] a place, −1 = nobody reads it */
    /* of a change: operators whose type may change, as bits; stale operators; tasks that were stale or are
     * new; values whose lifetime may have changed */
    uint64_t *pending;
    int first_pending, last_pending; /* words */
    unsigned char *stale;            /* [n_op] STALE_… */
    int *stale_op, n_stale;
    int *touched, n_touched; /* tasks: [n_task], each once; until the next change is resolved */
    unsigned char *is_loose; /* [n_value] */
    int *loose, n_loose;
};

enum { WORD_BITS = 64 };

static inline const tandem_op_row *row_of(const tandem_step *step, int op) { return step->index->row[op]; }
static inline int source_of(const tandem_step *step, int op, int slot)
{
    return step->index->source[op * TANDEM_MAX_INPUT + slot];
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
static inline void step_note(struct tandem_step_index *index, int op)
{
    const int word = op / WORD_BITS;
    index->pending[word] |= (uint64_t)1 << op % WORD_BITS;
    if (word < index->first_pending) index->first_pending = word;
    if (word > index->last_pending) index->last_pending = word;
}

/* Whether an operator reads its weight in a copy of its own type. An embedding takes a few rows of its table,
 * and rounds those. */
static inline int reads_copy(const tandem_op_row *row, tandem_op_kind kind)
{
    return row->op_class == TANDEM_ADJUSTABLE && row->n_parameter > 0 && kind != TANDEM_OP_EMBEDDING;
}

/* Whether one task brings the gradients of both inputs. A product's second one comes from its wgrad; labels
 * have none. */
static inline int brings_both(const tandem_op_row *row)
{
    return row->n_input == 2 && row->dgrad == TANDEM_BACKWARD_TASK && row->wgrad == TANDEM_BACKWARD_BESIDE;
}

/* Whether the backward pass reads input `slot`: of what is added to another, nothing is. */
static inline int saves_input(const tandem_op_row *row, int slot)
{
    return (row->saves & TANDEM_SAVES_INPUT) && (slot == 0 || row->n_parameter == 0);
}

/* Whether it reads tensor t, one of operator i's inputs. */
static inline int step_saves(const tandem_step *step, int i, int t)
{
    const tandem_op_row *row = row_of(step, i);
    for (int slot = 0; slot < row->n_input; slot++)
        if (source_of(step, i, slot) == t && saves_input(row, slot)) return 1;
    return 0;
}

/* Whether operator i has a wgrad task, a dgrad task, at all. */
static inline int has_wgrad(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    if (row->wgrad != TANDEM_BACKWARD_TASK || !op->needs_gradient) return 0;
    return row->n_parameter > 0 || row->n_input < 2 || graph->op[op->input[1]].needs_gradient;
}

static inline int has_dgrad(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    if (row->dgrad != TANDEM_BACKWARD_TASK || !op->needs_gradient) return 0;
    return graph->op[op->input[0]].needs_gradient || row->wgrad == TANDEM_BACKWARD_BESIDE;
}

/* Whether kernels of operator i can add the gradient of an input to what is there: on every device, in every
 * precision. Products can: a 1x1 window without stride is one. */
static inline int adds_gradient(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    if (op->kind == TANDEM_OP_CONV2D)
        return op->kernel_h == 1 && op->kernel_w == 1 && op->stride == 1 && op->pad == 0;
    return op->kind == TANDEM_OP_LINEAR || op->kind == TANDEM_OP_MATMUL;
}

/* step_cut (segments.c): cuts the graph into segments and finds what is computed again: segment_begin and
 * is_again. Needs the lists of readers. Returns 0 without memory. Cost: O(operators × segments). */
int step_cut(tandem_step *step);

/* tandem_step_resolve_all: as tandem_step_resolve, of all operators, whatever changed: how a new program
 * begins. */
void tandem_step_resolve_all(tandem_step *step);

/* Value v's column-wise copy. */
static inline int step_columnwise(const tandem_step *step, int v) { return step->index->n_rowwise + v; }
static inline int step_has_columns(const tandem_step *step, int v)
{
    return v >= 0 && step->index->has_columns && step->index->has_columns[v];
}
/* The version in `type` of operator op's output that is computed again. */
static inline int step_value_again(const tandem_step *step, int op, tandem_dtype type)
{
    return step->graph->n_op * FIRST_MORE + op * MORE_AN_OP + MORE_ACTIVATION + (int)type;
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
    const int n_op = step->graph->n_op, v = tandem_value_rowwise(step, id);
    if (v >= n_op * FIRST_MORE) {
        const int role = (v - n_op * FIRST_MORE) % MORE_AN_OP;
        if (role >= MORE_WEIGHT_GRADIENT) return TANDEM_MEMORY_WEIGHT_GRADIENTS;
        return role == MORE_AUX ? TANDEM_MEMORY_SIDE_RESULTS : activation[step->value[v].dtype];
    }
    if (v >= n_op * VALUES_AN_OP) return TANDEM_MEMORY_WEIGHT_COPIES;
    const int role = v % VALUES_AN_OP;
    if (role == VALUE_AUX) return TANDEM_MEMORY_SIDE_RESULTS;
    if ((role >= VALUE_GRADIENT && role < VALUE_AUX) || role >= VALUE_CONTRIBUTION)
        return TANDEM_MEMORY_ACTIVATION_GRADIENTS;
    return activation[step->value[v].dtype];
}

/* Where a cast, weight cast or gradient cast to type `to` has its range from. */
static inline tandem_range step_range(const tandem_step *step, const tandem_task *task, tandem_dtype to)
{
    if (tandem_dtype_bytes(to) != 1) return TANDEM_RANGE_FOUND;
    if (task->kind == TANDEM_TASK_CAST && row_of(step, task->op)->range > 0) return TANDEM_RANGE_KNOWN;
    return step->options.scaling.window > 0 ? TANDEM_RANGE_DELAYED : TANDEM_RANGE_FOUND;
}

/* What so many bytes take in the arena. */
enum { MEMORY_ALIGNMENT = 64 };
static inline uint64_t memory_padded(uint64_t bytes)
{
    return (bytes + MEMORY_ALIGNMENT - 1) & ~(uint64_t)(MEMORY_ALIGNMENT - 1);
}

/* What a type of the precision table is on the device of this step. */
static inline tandem_dtype device_type(const tandem_step *step, tandem_dtype dtype)
{
    return dtype == TANDEM_WIDER ? step->amp_dtype : dtype;
}

#endif
