/* eltwise.h: elementwise operators that oneDNN computes. */
#pragma once

#include "backend/cpu/operator.h"

/* Prepares a kernel in f32: forward, or dgrad, which reads g and the operand that `reads` names: x
 * (DNNL_ARG_SRC) or y (DNNL_ARG_DST). TANDEM_NO_KERNEL, TANDEM_NO_MEMORY. */
tandem_status cpu_eltwise_prepare(tandem_kernel *kernel, dnnl_alg_kind_t function, int reads,
                                  tandem_error *error);
