/* gelu: y = ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
 * Source: Hendrycks, Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415 (its tanh form). */
#include "backend/cpu/kernel.h"

static tandem_status cpu_gelu_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                  tandem_error *error)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    const size_t n = (size_t)tandem_shape_elements(&kernel->op->shape);
    if (kernel->task.kind == TANDEM_TASK_FORWARD)
        isa->gelu_f32(call->out[0], call->in[0], n);
    else
        isa->gelu_backward_f32(call->out[0], call->in[0], call->in[1], n);
    return TANDEM_OK;
}

static tandem_status cpu_gelu_prepare(tandem_kernel *kernel, tandem_error *error)
{
    kernel->run = cpu_gelu_run;
    return TANDEM_OK;
}

const cpu_operator cpu_gelu = {.prepare = cpu_gelu_prepare};
