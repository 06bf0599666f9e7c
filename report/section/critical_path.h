/* critical_path.h: the chain of tasks that is as long as the step; private to report/. */
#pragma once

#include "trace/reader/step_timeline.h"

/* [n_task] 1 = the task is on the path. The caller frees it; NULL = no memory. The path is found from its
 * end: a compute task follows the task of its rank that ended last before it began; an all-reduce follows the
 * compute task of the rank that was ready last. Cost: O(tasks · log tasks). */
unsigned char *report_critical_path(const tandem_step_timeline *timeline);
