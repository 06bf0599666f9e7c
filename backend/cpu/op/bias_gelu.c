/* bias_gelu: y = gelu(x + b), with the parameter over the trailing dimensions; gelu as in gelu.c. The bias's
 * gradient is computed with that of x. Sums and intermediate values are f32. */
#include <string.h>

#include "backend/cpu/kernel.h"

static tandem_status cpu_bias_gelu_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                           tandem_error *error)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    const size_t n = (size_t)tandem_shape_elements(&kernel->op->shape), period = cpu_bias_period(kernel);
    if (kernel->task.from == TANDEM_F32)
        isa->bias_gelu_f32(call->out[0], call->in[0], call->in[1], n, period);
    else
        isa->bias_gelu_bf16(call->out[0], call->in[0], call->in[1], n, period);
    return TANDEM_OK;
}

static tandem_status cpu_bias_gelu_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                         tandem_error *error)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    const size_t n = (size_t)tandem_shape_elements(&kernel->op->shape), period = cpu_bias_period(kernel);
    const size_t all = (size_t)kernel->graph->parameter[kernel->op->parameter[0]].elements;
    float *const gradient = call->out[1];
    memset(gradient + period, 0, (all - period) * sizeof *gradient);
    if (kernel->task.from == TANDEM_F32)
        isa->bias_gelu_backward_f32(call->out[0], gradient, call->in[0], call->in[1], call->in[2], n, period);
    else
        isa->bias_gelu_backward_bf16(call->out[0], gradient, call->in[0], call->in[1], call->in[2], n,
                                     period);
    return TANDEM_OK;
}

const cpu_operator cpu_bias_gelu = {.forward = cpu_bias_gelu_forward, .dgrad = cpu_bias_gelu_dgrad};
