/* sensitivity.h: the parts of `tandem sensitivity`. */
#pragma once

#include "cli/cli.h"

/* Batches over which statistics are taken, where --steps does not say it. */
enum { SENSITIVITY_BATCHES = 10 };

/* sensitivity_put_statistics: trains the options' model in fp32 for options->steps batches, and stores their
 * statistics. is_printed: also prints what follows, and sets *code. Errors of a training and of the store. */
tandem_status sensitivity_put_statistics(const cli_options *options, int is_printed, int *code,
                                         tandem_error *error);
/* Senses gradients, by the options' way, after the statistics; stores all replicates and prints what follows.
 * Returns the exit code. */
int sensitivity_sense(const cli_options *options);
/* Reports a store that cannot be written before the batches, not after. */
tandem_status sensitivity_check_store(const char *db, tandem_error *error);
