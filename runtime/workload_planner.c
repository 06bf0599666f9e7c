#include "runtime/workload_planner.h"

tandem_status workload_planner_open(tandem_planner **planner, const tandem_workload *workload,
                                    const tandem_train_request *request, int times_only, tandem_error *error)
{
    const tandem_request asked = {.store = request->store,
                                  .bucket_bytes = request->bucket_bytes,
                                  .loss_scale = request->workload.loss_scale,
                                  .times_only = times_only};
    return tandem_planner_open_workload(planner, &asked, workload, error);
}
