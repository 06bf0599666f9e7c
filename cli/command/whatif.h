/* whatif.h: what the parts of `tandem whatif` share. */
#ifndef TANDEM_CLI_WHATIF_H
#define TANDEM_CLI_WHATIF_H

#include "cli/cli.h"

/* Reads the files that the options name and prints what they say. Returns the exit code. */
int whatif_torch(const cli_options *options);

/* Says on stdout how many durations below 0 were taken as 0; nothing where there are none. */
void whatif_print_negative(int64_t n);

#endif
