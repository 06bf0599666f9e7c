/* layernorm: over the last dimension; aux: mean of each row, then variance. The gradients of scale and shift
 * are computed with that of x. */
#include "backend/cuda/operator.h"

typedef struct layernorm_shape {
    size_t rows, columns, n_statistic;
} layernorm_shape;

static layernorm_shape layernorm_shape_of(const tandem_kernel *kernel)
{
    const size_t columns = (size_t)tandem_shape_last(&kernel->op->shape),
                 rows = cuda_elements(kernel) / columns;
    return (layernorm_shape){rows, columns, rows};
}

static tandem_status cuda_layernorm_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const layernorm_shape s = layernorm_shape_of(kernel);
    float *const mean = call->out[1];
    return cuda_kernel_result(kernel,
                              tandem_cuda_layernorm(call->out[0], call->in[0],
                                                    cuda_float_of(kernel->task.from), call->in[1],
                                                    call->in[2], mean, mean + s.n_statistic, s.rows,
                                                    s.columns, kernel->op->epsilon, kernel->device->stream),
                              error);
}

static tandem_status cuda_layernorm_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                          tandem_error *error)
{
    const layernorm_shape s = layernorm_shape_of(kernel);
    const float *const mean = call->in[2];
    return cuda_kernel_result(
        kernel,
        tandem_cuda_layernorm_backward(call->out[0], call->out[1], call->out[2], call->in[0], call->in[1],
                                       cuda_float_of(kernel->task.from), call->in[3], mean,
                                       mean + s.n_statistic, s.rows, s.columns, kernel->op->epsilon,
                                       call->workspace, kernel->device->tickets, kernel->device->stream),
        error);
}

static tandem_status cuda_layernorm_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const layernorm_shape s = layernorm_shape_of(kernel);
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    kernel->workspace_bytes = is_forward ? 0 : tandem_cuda_layernorm_workspace(s.rows, s.columns);
    return cuda_kernel_of_float(kernel, is_forward ? cuda_layernorm_forward : cuda_layernorm_dgrad, error);
}

const cuda_operator cuda_layernorm = {.prepare = cuda_layernorm_prepare};
