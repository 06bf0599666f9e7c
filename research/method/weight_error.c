/* weight_error.c: the expected squared error of the rounded weight, as a share of its square: what methods
 * look at that see no data. A product's second input counts as its weight. Unit: none. */
#include "research/method/method.h"

static double weight_error_compute(const rank_input *input, int k)
{
    const tandem_statistics *s = &input->statistics[input->op[k]];
    const double error = rank_variances_of(input, k).w * (double)s->w_elements;
    return s->w_square > 0 ? error / s->w_square : 0;
}

const rank_method rank_method_weight_error = {"weight_error", "none", RANK_NEEDS_STATISTICS,
                                              weight_error_compute};
