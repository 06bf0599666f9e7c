/* conv2d.h: the three passes of a convolution as oneDNN primitives. */
#pragma once

#include "backend/cpu/operator.h"

/* x, w and y may be gradients; trains: a forward pass whose backward pass follows. */
dnnl_status_t cpu_conv2d_describe(dnnl_convolution_desc_t *operation, const tandem_op *op,
                                  tandem_task_kind kind, int trains, const dnnl_memory_desc_t *x,
                                  const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *y);
/* By the kind of the task: the arguments that are read, then the result. */
extern const int cpu_conv2d_argument[][3];
