/* magnitude.c: the mean square of the weight: large weights are taken as important, as in magnitude pruning.
 * A product's second input counts as its weight. Unit: squares of weights. */
#include "research/method/method.h"

static double magnitude_compute(const rank_input *input, int k)
{
    const tandem_statistics *s = &input->statistics[input->op[k]];
    return s->w_elements > 0 ? s->w_square / (double)s->w_elements : 0;
}

const rank_method rank_method_magnitude = {"magnitude", "squares", RANK_NEEDS_STATISTICS, magnitude_compute};
