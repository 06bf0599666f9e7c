/* robust.h: sums of non-negative parts fitted to measured times; for predictor/ and replayer/. */
#ifndef TANDEM_PREDICTOR_ROBUST_H
#define TANDEM_PREDICTOR_ROBUST_H

#include <stddef.h>

#include "tandem/status.h"

enum { TANDEM_ROBUST_MAX_TERMS = 4 };

/* tandem_robust_fit: coefficient[n_term] ≥ 0 of y ≈ Σ_p coefficient_p · x_p, where x[n × n_term] is row-major
 * and not negative, y[n] > 0. Errors are relative: the rows are divided by their y, and what lies far off
 * counts little or nothing: iteratively reweighted least squares with Tukey's bisquare weights
 * (gsl_multifit_robust; the GNU Scientific Library's manual, "Robust linear regression"). A part whose
 * coefficient would be negative is left out, the most negative first. *spread: median of |fit − y| / y over
 * 0.6745. TANDEM_NO_MEMORY; TANDEM_USAGE where there are fewer rows than parts that are not 0 in all of them,
 * or none of these. Outputs unchanged on error. GSL's error handler, which would end the process, is switched
 * off for good. */
tandem_status tandem_robust_fit(double *coefficient, double *spread, const double *x, const double *y,
                                size_t n, size_t n_term, tandem_error *error);

/* Median of n ≥ 1 numbers, which are sorted. */
double tandem_median(double *value, size_t n);

#endif
