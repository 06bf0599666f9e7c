/* embedding: the table's row for each token. The gradient of a tied table is added to the one that its linear
 * has written. */
#include "backend/cuda/operator.h"

static const tandem_parameter *cuda_embedding_table(const tandem_kernel *kernel)
{
    return &kernel->graph->parameter[kernel->op->parameter[0]];
}

static tandem_status cuda_embedding_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                        tandem_error *error)
{
    const cuda_device *device = kernel->device;
    const tandem_parameter *table = cuda_embedding_table(kernel);
    const size_t vocabulary = (size_t)table->shape.dim[0], width = (size_t)table->shape.dim[1];
    const size_t n = (size_t)tandem_shape_elements(cuda_input_shape(kernel, 0));
    const tandem_cuda_float type = cuda_float_of(kernel->task.from);
    const int failed =
        kernel->task.kind == TANDEM_TASK_FORWARD
            ? tandem_cuda_embedding(call->out[0], call->in[1], type, call->in[0], n, vocabulary, width,
                                    &device->faults->bad_token, device->stream)
            : tandem_cuda_embedding_gradient(call->out[0], call->in[0], call->in[1], type, n, vocabulary,
                                             width, table->tied >= 0, device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_embedding_prepare(tandem_kernel *kernel, tandem_error *error)
{
    if (!cuda_is_float(kernel->task.from)) return cuda_kernel_refuse(kernel, "tables are floats", error);
    kernel->run = cuda_embedding_run;
    return TANDEM_OK;
}

const cuda_operator cuda_embedding = {.prepare = cuda_embedding_prepare};
