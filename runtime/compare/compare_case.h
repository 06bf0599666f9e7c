/* compare_case.h: the steps of a comparison: one plan, predicted by the replayer and measured by a run. */
#pragma once

#include "runtime/compare/compare_verdict.h"
#include "runtime/train/run_steadiness.h"

/* compare_judge: sets out->steady: predicts each kept step of the run at the machine's speed beside it and
 * with what others took in it. Errors of the store and the replayer. Cost: a replay per kept step. */
tandem_status compare_judge(tandem_compare_result *out, const tandem_compare_request *request,
                            const tandem_workload *workload, tandem_error *error);
