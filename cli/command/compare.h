/* compare.h: `tandem compare --measure-loss`; private to cli/command. */
#pragma once

#include "cli/cli.h"

/* Measures the loss of the plan that the options name, and prints it. Returns the exit code. */
int cli_compare_loss(const cli_options *options);
