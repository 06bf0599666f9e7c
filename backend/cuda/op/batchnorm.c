/* batchnorm: over all but the last dimension, in f32 or bf16. aux: mean of each channel, then variance; in
 * evaluation the running ones. The gradients of scale and shift are computed with that of x. batchnorm_relu:
 * max(y, 0), in the same pass. batchnorm_add_relu: max(y + residual, 0), with the residual's gradient. */
#include "backend/cuda/operator.h"

static tandem_cuda_batchnorm cuda_batchnorm_call(const tandem_kernel *kernel, const float *scale,
                                                 const float *shift)
{
    const size_t columns = (size_t)tandem_shape_last(&kernel->op->shape);
    return (tandem_cuda_batchnorm){.rows = cuda_elements(kernel) / columns,
                                   .columns = columns,
                                   .scale = scale,
                                   .shift = shift,
                                   .epsilon = kernel->op->epsilon,
                                   .has_relu = kernel->op->kind != TANDEM_OP_BATCHNORM};
}

static tandem_status cuda_batchnorm_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const int has_residual = kernel->op->kind == TANDEM_OP_BATCHNORM_ADD_RELU;
    tandem_cuda_batchnorm b =
        cuda_batchnorm_call(kernel, call->in[has_residual + 1], call->in[has_residual + 2]);
    if (has_residual) b.residual = call->in[1];
    float *const mean = call->running_stats ? (float *)call->running_stats : call->out[1];
    return cuda_kernel_result(
        kernel,
        tandem_cuda_batchnorm_forward(call->out[0], call->in[0], cuda_float_of(kernel->task.from), &b, mean,
                                      mean + b.columns, call->running_stats ? NULL : call->workspace,
                                      kernel->device->tickets, kernel->device->stream),
        error);
}

static tandem_status cuda_batchnorm_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                          tandem_error *error)
{
    const tandem_cuda_batchnorm b = cuda_batchnorm_call(kernel, call->in[3], call->in[4]);
    const float *const mean = call->in[2];
    return cuda_kernel_result(
        kernel,
        tandem_cuda_batchnorm_backward(call->out[0], call->out[1], call->out[2], call->in[0], call->in[1],
                                       cuda_float_of(kernel->task.from), &b, mean, mean + b.columns,
                                       call->workspace, kernel->device->tickets, kernel->device->stream),
        error);
}

static tandem_status cuda_batchnorm_add_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                              tandem_error *error)
{
    const tandem_cuda_batchnorm b = cuda_batchnorm_call(kernel, call->in[4], NULL);
    const tandem_cuda_batchnorm_gradients out = {.x = call->out[0],
                                                 .residual = call->out[1],
                                                 .x_type = cuda_float_of(kernel->task.to),
                                                 .residual_type =
                                                     cuda_float_of(kernel->task.other_operand_dtype),
                                                 .scale = call->out[2],
                                                 .shift = call->out[3]};
    const float *const mean = call->in[3];
    return cuda_kernel_result(
        kernel,
        tandem_cuda_batchnorm_add_backward(&out, call->in[0], call->in[1], call->in[2],
                                           cuda_float_of(kernel->task.from), &b, mean, mean + b.columns,
                                           call->workspace, kernel->device->tickets, kernel->device->stream),
        error);
}

static void cuda_batchnorm_workspace(tandem_kernel *kernel)
{
    const size_t columns = (size_t)tandem_shape_last(&kernel->op->shape);
    kernel->workspace_bytes = tandem_cuda_norm_workspace(cuda_elements(kernel) / columns, columns);
}

static tandem_status cuda_batchnorm_prepare(tandem_kernel *kernel, tandem_error *error)
{
    cuda_batchnorm_workspace(kernel);
    return cuda_kernel_of_float(
        kernel, kernel->task.kind == TANDEM_TASK_FORWARD ? cuda_batchnorm_forward : cuda_batchnorm_dgrad,
        error);
}

/* Each gradient has the type of its tensor. */
static tandem_status cuda_batchnorm_add_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    if (!cuda_is_float(task->from) || !cuda_is_float(task->to) || !cuda_is_float(task->other_operand_dtype))
        return cuda_kernel_refuse(kernel, "it works in float types", error);
    cuda_batchnorm_workspace(kernel);
    kernel->run = task->kind == TANDEM_TASK_FORWARD ? cuda_batchnorm_forward : cuda_batchnorm_add_dgrad;
    return TANDEM_OK;
}

const cuda_operator cuda_batchnorm = {.prepare = cuda_batchnorm_prepare},
                    cuda_batchnorm_relu = {.prepare = cuda_batchnorm_prepare},
                    cuda_batchnorm_add_relu = {.prepare = cuda_batchnorm_add_prepare};
