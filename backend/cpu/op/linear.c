/* linear: y = x·W. x (rows, k), W (k, n), y (rows, n); rows are all leading dimensions. A tied linear reads
 * an embedding's table, (n, k): y = x·Wᵀ. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/product.h"

static tandem_status cpu_linear_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_shape *x = cpu_input_shape(kernel, 0);
    const int64_t k = tandem_shape_last(x), n = tandem_shape_last(&kernel->op->shape),
                  rows = tandem_shape_elements(x) / k;
    cpu_product_spec spec = {
        .batch = 1, .from = kernel->task.from, .to = kernel->task.to, .accumulate = kernel->task.accumulate};
    const int tied = kernel->op->transpose_b;
    if (kernel->task.kind == TANDEM_TASK_FORWARD) { /* x·W */
        spec.m = rows, spec.k = k, spec.n = n;
        spec.transpose_b = tied;
    } else if (kernel->task.kind == TANDEM_TASK_DGRAD) { /* g·Wᵀ */
        spec.m = rows, spec.k = n, spec.n = k;
        spec.transpose_b = !tied;
    } else if (
        tied) { /* operands come as x, g; the gradient is gᵀ·x, (n, k): prepared with its operands swapped */
        spec.m = n, spec.k = rows, spec.n = k;
        spec.transpose_a = 1;
        spec.swap_operands = 1;
    } else { /* xᵀ·g */
        spec.m = k, spec.k = rows, spec.n = n;
        spec.transpose_a = 1;
    }
    return cpu_product_prepare(kernel, &spec, error);
}

const cpu_operator cpu_linear = {cpu_linear_prepare};
