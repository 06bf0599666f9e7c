/* run_agreement.h: all that decides what the ranks of a run do, as text. Ranks compare their texts when they
 * join (worker_open): with other options, files or versions they would train apart, or wait for each
 * other. */
#pragma once

#include "cli/training_rank.h"

/* The options of which the text holds the effect in a line of its own, and those in which ranks may differ
 * (agreement.def). Both NULL: the option is compared as it was typed. */
typedef struct agreement_rule {
    const char *line, *reason;
} agreement_rule;
agreement_rule run_agreement_rule(int key);

/* Sets *text to lines "key: value"; free() releases it. The rank has its config, and its data where the
 * options name some. TANDEM_NO_MEMORY: *text is unchanged. */
tandem_status run_agreement_make(char **text, const training_rank *rank, const tandem_workload *workload,
                                 const cli_options *options, tandem_error *error);

/* The same for a run that trains nothing: the version, and the options as they were typed, but for those in
 * which ranks may differ. */
tandem_status run_agreement_make_typed(char **text, const cli_options *options, tandem_error *error);
