/* relu, gelu, tanh: y = f(x); gx = g·f′, from the result for relu and tanh, from the input for gelu. */
#include "backend/cuda/operator.h"

static tandem_status cuda_activation_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                         tandem_cuda_activation activation, tandem_error *error)
{
    const tandem_cuda_stream stream = kernel->device->stream;
    const tandem_cuda_float type = cuda_float_of(kernel->task.from);
    const size_t n = cuda_elements(kernel);
    const int failed = kernel->task.kind == TANDEM_TASK_FORWARD
                           ? tandem_cuda_activate(call->out[0], call->in[0], activation, type, n, stream)
                           : tandem_cuda_activate_backward(call->out[0], call->in[0], call->in[1], activation,
                                                           type, n, stream);
    return cuda_kernel_result(kernel, failed, error);
}

#define ACTIVATION(NAME, name)                                                                               \
    static tandem_status cuda_run_##name(const tandem_kernel *kernel, const tandem_kernel_call *call,        \
                                         tandem_error *error)                                                \
    {                                                                                                        \
        return cuda_activation_run(kernel, call, TANDEM_CUDA_##NAME, error);                                 \
    }                                                                                                        \
    static tandem_status cuda_prepare_##name(tandem_kernel *kernel, tandem_error *error)                     \
    {                                                                                                        \
        (void)error;                                                                                         \
        kernel->run = cuda_run_##name;                                                                       \
        return TANDEM_OK;                                                                                    \
    }                                                                                                        \
    const cuda_operator cuda_##name = {.prepare = cuda_prepare_##name};

ACTIVATION(RELU, relu)
ACTIVATION(GELU, gelu)
ACTIVATION(TANH, tanh)
