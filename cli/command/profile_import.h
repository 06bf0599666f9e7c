/* profile_import.h: `tandem profile --import`. */
#pragma once

#include "cli/cli.h"

/* Returns the exit code. */
int profile_import(const cli_options *options);
