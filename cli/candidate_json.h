/* candidate_json.h: prints clusters at their best plans (advice.h). */
#pragma once

#include "cli/cli.h"
#include "tandem/advice.h"

/* "dynamic", a number as text, or null. */
json_t *cli_loss_scale_json(double loss_scale);
/* "16 + 8": batches of n classes. Returns text. */
const char *cli_batch_list_print(char *text, size_t size, const int64_t *batch, int n_class);
/* The largest peak of a rank; 0 without a plan, or where it is not known. */
uint64_t cli_largest_peak(const tandem_answer *answer);
/* The cluster and its plan, or why there is none. */
json_t *cli_candidate_json(const tandem_candidate *candidate);
