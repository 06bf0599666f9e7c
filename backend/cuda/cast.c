/* cast.c: casts, with the bits of backend/cpu/cast.c. The range stays on the GPU. If it is not finite, the
 * scale is NaN, and the optimizer's check of the gradient reports it. */
#include "backend/cuda/operator.h"

static size_t cuda_cast_elements(const tandem_kernel *kernel)
{
    const tandem_task *task = &kernel->task;
    if (task->kind == TANDEM_TASK_WEIGHT_CAST)
        return (size_t)kernel->graph->parameter[task->parameter].elements;
    if (task->kind == TANDEM_TASK_SAVED_CAST)
        return (size_t)tandem_shape_elements(cuda_input_shape(kernel, task->slot)); /* no logits */
    return cuda_stored_elements(kernel);
}

static tandem_cuda_quantised cuda_cast_output(const tandem_kernel *kernel, const tandem_kernel_call *call)
{
    tandem_cuda_quantised to = {.code = cuda_code_of(kernel->task.to),
                                .batch = 1,
                                .rows = 1,
                                .columns = cuda_cast_elements(kernel),
                                .q = call->out[0],
                                .scale = call->out_scale[0]};
    if (kernel->task.n_write > 1) {
        to.batch = (size_t)kernel->matrices.batch;
        to.rows = (size_t)kernel->matrices.rows;
        to.columns = (size_t)kernel->matrices.columns;
        to.transposed_copy = call->out[1];
    }
    return to;
}

tandem_rounding cuda_cast_rounding(const tandem_kernel_call *call)
{
    return (tandem_rounding){
        call->rng.seed, {call->rng.stream[0], call->rng.stream[1], call->rng.stream[2]}, 0};
}

tandem_cuda_delayed_cast cuda_delayed_cast(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                           const tandem_rounding *rounding)
{
    return (tandem_cuda_delayed_cast){.to = cuda_cast_output(kernel, call),
                                      .history = call->history,
                                      .reuse_range = call->reuse_range,
                                      .may_lack_range = call->may_lack_range,
                                      .words = kernel->device->tickets,
                                      .rounding = rounding,
                                      .stream_offset = call->rng.stream_offset};
}

static tandem_status cuda_cast_quantise(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                        tandem_error *error)
{
    const cuda_device *device = kernel->device;
    const tandem_cuda_float type = cuda_float_of(kernel->task.from);
    const tandem_cuda_quantised to = cuda_cast_output(kernel, call);
    const float range =
        kernel->task.kind == TANDEM_TASK_CAST ? tandem_op_row_get(kernel->op->kind)->range : 0;
    const tandem_rounding rounding = cuda_cast_rounding(call);
    if (call->history) {
        const tandem_cuda_delayed_cast cast = cuda_delayed_cast(kernel, call, &rounding);
        return cuda_kernel_result(
            kernel, tandem_cuda_quantise_delayed(&cast, call->in[0], type, device->stream), error);
    }
    int failed = range > 0 ? tandem_cuda_set_word(device->amax_bits, tandem_bits_of(range), device->stream)
                           : tandem_cuda_amax(device->amax_bits, call->in[0], type,
                                              cuda_cast_elements(kernel), device->stream);
    if (!failed)
        failed = tandem_cuda_quantise(&to, call->in[0], type, device->amax_bits, &rounding,
                                      call->rng.stream_offset, device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_cast_dequantise(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                          tandem_error *error)
{
    return cuda_kernel_result(kernel,
                              tandem_cuda_dequantise(call->out[0], cuda_float_of(kernel->task.to),
                                                     call->in[0], cuda_code_of(kernel->task.from),
                                                     cuda_cast_elements(kernel), call->in_scale[0],
                                                     kernel->device->stream),
                              error);
}

static tandem_status cuda_cast_float(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    return cuda_kernel_result(kernel,
                              tandem_cuda_convert(call->out[0], cuda_float_of(kernel->task.to), call->in[0],
                                                  cuda_float_of(kernel->task.from),
                                                  cuda_cast_elements(kernel), kernel->device->stream),
                              error);
}

tandem_cuda_weight_copy cuda_weight_copy(const tandem_kernel *kernel, const tandem_kernel_call *call)
{
    return (tandem_cuda_weight_copy){.from = call->in[0],
                                     .to = call->out[0],
                                     .n = cuda_cast_elements(kernel),
                                     .rows = (uint32_t)kernel->matrices.rows};
}

static tandem_status cuda_cast_weight(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error)
{
    const tandem_cuda_weight_copy copy = cuda_weight_copy(kernel, call);
    return cuda_kernel_result(
        kernel, tandem_cuda_copy_weights(&copy, 1, cuda_float_of(kernel->task.to), kernel->device->stream),
        error);
}

static tandem_status cuda_cast_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_dtype from = kernel->task.from, to = kernel->task.to;
    if (cuda_is_code(to) && cuda_is_float(from))
        kernel->run = cuda_cast_quantise;
    else if (cuda_is_code(from) && cuda_is_float(to))
        kernel->run = cuda_cast_dequantise;
    else if (cuda_is_float(from) && cuda_is_float(to) && from != to)
        kernel->run = kernel->task.kind == TANDEM_TASK_WEIGHT_CAST ? cuda_cast_weight : cuda_cast_float;
    else
        return cuda_kernel_refuse(kernel, "no cast between these types is needed", error);
    return TANDEM_OK;
}

const cuda_operator cuda_cast = {.prepare = cuda_cast_prepare};
