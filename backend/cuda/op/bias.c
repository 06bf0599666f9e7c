/* bias: y = x + b, with the parameter over the trailing dimensions. Its gradient is the sum of g over the
 * leading ones, and 0 for unused elements. bias_gelu: gelu of it; the gradient of b is the sum of that of x,
 * computed with it. */
#include "backend/cuda/operator.h"

static const tandem_parameter *cuda_bias_parameter(const tandem_kernel *kernel)
{
    return &kernel->graph->parameter[kernel->op->parameter[0]];
}

static size_t cuda_bias_period(const tandem_kernel *kernel)
{
    return (size_t)tandem_bias_period(kernel->op, cuda_bias_parameter(kernel));
}

/* From one row to the next. */
static size_t cuda_bias_row(const tandem_kernel *kernel)
{
    return kernel->padded_row ? (size_t)kernel->padded_row : cuda_bias_period(kernel);
}

static tandem_status cuda_bias_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                       tandem_error *error)
{
    return cuda_kernel_result(kernel,
                              tandem_cuda_bias(call->out[0], call->in[0], cuda_float_of(kernel->task.from),
                                               call->in[1], cuda_stored_elements(kernel),
                                               cuda_bias_period(kernel), cuda_bias_row(kernel),
                                               kernel->device->stream),
                              error);
}

/* The gradient of what is not added. */
static int clear_unused(const tandem_kernel *kernel, float *gradient)
{
    const cuda_device *device = kernel->device;
    const size_t period = cuda_bias_period(kernel),
                 rest = (size_t)cuda_bias_parameter(kernel)->elements - period;
    return rest ? device->vendor->clear(gradient + period, rest * sizeof(float), device->stream) : 0;
}

static tandem_status cuda_bias_wgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    const size_t period = cuda_bias_period(kernel);
    int failed = clear_unused(kernel, call->out[0]);
    if (!failed)
        failed = tandem_cuda_column_sum(call->out[0], call->in[0], cuda_float_of(kernel->task.from),
                                        cuda_elements(kernel) / period, period, cuda_bias_row(kernel),
                                        call->workspace, kernel->device->tickets, kernel->device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_bias_gelu_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    return cuda_kernel_result(
        kernel,
        tandem_cuda_bias_gelu(call->out[0], call->in[0], cuda_float_of(kernel->task.from), call->in[1],
                              cuda_elements(kernel), cuda_bias_period(kernel), kernel->device->stream),
        error);
}

static tandem_status cuda_bias_gelu_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                          tandem_error *error)
{
    const size_t period = cuda_bias_period(kernel);
    int failed = clear_unused(kernel, call->out[1]);
    if (!failed)
        failed = tandem_cuda_bias_gelu_backward(call->out[0], call->out[1], call->in[0], call->in[1],
                                                cuda_float_of(kernel->task.from), call->in[2],
                                                cuda_elements(kernel) / period, period, call->workspace,
                                                kernel->device->tickets, kernel->device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_bias_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    if (!cuda_is_float(kernel->task.from)) return cuda_kernel_refuse(kernel, "it computes in floats", error);
    if (!is_forward) /* of several sums in one launch, the last has the workspace of all (merged.c) */
        kernel->workspace_bytes =
            (kernel->op->kind == TANDEM_OP_BIAS ? TANDEM_CUDA_PARTS : 1) *
            tandem_cuda_column_sum_workspace(cuda_elements(kernel) / cuda_bias_period(kernel),
                                             cuda_bias_period(kernel));
    if (kernel->op->kind == TANDEM_OP_BIAS_GELU)
        kernel->run = is_forward ? cuda_bias_gelu_forward : cuda_bias_gelu_dgrad;
    else
        kernel->run = is_forward ? cuda_bias_forward : cuda_bias_wgrad;
    return TANDEM_OK;
}

const cuda_operator cuda_bias = {.prepare = cuda_bias_prepare},
                    cuda_bias_gelu = {.prepare = cuda_bias_prepare};
