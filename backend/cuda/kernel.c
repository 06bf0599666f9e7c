#include <stdio.h>

#include "backend/cuda/operator.h"

void cuda_kernel_name(char name[CUDA_KERNEL_NAME], const tandem_kernel *kernel)
{
    const tandem_task *task = &kernel->task;
    const tandem_op_row *row = tandem_op_row_get(kernel->op->kind);
    (void)snprintf(name, CUDA_KERNEL_NAME, "the %s of operator '%s' (%s%s%s, %s to %s)",
                   tandem_task_kind_name(task->kind), kernel->op->name, row->name,
                   row->op_class == TANDEM_ADJUSTABLE ? ", " : "",
                   row->op_class == TANDEM_ADJUSTABLE ? tandem_precision_get(task->precision)->name : "",
                   tandem_dtype_name(task->from), tandem_dtype_name(task->to));
}

tandem_status cuda_kernel_refuse(const tandem_kernel *kernel, const char *why, tandem_error *error)
{
    char name[CUDA_KERNEL_NAME];
    cuda_kernel_name(name, kernel);
    return tandem_error_set(error, TANDEM_NO_KERNEL,
                            "device '%s' has no kernel for %s: %s; give the operator another precision or the work "
                            "another device",
                            kernel->device->name, name, why);
}

tandem_status cuda_kernel_no_memory(const tandem_kernel *kernel, tandem_error *error)
{
    char name[CUDA_KERNEL_NAME];
    cuda_kernel_name(name, kernel);
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to prepare %s", name);
}

tandem_status cuda_kernel_result(const tandem_kernel *kernel, int failed, tandem_error *error)
{
    char name[CUDA_KERNEL_NAME];
    if (!failed) return TANDEM_OK;
    cuda_kernel_name(name, kernel);
    return tandem_error_set(error, TANDEM_NO_DEVICE, "device '%s' failed in %s: %s (error %d)",
                            kernel->device->name, name, kernel->device->vendor->text(failed), failed);
}

const tandem_shape *cuda_input_shape(const tandem_kernel *kernel, int slot)
{
    return &kernel->graph->op[kernel->op->input[slot]].shape;
}
