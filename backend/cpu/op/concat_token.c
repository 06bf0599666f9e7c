/* concat_token: puts the parameter, one row, before the rows of each sample; its gradient is the sum of those
 * rows' gradients. */
#include <string.h>

#include "backend/cpu/kernel.h"

typedef struct cpu_concat_token_shape {
    int64_t samples, width;
    size_t row_bytes, sample_bytes; /* of a sample of the input */
} cpu_concat_token_shape;

static cpu_concat_token_shape cpu_concat_token_shape_of(const tandem_kernel *kernel)
{
    const tandem_shape *in = cpu_input_shape(kernel, 0);
    const size_t row_bytes = (size_t)in->dim[2] * tandem_dtype_bytes(kernel->task.from);
    return (cpu_concat_token_shape){in->dim[0], in->dim[2], row_bytes, row_bytes * (size_t)in->dim[1]};
}

static tandem_status cpu_concat_token_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                              tandem_error *error)
{
    const cpu_concat_token_shape l = cpu_concat_token_shape_of(kernel);
    const char *x = call->in[0];
    char *y = call->out[0];
    for (int64_t s = 0; s < l.samples; s++, x += l.sample_bytes, y += l.row_bytes + l.sample_bytes) {
        if (kernel->task.from == TANDEM_F32)
            memcpy(y, call->in[1], l.row_bytes);
        else
            kernel->device->isa->bf16_from_f32((uint16_t *)(void *)y, call->in[1], (size_t)l.width);
        memcpy(y + l.row_bytes, x, l.sample_bytes);
    }
    return TANDEM_OK;
}

static tandem_status cpu_concat_token_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const cpu_concat_token_shape l = cpu_concat_token_shape_of(kernel);
    const char *g = call->in[0];
    char *gx = call->out[0];
    for (int64_t s = 0; s < l.samples; s++, g += l.row_bytes + l.sample_bytes, gx += l.sample_bytes)
        memcpy(gx, g + l.row_bytes, l.sample_bytes);
    return TANDEM_OK;
}

static tandem_status cpu_concat_token_wgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const cpu_concat_token_shape l = cpu_concat_token_shape_of(kernel);
    const char *g = call->in[0];
    memset(call->out[0], 0, (size_t)l.width * sizeof(float));
    for (int64_t s = 0; s < l.samples; s++, g += l.row_bytes + l.sample_bytes)
        cpu_add_row(call->out[0], g, kernel->task.from, l.width);
    return TANDEM_OK;
}

static tandem_status cpu_concat_token_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    const int is_wgrad = task->kind == TANDEM_TASK_WGRAD;
    if (!cpu_is_float(task->from) || task->to != (is_wgrad ? TANDEM_F32 : task->from))
        return cpu_kernel_refuse(kernel, "it moves f32 or bf16 as it is", error);
    kernel->run = is_wgrad                          ? cpu_concat_token_wgrad
                  : task->kind == TANDEM_TASK_DGRAD ? cpu_concat_token_dgrad
                                                    : cpu_concat_token_forward;
    return TANDEM_OK;
}

const cpu_operator cpu_concat_token = {.prepare = cpu_concat_token_prepare};
