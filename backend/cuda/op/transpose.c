/* transpose: dimension d of y is dimension axis[d] of x; the gradient uses the inverse permutation. */
#include "backend/cuda/operator.h"

/* Element (i0 …) of the result, in the dimensions of y, is the operand's element at Σ i·stride; the gradient
 * uses the dimensions of x. */
tandem_cuda_permutation cuda_transpose_order(const tandem_kernel *kernel)
{
    const tandem_shape *x = cuda_input_shape(kernel, 0), *y = &kernel->op->shape;
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD, n = y->n_dim;
    size_t x_stride[TANDEM_MAX_DIM] = {0}, y_stride[TANDEM_MAX_DIM] = {0}, x_step = 1, y_step = 1;
    for (int d = n - 1; d >= 0; d--) {
        x_stride[d] = x_step, x_step *= (size_t)x->dim[d];
        y_stride[d] = y_step, y_step *= (size_t)y->dim[d];
    }
    tandem_cuda_permutation p = {{1, 1, 1, 1}, {0, 0, 0, 0}};
    for (int d = 0; d < n; d++) {
        const int index = TANDEM_MAX_DIM - n + (is_forward ? d : kernel->op->axis[d]);
        p.dim[index] = (size_t)y->dim[d];
        p.stride[index] = is_forward ? x_stride[kernel->op->axis[d]] : y_stride[d];
    }
    return p;
}

static tandem_status cuda_transpose_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                        tandem_error *error)
{
    const tandem_cuda_permutation p = cuda_transpose_order(kernel);
    return cuda_kernel_result(kernel,
                              tandem_cuda_transpose(call->out[0], call->in[0],
                                                    cuda_float_of(kernel->task.from), &p,
                                                    kernel->device->stream),
                              error);
}

const cuda_operator cuda_transpose = {.forward = cuda_transpose_run, .dgrad = cuda_transpose_run};
