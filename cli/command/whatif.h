/* whatif.h: what the parts of `tandem whatif` share. */
#pragma once

#include "cli/cli.h"

/* Reads the files of the options and prints the analysis. Returns the exit code. */
int whatif_torch(const cli_options *options);

/* Prints how many negative durations were set to 0, if there are any. */
void whatif_print_negative(int64_t n);
