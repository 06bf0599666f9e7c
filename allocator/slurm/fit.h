/* fit.h: whether a model can fit the memory of a device at all: from the graph and its step program alone, without costs,
 * in a millisecond. Private to allocator/slurm. */
#ifndef TANDEM_ALLOCATOR_SLURM_FIT_H
#define TANDEM_ALLOCATOR_SLURM_FIT_H

#include "tandem/cluster.h"
#include "tandem/graph.h"

/* tandem_fit_least: bytes that a rank takes at least, under every plan: weights, gradients, optimizer state, and what of
 * each tensor is alive at one moment whatever the precisions are. A model that takes more than a device has cannot run
 * there. Kernels' workspace is not counted, since it takes costs to know it. TANDEM_NO_MEMORY.
 * Cost: O(precisions × values of the step program). */
tandem_status tandem_fit_least(uint64_t *bytes, const tandem_graph *graph, const tandem_device *device,
                               tandem_error *error);

/* tandem_fit_batch: a batch, as large as can be found, at which the model fits limit_bytes with every operator in one precision
 * (*precision); 0 where not even 1 does. Looks from 1 to `most`, at 12 batches at most. What tandem_graph_open says. */
tandem_status tandem_fit_batch(int64_t *batch, tandem_precision *precision, const char *model,
                               const tandem_device *device, uint64_t limit_bytes, int64_t most, tandem_error *error);

#endif
