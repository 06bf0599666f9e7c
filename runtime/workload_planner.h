/* workload_planner.h: what the profile store says of a run that is requested. */
#pragma once

#include "runtime/backend_library.h"
#include "tandem/advanced/allocator.h"
#include "tandem/planner.h"
#include "tandem/runtime.h"

/* workload_planner_open: a planner for the workload with the costs of request->store, its replayer with the
 * workload's plan. times_only: without sensitivities. Close it before the workload, whose graphs it borrows.
 * Errors of tandem_planner_open_for. */
tandem_status workload_planner_open(tandem_planner **planner, const tandem_workload *workload,
                                    const tandem_train_request *request, int times_only, tandem_error *error);
