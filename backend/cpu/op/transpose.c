/* transpose: dimension d of y is dimension axis[d] of x; the gradient uses the inverse permutation. */
#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"

/* Both tensors with the dimensions of y: y contiguous, x through its strides. */
static void cpu_transpose_layouts(const tandem_kernel *kernel, dnnl_memory_desc_t *x, dnnl_memory_desc_t *y)
{
    const tandem_shape *in = cpu_input_shape(kernel, 0), *out = &kernel->op->shape;
    const dnnl_data_type_t type = cpu_dnnl_type(kernel->task.from);
    dnnl_dims_t dims = {0}, x_packed = {0}, x_stride = {0}, y_stride = {0};
    int64_t x_step = 1, y_step = 1;
    for (int d = out->n_dim - 1; d >= 0; d--) {
        x_packed[d] = x_step;
        y_stride[d] = y_step;
        x_step *= in->dim[d];
        y_step *= out->dim[d];
    }
    for (int d = 0; d < out->n_dim; d++) {
        dims[d] = out->dim[d];
        x_stride[d] = x_packed[kernel->op->axis[d]];
    }
    dnnl_memory_desc_init_by_strides(x, out->n_dim, dims, type, x_stride);
    dnnl_memory_desc_init_by_strides(y, out->n_dim, dims, type, y_stride);
}

static tandem_status cpu_transpose_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    if (!cpu_is_float(task->from) || task->to != task->from)
        return cpu_kernel_refuse(kernel, "it moves f32 or bf16 as it is", error);
    dnnl_memory_desc_t x, y;
    cpu_transpose_layouts(kernel, &x, &y);
    cpu_primitive primitive = {0};
    const tandem_status status = task->kind == TANDEM_TASK_FORWARD
                                     ? cpu_primitive_copy(&primitive, kernel, &x, &y, error)
                                     : cpu_primitive_copy(&primitive, kernel, &y, &x, error);
    return status == TANDEM_OK ? cpu_primitive_keep(kernel, &primitive, 1, error) : status;
}

const cpu_operator cpu_transpose = {.prepare = cpu_transpose_prepare};
