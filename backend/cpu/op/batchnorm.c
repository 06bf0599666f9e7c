/* batchnorm: y = scale·(x − mean)/√(variance + ε) + shift for each channel, over the local batch and its
 * places; aux: mean of each channel, then variance (of all n, not n − 1). In an evaluation mean and variance are the running ones.
 * The gradients of scale and shift are computed beside that of x. */
#include <math.h>

#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"

static void normalise(const tandem_kernel *kernel, const tandem_kernel_call *call)
{
    const int64_t n = tandem_shape_elements(&kernel->op->shape), channels = tandem_shape_last(&kernel->op->shape);
    const float *x = call->in[0], *scale = call->in[1], *shift = call->in[2];
    const float *mean = call->running, *variance = mean + channels;
    float *y = call->out[0];
    for (int64_t row = 0; row < n; row += channels)
        for (int64_t c = 0; c < channels; c++)
            y[row + c] = (x[row + c] - mean[c]) / sqrtf(variance[c] + kernel->op->epsilon) * scale[c] + shift[c];
}

static tandem_status run_forward(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    if (call->running) {
        normalise(kernel, call);
        return TANDEM_OK;
    }
    float *const mean = call->out[1], *const variance = mean + tandem_shape_last(&kernel->op->shape);
    return cpu_primitive_run(kernel->state, kernel,
                             (const void *const[]){call->in[0], call->in[1], call->in[2], call->out[0], mean, variance},
                             call->workspace, error);
}

static tandem_status run_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    const float *const mean = call->in[2], *const variance = mean + tandem_shape_last(&kernel->op->shape);
    const void *const shift = call->in[3]; /* oneDNN wants one, and does not look: no gradient depends on it */
    return cpu_primitive_run(kernel->state, kernel,
                             (const void *const[]){call->in[0], call->in[1], mean, variance, call->in[3],
                                                   shift, call->out[0], call->out[1], call->out[2]},
                             call->workspace, error);
}

static tandem_status prepare(tandem_kernel *kernel, tandem_error *error)
{
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    const unsigned flags = dnnl_use_scale | dnnl_use_shift;
    const dnnl_memory_desc_t x = cpu_image_descriptor(TANDEM_F32, &kernel->op->shape);
    dnnl_batch_normalization_desc_t forward, backward;
    const float epsilon = kernel->op->epsilon;
    if (dnnl_batch_normalization_forward_desc_init(&forward, dnnl_forward_training, &x, epsilon, flags) != dnnl_success ||
        dnnl_batch_normalization_backward_desc_init(&backward, dnnl_backward, &x, &x, epsilon, flags) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no norm of this shape", error);
    const int reads[] = {DNNL_ARG_SRC, DNNL_ARG_SCALE, DNNL_ARG_SHIFT,
                         DNNL_ARG_DST, DNNL_ARG_MEAN,  DNNL_ARG_VARIANCE};
    const int writes[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC,        DNNL_ARG_MEAN,
                          DNNL_ARG_VARIANCE, DNNL_ARG_SCALE,      DNNL_ARG_SHIFT,
                          DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
    cpu_primitive primitive = {0};
    const tandem_status status =
        is_forward ? cpu_primitive_make(&primitive, kernel, &forward, NULL, 6, reads, error)
                   : cpu_primitive_make(&primitive, kernel, &backward, &forward, 9, writes, error);
    return status == TANDEM_OK ? cpu_primitive_keep(kernel, &primitive, is_forward ? run_forward : run_dgrad, error)
                               : status;
}

const cpu_operator cpu_batchnorm = {prepare};
