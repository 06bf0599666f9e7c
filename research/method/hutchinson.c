/* hutchinson.c: curvature of the loss along the weight times the square of its rounding error, as in HAWQ-V2
 * (Dong et al., arXiv:1911.03852, 2019): ½·(mean of the Hessian's diagonal)·(expected squared error). The
 * trace is Hutchinson's estimate E zᵀHz with random signs z; Hz is the difference of a probe's two gradients.
 * A product of two activations has no weight, so that nothing is said of it. Unit: nats. */
#include "research/method/method.h"

static double hutchinson_compute(const rank_input *input, int k)
{
    return 0.5 * input->probe[k].trace * rank_variances_of(input, k).w;
}

const rank_method rank_method_hutchinson = {"hutchinson", "nats", RANK_NEEDS_PROBE, hutchinson_compute};
