/* map: y = f(x) for each element; gx = g·f'(x). The functions are those of function.def, in double. */
#include "backend/cpu/kernel.h"

static void map_elements(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t begin,
                         int64_t end)
{
    const tandem_op *const op = kernel->op;
    const double alpha = (double)op->alpha, beta = (double)op->beta;
    float *const out = call->out[0];
    if (kernel->task.kind == TANDEM_TASK_FORWARD) {
        const float *const x = call->in[0];
        for (int64_t i = begin; i < end; i++)
            out[i] = (float)tandem_function_value(op->function, (double)x[i], alpha, beta);
        return;
    }
    const float *const g = call->in[0], *const x = call->in[1];
    for (int64_t i = begin; i < end; i++)
        out[i] = (float)((double)g[i] * tandem_function_slope(op->function, (double)x[i], alpha, beta));
}

static tandem_status cpu_map_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                 tandem_error *error)
{
    cpu_kernel_rows(kernel, call, tandem_shape_elements(&kernel->op->shape), 1, map_elements);
    return TANDEM_OK;
}

static tandem_status cpu_map_prepare(tandem_kernel *kernel, tandem_error *error)
{
    kernel->run = cpu_map_run;
    return TANDEM_OK;
}

const cpu_operator cpu_map = {.prepare = cpu_map_prepare};
