/* cross_entropy: loss = row_weight · Σ rows −log softmax(logits)[label]; aux: the probabilities. A label that is no class is
 * noted on the card (cuda_faults) and told when the step is settled. */
#include "backend/cuda/operator.h"

typedef struct sides {
    size_t rows, classes;
} sides;

static sides sides_of(const tandem_kernel *kernel)
{
    const tandem_shape *logits = cuda_input_shape(kernel, 0);
    const size_t classes = (size_t)tandem_shape_last(logits);
    return (sides){(size_t)tandem_shape_elements(logits) / classes, classes};
}

static tandem_status run_forward(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    const cuda_device *device = kernel->device;
    const sides s = sides_of(kernel);
    return cuda_kernel_result(kernel,
                              tandem_cuda_cross_entropy(call->out[0], call->out[1], call->in[0], call->in[1],
                                                        s.rows, s.classes, call->row_weight, call->smoothing,
                                                        &device->faults->bad_label, call->workspace, device->stream),
                              error);
}

static tandem_status run_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    const sides s = sides_of(kernel);
    return cuda_kernel_result(kernel,
                              tandem_cuda_cross_entropy_backward(call->out[0], call->in[1], call->in[0],
                                                                 s.rows, s.classes, call->row_weight,
                                                                 call->smoothing, kernel->device->stream),
                              error);
}

static tandem_status prepare(tandem_kernel *kernel, tandem_error *error)
{
    (void)error;
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    if (is_forward) kernel->workspace_bytes = sides_of(kernel).rows * sizeof(float);
    kernel->run = is_forward ? run_forward : run_dgrad;
    return TANDEM_OK;
}

const cuda_operator cuda_cross_entropy = {prepare};
