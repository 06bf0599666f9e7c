/* reestimate_trigger.h: when a run estimates its sensitivities again: every N steps, and where outliers have
 * grown. */
#pragma once

#include "runtime/train/training_rank.h"

/* The same on all ranks; `last`, `n_estimated` and `range` are its state. All zero never estimates. */
typedef struct reestimate_trigger {
    training_rank *rank;
    int64_t every; /* steps; 0: it never estimates */
    int64_t last;  /* the step of the last estimate; 0: none yet */
    int n_estimated;
    /* 1: ranges begin no estimate that makes them more than 4/3 of those that the interval alone begins, so
     * that outliers that come and go do not take more of the run than N is for. 0: always */
    int is_limited;
    /* [n_op] of the output's gradient: largest element over root mean square, over all ranks */
    float *seen;          /* in this step, on this rank; 0: not seen */
    unsigned char *range; /* when it was last estimated, in quarters of a power of two from 1; 0: not seen */
    int is_observed;      /* this step is */
} reestimate_trigger;

/* The rank must be open. TANDEM_NO_MEMORY. The caller closes it, after errors too. */
tandem_status reestimate_trigger_open(reestimate_trigger *trigger, training_rank *rank, int64_t every,
                                      tandem_error *error);
void reestimate_trigger_close(reestimate_trigger *trigger); /* all zero is fine */

/* Before step `done` (from 1): observes its gradients where ranges are to be compared. */
void reestimate_trigger_before(reestimate_trigger *trigger, int64_t done);
/* All ranks, after step `done`.
 *   *is_due   the run is to estimate now; its ranges and its step are kept as those of the last estimate
 *   *doubled  where that is why: the operator whose gradient's range has doubled since the last estimate;
 *             else −1
 * TANDEM_RANK_FAILED, TANDEM_NO_MEMORY. Cost: in every eighth of N steps a pass over the gradients. */
tandem_status reestimate_trigger_after(reestimate_trigger *trigger, int64_t done, int *is_due, int *doubled,
                                       tandem_error *error);
