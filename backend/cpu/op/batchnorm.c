/* batchnorm: y = scale·(x − mean)/√(variance + ε) + shift per channel, over the pixels of the local batch.
 * aux: mean of each channel, then variance (divided by n, not n − 1); in evaluation the running ones. The
 * gradients of scale and shift are computed with that of x. batchnorm_relu: max(y, 0), in the same pass.
 * batchnorm_add_relu: max(y + residual, 0), with the residual's gradient.
 *
 * Images are f32 or bf16; sums and divisions are in f32. */
#include <math.h>

#include "backend/cpu/kernel.h"

/* Evaluation is in f32. */
static void cpu_batchnorm_evaluate(const tandem_kernel *kernel, const tandem_kernel_call *call)
{
    const int64_t n = tandem_shape_elements(&kernel->op->shape),
                  channels = tandem_shape_last(&kernel->op->shape);
    const int has_residual = kernel->op->kind == TANDEM_OP_BATCHNORM_ADD_RELU;
    const float *x = call->in[0], *residual = call->in[1], *scale = call->in[has_residual + 1],
                *shift = call->in[has_residual + 2];
    const float *mean = call->running_stats, *variance = mean + channels;
    const float floor = kernel->op->kind == TANDEM_OP_BATCHNORM ? -INFINITY : 0;
    float *y = call->out[0];
    for (int64_t row = 0; row < n; row += channels)
        for (int64_t c = 0; c < channels; c++) {
            float value =
                (x[row + c] - mean[c]) / sqrtf(variance[c] + kernel->op->epsilon) * scale[c] + shift[c];
            if (has_residual) value += residual[row + c];
            y[row + c] = value < floor ? floor : value;
        }
}

static tandem_batchnorm cpu_batchnorm_call(const tandem_kernel *kernel, const float *scale,
                                           const float *shift, float *statistics, void *workspace)
{
    const int64_t channels = tandem_shape_last(&kernel->op->shape);
    return (tandem_batchnorm){.rows = (size_t)(tandem_shape_elements(&kernel->op->shape) / channels),
                              .channels = (size_t)channels,
                              .has_relu = kernel->op->kind == TANDEM_OP_BATCHNORM_RELU,
                              .epsilon = kernel->op->epsilon,
                              .scale = scale,
                              .shift = shift,
                              .mean = statistics,
                              .variance = statistics + channels,
                              .workspace = workspace};
}

static tandem_status cpu_batchnorm_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                           tandem_error *error)
{
    if (call->running_stats) {
        cpu_batchnorm_evaluate(kernel, call);
        return TANDEM_OK;
    }
    const tandem_batchnorm norm =
        cpu_batchnorm_call(kernel, call->in[1], call->in[2], call->out[1], call->workspace);
    if (kernel->task.from == TANDEM_F32)
        kernel->device->isa->batchnorm_f32(&norm, call->out[0], call->in[0]);
    else
        kernel->device->isa->batchnorm_bf16(&norm, call->out[0], call->in[0]);
    return TANDEM_OK;
}

/* The relu's gradient needs the shift; without a relu no gradient does. */
static tandem_status cpu_batchnorm_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                         tandem_error *error)
{
    const float *const shift = kernel->op->kind == TANDEM_OP_BATCHNORM_RELU ? call->in[4] : call->in[3];
    const tandem_batchnorm norm =
        cpu_batchnorm_call(kernel, call->in[3], shift, (float *)call->in[2], call->workspace);
    const tandem_batchnorm_gradients out = {.x = call->out[0], .scale = call->out[1], .shift = call->out[2]};
    if (kernel->task.from == TANDEM_F32)
        kernel->device->isa->batchnorm_backward_f32(&norm, &out, call->in[0], call->in[1]);
    else
        kernel->device->isa->batchnorm_backward_bf16(&norm, &out, call->in[0], call->in[1]);
    return TANDEM_OK;
}

static tandem_status cpu_batchnorm_add_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                               tandem_error *error)
{
    if (call->running_stats) {
        cpu_batchnorm_evaluate(kernel, call);
        return TANDEM_OK;
    }
    const tandem_batchnorm norm =
        cpu_batchnorm_call(kernel, call->in[2], call->in[3], call->out[1], call->workspace);
    if (kernel->task.from == TANDEM_F32)
        kernel->device->isa->batchnorm_add_f32(&norm, call->out[0], call->in[0], call->in[1]);
    else
        kernel->device->isa->batchnorm_add_bf16(&norm, call->out[0], call->in[0], call->in[1]);
    return TANDEM_OK;
}

static tandem_status cpu_batchnorm_add_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                             tandem_error *error)
{
    const tandem_batchnorm norm =
        cpu_batchnorm_call(kernel, call->in[4], NULL, (float *)call->in[3], call->workspace);
    const tandem_batchnorm_gradients out = {.x = call->out[0],
                                            .residual = call->out[1],
                                            .x_is_bf16 = kernel->task.to == TANDEM_BF16,
                                            .residual_is_bf16 =
                                                kernel->task.other_operand_dtype == TANDEM_BF16,
                                            .scale = call->out[2],
                                            .shift = call->out[3]};
    if (kernel->task.from == TANDEM_F32)
        kernel->device->isa->batchnorm_add_backward_f32(&norm, &out, call->in[0], call->in[1], call->in[2]);
    else
        kernel->device->isa->batchnorm_add_backward_bf16(&norm, &out, call->in[0], call->in[1], call->in[2]);
    return TANDEM_OK;
}

static uint64_t cpu_batchnorm_workspace(const tandem_kernel *kernel)
{
    const int64_t channels = tandem_shape_last(&kernel->op->shape);
    return kernel->device->isa->batchnorm_workspace(
        (size_t)(tandem_shape_elements(&kernel->op->shape) / channels), (size_t)channels);
}

static tandem_status cpu_batchnorm_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    if (!cpu_is_float(task->from) || task->to != task->from || task->kind == TANDEM_TASK_WGRAD)
        return cpu_kernel_refuse(kernel, "it works in f32 or in bf16 throughout", error);
    kernel->workspace_bytes = cpu_batchnorm_workspace(kernel);
    kernel->run = task->kind == TANDEM_TASK_FORWARD ? cpu_batchnorm_forward : cpu_batchnorm_dgrad;
    return TANDEM_OK;
}

/* Each gradient has the type of its tensor. */
static tandem_status cpu_batchnorm_add_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    if (!cpu_is_float(task->from) || !cpu_is_float(task->to) || !cpu_is_float(task->other_operand_dtype) ||
        task->kind == TANDEM_TASK_WGRAD)
        return cpu_kernel_refuse(kernel, "it works in f32 or in bf16", error);
    kernel->workspace_bytes = cpu_batchnorm_workspace(kernel);
    kernel->run = task->kind == TANDEM_TASK_FORWARD ? cpu_batchnorm_add_forward : cpu_batchnorm_add_dgrad;
    return TANDEM_OK;
}

const cpu_operator cpu_batchnorm = {.prepare = cpu_batchnorm_prepare},
                   cpu_batchnorm_relu = {.prepare = cpu_batchnorm_prepare},
                   cpu_batchnorm_add_relu = {.prepare = cpu_batchnorm_add_prepare};
