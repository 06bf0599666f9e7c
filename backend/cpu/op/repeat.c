/* repeat: each row of dimension 0 several times; its gradient is the sum of theirs, in f32. */
#include <string.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/number.h"

static tandem_status cpu_repeat_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    const tandem_task *const task = &kernel->task;
    const tandem_shape *const out = &kernel->op->shape;
    const int64_t times = out->dim[1], row = tandem_shape_elements(out) / (out->dim[0] * times);
    const size_t row_bytes = (size_t)row * tandem_dtype_bytes(task->from);
    for (int64_t i = 0; i < out->dim[0]; i++) {
        const char *const from = (const char *)call->in[0] + (size_t)i * row_bytes;
        char *const to = (char *)call->out[0] + (size_t)(i * times) * row_bytes;
        for (int64_t k = 0; k < times && task->kind == TANDEM_TASK_FORWARD; k++)
            memcpy(to + (size_t)k * row_bytes, from, row_bytes);
        for (int64_t j = 0; j < row && task->kind == TANDEM_TASK_DGRAD; j++) {
            float sum = 0;
            for (int64_t k = 0; k < times; k++)
                sum += cpu_number(call->in[0], (i * times + k) * row + j, task->from);
            cpu_set_number(call->out[0], i * row + j, task->to, sum);
        }
    }
    return TANDEM_OK;
}

static tandem_status cpu_repeat_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *const task = &kernel->task;
    kernel->run = cpu_repeat_run;
    if (cpu_is_float(task->from) && cpu_is_float(task->to) &&
        (task->kind == TANDEM_TASK_DGRAD || task->from == task->to))
        return TANDEM_OK;
    return cpu_kernel_refuse(kernel, "it moves f32 or bf16 as it is", error);
}

const cpu_operator cpu_repeat = {.prepare = cpu_repeat_prepare};
