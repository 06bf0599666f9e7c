/* sensitivity.h: what stored replicates say of each operator. */
#pragma once

#include "tandem/advanced/sensing.h"
#include "tandem/runtime.h"

/* sensitivity_result_of: the result of a sensing, for a device; the caller releases it. TANDEM_USAGE:
 * replicates whose gradients are all 0. TANDEM_NO_MEMORY: *result unchanged. */
tandem_status sensitivity_result_of(tandem_sensitivity_result *result, const tandem_graph *graph,
                                    const tandem_sensing *sensing, const tandem_device *device,
                                    tandem_error *error);
