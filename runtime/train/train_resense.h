/* train_resense.h: a run that senses its own gradients, allocates again and goes on under the new plan. */
#pragma once

#include <jansson.h>

#include "runtime/train/resense_trigger.h"
#include "runtime/sense/sensing.h"

typedef struct train_resense {
    const tandem_train_request *request;
    const tandem_workload *workload; /* whose plan is changed */
    training_rank *rank;
    resense_trigger trigger;
    int64_t begin_ns; /* of the run, */
    int64_t taken_ns; /* and of it in all sensing */
    json_t *event;    /* of rank 0: all sensings */
} train_resense;

/* train_resense_check: whether the workload can be sensed and allocated again, before ranks start.
 * TANDEM_USAGE, TANDEM_MISSING (costs, or data). */
tandem_status train_resense_check(const tandem_train_request *request, const tandem_workload *workload,
                                  tandem_error *error);
/* The rank must be open. TANDEM_USAGE: the state has no room in a checkpoint. The caller closes it. */
tandem_status train_resense_open(train_resense *resense, const tandem_train_request *request,
                                 const tandem_workload *workload, training_rank *rank, tandem_error *error);
void train_resense_close(train_resense *resense); /* all zero is fine */

/* All ranks, after step `done`: senses where it is due, and changes the plan. *is_replanned: the rank has
 * another executor. *event: borrowed; what was sensed; NULL: nothing. TANDEM_RANK_FAILED: another rank has
 * died. Cost: a sensing; else in every eighth of N steps a pass over the gradients. */
tandem_status train_resense_after(train_resense *resense, int64_t done, int *is_replanned, json_t **event,
                                  tandem_error *error);

/* Appends the state to the text that a checkpoint keeps; nothing where it never senses. */
void train_resense_print(char *text, size_t size, const train_resense *resense);
/* All ranks, after restoring from `path` whose text is `config`: goes on under the plan of the checkpoint. */
tandem_status train_resense_restore(train_resense *resense, const char *path, const char *config,
                                    tandem_error *error);
