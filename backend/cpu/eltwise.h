/* eltwise.h: operators that are one function of each element, as oneDNN has it. */
#ifndef TANDEM_BACKEND_CPU_ELTWISE_H
#define TANDEM_BACKEND_CPU_ELTWISE_H

#include "backend/cpu/operator.h"

/* Makes the kernel ready, in f32: forward, or dgrad, which reads g and what `reads` says: x (DNNL_ARG_SRC) or
 * y (DNNL_ARG_DST). TANDEM_NO_KERNEL, TANDEM_NO_MEMORY. */
tandem_status cpu_eltwise_prepare(tandem_kernel *kernel, dnnl_alg_kind_t function, int reads,
                                  tandem_error *error);

#endif
