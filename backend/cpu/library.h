/* library.h: the reference that kernels are compared with: the product as oneDNN computes it alone. */
#pragma once

#include "backend/cpu/operator.h"

/* Prepares all passes of linear, matmul and conv2d in floats. Operands have oneDNN's preferred layouts, so
 * nothing is reordered; convolutions are direct. Sets what the prepare of a cpu_operator sets, and the bytes
 * of the two operands and the result. TANDEM_NO_KERNEL: int8. */
tandem_status cpu_library_prepare(tandem_kernel *kernel, uint64_t bytes[3], tandem_error *error);
