/* dropout.h: the mask of a dropout, for the operator and for an attention that contains one. */
#pragma once

#include "backend/cpu/operator.h"

/* Of all elements that the dropout `op` reads in this call; `first` is that of the batch's first sample. */
tandem_dropout cpu_dropout_mask(const tandem_graph *graph, const tandem_op *op,
                                const tandem_kernel_call *call);
