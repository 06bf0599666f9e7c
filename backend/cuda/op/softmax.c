/* softmax: y = softmax(scale·x) over the last dimension, causal or not. */
#include "backend/cuda/operator.h"

static tandem_status cuda_softmax_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error)
{
    const tandem_op *op = kernel->op;
    const size_t columns = (size_t)tandem_shape_last(&op->shape), rows = cuda_elements(kernel) / columns;
    const tandem_cuda_stream stream = kernel->device->stream;
    const tandem_cuda_float type = cuda_float_of(kernel->task.from);
    const int failed = kernel->task.kind == TANDEM_TASK_FORWARD
                           ? tandem_cuda_softmax(call->out[0], call->in[0], type, rows, columns, op->scale,
                                                 op->causal, stream)
                           : tandem_cuda_softmax_backward(call->out[0], call->in[0], call->in[1], type, rows,
                                                          columns, op->scale, stream);
    return cuda_kernel_result(kernel, failed, error);
}

const cuda_operator cuda_softmax = {.forward = cuda_softmax_run, .dgrad = cuda_softmax_run};
