/* predictor.h: the sensitivity of every adjustable operator to every precision, and the latency of tasks
 * that were never measured.
 *
 * A sensitivity is what running an operator in a precision instead of fp32 costs the model. It is 0 for
 * fp32, never negative, and additive over operators. A method computes it from statistics over real batches
 * (tandem_statistics in store.h):
 *
 * qsync   as published: QSync, IPDPS 2024. predictor/qsync.c has the formula and says where it departs from
 *         its theory.
 * fisher  the expected increase of the loss, in nats, from the variance that rounding adds to the operator's
 *         output and to its gradients, weighted by the measured squared output gradient. Derived in
 *         predictor/fisher.c. */
#ifndef TANDEM_PREDICTOR_H
#define TANDEM_PREDICTOR_H

#include "tandem/advanced/store.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_sensitivity_method {
    const char *name, *meaning, *unit;
    /* sensitivity[n_op × TANDEM_N_PRECISION], row-major; 0 where an operator is not adjustable. Every
     * adjustable operator has statistics (n_batch > 0). */
    void (*compute)(double *sensitivity, const tandem_graph *graph, const tandem_statistics *statistics,
                    tandem_dtype amp_dtype);
} tandem_sensitivity_method;

/* Every method; NULL after the last. The first is the default. */
const tandem_sensitivity_method *tandem_sensitivity_get(int index);
/* TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_sensitivity_find(const tandem_sensitivity_method **method, const char *name,
                                      tandem_error *error);

/* tandem_sensitivity_load: the sensitivity of every operator on a device, from statistics in the store.
 *   sensitivity  [out] [n_op × TANDEM_N_PRECISION]; unchanged on error
 *   data         the data set of the statistics; NULL = the one measured last
 *   amp_dtype    of the device
 * TANDEM_MISSING names the operator without statistics and the command that measures them. TANDEM_MALFORMED:
 * a sensitivity is not a number ≥ 0. TANDEM_UNKNOWN_NAME, TANDEM_NO_MEMORY, errors of the store. Cost:
 * O(operators). */
tandem_status tandem_sensitivity_load(double *sensitivity, tandem_store *store, const tandem_graph *graph,
                                      const char *method, const char *data, tandem_dtype amp_dtype,
                                      tandem_error *error);

/* --- Collecting statistics (predictor/statistics.c) -----------------------------------------------------
 * */
/* One product y = x·w with output gradient g, all in f32, row-major: x (rows, k), w (k, columns), g (rows,
 * columns). transposed: w is stored (columns, k). */
typedef struct tandem_product {
    int64_t rows, k, columns;
    const float *x, *w, *g;
    int transposed;
} tandem_product;

/* tandem_statistics_add_product: adds a product to the sums of squares and weighted squares in *statistics.
 * It does not touch amax, sizes, wgrad and dgrad. TANDEM_NO_MEMORY. Cost: O(rows·k + k·columns +
 * rows·columns). */
tandem_status tandem_statistics_add_product(tandem_statistics *statistics, const tandem_product *product,
                                            tandem_error *error);
/* Σ x², and max |x| of an array. */
double tandem_statistics_square(const float *x, int64_t n);
double tandem_statistics_amax(const float *x, int64_t n);
/* Divides sums over n_batch batches into means. */
void tandem_statistics_finish(tandem_statistics *statistics, int64_t n_batch);

/* --- Latency of unmeasured tasks ------------------------------------------------------------------------
 * */
/* What a task computes and moves, from its cost key alone. docs/costs.md has the table of bytes. */
typedef struct tandem_work {
    const char *kind;  /* "linear", …, "adamw", "cast": one pointer for each */
    tandem_dtype type; /* that it multiplies in; decides its rate */
    double flops;      /* a multiply and an add count as two */
    double bytes;      /* read and written, once per pass over an operand */
    int is_product; /* of matrices: `count` products (m, k) × (k, n); a convolution is one of its windows */
    double count, m, n, k;
    double time_factor; /* time of a product on a GPU over that of its FLOPs; 1 but for convolutions */
} tandem_work;
/* tandem_work_of: 0 where this version does not know the key's operator. Cost: O(length of the key). */
int tandem_work_of(tandem_work *work, const tandem_cost_key *key);

/* tandem_roofline_ns: the time of one task on a described device (formula: predictor/roofline.c). At least
 * spec->launch_ns; never falls where a dimension grows. −1 where the device has no units for the dtype. */
double tandem_roofline_ns(const tandem_gpu_spec *spec, const tandem_work *work);

/* tandem_latency_open: a predictor for a device while `co_runner` computes ("" = alone). It is fitted to all
 * contended times that were measured with that co-runner or, where there are none, to the times alone
 * (formula: predictor/latency.c). Tasks unlike all measured ones take their time from the device's
 * description, if it has one. store NULL: from the description alone. TANDEM_MISSING: there is neither.
 * TANDEM_NO_MEMORY, errors of the store. *latency unchanged on error. Cost: O(rows of the device). */
typedef struct tandem_latency tandem_latency;
tandem_status tandem_latency_open(tandem_latency **latency, const tandem_device *device,
                                  const char *co_runner, tandem_store *store, tandem_error *error);
void tandem_latency_close(tandem_latency *latency); /* NULL is fine */
/* tandem_latency_ns: time of a key's task, at least 1; −1 where no task like it is known: in a dtype that
 * was not measured, or of an operator that this version does not know.
 *   spread  [out] of the measured costs around their fit: the median of relative residuals / 0.6745, the
 *           standard deviation of normal ones; NaN where the time rests on a description; may be NULL */
int64_t tandem_latency_ns(const tandem_latency *latency, const tandem_cost_key *key, double *spread);
/* The number of measured costs that it is fitted to; 0 = the description alone. */
int64_t tandem_latency_fitted(const tandem_latency *latency);

/* --- Robust regression (predictor/robust.c) -------------------------------------------------------------
 * */
enum { TANDEM_ROBUST_MAX_TERMS = 4 };

/* tandem_robust_fit: fits y ≈ Σ_k coefficient[k] · x[k] with coefficients ≥ 0. Errors are relative: rows are
 * divided by their y. Outliers have little or no weight: iteratively reweighted least squares with Tukey's
 * bisquare weights (gsl_multifit_robust; the GNU Scientific Library's manual, "Robust linear regression"). A
 * term whose coefficient would be negative is left out, the most negative first.
 *   x       [n × n_term] row-major, ≥ 0; y: [n] > 0
 *   spread  [out] median of |fit − y| / y over 0.6745
 * TANDEM_USAGE: fewer rows than terms that are not 0 in all rows, or no such term. TANDEM_NO_MEMORY. Outputs
 * unchanged on error. Switches GSL's error handler, which would end the process, off for good. */
tandem_status tandem_robust_fit(double *coefficient, double *spread, const double *x, const double *y,
                                size_t n, size_t n_term, tandem_error *error);

/* Median of n ≥ 1 numbers, which it sorts. */
double tandem_median(double *value, size_t n);

TANDEM_END_DECLARATIONS
#endif
