#include "tests/support/metrics.h"

#include <math.h>

double metrics_relative_l2(const double *reference, const double *x, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += (x[i] - reference[i]) * (x[i] - reference[i]);
        size += reference[i] * reference[i];
    }
    return difference > 0 || isnan(difference) ? sqrt(difference) / sqrt(size) : 0;
}

double metrics_max_ulp(const double *reference, const double *x, size_t n, int p)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) return NAN;
        int exponent = -126;
        if (fabs(reference[i]) > 0) {
            (void)frexp(reference[i], &exponent); /* |r| = f·2^exponent with ½ ≤ f < 1 */
            exponent = exponent - 1 > -126 ? exponent - 1 : -126;
        }
        const double ulps = ldexp(fabs(x[i] - reference[i]), p - 1 - exponent);
        if (ulps > most) most = ulps;
    }
    return most;
}

double metrics_cosine(const double *reference, const double *x, size_t n)
{
    double product = 0, one = 0, other = 0;
    for (size_t i = 0; i < n; i++) {
        product += reference[i] * x[i];
        one += reference[i] * reference[i];
        other += x[i] * x[i];
    }
    if (!(one > 0) && !(other > 0)) return 1;
    if (!(one > 0) || !(other > 0)) return 0;
    return product / sqrt(one) / sqrt(other);
}
