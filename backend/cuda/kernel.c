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

cuda_type cuda_type_of(tandem_dtype dtype)
{
    switch (dtype) {
    case TANDEM_BF16: return CUDA_TYPE_BF16;
    case TANDEM_F16: return CUDA_TYPE_F16;
    case TANDEM_E4M3: return CUDA_TYPE_E4M3;
    case TANDEM_E5M2: return CUDA_TYPE_E5M2;
    case TANDEM_S8: return CUDA_TYPE_S8;
    case TANDEM_S32: return CUDA_TYPE_S32;
    default: return CUDA_TYPE_F32;
    }
}

tandem_dtype cuda_operand_type(const tandem_kernel *kernel, int slot)
{
    const tandem_task *task = &kernel->task;
    const int gradient = task->kind == TANDEM_TASK_DGRAD ? 0 : 1; /* which operand is one */
    return task->kind == TANDEM_TASK_FORWARD || slot == gradient ? task->from : task->second;
}
