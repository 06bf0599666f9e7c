/* probe.h: the noise that rounding puts into the whole gradient, by a probe at held weights: what the methods
 * `probe` and `hutchinson` of `tandem-study rank` rest on. */
#ifndef TANDEM_RESEARCH_PROBE_H
#define TANDEM_RESEARCH_PROBE_H

#include "research/held_model.h"
#include "tandem/advanced/format.h"

/* What of an operator is rounded: its input, its weight or second input, the gradient of its output, and its
 * result, when it is written. */
typedef enum rounded_part { PART_INPUT, PART_WEIGHT, PART_GRADIENT, PART_RESULT, N_PROBED_PART } rounded_part;

/* What one replicate of a probe sees. Each operator reads a rounded copy of its own. */
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
} probe_request;
/* probe_predict: one replicate. Three gradients. */
tandem_status probe_predict(probe_sums *sums, held_model *model, const probe_request *request,
                            tandem_error *error);

#endif
