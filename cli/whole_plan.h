/* whole_plan.h: what a plan does as a whole (tandem_plan_estimate of runtime.h), for `sensitivity --plan` and
 * `allocate --data`. */
#pragma once

#include "cli/cli.h"
#include "tandem/runtime.h"

/* The lines of an answer; in one line, "as a whole", but for what is not to be trusted. */
void whole_plan_print(const tandem_plan_estimate *estimate);
void whole_plan_print_short(const tandem_plan_estimate *estimate);
/* An object that the caller owns. */
json_t *whole_plan_json(const tandem_plan_estimate *estimate);
