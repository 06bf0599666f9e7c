/* types.h: which type an operator reads, writes and computes in, given the precisions: the rules that resolving a step
 * program and reasoning about all its precisions at once have in common. They read step->precision, step->native and
 * index->gradient_native, of the operators before i only unless they say otherwise. */
#ifndef TANDEM_GRAPH_TYPES_H
#define TANDEM_GRAPH_TYPES_H

#include "graph/step_index.h"

/* Type in which operator i writes its output. */
static inline tandem_dtype native_type(const tandem_step *step, int i)
{
    const tandem_op_row *row = row_of(step, i);
    if (row->op_class == TANDEM_ADJUSTABLE) return tandem_precision_get(step->precision[i])->output;
    if (row->op_class != TANDEM_DEPENDENT) return TANDEM_F32;
    for (int slot = 0; slot < row->n_input; slot++) {
        const int source = source_of(step, i, slot); /* labels are not numbers to follow */
        if (step->native[source] == TANDEM_F32 && step->graph->op[source].dtype == TANDEM_F32)
            return TANDEM_F32;
    }
    return TANDEM_BF16;
}

/* Type in which operator i reads its inputs. Its own native type must be known. */
static inline tandem_dtype operand_type(const tandem_step *step, int i)
{
    switch (row_of(step, i)->op_class) {
    case TANDEM_ADJUSTABLE: return tandem_precision_get(step->precision[i])->forward;
    case TANDEM_DEPENDENT: return step->native[i];
    default: return TANDEM_F32;
    }
}

/* Kernels of fixed operators write f32 gradients; all others write what their tensor wants, which is its own type unless
 * a fixed operator contributes. */
static inline int brings_f32_gradient(const tandem_op_row *row)
{
    return row->op_class == TANDEM_FIXED && row->dgrad == TANDEM_BACKWARD_TASK;
}

static inline tandem_dtype dgrad_type(const tandem_step *step, int i)
{
    switch (row_of(step, i)->op_class) {
    case TANDEM_ADJUSTABLE: return device_type(step, tandem_precision_get(step->precision[i])->dgrad);
    case TANDEM_DEPENDENT: return step->index->gradient_native[source_of(step, i, 0)];
    default: return TANDEM_F32;
    }
}

/* The gradient root of a bias comes behind it. */
static inline tandem_dtype wgrad_type(const tandem_step *step, int i)
{
    if (row_of(step, i)->op_class == TANDEM_ADJUSTABLE)
        return device_type(step, tandem_precision_get(step->precision[i])->wgrad);
    return step->index->gradient_native[step->index->gradient_root[i]]; /* bias: as it comes */
}

/* Variant of an operator's own task that writes type `to`. */
static inline int form_of(const tandem_step *step, int i, tandem_dtype to)
{
    const tandem_op_class op_class = row_of(step, i)->op_class;
    const int narrow = to == TANDEM_BF16;
    return op_class == TANDEM_ADJUSTABLE ? 2 * (int)step->precision[i] + narrow : narrow;
}

/* Variant of a cast or restore. */
static inline int cast_form(tandem_dtype from, tandem_dtype to)
{
    return (int)from * TANDEM_N_VERSION + (int)to;
}

#endif
