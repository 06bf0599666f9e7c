/* study_gradient.h: what low precision does to the gradient, at weights that are held still: predicted by a
 * probe, and measured by emulation. */
#ifndef TANDEM_CLI_STUDY_GRADIENT_H
#define TANDEM_CLI_STUDY_GRADIENT_H

#include "cli/training_rank.h"
#include "tandem/advanced/format.h"

/* What of a linear operator is rounded: its input, its weight, the gradient of its output. */
typedef enum rounded_part { PART_INPUT, PART_WEIGHT, PART_GRADIENT, N_PART_OF_OPERATOR } rounded_part;
enum { STUDY_MAX_OPERATORS = 32 };

/* One rank with held weights, and the gradient of the last step. */
typedef struct held_model {
    cli_workload workload;
    training_rank rank;
    int n_op, op[STUDY_MAX_OPERATORS]; /* its linear operators */
    int64_t n_weight;
} held_model;

/* Opens options->model at its batch, with all linear operators in `precision`. */
tandem_status held_model_open(held_model *model, const cli_options *options, const char *precision,
                              tandem_error *error);
void held_model_close(held_model *model);
/* The gradient of batch `index`, [n_weight], parameter after parameter. */
tandem_status held_model_gradient(held_model *model, int64_t index, float *gradient, tandem_error *error);

/* Whether two of its operators read the same input, and so one rounded copy of it. */
int held_model_same_input(const held_model *model, int k, int other);

/* Sums of v·(directional difference)² of one replicate, [operator][part][format]: the expected square of
 * the error in the whole gradient, in the metric of SGD. */
typedef struct probe_sums {
    double sum[STUDY_MAX_OPERATORS][N_PART_OF_OPERATOR][TANDEM_N_FORMAT];
} probe_sums;

/* probe_predict: one replicate: batch `index`, random signs drawn by `seed`. Three gradients. weight:
 * [n_flat]. */
tandem_status probe_predict(probe_sums *sums, held_model *model, const float *weight, int64_t index,
                            uint64_t seed, tandem_error *error);

#endif
