/* goodput.h: the goodput of plans at other batches than the planner's; private to allocator/. */
#pragma once

#include "tandem/advanced/allocator.h"

/* As tandem_planner_goodput, without the step in fp32, for a plan of the planner's model at any batches. */
tandem_status tandem_goodput_find(tandem_goodput *goodput, tandem_planner *planner, const tandem_plan *plan,
                                  tandem_error *error);
