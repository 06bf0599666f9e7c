/* softmax: y = softmax(scale·x) over the last dimension; where causal, entry (i, j) with j > i of the last
 * two dimensions is masked: its y is exactly 0. gx = scale·y·(g − Σ g·y), 0 where masked because y is. */
#include "backend/cpu/kernel.h"

static void softmax_rows(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t begin,
                         int64_t end)
{
    const tandem_isa_kernels *isa = kernel->device->one_thread;
    const tandem_op *op = kernel->op;
    const size_t n = (size_t)tandem_shape_last(&op->shape);
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        float top = 0;
        float *const to = (float *)call->out[0] + r * n;
        const float *const first = (const float *)call->in[0] + r * n;
        if (kernel->task.kind == TANDEM_TASK_FORWARD)
            isa->softmax_f32(to, first, n, op->causal ? r % n + 1 : n, op->scale, &top);
        else
            isa->softmax_backward_f32(to, first, (const float *)call->in[1] + r * n, n, op->scale);
    }
}

static tandem_status cpu_softmax_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    const int64_t n = tandem_shape_last(&kernel->op->shape);
    cpu_kernel_rows(kernel, call, tandem_shape_elements(&kernel->op->shape) / n, n, softmax_rows);
    return TANDEM_OK;
}

static tandem_status cpu_softmax_prepare(tandem_kernel *kernel, tandem_error *error)
{
    kernel->run = cpu_softmax_run;
    return TANDEM_OK;
}

const cpu_operator cpu_softmax = {.prepare = cpu_softmax_prepare};
