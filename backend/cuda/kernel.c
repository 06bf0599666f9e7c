#include "backend/cuda/operator.h"

tandem_status cuda_kernel_result(const tandem_kernel *kernel, int failed, tandem_error *error)
{
    char name[KERNEL_NAME];
    if (!failed) return TANDEM_OK;
    kernel_name(name, &kernel->task, kernel->op);
    return tandem_error_set(error, TANDEM_NO_DEVICE, "device '%s' failed in %s: %s (error %d)",
                            kernel->device->name, name, kernel->device->vendor->text(failed), failed);
}

const tandem_shape *cuda_input_shape(const tandem_kernel *kernel, int slot)
{
    return &kernel->graph->op[kernel->op->input[slot]].shape;
}
