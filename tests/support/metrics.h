/* metrics.h: how far computed numbers lie from what they should be. Every test that speaks of these errors
 * uses these. */
#ifndef TANDEM_TESTS_CONFORMANCE_METRICS_H
#define TANDEM_TESTS_CONFORMANCE_METRICS_H

#include <stddef.h>

/* Relative L2 error:  √(Σ (x_i − r_i)²) / √(Σ r_i²);  0 where both sums are 0, infinity where only Σ r² is.
 * */
double metrics_relative_l2(const double *reference, const double *x, size_t n);

/* Largest error in units in the last place:  max_i |x_i − r_i| / ulp(r_i),  ulp(r) = 2^(max(⌊log₂|r|⌋, e_min)
 * − (p − 1)). p: significant bits (24: f32, 8: bf16); e_min = −126 for both. NaN where any x_i is NaN. */
double metrics_max_ulp(const double *reference, const double *x, size_t n, int p);

/* Cosine of the angle between two vectors:  Σ r_i x_i / (√(Σ r_i²) √(Σ x_i²));  1 where both are 0, 0 where
 * one is. */
double metrics_cosine(const double *reference, const double *x, size_t n);

#endif
