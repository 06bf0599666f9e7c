/* paired.h: what pairs of trainings say: Student's interval of their mean difference, two one-sided tests of
 * its smallness, and the pairs that these need. */
#ifndef TANDEM_PREDICTOR_PAIRED_H
#define TANDEM_PREDICTOR_PAIRED_H

/* Differences of n pairs. */
typedef struct paired_difference {
    int n;
    double mean, deviation,
        error; /* standard deviation of one, standard error of the mean; NaN where n < 2 */
} paired_difference;
paired_difference paired_difference_of(const double *difference, int n);

typedef struct paired_interval {
    double low, high;
} paired_interval;
/* The two-sided interval of the mean that holds it with the probability `level`, e.g. 0.95. Student's, n − 1
 * degrees of freedom. Without an end where n < 2. */
paired_interval paired_interval_of(const paired_difference *of, double level);

/* Two one-sided tests (Schuirmann, J. Pharmacokin. Biopharm. 15, 1987): the p value of "the mean lies outside
 * −margin … margin", the larger of both sides. It is below α where the two-sided interval of level 1 − 2α
 * lies inside. 1 where n < 2. */
double paired_equivalence_p(const paired_difference *of, double margin);

/* The probability that these tests reject at `alpha`, for a true mean `difference`, where the mean has the
 * true standard error `error`, estimated with `freedom` degrees of freedom. Exact up to numeric integration:
 * with u = estimated/true error, E max(0, Φ((m − d)/e − t·u) − Φ(t·u − (m + d)/e)) over u² ~ χ²/freedom.
 * Within 10⁻⁵. */
double paired_equivalence_power(double difference, double margin, double error, double freedom, double alpha);

/* The least number of pairs with that power where nothing is lost, from the deviation of a difference; at
 * least 3, at most `most` + 1: more than most. */
int paired_equivalence_pairs(double deviation, double margin, double alpha, double power, int most);

#endif
