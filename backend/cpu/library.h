/* library.h: a product as oneDNN does it for itself: what a kernel is compared with. */
#ifndef TANDEM_BACKEND_CPU_LIBRARY_H
#define TANDEM_BACKEND_CPU_LIBRARY_H

#include "backend/cpu/operator.h"

/* Of a linear, matmul or conv2d, all passes, in floats; all operands in the layouts that oneDNN likes best,
 * so that nothing is reordered; convolutions are direct. Sets what cpu_operator's prepare sets, and the bytes
 * of what is read, then of the result. TANDEM_NO_KERNEL: int8. */
tandem_status cpu_library_prepare(tandem_kernel *kernel, uint64_t bytes[3], tandem_error *error);

#endif
