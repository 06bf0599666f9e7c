/* run_agreement.h: all that decides what the ranks of a run do, as text. Ranks compare their texts when
 * they join (worker_open): with other requests, files or versions they would train apart, or wait for each
 * other. What has no line, ranks may differ in: each has its own patience, store and limit of memory, and
 * rank 0 alone writes a log, a trace and a result. */
#pragma once

#include "runtime/train/training_rank.h"

/* Sets *text to lines "key: value"; free() releases it. The rank has its config, and its data where the
 * request names some. TANDEM_NO_MEMORY: *text is unchanged. */
tandem_status run_agreement_make(char **text, const training_rank *rank, const tandem_workload *workload,
                                 const tandem_train_request *request, tandem_error *error);

/* The same for a run that trains nothing: the version, and lines that its request decides. */
tandem_status run_agreement_make_of(char **text, const char *lines, tandem_error *error);
