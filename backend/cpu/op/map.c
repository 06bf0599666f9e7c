/* map: y = f(x) for each element; gx = g·f'(x). The functions are those of function.def, in double. */
#include "backend/cpu/kernel.h"

static tandem_status cpu_map_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                 tandem_error *error)
{
    const tandem_op *const op = kernel->op;
    const size_t n = (size_t)tandem_shape_elements(&op->shape);
    const double alpha = (double)op->alpha, beta = (double)op->beta;
    float *const out = call->out[0];
    if (kernel->task.kind == TANDEM_TASK_FORWARD) {
        const float *const x = call->in[0];
        for (size_t i = 0; i < n; i++)
            out[i] = (float)tandem_function_value(op->function, (double)x[i], alpha, beta);
        return TANDEM_OK;
    }
    const float *const g = call->in[0], *const x = call->in[1];
    for (size_t i = 0; i < n; i++)
        out[i] = (float)((double)g[i] * tandem_function_slope(op->function, (double)x[i], alpha, beta));
    return TANDEM_OK;
}

static tandem_status cpu_map_prepare(tandem_kernel *kernel, tandem_error *error)
{
    kernel->run = cpu_map_run;
    return TANDEM_OK;
}

const cpu_operator cpu_map = {.prepare = cpu_map_prepare};
