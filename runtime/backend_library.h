/* backend_library.h: libtandem_backend.so, which runs the kernels. */
#pragma once

#include "tandem/advanced/backend.h"

/* Opens libtandem_backend.so once: $TANDEM_BACKEND, beside the program, ../lib, the system's path. NULL and
 * TANDEM_MISSING if there is none or its version differs. */
const tandem_backend_api *runtime_backend(tandem_error *error);
/* The path by which it was opened; "" before. */
const char *runtime_backend_path(void);
/* tandem_device_require (cluster.h); a GPU must open, too. */
tandem_status runtime_device_require(const char *device, tandem_error *error);
