/* grad_scaler.h: what must be known of all gradients before the first weight is updated: their norm, and
 * whether they are finite.
 *
 * A step that clips or that scales its loss waits for the last bucket before it updates anything; the others
 * update each bucket when it is there. Every rank computes the same from the same reduced gradients: sums in
 * double, in the order of the flat arrays, by code that is compiled once for all devices. */
#ifndef TANDEM_BACKEND_GATE_H
#define TANDEM_BACKEND_GATE_H

#include "tandem/backend.h"

enum { TANDEM_LOSS_SCALE_INTERVAL = 2000 };         /* good steps until a dynamic scale doubles */
static const float tandem_loss_scale_begin = 65536; /* a dynamic scale's first */

/* Part of a training's state, so that one that is resumed goes on with it. */
typedef struct tandem_loss_scale {
    float scale;        /* by which this step's loss is multiplied; 1 = not at all */
    int32_t good_steps; /* steps since it last changed */
    int64_t skipped;    /* steps whose gradients were too large for their types, and that updated nothing */
} tandem_loss_scale;

typedef struct tandem_grad_scaler {
    double clip;        /* largest norm of all gradients; 0 = any */
    int is_loss_scaled; /* whether the loss is scaled */
    int is_dynamic;     /* whether overflow halves the scale, and many good steps double it */
    tandem_loss_scale loss_scale;
    /* of the step under way */
    int skip_step;
    float step_scale;
    double norm; /* of the gradients, before they are clipped */
} tandem_grad_scaler;

/* From `loss_scale` (0: none) on. */
void tandem_grad_scaler_open(tandem_grad_scaler *scaler, const tandem_executor_options *options);
static inline int tandem_grad_scaler_is_used(const tandem_grad_scaler *scaler)
{
    return scaler->clip > 0 || scaler->is_loss_scaled;
}

/* Judges the gradients of all parameters, and multiplies them by what undoes the scale and by clip / norm
 * where the norm is larger; or says that the step is skipped. Gradients that are not finite are left as they
 * are. */
void tandem_unscale_and_clip(tandem_grad_scaler *scaler, const tandem_step *step, float *gradient);
/* Behind the step: what scale the next one has. */
void tandem_grad_scaler_update(tandem_grad_scaler *scaler);

#endif
