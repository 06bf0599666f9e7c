/* grad_scaler.c: unscales and clips gradients, and adapts a dynamic loss scale. */
#include "backend/executor/grad_scaler.h"

#include <math.h>

void tandem_grad_scaler_open(tandem_grad_scaler *scaler, const tandem_executor_options *options)
{
    const int is_dynamic = options->loss_scale < 0;
    *scaler = (tandem_grad_scaler){.clip = options->clip,
                                   .is_loss_scaled = is_dynamic || options->loss_scale > 0,
                                   .is_dynamic = is_dynamic,
                                   .loss_scale = {.scale = 1},
                                   .step_scale = 1};
    if (scaler->is_loss_scaled)
        scaler->loss_scale.scale = is_dynamic ? tandem_loss_scale_begin : options->loss_scale;
}

/* A double holds any sum of squares of floats: the sum is finite exactly if all of them are. */
float tandem_grad_scaler_factor(tandem_grad_scaler *scaler, double sum)
{
    const int is_finite = isfinite(sum);
    scaler->step_scale = scaler->loss_scale.scale;
    scaler->norm = sqrt(sum) / (double)scaler->loss_scale.scale;
    /* at scale 1 a smaller scale cannot help, so the step fails as it would without scaling */
    scaler->skip_step =
        scaler->is_loss_scaled && !is_finite && (!scaler->is_dynamic || scaler->loss_scale.scale > 1);
    if (!is_finite) return 1;
    const double clipped = scaler->clip > 0 ? fmin(scaler->clip / (scaler->norm + 1e-6), 1) : 1;
    return (float)(clipped / (double)scaler->loss_scale.scale);
}

void tandem_grad_scaler_update(tandem_grad_scaler *scaler)
{
    tandem_loss_scale *s = &scaler->loss_scale;
    s->skipped += scaler->skip_step;
    s->good_steps = scaler->skip_step ? 0 : s->good_steps + (s->good_steps < INT32_MAX);
    if (!scaler->is_dynamic) return;
    if (scaler->skip_step) s->scale = fmaxf(s->scale / 2, 1);
    /* a fixed scale that a resumed run makes dynamic may be larger */
    else if (s->good_steps >= TANDEM_LOSS_SCALE_INTERVAL && s->scale < 0x1p24f)
        s->scale *= 2, s->good_steps = 0;
}
