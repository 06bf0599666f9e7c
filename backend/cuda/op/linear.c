/* matmul: c = a·b for each of the leading dimensions.  a (m, k), c (m, n), b (k, n), or (n, k) with
 * transpose_b.
 * linear: y = x·W, one such product: x (rows, k), W (k, n), y (rows, n). A tied linear reads an embedding's
 * table, (n, k): y = x·Wᵀ. */
#include "backend/cuda/operator.h"

static tandem_status cuda_matmul_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_shape *a = cuda_input_shape(kernel, 0);
    const int64_t k = tandem_shape_last(a), n = tandem_shape_last(&kernel->op->shape),
                  rows = tandem_shape_elements(a) / k,
                  m = kernel->op->kind == TANDEM_OP_LINEAR ? rows : a->dim[a->n_dim - 2], batch = rows / m;
    const int transposed = kernel->op->transpose_b;
    cuda_product_spec spec = {.batch = batch, .m = m, .k = k, .n = n, .transpose_b = transposed}; /* a·b */
    spec.c_row = kernel->padded_row;
    int swap_operands = 0;
    if (kernel->task.kind == TANDEM_TASK_DGRAD) { /* g·bᵀ */
        spec.k = n, spec.n = k;
        spec.a_row = kernel->padded_row, spec.c_row = 0;
        spec.transpose_b = !transposed;
    } else if (kernel->task.kind == TANDEM_TASK_WGRAD) { /* aᵀ·g, or gᵀ·a */
        swap_operands = transposed;
        spec = (cuda_product_spec){.batch = batch,
                                   .m = transposed ? n : k,
                                   .k = m,
                                   .n = transposed ? k : n,
                                   .transpose_a = 1,
                                   .a_row = kernel->padded_row}; /* which a tied linear has alone: A is g */
    }
    spec.accumulate = kernel->task.accumulate;
    return cuda_gemm_prepare(kernel, &spec, swap_operands, error);
}

const cuda_operator cuda_linear = {.prepare = cuda_matmul_prepare},
                    cuda_matmul = {.prepare = cuda_matmul_prepare};
