/* sensitivity.h: `tandem sensitivity` of a plan as a whole; private to its command. */
#pragma once

#include "cli/cli.h"

/* What --plan or --uniform does with all operators rounded at once. Returns the exit code. */
int cli_estimate_plan(const cli_options *options);
