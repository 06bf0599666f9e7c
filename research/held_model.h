/* held_model.h: a model whose weights stay while gradients are taken. */
#ifndef TANDEM_RESEARCH_HELD_MODEL_H
#define TANDEM_RESEARCH_HELD_MODEL_H

#include "cli/cli.h"
#include "runtime/train/training_rank.h"

enum { STUDY_MAX_OPERATORS = 64 };

/* One rank with held weights, and the gradient of the last step. */
typedef struct held_model {
    tandem_workload workload;
    training_rank rank;
    int n_op, op[STUDY_MAX_OPERATORS]; /* the first adjustable ones */
    int64_t n_weight;
} held_model;

/* Opens options->model at its batch, in fp32. */
tandem_status held_model_open(held_model *model, const cli_options *options, tandem_error *error);
void held_model_close(held_model *model);
/* The gradient of batch `index`, [n_weight], parameter after parameter. */
tandem_status held_model_gradient(held_model *model, int64_t index, float *gradient, tandem_error *error);

/* Weights at one point of a training. */
typedef struct held_weights {
    float *weight; /* [n_flat] */
    float *metric; /* [n_weight] in which AdamW steps; NULL: 1, of SGD, and of step 0 */
} held_weights;
/* held_weights_train: trains options->model in fp32 to the last of n_point ascending training points. The
 * caller frees all n_point with held_weights_free, after errors too; they begin as all zero. */
tandem_status held_weights_train(held_weights *at, const int64_t *point, int n_point,
                                 const cli_options *options, tandem_error *error);
void held_weights_free(held_weights *at, int n_point);

#endif
