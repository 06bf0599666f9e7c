/* ends.c: the first and the last operator are the sensitive ones, a rule of practice; all others are equal.
 * Unit: none. */
#include "research/method/method.h"

static double ends_compute(const rank_input *input, int k) { return k == 0 || k == input->n_op - 1; }

const rank_method rank_method_ends = {"ends", "none", RANK_NEEDS_NOTHING, ends_compute};
