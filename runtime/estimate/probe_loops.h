/* probe_loops.h: the loops of a probe over numbers. Sums have lanes in a fixed order, so that they repeat.
 * Those that programs of others need, too, are in tandem/advanced/probe.h. */
#pragma once

#include <stdint.h>

/* By the bits of the magnitudes, which are ordered as the numbers are. */
float probe_amax(const float *x, int64_t n);
/* Σ a·b */
double probe_product(const float *a, const float *b, int64_t n);
/* Σ v·d², and *sum Σ v. */
double probe_weighted_squares(double *sum, const float *v, const float *d, int64_t n);
/* Of the sums of two differences a, b by the weights v: Σ v·a², Σ v·b², Σ v·a·b, Σ v. */
enum { PROBE_PAIR_FIRST, PROBE_PAIR_SECOND, PROBE_PAIR_CROSS, PROBE_PAIR_WEIGHT, PROBE_N_PAIR_SUM };
void probe_pair_sums(double sum[PROBE_N_PAIR_SUM], const float *v, const float *a, const float *b, int64_t n);
/* x = x² */
void probe_square_each(float *x, int64_t n);
/* to = to + x; to = to + (a − b); no array overlaps another, here and below. */
void probe_add(float *to, const float *x, int64_t n);
void probe_add_difference(float *to, const float *a, const float *b, int64_t n);
/* to = x·by; to = to·by − x */
void probe_scale(float *to, const float *x, float by, int64_t n);
void probe_subtract(float *to, float by, const float *x, int64_t n);
/* to [rows × depth] = g [rows × columns] · wᵀ, w [depth × columns]. */
void probe_linear_gradient(float *to, const float *g, const float *w, int64_t rows, int64_t depth,
                           int64_t columns);
