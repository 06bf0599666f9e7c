/* resense_trigger.h: when a run senses its gradients again: every N steps, and where outliers have grown. */
#pragma once

#include "runtime/train/training_rank.h"

/* The same on all ranks; `last`, `n_sensed` and `range` are its state. All zero never senses. */
typedef struct resense_trigger {
    training_rank *rank;
    int64_t every; /* steps; 0: it never senses */
    int64_t last;  /* the step of the last sensing; 0: none yet */
    int n_sensed;
    /* 1: ranges begin no sensing that makes them more than 4/3 of those that the interval alone begins, so
     * that outliers that come and go do not take more of the run than N is for. 0: always */
    int is_limited;
    /* [n_op] of the output's gradient: largest element over root mean square, over all ranks */
    float *seen;          /* in this step, on this rank; 0: not seen */
    unsigned char *range; /* when it was last sensed, in quarters of a power of two from 1; 0: not seen */
    int is_observed;      /* this step is */
} resense_trigger;

/* The rank must be open. TANDEM_NO_MEMORY. The caller closes it, after errors too. */
tandem_status resense_trigger_open(resense_trigger *trigger, training_rank *rank, int64_t every,
                                   tandem_error *error);
void resense_trigger_close(resense_trigger *trigger); /* all zero is fine */

/* Before step `done` (from 1): observes its gradients where ranges are to be compared. */
void resense_trigger_before(resense_trigger *trigger, int64_t done);
/* All ranks, after step `done`.
 *   *is_due   the run is to sense now; its ranges and its step are kept as those of the last sensing
 *   *doubled  where that is why: the operator whose gradient's range has doubled since the last sensing;
 *             else −1
 * TANDEM_RANK_FAILED, TANDEM_NO_MEMORY. Cost: in every eighth of N steps a pass over the gradients. */
tandem_status resense_trigger_after(resense_trigger *trigger, int64_t done, int *is_due, int *doubled,
                                    tandem_error *error);
