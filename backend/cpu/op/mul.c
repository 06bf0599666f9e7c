/* mul: y = a·b for each element; b may have one row for all of dimension 1. ga = g·b, and gb = g·a, summed
 * over the rows that b's is for. Products and sums are in f32. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/number.h"

static tandem_status cpu_mul_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    const tandem_shape *const a = cpu_input_shape(kernel, 0), *const b = cpu_input_shape(kernel, 1);
    const tandem_task *const task = &kernel->task;
    const int64_t repeats = tandem_shape_elements(a) / tandem_shape_elements(b),
                  row = tandem_shape_elements(b) / b->dim[0], blocks = a->dim[0];
    for (int64_t i = 0, at = 0; i < blocks; i++)
        for (int64_t k = 0; k < repeats; k++)
            for (int64_t j = 0; j < row; j++, at++)
                cpu_set_number(call->out[0], at, task->to,
                               cpu_number(call->in[0], at, task->from) *
                                   cpu_number(call->in[1], i * row + j, task->from));
    return TANDEM_OK;
}

static tandem_status cpu_mul_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                   tandem_error *error)
{
    const tandem_shape *const a = cpu_input_shape(kernel, 0), *const b = cpu_input_shape(kernel, 1);
    const tandem_task *const task = &kernel->task;
    const int64_t repeats = tandem_shape_elements(a) / tandem_shape_elements(b),
                  row = tandem_shape_elements(b) / b->dim[0], blocks = a->dim[0];
    for (int64_t i = 0; i < blocks; i++)
        for (int64_t j = 0; j < row; j++) {
            float sum = 0;
            for (int64_t k = 0; k < repeats; k++) {
                const int64_t at = (i * repeats + k) * row + j;
                const float g = cpu_number(call->in[0], at, task->from);
                sum += g * cpu_number(call->in[1], at, task->from);
                if (call->out[0])
                    cpu_set_number(call->out[0], at, task->to,
                                   g * cpu_number(call->in[2], i * row + j, task->from));
            }
            if (call->out[1]) cpu_set_number(call->out[1], i * row + j, task->other_operand_dtype, sum);
        }
    return TANDEM_OK;
}

static tandem_status cpu_mul_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *const task = &kernel->task;
    kernel->run = task->kind == TANDEM_TASK_FORWARD ? cpu_mul_forward : cpu_mul_dgrad;
    if (cpu_is_float(task->from) && cpu_is_float(task->to) &&
        (task->kind == TANDEM_TASK_FORWARD || cpu_is_float(task->other_operand_dtype)))
        return TANDEM_OK;
    return cpu_kernel_refuse(kernel, "it computes in f32 or bf16", error);
}

const cpu_operator cpu_mul = {.prepare = cpu_mul_prepare};
