/* matmul: c = a·b for each of the leading dimensions.  a (m, k), c (m, n), b (k, n), or (n, k) with
 * transpose_b.
 * linear: y = x·W, one such product: x (rows, k), W (k, n), y (rows, n); rows are all leading dimensions. A
 * tied linear reads an embedding's table, (n, k): y = x·Wᵀ. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/product.h"

static tandem_status cpu_matmul_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_shape *a = cpu_input_shape(kernel, 0);
    const int64_t k = tandem_shape_last(a), n = tandem_shape_last(&kernel->op->shape),
                  rows = tandem_shape_elements(a) / k,
                  m = kernel->op->kind == TANDEM_OP_LINEAR ? rows : a->dim[a->n_dim - 2];
    const int transposed = kernel->op->transpose_b;
    cpu_product_spec spec = {.batch = rows / m,
                             .from = kernel->task.from,
                             .to = kernel->task.to,
                             .accumulate = kernel->task.accumulate};
    if (kernel->task.kind == TANDEM_TASK_FORWARD) { /* a·b */
        spec.m = m, spec.k = k, spec.n = n;
        spec.transpose_b = transposed;
    } else if (kernel->task.kind == TANDEM_TASK_DGRAD) { /* g·bᵀ */
        spec.m = m, spec.k = n, spec.n = k;
        spec.transpose_b = !transposed;
    } else if (transposed) {
        /* operands come as a, g; the gradient is gᵀ·a, (n, k): prepared with its operands swapped */
        spec.m = n, spec.k = m, spec.n = k;
        spec.transpose_a = 1;
        spec.swap_operands = 1;
    } else { /* aᵀ·g */
        spec.m = k, spec.k = m, spec.n = n;
        spec.transpose_a = 1;
    }
    return cpu_product_prepare(kernel, &spec, error);
}

const cpu_operator cpu_linear = {.prepare = cpu_matmul_prepare}, cpu_matmul = {.prepare = cpu_matmul_prepare};
