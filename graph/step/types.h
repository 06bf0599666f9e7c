/* types.h: which type an operator reads, writes and computes in, given the precisions: the rules that
 * resolving a step program and reasoning about all its precisions at once have in common. They read
 * step->precision, step->native and index->gradient_dtype, of the operators before i only unless they say
 * otherwise. */
#ifndef TANDEM_GRAPH_TYPES_H
#define TANDEM_GRAPH_TYPES_H

#include "graph/step/step_index.h"

/* The types in which operators write their outputs, by their place in a variant. */
enum { N_OUTPUT_DTYPE = 3 };
static inline tandem_dtype output_dtype_at(int place)
{
    return place == 0 ? TANDEM_F32 : place == 1 ? TANDEM_BF16 : TANDEM_F16;
}
static inline int output_dtype_index(tandem_dtype type)
{
    return type == TANDEM_F32 ? 0 : type == TANDEM_BF16 ? 1 : 2;
}

/* Type in which operator i writes its output. */
static inline tandem_dtype output_dtype_of(const tandem_step *step, int i)
{
    const tandem_op_row *row = op_row_of(step, i);
    if (row->op_class == TANDEM_ADJUSTABLE) return tandem_precision_get(step->precision[i])->output;
    if (row->op_class != TANDEM_DEPENDENT) return TANDEM_F32;
    tandem_dtype type = TANDEM_F32;
    for (int slot = 0, seen = 0; slot < row->n_input; slot++) {
        const int source = input_tensor_of(step, i, slot);
        if (step->graph->op[source].dtype != TANDEM_F32) continue; /* labels are not numbers to follow */
        if (seen && step->output_dtype[source] != type) return TANDEM_F32;
        type = step->output_dtype[source];
        seen = 1;
    }
    return type;
}

/* Type in which operator i reads its inputs. Its own native type must be known. */
static inline tandem_dtype forward_dtype_of(const tandem_step *step, int i)
{
    switch (op_row_of(step, i)->op_class) {
    case TANDEM_ADJUSTABLE: return tandem_precision_get(step->precision[i])->forward;
    case TANDEM_DEPENDENT: return step->output_dtype[i];
    default: return TANDEM_F32;
    }
}

/* Kernels of fixed operators write f32 gradients; all others write what their tensor wants, which is its own
 * type unless a fixed operator contributes. */
static inline int writes_f32_gradient(const tandem_op_row *row)
{
    return row->op_class == TANDEM_FIXED && row->dgrad == TANDEM_GRAD_TASK;
}

/* The gradients of two inputs may have two types: what brings both works in that of the forward pass, the
 * wider one, so that neither is rounded on the way to the other. */
static inline tandem_dtype dgrad_dtype_of(const tandem_step *step, int i)
{
    switch (op_row_of(step, i)->op_class) {
    case TANDEM_ADJUSTABLE: return device_dtype(step, tandem_precision_get(step->precision[i])->dgrad);
    case TANDEM_DEPENDENT:
        return computes_both_input_grads(op_row_of(step, i))
                   ? step->output_dtype[i]
                   : step->index->gradient_dtype[input_tensor_of(step, i, 0)];
    default: return TANDEM_F32;
    }
}

/* Type in which the backward pass of an operator that saves its input reads it. */
static inline tandem_dtype saved_dtype_of(const tandem_step *step, int i)
{
    return op_row_of(step, i)->op_class == TANDEM_DEPENDENT ? dgrad_dtype_of(step, i)
                                                            : forward_dtype_of(step, i);
}

/* Of the operand of a backward product that is no gradient. */
static inline tandem_dtype other_operand_dtype_of(const tandem_step *step, int i)
{
    return device_dtype(step, tandem_precision_get(step->precision[i])->other_operand_dtype);
}

/* The gradient root of a bias comes behind it. */
static inline tandem_dtype wgrad_dtype_of(const tandem_step *step, int i)
{
    if (op_row_of(step, i)->op_class == TANDEM_ADJUSTABLE)
        return device_dtype(step, tandem_precision_get(step->precision[i])->wgrad);
    return step->index->gradient_dtype[step->index->gradient_root[i]]; /* bias: as it comes */
}

/* Variant of an operator's own task that writes type `to`. */
static inline int op_variant_of(const tandem_step *step, int i, tandem_dtype to)
{
    const tandem_op_class op_class = op_row_of(step, i)->op_class;
    const int place = output_dtype_index(to);
    return op_class == TANDEM_ADJUSTABLE ? N_OUTPUT_DTYPE * (int)step->precision[i] + place : place;
}

/* Type in which operator i's dgrad writes the gradient of its first input. */
static inline tandem_dtype dgrad_output_dtype(const tandem_step *step, int i)
{
    return op_row_of(step, i)->op_class == TANDEM_FIXED
               ? TANDEM_F32
               : step->index->gradient_dtype[input_tensor_of(step, i, 0)];
}

/* Variant of its dgrad. One that brings two gradients costs by the type in which it computes, whatever
 * theirs. */
static inline int dgrad_variant(const tandem_step *step, int i)
{
    return op_variant_of(step, i,
                         computes_both_input_grads(op_row_of(step, i)) ? dgrad_dtype_of(step, i)
                                                                       : dgrad_output_dtype(step, i));
}

/* Variant of a cast, which is from a native type, or of a restore, from s8 to one: no other precision saves
 * what its backward products do not read. */
enum { SAVED_CAST_VARIANT = N_OUTPUT_DTYPE * TANDEM_N_STORAGE_DTYPE };
static inline int cast_variant(tandem_dtype from, tandem_dtype to)
{
    return from == TANDEM_S8 ? SAVED_CAST_VARIANT + output_dtype_index(to)
                             : output_dtype_index(from) * TANDEM_N_STORAGE_DTYPE + (int)to;
}
_Static_assert((int)TANDEM_MAX_VARIANT == N_OUTPUT_DTYPE * (int)TANDEM_N_PRECISION, "forms of an operator");
_Static_assert((int)TANDEM_MAX_VARIANT >= SAVED_CAST_VARIANT + N_OUTPUT_DTYPE, "forms of casts");

#endif
