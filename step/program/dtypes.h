/* dtypes.h: in which dtype an operator reads, computes and writes, given the precisions. resolve.c and
 * state_space.c share these rules. They read step->precision, step->output_dtype and index->gradient_dtype,
 * of operators before i only unless they say otherwise. */
#pragma once

#include "step/program/step_index.h"

/* The dtypes in which operators write their outputs, by their index in a variant. */
enum { N_OUTPUT_DTYPE = 3 };
static inline tandem_dtype output_dtype_at(int index)
{
    return index == 0 ? TANDEM_F32 : index == 1 ? TANDEM_BF16 : TANDEM_F16;
}
static inline int output_dtype_index(tandem_dtype type)
{
    return type == TANDEM_F32 ? 0 : type == TANDEM_BF16 ? 1 : 2;
}

static inline unsigned dtype_bit(tandem_dtype dtype) { return 1u << dtype; }

/* --- Attention that is one task ---- */

/* The last operator of the attention that operator i is part of; −1: of none that may be fused. */
static inline int attention_of(const tandem_step *step, int i)
{
    return step->index->attention ? step->index->attention[i] : -1;
}

static inline int attention_scores_of(const tandem_graph *graph, int mix)
{
    const int p = graph->op[mix].input[0];
    return graph->op[graph->op[p].kind == TANDEM_OP_DROPOUT ? graph->op[p].input[0] : p].input[0];
}

static inline int is_attention_precision(const tandem_step *step, tandem_precision precision)
{
    return (step->options.fused_attention & TANDEM_ATTENTION_PRECISIONS) >> precision & 1;
}

/* Whether the current precisions fuse the operators of operator i's attention: both products have one
 * precision, which kernels of attention take. */
static inline int is_fused(const tandem_step *step, int i)
{
    const int mix = attention_of(step, i);
    return mix >= 0 && is_attention_precision(step, step->precision[mix]) &&
           step->precision[mix] == step->precision[attention_scores_of(step->graph, mix)];
}

/* Whether operator i is fused into a later one, which has its tasks: its result is nowhere in memory. */
static inline int is_fused_into_later(const tandem_step *step, int i)
{
    return is_fused(step, i) && attention_of(step, i) != i;
}

/* Whether the current precisions run operator i's forward task a second time. */
static inline int is_recomputed_now(const tandem_step *step, int i)
{
    const int when = step->index->is_recomputed[i];
    return when == RECOMPUTED_ALWAYS || (when == RECOMPUTED_WHERE_FUSED && is_fused(step, i));
}

static inline const tandem_precision_row *precision_row_of(const tandem_step *step, int i)
{
    return tandem_precision_get(step->precision[i]);
}

/* Whether operator i reads its logits in the dtype in which they are written, and writes an f32 loss: a
 * cross-entropy on devices with narrow_rows. Other dependent operators read what they write. */
static inline int is_narrow_loss(const tandem_step *step, int i)
{
    return op_row_of(step, i)->op_class == TANDEM_DEPENDENT &&
           step->graph->op[i].kind == TANDEM_OP_CROSS_ENTROPY;
}

/* In which operator i writes its output: a dependent one in the dtype of its inputs, f32 where they
 * differ. */
static inline tandem_dtype output_dtype_of(const tandem_step *step, int i)
{
    const tandem_op_row *row = op_row_of(step, i);
    if (row->op_class == TANDEM_ADJUSTABLE) return precision_row_of(step, i)->output;
    if (row->op_class != TANDEM_DEPENDENT || is_narrow_loss(step, i)) return TANDEM_F32;
    tandem_dtype type = TANDEM_F32;
    for (int slot = 0, seen = 0; slot < row->n_input; slot++) {
        const int source = input_tensor_of(step, i, slot);
        if (step->graph->op[source].dtype != TANDEM_F32) continue; /* labels decide no dtype */
        if (seen && step->output_dtype[source] != type) return TANDEM_F32;
        type = step->output_dtype[source];
        seen = 1;
    }
    return type;
}

/* In which operator i reads its inputs. Its own output dtype must be known. */
static inline tandem_dtype forward_dtype_of(const tandem_step *step, int i)
{
    switch (op_row_of(step, i)->op_class) {
    case TANDEM_ADJUSTABLE: return precision_row_of(step, i)->forward;
    case TANDEM_DEPENDENT:
        return step->output_dtype[is_narrow_loss(step, i) ? input_tensor_of(step, i, 0) : i];
    default: return TANDEM_F32;
    }
}

/* Kernels of fixed operators write f32 gradients. All others write the gradient dtype of their input: its
 * output dtype, or f32 where a fixed operator computes a gradient of it too. */
static inline int writes_f32_gradient(const tandem_op_row *row)
{
    return row->op_class == TANDEM_FIXED && row->dgrad == TANDEM_GRAD_TASK;
}

/* In which operator i's dgrad computes. Gradients of two inputs may have two dtypes. A task that computes
 * both uses the output dtype, which holds either without rounding. */
static inline tandem_dtype dgrad_dtype_of(const tandem_step *step, int i)
{
    switch (op_row_of(step, i)->op_class) {
    case TANDEM_ADJUSTABLE: return device_dtype(step, precision_row_of(step, i)->dgrad);
    case TANDEM_DEPENDENT:
        return computes_both_input_grads(op_row_of(step, i))
                   ? step->output_dtype[i]
                   : step->index->gradient_dtype[input_tensor_of(step, i, 0)];
    default: return TANDEM_F32;
    }
}

/* In which the backward pass of an operator that saves its input reads it. */
static inline tandem_dtype saved_dtype_of(const tandem_step *step, int i)
{
    return op_row_of(step, i)->op_class == TANDEM_DEPENDENT ? dgrad_dtype_of(step, i)
                                                            : forward_dtype_of(step, i);
}

/* Of the operand of a backward product that is not the gradient. */
static inline tandem_dtype other_operand_dtype_of(const tandem_step *step, int i)
{
    return device_dtype(step, precision_row_of(step, i)->other_operand_dtype);
}

/* In which operator i's wgrad reads the gradient. The gradient root of a bias comes after it. */
static inline tandem_dtype wgrad_dtype_of(const tandem_step *step, int i)
{
    if (op_row_of(step, i)->op_class == TANDEM_ADJUSTABLE)
        return device_dtype(step, precision_row_of(step, i)->wgrad);
    return step->index->gradient_dtype[step->index->gradient_root[i]]; /* a bias: any dtype */
}

/* The variant of an operator's own task that writes dtype `to`. */
static inline int op_variant_of(const tandem_step *step, int i, tandem_dtype to)
{
    const tandem_op_class op_class = op_row_of(step, i)->op_class;
    const int index = output_dtype_index(to);
    return op_class == TANDEM_ADJUSTABLE ? N_OUTPUT_DTYPE * (int)step->precision[i] + index : index;
}

/* The variant of its forward task: that of the dtype it writes, of a loss that of the dtype it reads. */
static inline int forward_variant(const tandem_step *step, int i)
{
    return op_variant_of(step, i,
                         is_narrow_loss(step, i) ? forward_dtype_of(step, i) : step->output_dtype[i]);
}

/* In which operator i's dgrad writes the gradient of its first input. */
static inline tandem_dtype dgrad_output_dtype(const tandem_step *step, int i)
{
    return op_row_of(step, i)->op_class == TANDEM_FIXED
               ? TANDEM_F32
               : step->index->gradient_dtype[input_tensor_of(step, i, 0)];
}

/* The variant of its dgrad. The cost of one that computes two gradients depends on the dtype it computes
 * in. */
static inline int dgrad_variant(const tandem_step *step, int i)
{
    const int is_both = computes_both_input_grads(op_row_of(step, i));
    return op_variant_of(step, i, is_both ? dgrad_dtype_of(step, i) : dgrad_output_dtype(step, i));
}

/* The variants of an attention's tasks come after those of its last operator: of the gradients of q, k and
 * v, which may have several dtypes, the first decides the cost. */
enum { N_ATTENTION_PRECISION = 3 };
static const tandem_precision attention_precision[N_ATTENTION_PRECISION] = {
    TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP16, TANDEM_PRECISION_FP32};
static inline int attention_precision_index(tandem_precision precision)
{
    return precision == TANDEM_PRECISION_BF16 ? 0 : precision == TANDEM_PRECISION_FP16 ? 1 : 2;
}
static inline int attention_variant(tandem_precision precision, tandem_dtype to)
{
    return TANDEM_ATTENTION_VARIANT + N_OUTPUT_DTYPE * attention_precision_index(precision) +
           output_dtype_index(to);
}
static inline tandem_precision attention_variant_precision(int variant)
{
    return attention_precision[(variant - TANDEM_ATTENTION_VARIANT) / N_OUTPUT_DTYPE];
}

/* The variant of a cast, which is from an output dtype, or of a saved cast, which is from s8 to one: no other
 * precision saves what its backward products do not read. */
enum { SAVED_CAST_VARIANT = N_OUTPUT_DTYPE * TANDEM_N_STORAGE_DTYPE };
static inline int cast_variant(tandem_dtype from, tandem_dtype to)
{
    return from == TANDEM_S8 ? SAVED_CAST_VARIANT + output_dtype_index(to)
                             : output_dtype_index(from) * TANDEM_N_STORAGE_DTYPE + (int)to;
}
_Static_assert((int)TANDEM_ATTENTION_VARIANT == N_OUTPUT_DTYPE * (int)TANDEM_N_PRECISION,
               "variants of an operator");
_Static_assert((int)TANDEM_MAX_VARIANT ==
                   (int)TANDEM_ATTENTION_VARIANT + (int)N_OUTPUT_DTYPE * (int)N_ATTENTION_PRECISION,
               "variants of an attention");
_Static_assert((int)TANDEM_MAX_VARIANT >= SAVED_CAST_VARIANT + N_OUTPUT_DTYPE, "variants of casts");
