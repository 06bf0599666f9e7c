/* gather_labelled: per sample, the rows of dimension 1 whose label is not −1, in order; aux: their indices
 * among all rows. The gradient of the other rows is 0. */
#include <string.h>

#include "backend/cpu/kernel.h"

static size_t cpu_gather_labelled_row_bytes(const tandem_kernel *kernel)
{
    const tandem_shape *all = cpu_input_shape(kernel, 0);
    return (size_t)(tandem_shape_elements(all) / (all->dim[0] * all->dim[1])) *
           tandem_dtype_bytes(kernel->task.from);
}

static int64_t cpu_gather_labelled_rows(const tandem_kernel *kernel)
{
    return kernel->op->shape.dim[0] * kernel->op->shape.dim[1];
}

static tandem_status cpu_gather_labelled_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                                 tandem_error *error)
{
    const size_t bytes = cpu_gather_labelled_row_bytes(kernel);
    const int64_t rows = cpu_gather_labelled_rows(kernel);
    int32_t *const row_index = call->out[1];
    int64_t label_index = -1;
    for (int64_t r = 0; r < rows; r++) {
        const tandem_status status = cpu_label_index(&label_index, kernel, call->in[1], r, rows, error);
        if (status != TANDEM_OK) return status;
        row_index[r] = (int32_t)label_index;
        memcpy((char *)call->out[0] + (size_t)r * bytes,
               (const char *)call->in[0] + (size_t)label_index * bytes, bytes);
    }
    return TANDEM_OK;
}

static tandem_status cpu_gather_labelled_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                               tandem_error *error)
{
    const size_t bytes = cpu_gather_labelled_row_bytes(kernel);
    const int64_t rows = cpu_gather_labelled_rows(kernel);
    const tandem_shape *all = cpu_input_shape(kernel, 0);
    const int32_t *const row_index = call->in[1];
    memset(call->out[0], 0, (size_t)(all->dim[0] * all->dim[1]) * bytes);
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)call->out[0] + (size_t)row_index[r] * bytes,
               (const char *)call->in[0] + (size_t)r * bytes, bytes);
    return TANDEM_OK;
}

const cpu_operator cpu_gather_labelled = {.forward = cpu_gather_labelled_forward,
                                          .dgrad = cpu_gather_labelled_dgrad};
