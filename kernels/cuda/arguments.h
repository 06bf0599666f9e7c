/* arguments.h: how the public functions for other programs refuse pointers (tandem/cuda_kernels.h). `what` is
 * the function, `name` the argument. */
#pragma once

#include "tandem/status.h"

tandem_status refuse_null(const char *what, const char *name, tandem_error *error);
/* A pointer to something at a multiple of `alignment`. */
tandem_status check_device_pointer(const char *what, const char *name, const void *at, unsigned alignment,
                                   tandem_error *error);
