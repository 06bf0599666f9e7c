/* train_reestimate.h: a run that estimates its own sensitivities, allocates again and goes on under the new
 * plan. */
#pragma once

#include <jansson.h>

#include "runtime/train/reestimate_trigger.h"
#include "runtime/estimate/estimate.h"

typedef struct train_reestimate {
    const tandem_train_request *request;
    const tandem_workload *workload; /* whose plan is changed */
    training_rank *rank;
    reestimate_trigger trigger;
    int64_t begin_ns; /* of the run, */
    int64_t taken_ns; /* and of it in all estimates */
    json_t *event;    /* of rank 0: all estimates */
} train_reestimate;

/* train_reestimate_check: whether the workload can be estimated and allocated again, before ranks start.
 * TANDEM_USAGE, TANDEM_MISSING (costs, or data). */
tandem_status train_reestimate_check(const tandem_train_request *request, const tandem_workload *workload,
                                     tandem_error *error);
/* The rank must be open. TANDEM_USAGE: the state has no room in a checkpoint. The caller closes it. */
tandem_status train_reestimate_open(train_reestimate *reestimate, const tandem_train_request *request,
                                    const tandem_workload *workload, training_rank *rank,
                                    tandem_error *error);
void train_reestimate_close(train_reestimate *reestimate); /* all zero is fine */

/* All ranks, after step `done`: estimates where it is due, and changes the plan. *is_replanned: the rank has
 * another executor. *event: borrowed; what was estimated; NULL: nothing. TANDEM_RANK_FAILED: another rank has
 * died. Cost: an estimate; else in every eighth of N steps a pass over the gradients. */
tandem_status train_reestimate_after(train_reestimate *reestimate, int64_t done, int *is_replanned,
                                     json_t **event, tandem_error *error);

/* Appends the state to the text that a checkpoint keeps; nothing where it never estimates. */
void train_reestimate_print(char *text, size_t size, const train_reestimate *reestimate);
/* All ranks, after restoring from `path` whose text is `config`: goes on under the plan of the checkpoint. */
tandem_status train_reestimate_restore(train_reestimate *reestimate, const char *path, const char *config,
                                       tandem_error *error);
