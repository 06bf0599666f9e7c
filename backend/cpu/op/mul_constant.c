/* mul_constant: y = x·c, with numbers c of the graph for each place in a sample; gx = g·c. */
#include "backend/cpu/kernel.h"

static tandem_status cpu_mul_constant_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                          tandem_error *error)
{
    const tandem_op *const op = kernel->op;
    int64_t dim[TANDEM_MAX_DIM] = {1, 1, 1, 1}, step[TANDEM_MAX_DIM] = {0};
    const float *x = call->in[0];
    float *to = call->out[0];
    for (int d = 0, last = TANDEM_MAX_DIM - op->shape.n_dim; d < op->shape.n_dim; d++)
        dim[last + d] = op->shape.dim[d], step[last + d] = op->factor_step[d];
    for (int64_t i = 0; i < dim[0]; i++)
        for (int64_t j = 0; j < dim[1]; j++)
            for (int64_t k = 0; k < dim[2]; k++, x += dim[3], to += dim[3]) {
                const float *const c = op->factor + i * step[0] + j * step[1] + k * step[2];
                if (step[3] == 1)
                    for (int64_t l = 0; l < dim[3]; l++) to[l] = x[l] * c[l];
                else
                    for (int64_t l = 0; l < dim[3]; l++) to[l] = x[l] * c[l * step[3]];
            }
    return TANDEM_OK;
}

static tandem_status cpu_mul_constant_prepare(tandem_kernel *kernel, tandem_error *error)
{
    kernel->run = cpu_mul_constant_run;
    return TANDEM_OK;
}

const cpu_operator cpu_mul_constant = {.prepare = cpu_mul_constant_prepare};
