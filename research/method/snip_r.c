/* snip_r.c: a reconstruction of what SNIP looks at (Pan et al., arXiv:2602.01410, 2026): the divergence of
 * the loss in the forward pass, and that of the weights in the backward pass. The formulas are our derivation
 * from that description, with independent errors, and both in nats: an error, times the gradient there.
 *   forward   the loss changes by ⟨∂L/∂x, ξ⟩ + ⟨∂L/∂w, ω⟩ to first order, of the deviation
 *                 √(v_x·|∂L/∂x|² + v_w·|∂L/∂w|²).
 *             An input without a gradient adds nothing.
 *   backward  Rounding g, x and w adds errors to dw = xᵀ·g and dx = g·wᵀ (predictor/fisher.c, 3 and 4):
 *                 Σ Var(dw) = columns·v_g·|x|² + k·v_x·|g|²,    Σ Var(dx) = rows·v_g·|w|² + k·v_w·|g|².
 *             The share Var(dx) / |dx|² of error stays in the gradients of the weights before. An update
 *             −η·dw with the error δ changes the loss of the next step by η·⟨dw, δ⟩, of the deviation
 *             η·|dw|·√(Var(dw)/n), n: numbers of the weight. With AdamW η is the rate over the root of the
 *             mean square of dw. These are added over the operator and all before it.
 * An operator before it in the order is taken as one that the error reaches. Unit: nats. */
#include <math.h>

#include "research/method/method.h"

static double step_rate_of(const tandem_graph *graph, const tandem_statistics *s)
{
    const double rate = (double)graph->optimizer.rate, square = s->wgrad_square / (double)s->w_elements;
    return graph->optimizer.kind == TANDEM_SGD ? rate : square > 0 ? rate / sqrt(square) : 0;
}

/* Of one weight whose gradient has an error of this square. */
static double weight_divergence(const tandem_graph *graph, const tandem_statistics *s, double error_square)
{
    return s->w_elements > 0
               ? step_rate_of(graph, s) * sqrt(s->wgrad_square * error_square / (double)s->w_elements)
               : 0;
}

static double snip_r_compute(const rank_input *input, int k)
{
    const tandem_statistics *s = &input->statistics[input->op[k]];
    const rank_variances v = rank_variances_of(input, k);
    const double rows = (double)s->rows, columns = (double)s->columns, depth = (double)s->k,
                 forward = sqrt(v.x * s->dgrad_square + v.w * s->wgrad_square),
                 own = columns * v.g * s->x_square + depth * v.x * s->g_square,
                 below = rows * v.g * s->w_square + depth * v.w * s->g_square,
                 share = s->dgrad_square > 0 ? below / s->dgrad_square : 0;
    double backward = weight_divergence(input->graph, s, own);
    for (int before = 0; before < k; before++) {
        const tandem_statistics *other = &input->statistics[input->op[before]];
        backward += weight_divergence(input->graph, other, share * other->wgrad_square);
    }
    return forward + backward;
}

const rank_method rank_method_snip_r = {"snip_r", "nats", RANK_NEEDS_STATISTICS, snip_r_compute};
