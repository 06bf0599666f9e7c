/* slice: rows start … start+n−1 of dimension 1; the gradient of the other rows is 0. */
#include "backend/cuda/operator.h"

static tandem_status cuda_slice_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    const tandem_shape *whole = cuda_input_shape(kernel, 0), *part = &kernel->op->shape;
    const size_t batch = (size_t)whole->dim[0], all = (size_t)whole->dim[1],
                 width = (size_t)tandem_shape_elements(whole) / batch / all,
                 some = (size_t)tandem_shape_elements(part) / batch / width;
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    const long start = (long)kernel->op->start;
    return cuda_kernel_result(kernel,
                              tandem_cuda_shift_rows(call->out[0], call->in[0],
                                                     cuda_float_of(kernel->task.from), NULL, batch,
                                                     is_forward ? some : all, is_forward ? all : some, width,
                                                     is_forward ? start : -start, kernel->device->stream),
                              error);
}

const cuda_operator cuda_slice = {.forward = cuda_slice_run, .dgrad = cuda_slice_run};
