/* maxpool: the maximum of each window; padding never wins. aux: its position within the window, one byte for
 * windows of up to 256 positions, else an int32. */
#include <inttypes.h>

#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"

/* oneDNN selects the format of the positions; the step program reserves aux_bytes. */
static tandem_status cpu_maxpool_check_aux(const tandem_kernel *kernel, const cpu_primitive *primitive,
                                           int slot, tandem_error *error)
{
    const dnnl_memory_desc_t *layout = NULL;
    dnnl_memory_get_memory_desc(primitive->argument[slot].memory, &layout);
    const uint64_t bytes = layout ? dnnl_memory_desc_get_size(layout) : 0;
    if (bytes == kernel->op->aux_bytes) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_NO_KERNEL,
                            "operator '%s' (maxpool): oneDNN notes the places of the maxima in %" PRIu64
                            " bytes where the graph has %" PRIu64 "; windows of up to 15x15 agree",
                            kernel->op->name, bytes, kernel->op->aux_bytes);
}

static tandem_status cpu_maxpool_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_op *op = kernel->op;
    const tandem_task *task = &kernel->task;
    const int is_forward = task->kind == TANDEM_TASK_FORWARD;
    if (!cpu_is_float(task->from) || task->to != task->from)
        return cpu_kernel_refuse(kernel, "it works in f32 or in bf16 throughout", error);
    const dnnl_memory_desc_t x = cpu_image_descriptor(task->from, cpu_input_shape(kernel, 0));
    const dnnl_memory_desc_t y = cpu_image_descriptor(task->from, &op->shape);
    const dnnl_dims_t stride = {op->stride, op->stride}, window = {op->kernel_h, op->kernel_w},
                      pad = {op->pad, op->pad}, end = {op->pad + op->pad_end, op->pad + op->pad_end};
    dnnl_pooling_desc_t forward, backward;
    if (dnnl_pooling_forward_desc_init(&forward, dnnl_forward_training, dnnl_pooling_max, &x, &y, stride,
                                       window, pad, end) != dnnl_success ||
        dnnl_pooling_backward_desc_init(&backward, dnnl_pooling_max, &x, &y, stride, window, pad, end) !=
            dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no pool of these shapes", error);
    cpu_primitive primitive = {0};
    tandem_status status =
        is_forward
            ? cpu_primitive_make(&primitive, kernel, &forward, NULL, 3,
                                 (const int[]){DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE}, error)
            : cpu_primitive_make(&primitive, kernel, &backward, &forward, 3,
                                 (const int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_WORKSPACE, DNNL_ARG_DIFF_SRC},
                                 error);
    if (status != TANDEM_OK) return status;
    status = cpu_maxpool_check_aux(kernel, &primitive, is_forward ? 2 : 1, error);
    if (status != TANDEM_OK) {
        cpu_primitive_close(&primitive);
        return status;
    }
    return cpu_primitive_keep(kernel, &primitive, is_forward ? 1 : 2, error);
}

const cpu_operator cpu_maxpool = {.prepare = cpu_maxpool_prepare};
