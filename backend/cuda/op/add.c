/* add: y = a + b. The sum of two contributions to a gradient, or of a parameter's gradients over micro-steps
 * in place (accumulate), is the same kernel. */
#include "backend/cuda/operator.h"

static tandem_status cuda_add_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                  tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    const tandem_shape *shape = &kernel->op->shape;
    if (task->kind == TANDEM_TASK_ACCUMULATE)
        shape = task->parameter >= 0 ? &kernel->graph->parameter[task->parameter].shape
                                     : cuda_input_shape(kernel, task->slot);
    return cuda_kernel_result(kernel,
                              tandem_cuda_add(call->out[0], call->in[0], call->in[1],
                                              cuda_float_of(task->from), (size_t)tandem_shape_elements(shape),
                                              kernel->device->stream),
                              error);
}

static tandem_status cuda_add_prepare(tandem_kernel *kernel, tandem_error *error)
{
    return cuda_kernel_of_float(kernel, cuda_add_run, error);
}

const cuda_operator cuda_add = {.prepare = cuda_add_prepare}, cuda_accumulate = {.prepare = cuda_add_prepare};
