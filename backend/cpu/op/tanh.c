/* tanh: y = tanh x; gx = g·(1 − y²). */
#include "backend/cpu/eltwise.h"

static tandem_status cpu_tanh_prepare(tandem_kernel *kernel, tandem_error *error)
{
    return cpu_eltwise_prepare(kernel, dnnl_eltwise_tanh_use_dst_for_bwd, DNNL_ARG_DST, error);
}

const cpu_operator cpu_tanh = {.prepare = cpu_tanh_prepare};
