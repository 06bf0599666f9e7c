/* robust.c: robust linear regression with coefficients ≥ 0, by the GNU Scientific Library
 * (gsl_multifit_robust). */
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <gsl/gsl_sort_double.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tandem/advanced/predictor.h"

double tandem_median(double *value, size_t n)
{
    gsl_sort(value, 1, n);
    return gsl_stats_median_from_sorted_data(value, 1, n);
}

/* Where no rows are spare, outliers cannot be determined: plain least squares. */
static bool solve_lsq(gsl_vector *c, gsl_matrix *covariance, const gsl_matrix *x, const gsl_vector *target)
{
    const size_t n = x->size1, q = x->size2;
    double chi_square = 0;
    if (n > q) {
        gsl_multifit_robust_workspace *w = gsl_multifit_robust_alloc(gsl_multifit_robust_bisquare, n, q);
        if (!w) return false;
        (void)gsl_multifit_robust(x, target, c, covariance, w); /* not converged: its last iteration serves */
        gsl_multifit_robust_free(w);
    } else {
        gsl_multifit_linear_workspace *w = gsl_multifit_linear_alloc(n, q);
        if (!w) return false;
        (void)gsl_multifit_linear(x, target, c, covariance, &chi_square, w);
        gsl_multifit_linear_free(w);
    }
    return true;
}

/* Fits the terms that are kept; the coefficients of the others are 0. False without memory. */
static bool fit_kept_terms(double *coefficient, const bool *is_kept, const double *x, const double *y,
                           size_t n, size_t n_term)
{
    size_t q = 0;
    for (size_t k = 0; k < n_term; k++) q += is_kept[k];
    gsl_matrix *row = gsl_matrix_alloc(n, q), *covariance = gsl_matrix_alloc(q, q);
    gsl_vector *target = gsl_vector_alloc(n), *c = gsl_vector_alloc(q);
    bool is_done = row && covariance && target && c;
    for (size_t i = 0; i < n && is_done; i++) {
        size_t column = 0;
        for (size_t k = 0; k < n_term; k++)
            if (is_kept[k]) gsl_matrix_set(row, i, column++, x[i * n_term + k] / y[i]);
        gsl_vector_set(target, i, 1);
    }
    is_done = is_done && solve_lsq(c, covariance, row, target);
    for (size_t k = 0, column = 0; k < n_term && is_done; k++)
        coefficient[k] = is_kept[k] ? gsl_vector_get(c, column++) : 0;
    gsl_vector_free(c);
    gsl_vector_free(target);
    gsl_matrix_free(covariance);
    gsl_matrix_free(row);
    return is_done;
}

/* The term with the most negative contribution, in units of y; n_term = none is negative. */
static size_t most_negative_term(const double *coefficient, const double *x, const double *y, size_t n,
                                 size_t n_term)
{
    size_t worst = n_term;
    double min_contribution = 0;
    for (size_t k = 0; k < n_term; k++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += x[i * n_term + k] / y[i];
        if (coefficient[k] < 0 && coefficient[k] * sum <= min_contribution) {
            min_contribution = coefficient[k] * sum;
            worst = k;
        }
    }
    return worst;
}

static tandem_status no_fit_memory(size_t n, tandem_error *error)
{
    return tandem_no_memory(error, "to fit %zu measured times", n);
}

static tandem_status residual_spread(double *spread, const double *coefficient, const double *x,
                                     const double *y, size_t n, size_t n_term, tandem_error *error)
{
    double *residual = malloc(n * sizeof *residual);
    if (!residual) return no_fit_memory(n, error);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t k = 0; k < n_term; k++) sum += coefficient[k] * x[i * n_term + k];
        residual[i] = fabs(sum - y[i]) / y[i];
    }
    *spread = tandem_median(residual, n) / 0.6745;
    free(residual);
    return TANDEM_OK;
}

tandem_status tandem_robust_fit(double *out, double *spread, const double *x, const double *y, size_t n,
                                size_t n_term, tandem_error *error)
{
    bool is_kept[TANDEM_ROBUST_MAX_TERMS];
    double coefficient[TANDEM_ROBUST_MAX_TERMS];
    size_t n_kept = 0;
    for (size_t k = 0; k < n_term && n_term <= TANDEM_ROBUST_MAX_TERMS; k++) {
        is_kept[k] = false;
        for (size_t i = 0; i < n && !is_kept[k]; i++) is_kept[k] = x[i * n_term + k] > 0;
        n_kept += is_kept[k];
    }
    if (n_kept == 0 || n < n_kept)
        return tandem_error_set(error, TANDEM_USAGE, "%zu measured times are too few to fit %zu terms", n,
                                n_term);
    (void)gsl_set_error_handler_off();
    for (;;) {
        if (!fit_kept_terms(coefficient, is_kept, x, y, n, n_term)) return no_fit_memory(n, error);
        const size_t worst = most_negative_term(coefficient, x, y, n, n_term);
        if (worst == n_term) break;
        is_kept[worst] = false;
    }
    const tandem_status status = residual_spread(spread, coefficient, x, y, n, n_term, error);
    for (size_t k = 0; k < n_term && status == TANDEM_OK; k++) out[k] = coefficient[k];
    return status;
}
