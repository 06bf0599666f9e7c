/* local.c: the expected square of the error in the operator's own weight gradient, and in no other. With
 * dw = xᵀ·g and independent errors of x and g (predictor/fisher.c, section 3), Σ Var(dw) = columns·v_g·|x|² +
 * k·v_x·|g|² + rows·k·columns·v_x·v_g. Unit: squares of the gradient, in the metric of SGD. */
#include "research/method/method.h"

static double local_compute(const rank_input *input, int k)
{
    const tandem_statistics *s = &input->statistics[input->op[k]];
    const rank_variances v = rank_variances_of(input, k);
    const double columns = (double)s->columns, depth = (double)s->k;
    return columns * v.g * s->x_square + depth * v.x * s->g_square +
           (double)s->rows * depth * columns * v.x * v.g;
}

const rank_method rank_method_local = {"local", "squares", RANK_NEEDS_STATISTICS, local_compute};
