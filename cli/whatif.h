/* whatif.h: `tandem whatif` on traces of the PyTorch profiler. */
#ifndef TANDEM_CLI_WHATIF_H
#define TANDEM_CLI_WHATIF_H

#include "cli/cli.h"

/* Reads the files that the options name and prints what they say. Returns the exit code. */
int whatif_torch(const cli_options *options);

#endif
