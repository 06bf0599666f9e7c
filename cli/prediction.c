#include "cli/prediction.h"

tandem_status cli_planner_open(tandem_planner **planner, const cli_options *options,
                               const cli_subject *subject, int times_only, tandem_error *error)
{
    const tandem_request request = {.store = options->db,
                                    .method = options->method,
                                    .base = options->base,
                                    .bucket_bytes = options->bucket_bytes,
                                    .times_only = times_only};
    const tandem_status status = tandem_planner_open_for(planner, &request, &subject->cluster,
                                                         (const tandem_graph *const *)subject->graph, error);
    if (status == TANDEM_OK)
        tandem_replayer_set_plan(tandem_planner_problem(*planner)->replayer, subject->plan);
    return status;
}
