/* add_law.c: the sum over parts of a plan, where slopes jump.
 *
 * An error e of a tensor changes a gradient by (∂g/∂x)·e: its square grows with the square of e. At a relu
 * the gradient jumps instead, where e carries a number across 0. The jump does not depend on e, and how many
 * numbers cross grows with the size of e: the expected square grows with |e|. So a part has the noise
 * A·a + B·a², with errors times a. Independent errors have the mean square e₁² + e₂². B is linear in it, and
 * adds up; A is linear in its root, so that A² adds up. That is exact where all parts reach the same relus in
 * the same proportions; else noise lies between this and the sum (Minkowski's inequality).
 *
 * Two scales distinguish them: A/2 + B/4 is the noise of halved errors. */
#include "research/add_law.h"

#include <math.h>

double add_law_noise(const add_law_parts *parts)
{
    double smooth = 0, jumps = 0;
    for (int i = 0; i < parts->n; i++) {
        const double whole = fmax(parts->whole[i], 0);
        const double a = fmin(fmax(4 * parts->halved[i] - whole, 0), whole);
        smooth += parts->weight[i] * (whole - a);
        jumps += parts->weight[i] * a * a;
    }
    return smooth + sqrt(jumps);
}

double add_law_power(double noise, double noise_before, double scale, double scale_before)
{
    if (!(noise > 0) || !(noise_before > 0)) return NAN;
    return log(noise / noise_before) / log(scale / scale_before);
}
