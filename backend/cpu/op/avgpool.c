/* avgpool: the mean of each window; no padding. */
#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"

static tandem_status cpu_avgpool_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_op *op = kernel->op;
    const tandem_task *task = &kernel->task;
    if (!cpu_is_float(task->from) || task->to != task->from)
        return cpu_kernel_refuse(kernel, "it works in f32 or in bf16 throughout", error);
    const dnnl_memory_desc_t x = cpu_image_descriptor(task->from, cpu_input_shape(kernel, 0));
    const dnnl_memory_desc_t y = cpu_image_descriptor(task->from, &op->shape);
    const dnnl_dims_t stride = {op->stride, op->stride}, window = {op->kernel_h, op->kernel_w}, pad = {0, 0};
    const dnnl_alg_kind_t mean = dnnl_pooling_avg_exclude_padding;
    dnnl_pooling_desc_t forward, backward;
    if (dnnl_pooling_forward_desc_init(&forward, dnnl_forward_training, mean, &x, &y, stride, window, pad,
                                       pad) != dnnl_success ||
        dnnl_pooling_backward_desc_init(&backward, mean, &x, &y, stride, window, pad, pad) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no pool of these shapes", error);
    cpu_primitive primitive = {0};
    const tandem_status status =
        task->kind == TANDEM_TASK_FORWARD
            ? cpu_primitive_make(&primitive, kernel, &forward, NULL, 2,
                                 (const int[]){DNNL_ARG_SRC, DNNL_ARG_DST}, error)
            : cpu_primitive_make(&primitive, kernel, &backward, &forward, 2,
                                 (const int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC}, error);
    return status == TANDEM_OK ? cpu_primitive_keep(kernel, &primitive, 1, error) : status;
}

const cpu_operator cpu_avgpool = {.prepare = cpu_avgpool_prepare};
