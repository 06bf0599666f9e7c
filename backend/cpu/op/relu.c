/* relu: y = max(x, 0); gx = g where y > 0, else 0. */
#include "backend/cpu/kernel.h"

static tandem_status cpu_relu_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                  tandem_error *error)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    const size_t n = (size_t)tandem_shape_elements(&kernel->op->shape);
    const int wide = kernel->task.from == TANDEM_F32;
    if (kernel->task.kind == TANDEM_TASK_FORWARD && wide)
        isa->relu_f32(call->out[0], call->in[0], n);
    else if (kernel->task.kind == TANDEM_TASK_FORWARD)
        isa->relu_bf16(call->out[0], call->in[0], n);
    else if (wide)
        isa->relu_backward_f32(call->out[0], call->in[0], call->in[1], n);
    else
        isa->relu_backward_bf16(call->out[0], call->in[0], call->in[1], n);
    return TANDEM_OK;
}

const cpu_operator cpu_relu = {.forward = cpu_relu_run, .dgrad = cpu_relu_run};
