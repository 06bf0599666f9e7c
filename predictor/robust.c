#include "predictor/robust.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <gsl/gsl_sort_double.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

double tandem_median(double *value, size_t n)
{
    gsl_sort(value, 1, n);
    return gsl_stats_median_from_sorted_data(value, 1, n);
}

/* Everything one least-squares problem needs: n rows, q of the parts. */
typedef struct lsq_problem {
    gsl_matrix *x, *covariance;
    gsl_vector *target, *c;
} lsq_problem;

static void free_lsq_problem(lsq_problem *p)
{
    gsl_vector_free(p->c);
    gsl_vector_free(p->target);
    gsl_matrix_free(p->covariance);
    gsl_matrix_free(p->x);
}

static bool allocate_lsq_problem(lsq_problem *p, size_t n, size_t q)
{
    *p = (lsq_problem){gsl_matrix_alloc(n, q), gsl_matrix_alloc(q, q), gsl_vector_alloc(n),
                       gsl_vector_alloc(q)};
    return p->x && p->covariance && p->target && p->c;
}

/* Least squares as such where there are no rows to spare for telling which lie off. */
static bool solve_least_squares(lsq_problem *p)
{
    double chi_square = 0;
    gsl_multifit_linear_workspace *w = gsl_multifit_linear_alloc(p->x->size1, p->x->size2);
    if (!w) return false;
    (void)gsl_multifit_linear(p->x, p->target, p->c, p->covariance, &chi_square, w);
    gsl_multifit_linear_free(w);
    return true;
}

static bool solve_robust_lsq(lsq_problem *p)
{
    gsl_multifit_robust_workspace *w =
        gsl_multifit_robust_alloc(gsl_multifit_robust_bisquare, p->x->size1, p->x->size2);
    if (!w) return false;
    /* where it has not settled, its last step serves */
    (void)gsl_multifit_robust(p->x, p->target, p->c, p->covariance, w);
    gsl_multifit_robust_free(w);
    return true;
}

/* Fits the parts that are kept; coefficients of the others are 0. */
static bool fit_kept_terms(double *coefficient, const bool *is_kept, const double *x, const double *y,
                           size_t n, size_t n_term)
{
    size_t q = 0;
    lsq_problem p;
    for (size_t k = 0; k < n_term; k++) q += is_kept[k];
    bool is_done = allocate_lsq_problem(&p, n, q);
    for (size_t i = 0; i < n && is_done; i++) {
        size_t column = 0;
        for (size_t k = 0; k < n_term; k++)
            if (is_kept[k]) gsl_matrix_set(p.x, i, column++, x[i * n_term + k] / y[i]);
        gsl_vector_set(p.target, i, 1);
    }
    is_done = is_done && (n > q ? solve_robust_lsq(&p) : solve_least_squares(&p));
    for (size_t k = 0, column = 0; k < n_term && is_done; k++)
        coefficient[k] = is_kept[k] ? gsl_vector_get(p.c, column++) : 0;
    free_lsq_problem(&p);
    return is_done;
}

/* The part with the most negative contribution, in units of y; n_term = none is negative. */
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
        return tandem_error_set(error, TANDEM_USAGE, "%zu measured times are too few to fit %zu parts", n,
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
