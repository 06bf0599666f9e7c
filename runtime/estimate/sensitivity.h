/* sensitivity.h: what stored replicates, or statistics, say of each operator. */
#pragma once

#include "tandem/advanced/estimate.h"
#include "tandem/advanced/store.h"
#include "tandem/runtime.h"

/* sensitivity_result_of: the result of an estimate, for a device; the caller releases it. TANDEM_USAGE:
 * replicates whose gradients are all 0. TANDEM_NO_MEMORY: *result unchanged. */
tandem_status sensitivity_result_of(tandem_sensitivity_result *result, const tandem_graph *graph,
                                    const tandem_estimate *estimate, const tandem_device *device,
                                    tandem_error *error);
/* The same of statistics, [graph->n_op] over n_batch batches: what each method says that needs no more.
 * TANDEM_NO_MEMORY: *result unchanged. */
tandem_status sensitivity_result_of_statistics(tandem_sensitivity_result *result, const tandem_graph *graph,
                                               const tandem_statistics *statistics, int64_t n_batch,
                                               const tandem_device *device, tandem_error *error);
