/* concat: the rows of dimension 1 of the first input, then those of the second, for each entry of dimension
 * 0. Each gradient is its part of g, in the type of its tensor. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/number.h"

/* Copies `n` numbers from a part of one array to a part of another. */
static void copy_numbers(void *to, int64_t to_start, tandem_dtype to_type, const void *from,
                         int64_t from_start, tandem_dtype from_type, int64_t n)
{
    const size_t to_size = (size_t)tandem_dtype_bytes(to_type),
                 from_size = (size_t)tandem_dtype_bytes(from_type);
    if (to_type == from_type) {
        memcpy((char *)to + (size_t)to_start * to_size, (const char *)from + (size_t)from_start * from_size,
               (size_t)n * to_size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        cpu_set_number(to, to_start + i, to_type, cpu_number(from, from_start + i, from_type));
}

static tandem_status cpu_concat_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    const tandem_task *const task = &kernel->task;
    const int64_t blocks = kernel->op->shape.dim[0],
                  whole = tandem_shape_elements(&kernel->op->shape) / blocks,
                  first = tandem_shape_elements(cpu_input_shape(kernel, 0)) / blocks, second = whole - first;
    for (int64_t b = 0; b < blocks; b++) {
        if (task->kind == TANDEM_TASK_FORWARD) {
            copy_numbers(call->out[0], b * whole, task->to, call->in[0], b * first, task->from, first);
            copy_numbers(call->out[0], b * whole + first, task->to, call->in[1], b * second, task->from,
                         second);
            continue;
        }
        if (call->out[0])
            copy_numbers(call->out[0], b * first, task->to, call->in[0], b * whole, task->from, first);
        if (call->out[1])
            copy_numbers(call->out[1], b * second, task->other_operand_dtype, call->in[0], b * whole + first,
                         task->from, second);
    }
    return TANDEM_OK;
}

static tandem_status cpu_concat_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *const task = &kernel->task;
    kernel->run = cpu_concat_run;
    if (cpu_is_float(task->from) && cpu_is_float(task->to) &&
        (task->kind == TANDEM_TASK_FORWARD || cpu_is_float(task->other_operand_dtype)))
        return TANDEM_OK;
    return cpu_kernel_refuse(kernel, "it moves f32 or bf16", error);
}

const cpu_operator cpu_concat = {.prepare = cpu_concat_prepare};
