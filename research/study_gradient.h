/* study_gradient.h: what low precision does to the gradient, at weights that are held still: predicted by a
 * probe, and measured by emulation. */
#ifndef TANDEM_RESEARCH_GRADIENT_H
#define TANDEM_RESEARCH_GRADIENT_H

#include "cli/cli.h"
#include "runtime/train/training_rank.h"
#include "tandem/advanced/format.h"

/* What of an operator is rounded: its input, its weight or second input, the gradient of its output. */
typedef enum rounded_part {
    PART_INPUT,
    PART_WEIGHT,
    PART_GRADIENT,
    N_PART_OF_OPERATOR,               /* those of the oracle */
    PART_RESULT = N_PART_OF_OPERATOR, /* rounded when it is written; the probe knows it, too */
    N_PROBED_PART
} rounded_part;
enum { STUDY_MAX_OPERATORS = 64 };

/* One rank with held weights, and the gradient of the last step. */
typedef struct held_model {
    tandem_workload workload;
    training_rank rank;
    int n_op, op[STUDY_MAX_OPERATORS]; /* the first adjustable ones */
    int64_t n_weight;
} held_model;

/* Opens options->model at its batch, with all operators in `precision`. */
tandem_status held_model_open(held_model *model, const cli_options *options, const char *precision,
                              tandem_error *error);
void held_model_close(held_model *model);
int held_model_is_linear(const held_model *model, int k);
/* The gradient of batch `index`, [n_weight], parameter after parameter. */
tandem_status held_model_gradient(held_model *model, int64_t index, float *gradient, tandem_error *error);

/* Whether two of its operators read the same input, and so one rounded copy of it. */
int held_model_same_input(const held_model *model, int k, int other);

/* Weights at one age of a training. */
typedef struct held_weights {
    float *weight; /* [n_flat] */
    float *metric; /* [n_weight] in which AdamW steps; NULL: 1, of SGD, and of step 0 */
} held_weights;
/* held_weights_train: trains options->model in fp32 to the last of n_age ascending ages. The caller frees all
 * n_age with held_weights_free, after errors too; they begin as all zero. */
tandem_status held_weights_train(held_weights *at, const int64_t *age, int n_age, const cli_options *options,
                                 tandem_error *error);
void held_weights_free(held_weights *at, int n_age);

/* What one replicate of a probe sees. */
typedef struct probe_sums {
    /* Sums of v·(directional difference)², [operator][part][format]: the expected square of the error in the
     * whole gradient, in the metric. 0: indices, which are not rounded. */
    double sum[STUDY_MAX_OPERATORS][N_PROBED_PART][TANDEM_N_FORMAT];
    double trace[STUDY_MAX_OPERATORS]; /* of the Hessian over the operator's weight; NaN: it has none */
    double square;                     /* of the gradient at the weights, in the metric */
} probe_sums;

typedef struct probe_request {
    const held_weights *at; /* whose metric is that of the squares */
    int64_t index;          /* of the batch */
    uint64_t seed;          /* of the signs */
    uint32_t formats;       /* whose sums are wanted, 1 << tandem_format; 0: all. The others are 0 */
    int is_alone; /* 1: each operator reads a rounded copy of its own; 0: operators with one input share it */
} probe_request;
/* probe_predict: one replicate. Three gradients. */
tandem_status probe_predict(probe_sums *sums, held_model *model, const probe_request *request,
                            tandem_error *error);

#endif
