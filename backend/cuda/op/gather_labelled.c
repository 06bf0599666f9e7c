/* gather_labelled: per sample, the rows of dimension 1 whose label is not −1, in order; aux: their indices
 * among all rows. The gradient of the other rows is 0. */
#include "backend/cuda/operator.h"

static tandem_status cuda_gather_labelled_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                                  tandem_error *error)
{
    const cuda_device *device = kernel->device;
    const tandem_shape *all = cuda_input_shape(kernel, 0), *some = &kernel->op->shape;
    const size_t batch = (size_t)all->dim[0], n = (size_t)some->dim[1];
    int failed = tandem_cuda_label_indices(call->out[1], call->in[1], batch, (size_t)all->dim[1], n,
                                           &device->faults->bad_label, device->stream);
    if (!failed)
        failed = tandem_cuda_gather_rows(call->out[0], call->in[0], cuda_float_of(kernel->task.from),
                                         call->out[1], batch * n,
                                         (size_t)tandem_shape_elements(some) / (batch * n), device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_gather_labelled_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                                tandem_error *error)
{
    const tandem_shape *all = cuda_input_shape(kernel, 0), *some = &kernel->op->shape;
    const size_t rows = (size_t)(all->dim[0] * all->dim[1]), n = (size_t)(some->dim[0] * some->dim[1]);
    return cuda_kernel_result(
        kernel,
        tandem_cuda_scatter_rows(call->out[0], call->in[0], cuda_float_of(kernel->task.from), call->in[1], n,
                                 rows, (size_t)tandem_shape_elements(all) / rows, kernel->device->stream),
        error);
}

const cuda_operator cuda_gather_labelled = {.forward = cuda_gather_labelled_forward,
                                            .dgrad = cuda_gather_labelled_dgrad};
