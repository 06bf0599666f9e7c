#include "backend/cpu/kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void cpu_kernel_name(char name[CPU_KERNEL_NAME], const tandem_kernel *kernel)
{
    const tandem_task *task = &kernel->task;
    const tandem_op_row *row = tandem_op_row_get(kernel->op->kind);
    snprintf(name, CPU_KERNEL_NAME, "the %s of operator '%s' (%s%s%s, %s to %s)", tandem_task_kind_name(task->kind),
             kernel->op->name, row->name, row->op_class == TANDEM_ADJUSTABLE ? ", " : "",
             row->op_class == TANDEM_ADJUSTABLE ? tandem_precision_get(task->precision)->name : "",
             tandem_dtype_name(task->from), tandem_dtype_name(task->to));
}

tandem_status cpu_kernel_refuse(const tandem_kernel *kernel, const char *why, tandem_error *error)
{
    char name[CPU_KERNEL_NAME];
    cpu_kernel_name(name, kernel);
    return tandem_error_set(error, TANDEM_NO_KERNEL,
                            "device '%s' has no kernel for %s: %s; give the operator another precision or the work "
                            "another device",
                            kernel->device->name, name, why);
}

tandem_status cpu_kernel_no_memory(const tandem_kernel *kernel, tandem_error *error)
{
    char name[CPU_KERNEL_NAME];
    cpu_kernel_name(name, kernel);
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to prepare %s", name);
}

const tandem_shape *cpu_input_shape(const tandem_kernel *kernel, int slot)
{
    return &kernel->graph->op[kernel->op->input[slot]].shape;
}

tandem_status cpu_label_place(int64_t *place, const tandem_kernel *kernel, const int32_t *label, int64_t row,
                              int64_t rows, tandem_error *error)
{
    const int64_t batch = kernel->graph->batch, of_sample = rows / batch,
                  length = tandem_shape_elements(cpu_input_shape(kernel, 1)) / batch;
    if (of_sample == length) {
        *place = row;
        return TANDEM_OK;
    }
    const int64_t sample = row / of_sample, end = (sample + 1) * length;
    int64_t next = row % of_sample == 0 ? sample * length : *place + 1;
    while (next < end && label[next] == -1) next++;
    if (next == end)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "operator '%s': sample %" PRId64 " has %" PRId64
                                " labels that are not −1; allowed is %" PRId64,
                                kernel->op->name, sample, row % of_sample, of_sample);
    *place = next;
    return TANDEM_OK;
}

size_t cpu_bias_period(const tandem_kernel *kernel)
{
    return (size_t)tandem_bias_period(kernel->op, &kernel->graph->parameter[kernel->op->parameter[0]]);
}

void cpu_add_row(float *sum, const void *row, tandem_dtype from, int64_t n)
{
    if (from == TANDEM_F32) {
        const float *const wide = row;
        for (int64_t j = 0; j < n; j++) sum[j] += wide[j];
        return;
    }
    const uint16_t *const narrow = row;
    for (int64_t j = 0; j < n; j++) {
        const uint32_t bits = (uint32_t)narrow[j] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        sum[j] += value;
    }
}
