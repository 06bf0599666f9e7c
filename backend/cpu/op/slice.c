/* slice: rows start … start+n−1 of dimension 1; the gradient of the other rows is 0. */
#include <string.h>

#include "backend/cpu/kernel.h"

static tandem_status cpu_slice_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                   tandem_error *error)
{
    const tandem_shape *whole = cpu_input_shape(kernel, 0), *part = &kernel->op->shape;
    const int64_t blocks = whole->dim[0], element_bytes = (int64_t)tandem_dtype_bytes(kernel->task.from);
    const size_t block_bytes = (size_t)(tandem_shape_elements(whole) / blocks * element_bytes);
    const size_t part_bytes = (size_t)(tandem_shape_elements(part) / blocks * element_bytes);
    const size_t before_bytes = block_bytes / (size_t)whole->dim[1] * (size_t)kernel->op->start;
    const char *from = call->in[0];
    char *to = call->out[0];
    for (int64_t b = 0; b < blocks; b++) {
        if (kernel->task.kind == TANDEM_TASK_FORWARD) {
            memcpy(to, from + before_bytes, part_bytes);
            from += block_bytes, to += part_bytes;
        } else {
            memset(to, 0, before_bytes);
            memcpy(to + before_bytes, from, part_bytes);
            memset(to + before_bytes + part_bytes, 0, block_bytes - before_bytes - part_bytes);
            from += part_bytes, to += block_bytes;
        }
    }
    return TANDEM_OK;
}

const cpu_operator cpu_slice = {.forward = cpu_slice_run, .dgrad = cpu_slice_run};
