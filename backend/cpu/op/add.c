/* add: y = a + b; its gradient needs no task. The sum of two contributions to a gradient, or of a parameter's
 * gradients over micro-steps in place (accumulate), is the same kernel. */
#include "backend/cpu/kernel.h"

static tandem_status cpu_add_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                 tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    const tandem_shape *shape = &kernel->op->shape;
    if (task->kind == TANDEM_TASK_ACCUMULATE)
        shape = task->parameter >= 0 ? &kernel->graph->parameter[task->parameter].shape
                                     : cpu_input_shape(kernel, task->slot);
    const size_t n = (size_t)tandem_shape_elements(shape);
    if (task->from == TANDEM_F32)
        kernel->device->isa->add_f32(call->out[0], call->in[0], call->in[1], n);
    else
        kernel->device->isa->add_bf16(call->out[0], call->in[0], call->in[1], n);
    return TANDEM_OK;
}

static tandem_status cpu_add_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    if (!cpu_is_float(task->from) || task->to != task->from ||
        (task->kind != TANDEM_TASK_FORWARD && task->kind != TANDEM_TASK_ACCUMULATE))
        return cpu_kernel_refuse(kernel, "it adds f32 to f32 or bf16 to bf16", error);
    kernel->run = cpu_add_run;
    return TANDEM_OK;
}

const cpu_operator cpu_add = {.prepare = cpu_add_prepare}, cpu_accumulate = {.prepare = cpu_add_prepare};
