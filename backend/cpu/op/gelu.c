/* gelu: y = ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
 * Source: Hendrycks, Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415 (its tanh form). */
#include "backend/cpu/eltwise.h"

static tandem_status prepare(tandem_kernel *kernel, tandem_error *error)
{
    return cpu_eltwise_prepare(kernel, dnnl_eltwise_gelu_tanh, DNNL_ARG_SRC, error);
}

const cpu_operator cpu_gelu = {prepare};
