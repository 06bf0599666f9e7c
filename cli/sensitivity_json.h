/* sensitivity_json.h: sensitivities as `tandem sensitivity --json` prints them and a page draws them. */
#pragma once

#include "cli/cli.h"

/* In percent, null where unknown; by statistics, what each method says. NULL without memory. */
json_t *cli_sensitivity_json(const tandem_sensitivity_result *result, const tandem_graph *graph);
