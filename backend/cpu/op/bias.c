/* bias: y = x + b, with the parameter over the trailing dimensions. Its gradient is the sum of g over the
 * leading ones, and 0 for unused elements. */
#include <string.h>

#include "backend/cpu/kernel.h"

static const tandem_parameter *cpu_bias_parameter(const tandem_kernel *kernel)
{
    return &kernel->graph->parameter[kernel->op->parameter[0]];
}

static tandem_status cpu_bias_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    const size_t n = (size_t)tandem_shape_elements(&kernel->op->shape);
    const size_t period = cpu_bias_period(kernel);
    if (kernel->task.from == TANDEM_F32)
        isa->bias_f32(call->out[0], call->in[0], call->in[1], n, period);
    else
        isa->bias_bf16(call->out[0], call->in[0], call->in[1], n, period);
    return TANDEM_OK;
}

static tandem_status cpu_bias_wgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    const size_t n = (size_t)tandem_shape_elements(&kernel->op->shape);
    const size_t period = cpu_bias_period(kernel);
    memset((float *)call->out[0] + period, 0,
           ((size_t)cpu_bias_parameter(kernel)->elements - period) * sizeof(float));
    if (kernel->task.from == TANDEM_F32)
        isa->column_sum_f32(call->out[0], call->in[0], n, period);
    else
        isa->column_sum_bf16(call->out[0], call->in[0], n, period);
    return TANDEM_OK;
}

static tandem_status cpu_bias_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    if (!cpu_is_float(task->from)) return cpu_kernel_refuse(kernel, "it computes in f32 and bf16", error);
    if (task->kind == TANDEM_TASK_DGRAD ||
        task->to != (task->kind == TANDEM_TASK_WGRAD ? TANDEM_F32 : task->from))
        return cpu_kernel_refuse(kernel, "there is no such form of a bias", error);
    kernel->run = task->kind == TANDEM_TASK_FORWARD ? cpu_bias_forward : cpu_bias_wgrad;
    return TANDEM_OK;
}

const cpu_operator cpu_bias = {.prepare = cpu_bias_prepare};
