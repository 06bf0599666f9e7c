/* scale: y = x·s, with a factor for each entry of the last dimension; gx = g·s, and the factor's gradient is
 * the sum of g·x over the rows. */
#include <string.h>

#include "backend/cpu/kernel.h"

static tandem_status cpu_scale_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                   tandem_error *error)
{
    const int64_t width = tandem_shape_last(&kernel->op->shape),
                  rows = tandem_shape_elements(&kernel->op->shape) / width;
    float *const out = call->out[0];
    if (kernel->task.kind == TANDEM_TASK_FORWARD) {
        const float *const x = call->in[0], *const s = call->in[1];
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < width; j++) out[r * width + j] = x[r * width + j] * s[j];
        return TANDEM_OK;
    }
    const float *const g = call->in[0], *const x = call->in[1], *const s = call->in[2];
    float *const sum = call->out[1];
    memset(sum, 0, (size_t)width * sizeof *sum);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++) {
            const int64_t i = r * width + j;
            sum[j] += g[i] * x[i];
            if (out) out[i] = g[i] * s[j];
        }
    return TANDEM_OK;
}

static tandem_status cpu_scale_prepare(tandem_kernel *kernel, tandem_error *error)
{
    kernel->run = cpu_scale_run;
    return TANDEM_OK;
}

const cpu_operator cpu_scale = {.prepare = cpu_scale_prepare};
