/* mirror.h: the CUDA backend for callers whose arrays are the host's: tests/conformance. A kernel's operands
 * and workspace are copied to the card before it runs, and back after it; what it writes beside them there
 * is an error. */
#ifndef TANDEM_TESTS_CUDA_MIRROR_H
#define TANDEM_TESTS_CUDA_MIRROR_H

#include "tandem/advanced/device_backend.h"

extern const tandem_device_backend mirror_backend;
/* What the card was given (gpu_launches) by the kernel that ran last. */
int mirror_last_launches(void);

#endif
