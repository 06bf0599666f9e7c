/* concat_token: puts the parameter, one row, before the rows of each sample; its gradient is the sum of those
 * rows' gradients. */
#include "backend/cuda/operator.h"

static tandem_status cuda_concat_token_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                           tandem_error *error)
{
    const tandem_shape *in = cuda_input_shape(kernel, 0);
    const size_t batch = (size_t)in->dim[0], rows = (size_t)in->dim[1], width = (size_t)in->dim[2];
    const tandem_cuda_stream stream = kernel->device->stream;
    const tandem_cuda_float type = cuda_float_of(kernel->task.from);
    int failed = 0;
    if (kernel->task.kind == TANDEM_TASK_FORWARD) {
        failed = tandem_cuda_shift_rows(call->out[0], call->in[0], type, call->in[1], batch, rows + 1, rows,
                                        width, -1, stream);
    } else if (kernel->task.kind == TANDEM_TASK_DGRAD) {
        failed = tandem_cuda_shift_rows(call->out[0], call->in[0], type, NULL, batch, rows, rows + 1, width,
                                        1, stream);
    } else { /* gathers the first rows, then sums them */
        failed = tandem_cuda_shift_rows(call->workspace, call->in[0], type, NULL, batch, 1, rows + 1, width,
                                        0, stream);
        void *const rest =
            cuda_workspace_at(call->workspace, (batch * width * sizeof(float) + 255) / 256 * 256);
        if (!failed)
            failed = tandem_cuda_column_sum(call->out[0], call->workspace, type, batch, width, width, rest,
                                            kernel->device->tickets, stream);
    }
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_concat_token_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_shape *in = cuda_input_shape(kernel, 0);
    if (!cuda_is_float(kernel->task.from))
        return cuda_kernel_refuse(kernel, "it moves floats as they are", error);
    if (kernel->task.kind == TANDEM_TASK_WGRAD) {
        const size_t batch = (size_t)in->dim[0], width = (size_t)in->dim[2];
        cuda_workspace_reserve(&kernel->workspace_bytes, batch * width * sizeof(float));
        cuda_workspace_reserve(&kernel->workspace_bytes, tandem_cuda_column_sum_workspace(batch, width));
    }
    kernel->run = cuda_concat_token_run;
    return TANDEM_OK;
}

const cuda_operator cuda_concat_token = {.prepare = cuda_concat_token_prepare};
