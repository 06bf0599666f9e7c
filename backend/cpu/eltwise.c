/* eltwise.c: elementwise operators by oneDNN, forward and dgrad. */
#include "backend/cpu/eltwise.h"

#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"

tandem_status cpu_eltwise_prepare(tandem_kernel *kernel, dnnl_alg_kind_t function, int reads,
                                  tandem_error *error)
{
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    const dnnl_memory_desc_t x =
        cpu_matrix_descriptor(TANDEM_F32, 1, tandem_shape_elements(&kernel->op->shape));
    dnnl_eltwise_desc_t forward, backward;
    cpu_primitive primitive = {0};
    if (dnnl_eltwise_forward_desc_init(&forward, dnnl_forward_training, function, &x, 0, 0) != dnnl_success ||
        dnnl_eltwise_backward_desc_init(&backward, function, &x, &x, 0, 0) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN does not take this shape", error);
    const tandem_status status =
        is_forward ? cpu_primitive_make(&primitive, kernel, &forward, NULL, 2,
                                        (const int[]){DNNL_ARG_SRC, DNNL_ARG_DST}, error)
                   : cpu_primitive_make(&primitive, kernel, &backward, &forward, 3,
                                        (const int[]){DNNL_ARG_DIFF_DST, reads, DNNL_ARG_DIFF_SRC}, error);
    return status == TANDEM_OK ? cpu_primitive_keep(kernel, &primitive, is_forward ? 1 : 2, error) : status;
}
