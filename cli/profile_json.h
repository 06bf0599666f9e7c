/* profile_json.h: a profile and a sweep as `tandem profile --json` prints them. NULL without memory. */
#pragma once

#include "cli/cli.h"

json_t *cli_profile_json(const tandem_profile_result *result, const char *store);
json_t *cli_sweep_json(const tandem_profile_result *result, const char *store);
