/* predictor.h: what low precision costs: the sensitivity of every adjustable operator to every precision; and
 * how long a task takes that was never measured.
 *
 * From statistics over real batches (tandem_statistics in store.h) a method computes the harm of running an
 * operator in a precision instead of fp32: 0 for fp32, never negative, additive over operators. Two methods:
 *
 * qsync   as published: QSync, IPDPS 2024. The formula, and where it departs from its theory, stand in
 *         predictor/qsync.c.
 * fisher  expected increase of the loss, in nats, from the variance that rounding adds to the operator's
 *         output and to its gradients, weighted by the measured squared output gradient. Derived in
 *         predictor/fisher.c. */
#ifndef TANDEM_PREDICTOR_H
#define TANDEM_PREDICTOR_H

#include "tandem/store.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_sensitivity_method {
    const char *name, *meaning, *unit;
    /* harm[n_op × TANDEM_N_PRECISION], row-major; 0 where an operator is not adjustable. The statistics of
     * every adjustable operator are there (n_batch > 0). */
    void (*compute)(double *sensitivity, const tandem_graph *graph, const tandem_statistics *statistics,
                    tandem_dtype amp_dtype);
} tandem_sensitivity_method;

/* Every method; NULL behind the last. The first is meant where none is named. */
const tandem_sensitivity_method *tandem_sensitivity_get(int index);
/* TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_sensitivity_find(const tandem_sensitivity_method **method, const char *name,
                                      tandem_error *error);

/* tandem_sensitivity_load: harm of every operator on a device whose wider type is `wider`, from the
 * statistics over the data set `data` in the store; NULL = the one measured last. harm[n_op ×
 * TANDEM_N_PRECISION]; unchanged on error. TANDEM_MISSING names the operator without statistics and the
 * command that measures them. Cost: O(operators). */
tandem_status tandem_sensitivity_load(double *sensitivity, tandem_store *store, const tandem_graph *graph,
                                      const char *method, const char *data, tandem_dtype amp_dtype,
                                      tandem_error *error);

/* --- Collecting statistics (predictor/statistics.c) ----------------------------------------------------- */
/* One product y = x·w with output gradient g, all in f32, row-major: x (rows, k), w (k, columns), g (rows,
 * columns). transposed: w is stored (columns, k). */
typedef struct tandem_product {
    int64_t rows, k, columns;
    const float *x, *w, *g;
    int transposed;
} tandem_product;

/* tandem_statistics_add_product: add what a product says about its operands and gradient to the sums in
 * *statistics: squares, weighted squares. Amax, sizes, wgrad and dgrad are not touched. Cost: O(rows·k +
 * k·columns + rows·columns). TANDEM_NO_MEMORY. */
tandem_status tandem_statistics_add_product(tandem_statistics *statistics, const tandem_product *product,
                                            tandem_error *error);
/* Σ x², and max |x| of an array. */
double tandem_statistics_square(const float *x, int64_t n);
double tandem_statistics_amax(const float *x, int64_t n);
/* Divides sums over n_batch batches into means. */
void tandem_statistics_finish(tandem_statistics *statistics, int64_t n_batch);

/* --- Latency of what was never measured ----------------------------------------------------------------- */
/* What a task does, from its cost key alone. docs/costs.md has the table of bytes. */
typedef struct tandem_work {
    const char *kind;  /* "linear", …, "adamw", "cast": one pointer for each */
    tandem_dtype type; /* in which it multiplies its operands: at which rate it computes */
    double flops;      /* a multiply and an add count as two */
    double bytes;      /* read and written, each operand once for every pass over it */
    int is_product; /* of matrices: count products of (m, k) by (k, n); a convolution is one of its windows */
    double count, m, n, k;
    double time_factor; /* how many times as long a product takes on a card as its FLOPs say: convolutions */
} tandem_work;
/* tandem_work_of: 0 where the key is of an operator that this version does not know. Cost: O(length of the
 * key). */
int tandem_work_of(tandem_work *work, const tandem_cost_key *key);

/* tandem_roofline_ns: the time of one task on a described device (predictor/roofline.c has the formula);
 * never less than facts->launch_ns, never falls where a dimension grows. −1 where it has no units for the
 * type. */
double tandem_roofline_ns(const tandem_gpu_spec *spec, const tandem_work *work);

/* tandem_latency_open: a predictor for a device beside a neighbour ("" = alone). It is fitted to all that was
 * measured on the device beside that neighbour, or alone where that is nothing (predictor/latency.c has the
 * formula); what is not near anything measured comes from the device's description, if it has one. store
 * NULL: from the description alone. TANDEM_MISSING where there is neither, TANDEM_NO_MEMORY, what the store
 * says. *latency unchanged on error. Cost: O(rows of the device). */
typedef struct tandem_latency tandem_latency;
tandem_status tandem_latency_open(tandem_latency **latency, const tandem_device *device,
                                  const char *co_runner, tandem_store *store, tandem_error *error);
void tandem_latency_close(tandem_latency *latency); /* NULL is fine */
/* A key's time in ns, at least 1; −1 where nothing like it is known: another number type than was measured,
 * an operator that this version does not know. *spread (may be NULL): how far the measured costs that it
 * rests on lie from their fit, the median of their relative residuals / 0.6745: a standard deviation where
 * they are normal; NaN where it rests on a description. */
int64_t tandem_latency_ns(const tandem_latency *latency, const tandem_cost_key *key, double *spread);
/* To how many measured costs it is fitted; 0 = the description alone. */
int64_t tandem_latency_fitted(const tandem_latency *latency);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
