/* probe_direction.h: random directions over the parameters of a model.
 *
 * A direction is z with E zzᵀ = the optimizer's metric: signs times the metric's root. Of a large parameter
 * it has one block of 16 numbers in each group of s blocks, drawn again in each group, times √s: E zzᵀ stays,
 * and a direction costs an s-th of a pass over the weights. What it adds to the variance: (zᵀh)² has the mean
 * Σh², here that of Σ s·q over the drawn blocks, with q = Σh² of a block. Its relative standard deviation is
 * √(κ/m): m drawn blocks, κ = E q²/(E q)². With m ≥ 512 a parameter and κ = 10 that is 14 % where one
 * parameter has it all, beside √2 = 141 % of the square itself. */
#pragma once

#include <stdint.h>

#include "tandem/advanced/probe.h"
#include "tandem/advanced/step.h"
#include "tandem/status.h"

/* The metric in which the optimizer steps is 1/√v̂: v̂ = max(mean_square·by, least). */
typedef struct probe_metric {
    const float *mean_square; /* [n_flat], as the weights lie; NULL: the metric is 1 */
    float by, least;
} probe_metric;

typedef struct probe_direction {
    const tandem_step *step;
    int64_t n_block;
    int64_t *at;  /* [n_block] first number of a block, in flat arrays */
    float *value; /* [n_block × TANDEM_PROBE_BLOCK]; 0 after a parameter's last number */
    float *kept;  /* the same of weights that are moved; NULL where none are */
} probe_direction;

/* TANDEM_NO_MEMORY. keeps_weights: probe_direction_move may be called. probe_direction_close takes what
 * failed, too. */
tandem_status probe_direction_open(probe_direction *direction, const tandem_step *step, int keeps_weights,
                                   tandem_error *error);
void probe_direction_close(probe_direction *direction);
void probe_direction_draw(probe_direction *direction, const probe_metric *metric, uint64_t seed,
                          uint32_t stream);
/* Σ z² */
double probe_direction_square(const probe_direction *direction);

/* Keeps the weights that the direction moves; sets them to these plus to·z; back, to the bit.
 * weight: [n_flat] */
void probe_direction_keep(probe_direction *direction, const float *weight);
void probe_direction_move(const probe_direction *direction, float *weight, float to);
void probe_direction_restore(const probe_direction *direction, float *weight);
/* Adds by·z·g to the buckets of a sum, [n_bucket], a multiple of TANDEM_PROBE_BLOCK. g: [n_flat]. */
void probe_direction_project(float *sum, int n_bucket, const probe_direction *direction, float by,
                             const float *gradient);
