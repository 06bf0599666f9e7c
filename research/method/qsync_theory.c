/* qsync_theory.c: QSync's sum over layers (predictor/qsync.c: Ω = γ·(L − d)·F + d·B) with the variances of
 * its own theory in the place of those that are published: norms are squared, a float's error grows with the
 * square of its magnitude, and the gradient of the output is in backward products.
 *   F   of the output: Σ Var(y) = rows·v_x·|w|² + columns·v_w·|x|²
 *   B   of the weight's gradient: columns·v_g·|x|² + k·v_x·|g|²
 * Depth d counts the operators of the order before this one, and L is that of the last. Unit: none. */
#include "research/method/method.h"

static const double gamma_of_theory = 4;

static double qsync_theory_compute(const rank_input *input, int k)
{
    const tandem_statistics *s = &input->statistics[input->op[k]];
    const rank_variances v = rank_variances_of(input, k);
    const double columns = (double)s->columns;
    const double forward = (double)s->rows * v.x * s->w_square + columns * v.w * s->x_square,
                 backward = columns * v.g * s->x_square + (double)s->k * v.x * s->g_square;
    return gamma_of_theory * (input->n_op - 1 - k) * forward + k * backward;
}

const rank_method rank_method_qsync_theory = {"qsync_theory", "none", RANK_NEEDS_STATISTICS,
                                              qsync_theory_compute};
