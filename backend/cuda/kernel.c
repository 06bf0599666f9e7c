#include "backend/cuda/operator.h"

tandem_status cuda_kernel_result(const tandem_kernel *kernel, int failed, tandem_error *error)
{
    char name[KERNEL_NAME];
    if (!failed) return TANDEM_OK;
    kernel_name(name, &kernel->task, kernel->op);
    return tandem_error_set(error, TANDEM_NO_DEVICE, "device '%s' failed in %s: %s (error %d)",
                            kernel->device->name, name, kernel->device->vendor->error_text(failed), failed);
}

const tandem_shape *cuda_input_shape(const tandem_kernel *kernel, int slot)
{
    return &kernel->graph->op[kernel->op->input[slot]].shape;
}

tandem_cuda_pool cuda_window_of(const tandem_kernel *kernel)
{
    const tandem_op *op = kernel->op;
    const int64_t *in = cuda_input_shape(kernel, 0)->dim, *out = op->shape.dim;
    return (tandem_cuda_pool){(int)in[0],  (int)in[1],   (int)in[2],   (int)in[3], (int)out[1],
                              (int)out[2], op->kernel_h, op->kernel_w, op->stride, op->pad};
}

tandem_status cuda_kernel_of_float(tandem_kernel *kernel, cuda_kernel_run *run, tandem_error *error)
{
    kernel->run = run;
    if (cuda_is_float(kernel->task.from) && kernel->task.to == kernel->task.from) return TANDEM_OK;
    return cuda_kernel_refuse(kernel, "it works in one float type", error);
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
    return task->kind == TANDEM_TASK_FORWARD || slot == gradient ? task->from : task->other_operand_dtype;
}
