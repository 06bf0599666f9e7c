/* sensitivity.h: the two ways of `tandem sensitivity`. */
#pragma once

#include "cli/cli.h"

/* With --at: senses gradients, stores all replicates and prints what follows. Returns the exit code. */
int sensitivity_sense(const cli_options *options);
