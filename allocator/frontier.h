/* frontier.h: what choosing one operator's precision causes, given what the operators before it left open;
 * private to allocator/.
 *
 * The operators from one adjustable operator up to the next are a *stretch*: stretch l + 1 begins with the
 * choice of layer l, stretch 0 is what lies before the first. Within a stretch all follows from the choice
 * and from *facts* that earlier stretches have settled, one bit each:
 *   narrow d  a tensor has type d, bf16 or f16
 *   wanted d  somebody reads it in type d, which is not its own: the cast to d has been counted
 *   kept d    its version in d is still read by the backward pass: its bytes have been counted
 *   gradient d  its gradient is read in type d
 *   again d   it is computed again for the backward pass, and read in type d then: that cast has been counted
 * A state is those facts that can still change what a later stretch adds, each in a bit of its own (a
 * *slot*). A fact that is the same in all plans takes none, nor does one that nobody can ask about any more.
 * There are as many words of 64 slots as the widest frontier of the graph needs. */
#ifndef TANDEM_ALLOCATOR_FRONTIER_H
#define TANDEM_ALLOCATOR_FRONTIER_H

#include "allocator/network.h"

typedef struct tandem_frontier tandem_frontier;

/* tandem_frontier_open: of a step program, which is borrowed; its precisions do not matter. allowed[n_op] as
 * for tandem_network_open. TANDEM_NO_MEMORY. Cost: O(operators + stretches × slots). */
tandem_status tandem_frontier_open(tandem_frontier **frontier, const tandem_step *step,
                                   const unsigned *allowed, tandem_error *error);
void tandem_frontier_close(tandem_frontier *frontier); /* NULL is fine */

int tandem_frontier_n_layer(const tandem_frontier *frontier);
int tandem_frontier_op(const tandem_frontier *frontier, int layer);
int tandem_frontier_n_word(const tandem_frontier *frontier); /* of a state; at least 1 */

/* Of a state before stretch s, [n_word] each: the slots that decide what the stretch adds, and those that go
 * on behind it as they are. */
const uint64_t *tandem_frontier_touched(const tandem_frontier *frontier, int s);
const uint64_t *tandem_frontier_passed(const tandem_frontier *frontier, int s);

typedef struct tandem_effect {
    tandem_term *term; /* ascending in task; the caller's: room for every task of the step */
    int n_term;
    uint64_t bytes; /* what the arena holds of it while the loss is computed */
} tandem_effect;

/* tandem_frontier_run: what stretch s adds where its operator has `precision` (stretch 0: any).
 * state[n_word]: only the touched slots are read. settled[n_word]: the slots that the stretch itself leaves
 * behind. Cost: O(operators of the stretch + their facts). */
void tandem_frontier_run(tandem_frontier *frontier, int s, tandem_precision precision, const uint64_t *state,
                         tandem_effect *effect, uint64_t *settled);

#endif
