/* predictor.h: what low precision costs: the sensitivity of every adjustable operator to every precision.
 *
 * From statistics over real batches (tandem_statistics in store.h) a method computes the harm of running an operator in a
 * precision instead of fp32: 0 for fp32, never negative, additive over operators. Two methods:
 *
 * qsync   as published: QSync, IPDPS 2024. The formula, and where it departs from its theory, stand in predictor/qsync.c.
 * fisher  expected increase of the loss, in nats, from the variance that rounding adds to the operator's output and to its
 *         gradients, weighted by the measured squared output gradient. Derived in predictor/fisher.c. */
#ifndef TANDEM_PREDICTOR_H
#define TANDEM_PREDICTOR_H

#include "tandem/store.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_sensitivity_method {
    const char *name, *meaning, *unit;
    /* harm[n_op × TANDEM_N_PRECISION], row-major; 0 where an operator is not adjustable. The statistics of every
     * adjustable operator are there (n_batch > 0). */
    void (*compute)(double *harm, const tandem_graph *graph, const tandem_statistics *statistics, tandem_dtype wider);
} tandem_sensitivity_method;

/* Every method; NULL behind the last. The first is meant where none is named. */
const tandem_sensitivity_method *tandem_sensitivity_get(int index);
/* TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_sensitivity_find(const tandem_sensitivity_method **method, const char *name, tandem_error *error);

/* tandem_sensitivity_load: harm of every operator on a device whose wider type is `wider`, from the statistics over the
 * data set `data` in the store; NULL = the one measured last. harm[n_op × TANDEM_N_PRECISION]; unchanged on error.
 * TANDEM_MISSING names the operator without statistics and the command that measures them. Cost: O(operators). */
tandem_status tandem_sensitivity_load(double *harm, tandem_store *store, const tandem_graph *graph,
                                      const char *method, const char *data, tandem_dtype wider, tandem_error *error);

/* --- Collecting statistics (predictor/statistics.c) ------------------------------------------------------------------ */
/* One product y = x·w with output gradient g, all in f32, row-major: x (rows, k), w (k, columns), g (rows, columns).
 * transposed: w is stored (columns, k). */
typedef struct tandem_product {
    int64_t rows, k, columns;
    const float *x, *w, *g;
    int transposed;
} tandem_product;

/* tandem_statistics_add_product: add what a product says about its operands and gradient to the sums in *statistics: squares,
 * weighted squares. Amax, sizes, wgrad and dgrad are not touched. Cost: O(rows·k + k·columns + rows·columns).
 * TANDEM_NO_MEMORY. */
tandem_status tandem_statistics_add_product(tandem_statistics *statistics, const tandem_product *product,
                                            tandem_error *error);
/* Σ x², and max |x| of an array. */
double tandem_statistics_square(const float *x, int64_t n);
double tandem_statistics_amax(const float *x, int64_t n);
/* Divides sums over n_batch batches into means. */
void tandem_statistics_finish(tandem_statistics *statistics, int64_t n_batch);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
