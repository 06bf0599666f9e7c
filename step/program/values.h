/* values.h: the ids of values, which are arithmetic over operators, roles and dtypes. */
#pragma once

#include "step/program/step_index.h"

/* The values of operator i begin at i·VALUES_PER_OP; activations and gradients have one value per dtype. */
enum {
    VALUE_ACTIVATION = 0,
    VALUE_GRADIENT = TANDEM_N_STORAGE_DTYPE,
    VALUE_AUX = 2 * TANDEM_N_STORAGE_DTYPE,
    VALUE_SAVED_CAST,                                         /* one per input */
    VALUE_CONTRIBUTION = VALUE_SAVED_CAST + TANDEM_MAX_INPUT, /* term of a sum: the gradient of input k */
    VALUE_PARTIAL = VALUE_CONTRIBUTION + TANDEM_MAX_INPUT,    /* the sum so far */
    VALUES_PER_OP = VALUE_PARTIAL + TANDEM_MAX_INPUT,
    WEIGHT_COPIES_PER_OP = TANDEM_N_STORAGE_DTYPE - 1 /* in other dtypes than f32; never shared */
};

/* After all these come the values that only micro-steps or recomputation need; those of operator i begin at
 * n_op·BASIC_VALUES_PER_OP + i·EXTRA_VALUES_PER_OP. */
enum {
    BASIC_VALUES_PER_OP = VALUES_PER_OP + WEIGHT_COPIES_PER_OP,
    EXTRA_ACTIVATION = 0,               /* recomputed; one per dtype */
    EXTRA_AUX = TANDEM_N_STORAGE_DTYPE, /* recomputed */
    EXTRA_WEIGHT_GRADIENT,              /* of one micro-step; one per parameter */
    EXTRA_VALUES_PER_OP = EXTRA_WEIGHT_GRADIENT + TANDEM_MAX_PARAMETER
};

static inline int value_id(int op, int role, int slot) { return op * VALUES_PER_OP + role + slot; }
static inline int extra_value_id(const tandem_step *step, int op, int role, int slot)
{
    return step->graph->n_op * BASIC_VALUES_PER_OP + op * EXTRA_VALUES_PER_OP + role + slot;
}
static inline int activation_value(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    const int slot = dtype == TANDEM_S32 ? 0 : (int)dtype; /* tokens and labels have one dtype */
    return value_id(step->graph->view[tensor], VALUE_ACTIVATION, slot);
}
static inline int gradient_value(const tandem_step *step, int tensor, tandem_dtype dtype)
{
    return value_id(step->index->gradient_root[tensor], VALUE_GRADIENT, (int)dtype);
}
static inline int weight_value(const tandem_step *step, int op, tandem_dtype dtype)
{
    if (dtype == TANDEM_F32) return TANDEM_PARAMETER(step->graph->op[op].parameter[0]);
    return step->graph->n_op * VALUES_PER_OP + op * WEIGHT_COPIES_PER_OP + (int)dtype - 1;
}

/* Whether narrow copies of weights may lie in the memory of the weights' gradients, which nothing needs
 * before the backward pass writes them. Not where they are sums over micro-steps, nor where one launch casts
 * all weights, nor where an emulated copy has 4 bytes a number. */
static inline int step_copies_have_homes(const tandem_step *step)
{
    const tandem_step_options *options = &step->options;
    return options->copies_in_gradients && !options->merged_tasks && options->n_micro <= 1 &&
           !options->separate_partial_grads && !options->emulated;
}

/* Whether a linear or conv2d is the first to write the gradient of its weight. */
static inline int step_is_written_by(const tandem_graph *graph, int op)
{
    const tandem_op *of = &graph->op[op];
    if (of->kind != TANDEM_OP_LINEAR && of->kind != TANDEM_OP_CONV2D) return 0;
    const tandem_parameter *weight = &graph->parameter[of->parameter[0]];
    return (weight->tied >= 0 ? weight->tied : weight->op) == op;
}

/* tandem_memory_plan of a graph that another framework runs (recorded_memory.c); all 0 where what it
 * allocates is not known. Cost: O(blocks + events + readers). */
tandem_status step_recorded_memory_plan(tandem_memory *memory, const tandem_step *step, int64_t *offset,
                                        int64_t *workspace_offset, tandem_error *error);

/* The byte of the gradients' array from which value v lies there, a copy of a weight that is read for the
 * last time before the weight's gradient is written. −1: v lies in the arena. */
int64_t step_home_of_copy(const tandem_step *step, int v);

/* The inverse, of a copy. */
static inline tandem_dtype weight_dtype(const tandem_step *step, int v)
{
    return (tandem_dtype)((v - step->graph->n_op * VALUES_PER_OP) % WEIGHT_COPIES_PER_OP + 1);
}

/* The transposed copy of value v; whether the cast that writes v also writes that copy. */
static inline int transposed_value(const tandem_step *step, int v) { return step->index->n_untransposed + v; }
static inline int has_transposed_value(const tandem_step *step, int v)
{
    return v >= 0 && step->index->has_transposed_copy && step->index->has_transposed_copy[v];
}

/* What a weight cast, a cast or a gradient cast to `to` writes; a recomputed cast: what the first one
 * writes. */
int step_cast_value(const tandem_step *step, const tandem_task *task, tandem_dtype to);
tandem_memory_category step_value_category(const tandem_step *step, int value);

/* What so many bytes take in the arena. */
enum { MEMORY_ALIGNMENT = 64 };
static inline uint64_t padded_bytes(uint64_t bytes)
{
    return (bytes + MEMORY_ALIGNMENT - 1) & ~(uint64_t)(MEMORY_ALIGNMENT - 1);
}

/* The byte of a weight's gradient from which a copy of that many bytes lies there: one of two bytes a number
 * at its begin, one of one byte after that, since an operator may have both. −1: there is no room. */
static inline int64_t step_place_in_gradient(int64_t elements, uint64_t bytes)
{
    const uint64_t n = (uint64_t)elements, from = bytes <= n ? padded_bytes(2 * n) : 0;
    return from + bytes <= n * sizeof(float) ? (int64_t)from : -1;
}
