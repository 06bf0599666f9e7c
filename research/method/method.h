/* method.h: methods that put operators into an order, for `tandem-study rank`. */
#ifndef TANDEM_RESEARCH_METHOD_H
#define TANDEM_RESEARCH_METHOD_H

#include "tandem/advanced/predictor.h"

/* What a method needs; decides its cost in steps. */
typedef enum rank_needs {
    RANK_NEEDS_NOTHING,
    RANK_NEEDS_STATISTICS,      /* of some batches */
    RANK_NEEDS_PROBE,           /* three gradients a batch, for all operators and precisions */
    RANK_NEEDS_ESTIMATED_PROBE, /* an estimate by a probe: a few pairs of gradients, for all of them */
    RANK_NEEDS_ESTIMATE         /* two gradients an operator, precision and replicate */
} rank_needs;

/* What a probe says of an operator, the mean over its replicates; NaN: nothing. */
typedef struct rank_probe {
    double noise; /* the expected square of the error in the whole gradient, in percent of its square */
    double trace; /* of the Hessian over its weight */
} rank_probe;

typedef struct rank_input {
    const tandem_graph *graph;
    const int *op; /* [n_op] those that are put into an order, ascending */
    int n_op;
    tandem_precision precision;
    const tandem_statistics *statistics; /* [graph->n_op] */
    const rank_probe *probe;             /* [n_op] */
    uint64_t draw;                       /* of numbers at random */
} rank_input;

typedef struct rank_method {
    const char *name, *unit;
    rank_needs needs;
    /* Of operator input->op[k]; larger: more sensitive; NaN: it cannot say. NULL: a method of --sensitivity,
     * by its name, or the part of it that an estimate gives. */
    double (*compute)(const rank_input *input, int k);
} rank_method;

extern const rank_method rank_method_probe, rank_method_local, rank_method_hutchinson, rank_method_taylor_mse,
    rank_method_snip_r, rank_method_qsync_theory, rank_method_weight_error, rank_method_magnitude,
    rank_method_ends, rank_method_random;
/* All, in the order of the tables. */
enum { RANK_N_METHOD = 15 };
extern const rank_method *const rank_methods[RANK_N_METHOD];
int rank_method_find(const char *name); /* its index */
const char *rank_needs_name(rank_needs needs);

/* Expected squared errors per element of an operator's operands: input, weight, gradient of the output. A
 * precision rounds the first two to its forward dtype, the third to that of the weight's gradient. */
typedef struct rank_variances {
    double x, w, g;
} rank_variances;
rank_variances rank_variances_of(const rank_input *input, int k);

#endif
