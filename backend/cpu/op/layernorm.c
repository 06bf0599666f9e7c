/* layernorm: y = scale·(x − mean)/√(variance + ε) + shift over the last dimension; aux: mean of each row,
 * then variance (divided by n, not n − 1). The gradients of scale and shift are computed with that of x. */
#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"

static tandem_status cpu_layernorm_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                           tandem_error *error)
{
    const tandem_shape *shape = &kernel->op->shape;
    float *const mean = call->out[1], *const variance =
                                          mean + tandem_shape_elements(shape) / tandem_shape_last(shape);
    return cpu_primitive_run(
        kernel->state, kernel,
        (const void *const[]){call->in[0], call->in[1], call->in[2], call->out[0], mean, variance},
        call->workspace, error);
}

static tandem_status cpu_layernorm_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                         tandem_error *error)
{
    const tandem_shape *shape = &kernel->op->shape;
    const float *const mean = call->in[2], *const variance =
                                               mean + tandem_shape_elements(shape) / tandem_shape_last(shape);
    /* oneDNN needs one and does not read it: no gradient depends on it */
    const void *const shift = call->in[3];
    return cpu_primitive_run(kernel->state, kernel,
                             (const void *const[]){call->in[0], call->in[1], mean, variance, call->in[3],
                                                   shift, call->out[0], call->out[1], call->out[2]},
                             call->workspace, error);
}

static tandem_status cpu_layernorm_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    const int64_t columns = tandem_shape_last(&kernel->op->shape),
                  rows = tandem_shape_elements(&kernel->op->shape) / columns;
    const unsigned flags = dnnl_use_scale | dnnl_use_shift;
    const dnnl_memory_desc_t x = cpu_matrix_descriptor(TANDEM_F32, rows, columns);
    dnnl_memory_desc_t statistics;
    dnnl_memory_desc_init_by_tag(&statistics, 1, (dnnl_dims_t){rows}, dnnl_f32, dnnl_a);
    dnnl_layer_normalization_desc_t forward, backward;
    const float epsilon = kernel->op->epsilon;
    if (dnnl_layer_normalization_forward_desc_init(&forward, dnnl_forward_training, &x, &statistics, epsilon,
                                                   flags) != dnnl_success ||
        dnnl_layer_normalization_backward_desc_init(&backward, dnnl_backward, &x, &x, &statistics, epsilon,
                                                    flags) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no norm of this shape", error);
    const int reads[] = {DNNL_ARG_SRC, DNNL_ARG_SCALE, DNNL_ARG_SHIFT,
                         DNNL_ARG_DST, DNNL_ARG_MEAN,  DNNL_ARG_VARIANCE};
    const int writes[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC,        DNNL_ARG_MEAN,
                          DNNL_ARG_VARIANCE, DNNL_ARG_SCALE,      DNNL_ARG_SHIFT,
                          DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
    cpu_primitive primitive = {0};
    tandem_status status =
        is_forward ? cpu_primitive_make(&primitive, kernel, &forward, NULL, 6, reads, error)
                   : cpu_primitive_make(&primitive, kernel, &backward, &forward, 9, writes, error);
    if (status == TANDEM_OK) status = cpu_primitive_keep(kernel, &primitive, 3, error);
    kernel->run = is_forward ? cpu_layernorm_forward : cpu_layernorm_dgrad;
    return status;
}

const cpu_operator cpu_layernorm = {.prepare = cpu_layernorm_prepare};
