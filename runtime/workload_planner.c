#include "runtime/workload_planner.h"

tandem_status workload_planner_open(tandem_planner **planner, const tandem_workload *workload,
                                    const tandem_train_request *request, int times_only, tandem_error *error)
{
    const tandem_request asked = {.store = request->store,
                                  .bucket_bytes = request->bucket_bytes,
                                  .step = workload->plan->step,
                                  .norm_is_given = !workload->scale_is_by_need,
                                  .loss_scale = request->workload.loss_scale,
                                  .times_only = times_only};
    const tandem_status status = tandem_planner_open_for(planner, &asked, &workload->cluster,
                                                         (const tandem_graph *const *)workload->graph, error);
    if (status == TANDEM_OK)
        tandem_replayer_load(tandem_planner_problem(*planner)->replayer, &workload->plan->assignment);
    return status;
}
