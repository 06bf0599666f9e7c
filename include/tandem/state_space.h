/* state_space.h: what choosing one operator's precision causes, given what the operators before it left open.
 *
 * The operators from one adjustable operator up to the next are a *stage*: stage l + 1 begins with the choice
 * of layer l, stage 0 is what lies before the first. Within a stage all follows from the choice and from
 * *bits* that earlier stages have settled, one bit each:
 *   narrow d  a tensor has type d, bf16 or f16
 *   wanted d  somebody reads it in type d, which is not its own: the cast to d has been counted
 *   kept d    its version in d is still read by the backward pass: its bytes have been counted
 *   gradient d  its gradient is read in type d
 *   again d   it is computed again for the backward pass, and read in type d then: that cast has been counted
 * A state is those bits that can still change what a later stage adds, each in a bit of its own (a *slot*). A
 * bit that is the same in all plans takes none, nor does one that nobody can ask about any more. There are as
 * many words of 64 slots as the widest frontier of the graph needs. */
#ifndef TANDEM_STATE_SPACE_H
#define TANDEM_STATE_SPACE_H

#include "tandem/step.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_task_variant {
    int task, variant; /* of the step program */
} tandem_task_variant;

typedef struct tandem_state_space tandem_state_space;

/* tandem_state_space_open: of a step program, which is borrowed; its precisions do not matter. allowed[n_op]
 * as for tandem_plan_dag_open. TANDEM_NO_MEMORY. Cost: O(operators + stages × slots). */
tandem_status tandem_state_space_open(tandem_state_space **space, const tandem_step *step,
                                      const unsigned *allowed, tandem_error *error);
void tandem_state_space_close(tandem_state_space *space); /* NULL is fine */

int tandem_state_space_n_layer(const tandem_state_space *space);
int tandem_state_space_op(const tandem_state_space *space, int layer);
int tandem_state_space_n_word(const tandem_state_space *space); /* of a state; at least 1 */

/* Of a state before stage s, [n_word] each: the slots that decide what the stage adds, and those that go on
 * behind it as they are. */
const uint64_t *tandem_state_space_read_mask(const tandem_state_space *space, int s);
const uint64_t *tandem_state_space_pass_mask(const tandem_state_space *space, int s);

typedef struct tandem_stage_cost {
    tandem_task_variant *task_variant; /* ascending in task; the caller's: room for every task of the step */
    int n_task_variant;
    uint64_t bytes; /* what the arena holds of it while the loss is computed */
} tandem_stage_cost;

/* tandem_state_space_transition: what stage s adds where its operator has `precision` (stage 0: any).
 * state[n_word]: only the touched slots are read. settled[n_word]: the slots that the stage itself leaves
 * behind. Cost: O(operators of the stage + their bits). */
void tandem_state_space_transition(tandem_state_space *space, int s, tandem_precision precision,
                                   const uint64_t *state, tandem_stage_cost *cost, uint64_t *set_bits);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
