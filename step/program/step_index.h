/* step_index.h: the fixed structure of a step program, and the state of its incremental update. Arrays
 * are [n_op], or [n_op × TANDEM_MAX_INPUT] for edges; −1: there is none. An edge is an operator that reads a
 * tensor: edge = operator · TANDEM_MAX_INPUT + input slot. */
#pragma once

#include "base/arena.h"
#include "tandem/advanced/step.h"

enum {
    WORD_BITS = 64,
    MAX_TASKS_PER_OP = 3 + 2 * TANDEM_N_STORAGE_DTYPE + 2 * TANDEM_MAX_INPUT + 3,
    EXTRA_TASKS_PER_OP = 1 + TANDEM_N_STORAGE_DTYPE + TANDEM_MAX_PARAMETER /* micro-steps, recomputation */
};

/* What a change invalidates of an operator: units of tasks that depend on the same dtypes, and sets of
 * dtypes. */
enum {
    DIRTY_FORWARD = 1,                 /* its weight cast and its forward tasks */
    DIRTY_CASTS = 2,                   /* the casts of its output */
    DIRTY_GRADIENT_CASTS = 4,          /* the casts of its output gradient */
    DIRTY_BACKWARD = 8,                /* its saved casts, backward weight cast, wgrad and dgrad */
    DIRTY_SUMS = 16,                   /* its accumulate tasks */
    DIRTY_READER_DTYPES = 32,          /* in which dtypes its output is read */
    DIRTY_GRADIENT_READER_DTYPES = 64, /* in which dtypes its output gradient is read */
    DIRTY_ALL = 127
};

/* Which operators' forward tasks are in the list a second time: in the plans that need it. */
enum { RECOMPUTED_ALWAYS = 1, RECOMPUTED_WHERE_FUSED = 2 };

/* Consecutive linears of one tensor whose products may be one: their forward tasks lie side by side, and so
 * do their wgrads and dgrads. op: in the order of the graph. */
typedef struct step_products {
    int op[TANDEM_MAX_MERGED_PRODUCTS], n;
} step_products;

/* A node of the list of the reads of a value: read k of task t is node TANDEM_TASK_READS·t + k. */
typedef struct tandem_reader {
    int next, previous; /* −1: none */
} tandem_reader;

struct tandem_step_index {
    tandem_arena arena; /* holds every array of the step and of the index */
    int is_out_of_memory;
    const tandem_op_row **row;
    int *input_tensor; /* of an edge: the tensor whose memory is read: views are followed */
    /* gradients; of a view the tensor that it is a view of */
    int *n_contribution; /* edges along which a gradient of the tensor arrives */
    int *last_edge;      /* the last of them in backward order */
    int *edge_position;  /* of an edge among them */
    int *previous_edge;  /* the edge before it among them */
    int *gradient_root;  /* the tensor whose gradient memory holds this tensor's gradient */
    int *attention;      /* of the operators of an attention: its last one; NULL: the step fuses none */
    int64_t *padded_row; /* of a tensor: elements from one row to the next; 0: no gaps; NULL: nowhere */
    /* tasks; of casts to several dtypes, or of several inputs, the first */
    int *forward, *cast, *gradient_cast, *weight_cast, *saved_cast, *backward_weight_cast, *wgrad, *dgrad;
    int *recomputed_forward, *recomputed_cast;
    int *accumulate_task;         /* of an edge */
    int *sum;                     /* [n_op × TANDEM_MAX_PARAMETER] over micro-steps */
    int *recompute_segment_begin; /* of the last operator of a segment to recompute: the first one */
    int *bucket_of;               /* [n_parameter] */
    int *n_awaited;               /* [n_bucket] gradients that no task has completed yet */
    int n_reduced;                /* with products: buckets whose all-reduce is in the list */
    /* with merged_tasks, else NULL: */
    int *merged_before, *merged_after; /* whose forward task this one's may be merged with; its inverse */
    int *summed_transpose;             /* of a bias: the transpose whose dgrad its wgrad may be merged with */
    int *sums_before, *sums_after;     /* of such a transpose: the one whose sums come next to its; inverse */
    step_products *products;           /* [n_products] */
    int *products_of, n_products;      /* [n_op] of a linear */
    int *product_of_root;              /* [n_op] of a tensor: the linear whose output gradient it alone is */
    int *weight_cast_number;           /* weight casts before this one's in the list */
    unsigned char
        *writes_codes; /* [n_op] whose forward task a cast of its result to a byte may be merged with */
    int n_weight_cast;
    /* ids below are of values as operators and casts write them, the rest of their copies */
    int n_untransposed;
    unsigned char *has_transposed_copy; /* [n_untransposed] NULL: no value has */
    /* whom a change reaches: CSR, [n_op + 1] starts */
    int *reader_start, *reader;                 /* operators (no reshapes) that read the tensor or a view */
    int *gradient_group_start, *gradient_group; /* operators whose gradient_root the tensor is */
    unsigned char *has_f32_contribution;        /* a fixed operator computes a gradient of it */
    unsigned char *is_recomputed;               /* RECOMPUTED_…, 0 */
    /* of the current plan; sets of dtypes have bit d for dtype d */
    tandem_precision *resolved_precision; /* at the last resolve */
    tandem_dtype *gradient_dtype;         /* in which a tensor's gradient is first written */
    unsigned char *reader_dtypes, *gradient_reader_dtypes, *recompute_dtypes;
    tandem_reader *reader_node; /* [n_task × TANDEM_TASK_READS] */
    int *first_reader;          /* [n_value] a node */
    /* of a change */
    uint64_t *pending;               /* bit i: the output dtype of operator i may change */
    int first_pending, last_pending; /* words */
    unsigned char *dirty;            /* [n_op] DIRTY_… */
    int *dirty_op, n_dirty;
    unsigned char *lifetime_dirty; /* [n_value] */
    int *dirty_value, n_dirty_value;
};

static inline const tandem_op_row *op_row_of(const tandem_step *step, int op) { return step->index->row[op]; }
static inline int input_tensor_of(const tandem_step *step, int op, int slot)
{
    return step->index->input_tensor[op * TANDEM_MAX_INPUT + slot];
}

/* The products that operator i's may be merged with, with itself; NULL: none. */
static inline const step_products *products_with(const tandem_step *step, int i)
{
    const int which = step->index->products_of ? step->index->products_of[i] : -1;
    return which >= 0 ? &step->index->products[which] : NULL;
}

/* The output dtype of the operator may change, or its precision has. */
static inline void mark_op_pending(struct tandem_step_index *index, int op)
{
    const int word = op / WORD_BITS;
    index->pending[word] |= (uint64_t)1 << op % WORD_BITS;
    if (word < index->first_pending) index->first_pending = word;
    if (word > index->last_pending) index->last_pending = word;
}

/* Whether an operator reads its weight in a copy of its own dtype. An embedding reads a few rows and rounds
 * only those. */
static inline int uses_cast_weight(const tandem_op_row *row, tandem_op_kind kind)
{
    return row->op_class == TANDEM_ADJUSTABLE && row->n_parameter > 0 && kind != TANDEM_OP_EMBEDDING;
}

/* Whether one task computes the gradients of both inputs. A product's wgrad computes the second one; labels
 * have no gradient. */
static inline int computes_both_input_grads(const tandem_op_row *row)
{
    return row->n_input == 2 && row->dgrad == TANDEM_GRAD_TASK && row->wgrad == TANDEM_GRAD_FUSED;
}

/* Whether the backward pass reads input `slot`, besides labels. It reads neither input of a sum. */
static inline int op_saves_input(const tandem_op_row *row, int slot)
{
    const int is_alone = row->n_parameter > 0 || (row->saves & TANDEM_SAVES_AUX);
    return (row->saves & TANDEM_SAVES_INPUT) && (slot == 0 || !is_alone);
}

/* Whether it reads tensor t, an input of operator i. */
static inline int op_saves_tensor(const tandem_step *step, int i, int t)
{
    const tandem_op_row *row = op_row_of(step, i);
    for (int slot = 0; slot < row->n_input; slot++)
        if (input_tensor_of(step, i, slot) == t && op_saves_input(row, slot)) return 1;
    return 0;
}

/* Bytes of operator i's auxiliary results: of a loss that saves its logits two numbers of each row instead of
 * probabilities. */
static inline uint64_t aux_bytes_of(const tandem_step *step, int i)
{
    const tandem_op *op = &step->graph->op[i];
    if (i != step->graph->loss || !op_saves_input(op_row_of(step, i), 0)) return op->aux_bytes;
    return 2 * op->aux_bytes / (uint64_t)tandem_shape_last(&step->graph->op[op->input[0]].shape);
}

/* Whether operator i has a wgrad task, a dgrad task, in any plan. */
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

/* Whether kernels can add the gradient of an input to a sum in place, on every device and in every precision.
 * Products can; a 1x1 window with stride 1 is one. */
static inline int can_accumulate_gradient(const tandem_op *op)
{
    if (op->kind == TANDEM_OP_CONV2D) return tandem_conv2d_is_pointwise(op);
    return op->kind == TANDEM_OP_LINEAR || op->kind == TANDEM_OP_MATMUL;
}

/* The range source of a cast, weight cast or gradient cast to dtype `to`. */
static inline tandem_range_source step_range_source(const tandem_step *step, const tandem_task *task,
                                                    tandem_dtype to)
{
    if (tandem_dtype_bytes(to) != 1 || tandem_dtype_is_in_blocks(to)) return TANDEM_RANGE_FOUND;
    if (task->kind == TANDEM_TASK_CAST && op_row_of(step, task->op)->range > 0) return TANDEM_RANGE_KNOWN;
    return step->options.scaling.window > 0 ? TANDEM_RANGE_DELAYED : TANDEM_RANGE_FOUND;
}

/* Whether the copy of operator i's weight in `dtype` is transposed, and only that. cuDNN takes the weights of
 * a window so; a window of one place is a product of the weight as it lies. */
static inline int is_weight_transposed(const tandem_step *step, int i, tandem_dtype dtype)
{
    const tandem_op *op = &step->graph->op[i];
    return step->options.merged_tasks && step->options.transposed_copy && op->kind == TANDEM_OP_CONV2D &&
           !tandem_conv2d_is_pointwise(op) && dtype != TANDEM_F32 && tandem_dtype_bytes(dtype) > 1;
}

/* What a dtype of the precision table means on the device of this step. */
static inline tandem_dtype device_dtype(const tandem_step *step, tandem_dtype dtype)
{
    return dtype == TANDEM_AMP ? step->amp_dtype : dtype;
}

/* padded_rows.c: finds the tensors whose rows are padded. Needs the lists of readers. */
void step_find_padded_rows(tandem_step *step);
/* Of a tensor that an operator writes, with what lies between its rows. */
int64_t step_stored_elements(const tandem_step *step, int tensor);

/* attention.c: finds the attentions that one task may compute. Needs gradients and inputs. */
void step_find_attention(tandem_step *step);
/* Of the attention that ends with operator `mix`. */
tandem_attention step_attention_of(const tandem_graph *graph, int mix);

/* recompute.c: cuts the graph into segments and decides what is recomputed: recompute_segment_begin and
 * is_recomputed. Needs the lists of readers. Returns 0 without memory. Cost: O(operators × segments). */
int step_cut_segments(tandem_step *step);

/* dtypes.c. step_init_dtypes: of a new program: sets all dtypes, and marks every operator dirty.
 * step_update_dtypes: follows a change: sets the dtypes that depend on pending operators, and marks what they
 * invalidate. step_update_reader_dtypes: sets the sets of dtypes that are dirty. */
void step_init_dtypes(tandem_step *step);
void step_update_dtypes(tandem_step *step);
void step_update_reader_dtypes(tandem_step *step);

/* resolve.c: as tandem_step_resolve, of all operators of a new program. */
void step_resolve_all(tandem_step *step);
