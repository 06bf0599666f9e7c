/* batch_ratio.c: the interval of a ratio of squares over common batches.
 *
 * A probe predicts the square of one sum, the true square times a χ² over its degrees of freedom. So a
 * batch's residual is as large as its square, and where few batches have most of the error, few residuals
 * make the spread. Its degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946), of n residuals
 * whose variances go with the squares of what is measured: (Σm²)²/Σm⁴, less the one of the mean. χ² is skew,
 * and ratios that come out small have a small spread, too: so the interval is the logarithm's, by the delta
 * method. */
#include "research/batch_ratio.h"

#include <math.h>

#include <gsl/gsl_cdf.h>

static double mean_of(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum / n;
}

static double freedom_of(const double *measured, int n)
{
    double squares = 0, fourths = 0;
    for (int i = 0; i < n; i++) {
        const double square = measured[i] * measured[i];
        squares += square;
        fourths += square * square;
    }
    return fmax(squares * squares / fourths * (n - 1) / n, 1);
}

batch_ratio batch_ratio_of(const double *predicted, const double *measured, int n)
{
    const double of_predicted = mean_of(predicted, n), of_measured = mean_of(measured, n);
    double square = 0;
    for (int b = 0; b < n; b++) {
        const double residual = predicted[b] / of_predicted - measured[b] / of_measured;
        square += residual * residual;
    }
    const double t = gsl_cdf_tdist_Pinv(0.975, freedom_of(measured, n));
    return (batch_ratio){of_predicted / of_measured, exp(t * sqrt(square / n / (n - 1)))};
}
