/* conv2d_int8.h: the gradients of a convolution whose operands are int8. */
#pragma once

#include "backend/cpu/operator.h"

/* `prepare` of dgrad and wgrad with s8 operands. */
tandem_status cpu_conv2d_int8_gradient(tandem_kernel *kernel, tandem_error *error);
