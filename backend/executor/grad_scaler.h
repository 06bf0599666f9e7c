/* grad_scaler.h: loss scaling and gradient clipping: whether all gradients are finite, and their norm, before
 * the first weight is updated.
 *
 * A step with either waits for the last bucket before it updates anything; other steps update each bucket as
 * it arrives. Every rank computes the same result from the same reduced gradients: sums in double, in a fixed
 * order (norm.c), by code compiled once for all devices. */
#pragma once

#include "tandem/advanced/backend.h"

enum { TANDEM_LOSS_SCALE_INTERVAL = 2000 };         /* good steps before a dynamic scale doubles */
static const float tandem_loss_scale_begin = 65536; /* the first dynamic scale */

/* Part of the training's state: checkpoints store it. */
typedef struct tandem_loss_scale {
    float scale;        /* the factor of this step's loss; 1 = no scaling */
    int32_t good_steps; /* steps since the scale changed */
    int64_t skipped;    /* steps that updated nothing because a gradient was not finite */
} tandem_loss_scale;

typedef struct tandem_grad_scaler {
    double clip; /* largest norm of all gradients; 0 = no limit */
    int is_loss_scaled;
    int is_dynamic; /* overflow halves the scale, and good_steps double it */
    tandem_loss_scale loss_scale;
    /* of the current step */
    int skip_step;
    float step_scale;
    double norm; /* of the gradients, before clipping */
} tandem_grad_scaler;

/* Starts from options->loss_scale (0: no scaling). */
void tandem_grad_scaler_open(tandem_grad_scaler *scaler, const tandem_executor_options *options);
static inline int tandem_grad_scaler_is_used(const tandem_grad_scaler *scaler)
{
    return scaler->clip > 0 || scaler->is_loss_scaled;
}

/* What all gradients are to be multiplied by, from the sum of their squares: one over the scale, and clip
 * over the norm where that is larger. Where a gradient is not finite: 1, and sets skip_step if a smaller
 * scale may help. */
float tandem_grad_scaler_factor(tandem_grad_scaler *scaler, double sum);
/* After the step: sets the next step's scale. */
void tandem_grad_scaler_update(tandem_grad_scaler *scaler);
