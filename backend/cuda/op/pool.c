/* maxpool: the maximum of each window; padding never wins; aux: its position within the window, one byte.
 * avgpool: the mean of each window. */
#include "backend/cuda/operator.h"

static tandem_status cuda_maxpool_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error)
{
    const tandem_cuda_pool pool = cuda_window_of(kernel);
    const tandem_cuda_float type = cuda_float_of(kernel->task.from);
    const tandem_cuda_stream stream = kernel->device->stream;
    const int failed =
        kernel->task.kind == TANDEM_TASK_FORWARD
            ? tandem_cuda_maxpool(call->out[0], call->out[1], call->in[0], type, &pool, stream)
            : tandem_cuda_pool_backward(call->out[0], call->in[0], call->in[1], type, &pool, stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_avgpool_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error)
{
    const tandem_cuda_pool pool = cuda_window_of(kernel);
    const tandem_cuda_float type = cuda_float_of(kernel->task.from);
    const tandem_cuda_stream stream = kernel->device->stream;
    const int failed = kernel->task.kind == TANDEM_TASK_FORWARD
                           ? tandem_cuda_avgpool(call->out[0], call->in[0], type, &pool, stream)
                           : tandem_cuda_pool_backward(call->out[0], call->in[0], NULL, type, &pool, stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_pool_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_op *op = kernel->op;
    const int is_max = op->kind == TANDEM_OP_MAXPOOL;
    if (!cuda_is_float(kernel->task.from) || kernel->task.to != kernel->task.from)
        return cuda_kernel_refuse(kernel, "it works in one float type throughout", error);
    if (is_max && op->kernel_h * op->kernel_w > 256)
        return cuda_kernel_refuse(kernel, "windows have at most 256 places", error);
    if (!is_max && op->pad) return cuda_kernel_refuse(kernel, "means are taken without padding", error);
    kernel->run = is_max ? cuda_maxpool_run : cuda_avgpool_run;
    return TANDEM_OK;
}

const cuda_operator cuda_maxpool = {.prepare = cuda_pool_prepare},
                    cuda_avgpool = {.prepare = cuda_pool_prepare};
