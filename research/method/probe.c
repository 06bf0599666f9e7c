/* probe.c: the method of a probe (research/probe.c, which has the derivation): two gradients, at the weights
 * plus and minus a step of random signs, give the expected square of what rounding an operator's input,
 * weight and output gradient changes in the gradient of all weights. So does the result, where it is
 * rounded when it is written. These parts are added as if they were independent. Divided by
 * the square of the gradient, in the metric of the optimizer, that is φρ (predictor/sampled.c). Unit: more
 * samples to the same loss, in percent. */
#include "research/method/method.h"

static double probe_compute(const rank_input *input, int k) { return input->probe[k].noise; }

const rank_method rank_method_probe = {"probe", "%", RANK_NEEDS_PROBE, probe_compute};
