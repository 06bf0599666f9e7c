/* paired.c: Student's t of pairs, and two one-sided tests. */
#include "predictor/paired.h"

#include <math.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>

paired_difference paired_difference_of(const double *difference, int n)
{
    paired_difference of = {.n = n, .mean = NAN, .deviation = NAN, .error = NAN};
    double sum = 0, square = 0;
    for (int i = 0; i < n; i++) sum += difference[i];
    if (n > 0) of.mean = sum / n;
    for (int i = 0; i < n; i++) square += (difference[i] - of.mean) * (difference[i] - of.mean);
    if (n < 2) return of;
    of.deviation = sqrt(square / (n - 1));
    of.error = of.deviation / sqrt(n);
    return of;
}

paired_interval paired_interval_of(const paired_difference *of, double level)
{
    if (of->n < 2) return (paired_interval){-INFINITY, INFINITY};
    const double half = of->error * gsl_cdf_tdist_Pinv(0.5 + level / 2, of->n - 1);
    return (paired_interval){of->mean - half, of->mean + half};
}

double paired_equivalence_p(const paired_difference *of, double margin)
{
    if (of->n < 2 || !isfinite(of->mean)) return 1;
    const double room = margin - fabs(of->mean); /* the side to which it is nearer decides */
    if (of->error > 0) return gsl_cdf_tdist_Q(room / of->error, of->n - 1);
    return room > 0 ? 0 : 1;
}

double paired_equivalence_power(double difference, double margin, double error, double freedom, double alpha)
{
    enum { PARTS = 1000 };
    const double t = gsl_cdf_tdist_Qinv(alpha, freedom), spread = 8 / sqrt(2 * freedom), /* of u, ample */
        least = fmax(1 - spread, 0), width = (1 + spread - least) / PARTS;
    double power = 0;
    for (int i = 0; i < PARTS; i++) {
        const double u = least + (i + 0.5) * width, low = t * u - (margin + difference) / error,
                     high = (margin - difference) / error - t * u;
        const double density = gsl_ran_chisq_pdf(u * u * freedom, freedom) * 2 * u * freedom;
        if (low < high) power += (gsl_cdf_ugaussian_P(high) - gsl_cdf_ugaussian_P(low)) * density * width;
    }
    return power;
}

int paired_equivalence_pairs(double deviation, double margin, double alpha, double power, int most)
{
    enum { LEAST = 3 };
    if (!(deviation > 0)) return deviation == 0 ? LEAST : most + 1;
    int low = LEAST - 1, high = most + 1; /* too few; enough, or more than most */
    while (high - low > 1) {
        const int n = low + (high - low) / 2;
        if (paired_equivalence_power(0, margin, deviation / sqrt(n), n - 1, alpha) >= power)
            high = n;
        else
            low = n;
    }
    return high;
}
