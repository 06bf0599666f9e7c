/* linear: y = x·W. x (rows, k), W (k, n), y (rows, n). A tied linear reads an embedding's table, (n, k): y =
 * x·Wᵀ. */
#include "backend/cuda/operator.h"

static tandem_status cuda_linear_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_shape *x = cuda_input_shape(kernel, 0);
    const int64_t k = tandem_shape_last(x), n = tandem_shape_last(&kernel->op->shape),
                  rows = tandem_shape_elements(x) / k;
    const int tied = kernel->op->transpose_b;
    cuda_product_spec spec = {.batch = 1, .m = rows, .k = k, .n = n, .transpose_b = tied}; /* x·W */
    int swap_operands = 0;
    if (kernel->task.kind == TANDEM_TASK_DGRAD) { /* g·Wᵀ */
        spec.k = n, spec.n = k;
        spec.transpose_b = !tied;
        spec.accumulate = kernel->task.accumulate;
    } else if (kernel->task.kind == TANDEM_TASK_WGRAD) { /* xᵀ·g, for a table gᵀ·x */
        swap_operands = tied;
        spec = (cuda_product_spec){
            .batch = 1, .m = tied ? n : k, .k = rows, .n = tied ? k : n, .transpose_a = 1};
    }
    return cuda_gemm_prepare(kernel, &spec, swap_operands, error);
}

const cuda_operator cuda_linear = {cuda_linear_prepare};
