/* joined.h: operators whose tasks are launched as one. */
#pragma once

#include "graph/step/step_index.h"

/* Of a step with joined_tasks: sets joined_before and summed_transpose. */
void step_find_joined(tandem_step *step);
