/* step_index.h: the fixed structure behind a step program, shared by the files that lay it out, resolve it and plan its
 * memory. All arrays are [n_op] (or [n_op × TANDEM_MAX_INPUT] for edges); −1 = there is none. */
#ifndef TANDEM_GRAPH_STEP_INDEX_H
#define TANDEM_GRAPH_STEP_INDEX_H

#include "tandem/step.h"

/* Values of operator i begin at i·VALUES_AN_OP; activations and gradients have one version a type. */
enum {
    VALUE_ACTIVATION = 0,
    VALUE_GRADIENT = TANDEM_N_VERSION,
    VALUE_AUX = 2 * TANDEM_N_VERSION,
    VALUE_RESTORED,                                         /* one an input */
    VALUE_CONTRIBUTION = VALUE_RESTORED + TANDEM_MAX_INPUT, /* gradient of input k that still has to be summed */
    VALUE_PARTIAL = VALUE_CONTRIBUTION + TANDEM_MAX_INPUT, /* sum of contributions so far */
    VALUES_AN_OP = VALUE_PARTIAL + TANDEM_MAX_INPUT,
    WEIGHTS_AN_OP = TANDEM_N_VERSION - 1 /* copies in bf16 and s8: its own, also where operators share a parameter */
};

enum {
    N_OP_ARRAY = 12,
    N_EDGE_ARRAY = 2,
    MOST_TASKS_AN_OP = 3 + 2 * TANDEM_N_VERSION + 2 * TANDEM_MAX_INPUT + 3
};

struct tandem_step_index {
    int *block; /* holds all int arrays below */
    /* gradients: tensors stand for what they are views of */
    int *n_contribution, *first_consumer; /* edges that bring a gradient, in backward order */
    int *sum_so_far;    /* while resolving: the value that holds the sum of the contributions so far */
    int *gradient_root; /* the tensor whose gradient memory holds this tensor's gradient */
    /* tasks */
    int *forward, *cast, *gradient_cast, *weight_cast, *restore, *backward_weight_cast, *wgrad, *dgrad;
    int *edge_place; /* place of edge (consumer, slot) among the contributions to its tensor */
    int *accumulate; /* of an edge whose place is not the first */
    int *bucket_of;  /* [n_parameter] */
    /* of the current plan, filled by tandem_step_resolve */
    tandem_dtype *gradient_native;                  /* type in which a tensor's gradient is first written */
    unsigned char *activation_need, *gradient_need; /* bit d: somebody reads it in type d */
};

/* What a type of the precision table is on the device of this step. */
static inline tandem_dtype device_type(const tandem_step *step, tandem_dtype dtype)
{
    return dtype == TANDEM_WIDER ? step->wider : dtype;
}

#endif
