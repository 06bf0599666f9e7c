/* taylor_mse.c: the expected square of the first-order change of the loss, Σ (∂L/∂x·δx)² + Σ (∂L/∂w·δw)²,
 * with independent errors: v_x·|∂L/∂x|² + v_w·|∂L/∂w|². It is the Taylor criterion of pruning (Molchanov et
 * al., arXiv:1906.10771, 2019) with rounding errors in the place of removed weights. Unit: squares of nats.
 */
#include "research/method/method.h"

static double taylor_mse_compute(const rank_input *input, int k)
{
    const tandem_statistics *s = &input->statistics[input->op[k]];
    const rank_variances v = rank_variances_of(input, k);
    return v.x * s->dgrad_square + v.w * s->wgrad_square;
}

const rank_method rank_method_taylor_mse = {"taylor_mse", "nats²", RANK_NEEDS_STATISTICS, taylor_mse_compute};
