/* state_space.h: the dynamic program over the precisions of a model: what the choice for one operator adds
 * to the step, given the state that the choices before it left.
 *
 * A *stage* is the operators from one adjustable operator up to the next. Stage l + 1 begins with the choice
 * of layer l; stage 0 precedes the first choice. What a stage adds follows from its choice and from *state
 * bits* of earlier stages:
 *   output dtype d     a tensor has dtype d, bf16 or f16
 *   cast d             a reader wants the tensor in dtype d, not its own: that cast is counted
 *   saved d            the backward pass reads its version in d: those bytes are counted
 *   gradient cast d    its gradient is read in dtype d
 *   waits p            scores of an attention (tandem_step_attention) have precision p, and are counted by
 *                      the stage that decides whether the attention is one task
 *   recomputed cast d  it is recomputed for the backward pass and read in dtype d then: that cast is counted
 * A state holds the bits that can still change what a later stage adds, each in a *slot*. A bit that is the
 * same in all plans has no slot, and a slot is free once no later stage reads its bit. A state has as many
 * words of 64 slots as the graph needs at once. */
#ifndef TANDEM_STATE_SPACE_H
#define TANDEM_STATE_SPACE_H

#include "tandem/advanced/step.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_task_variant {
    int task, variant; /* of the step program */
} tandem_task_variant;

typedef struct tandem_state_space tandem_state_space;

/* tandem_state_space_open: of a step program, which is borrowed; its precisions do not matter.
 * allowed[n_op]:
 * bit p: the operator may have precision p. TANDEM_NO_MEMORY. Cost: O(operators + stages × slots). */
tandem_status tandem_state_space_open(tandem_state_space **space, const tandem_step *step,
                                      const unsigned *allowed, tandem_error *error);
void tandem_state_space_close(tandem_state_space *space); /* NULL is fine */

int tandem_state_space_n_layer(const tandem_state_space *space);
int tandem_state_space_op(const tandem_state_space *space, int layer);
int tandem_state_space_n_word(const tandem_state_space *space); /* of a state; at least 1 */

/* Slots of a state before stage s, [n_word] each: those that decide what the stage adds, and those that it
 * passes on unchanged. */
const uint64_t *tandem_state_space_read_mask(const tandem_state_space *space, int s);
const uint64_t *tandem_state_space_pass_mask(const tandem_state_space *space, int s);

typedef struct tandem_stage_cost {
    /* ascending in task; the caller's, with room for every task of the step */
    tandem_task_variant *task_variant;
    int n_task_variant;
    uint64_t bytes; /* in the arena while the loss is computed */
} tandem_stage_cost;

/* tandem_state_space_transition: what stage s adds where its operator has `precision` (stage 0: any). Reads
 * the slots of read_mask in state[n_word]. set_bits[n_word]: the slots that the stage itself sets. Cost:
 * O(operators of the stage + their bits). */
void tandem_state_space_transition(tandem_state_space *space, int s, tandem_precision precision,
                                   const uint64_t *state, tandem_stage_cost *cost, uint64_t *set_bits);

TANDEM_END_DECLARATIONS
#endif
