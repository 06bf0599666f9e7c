/* Operators of imported models that have no kernel on GPUs: they are planned and predicted there, and trained
 * on CPUs. */
#include "backend/cuda/operator.h"

static tandem_status cuda_refuse_operator(tandem_kernel *kernel, tandem_error *error)
{
    return cuda_kernel_refuse(kernel, "planned, not trained: GPUs have no such kernel", error);
}

const cuda_operator cuda_concat = {.prepare = cuda_refuse_operator},
                    cuda_mul = {.prepare = cuda_refuse_operator},
                    cuda_mul_constant = {.prepare = cuda_refuse_operator},
                    cuda_repeat = {.prepare = cuda_refuse_operator},
                    cuda_map = {.prepare = cuda_refuse_operator},
                    cuda_scale = {.prepare = cuda_refuse_operator},
                    cuda_grouped_conv2d = {.prepare = cuda_refuse_operator};
