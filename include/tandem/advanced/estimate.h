/* estimate.h: what precisions do to the gradient, at weights that are held still: as measured, and as a
 * sensitivity.
 *
 * g is the gradient of a batch in fp32, and d what one operator in a lower precision changes of it. Products
 * of two gradients are in the metric in which the optimizer steps: Σ a·b with SGD, Σ a·b/√v̂ with AdamW. One
 * replicate is two batches, in which weights round alike and all else is drawn again. */
#ifndef TANDEM_ESTIMATE_H
#define TANDEM_ESTIMATE_H

#include "tandem/graph.h"

TANDEM_BEGIN_DECLARATIONS

enum {
    TANDEM_MAX_TRAINING_POINT = 8,
    TANDEM_MIN_REPLICATE = 3, /* with fewer, the deletion of one leaves no pair */
    TANDEM_MAX_REPLICATE = 64,
    TANDEM_WIDE_RANGE = 4, /* ranges are estimated of range_batch samples, and of so many times as many */
    TANDEM_N_AMP_DTYPE = 3 /* f32, bf16, f16 */
};

/* Of one replicate, in fp32. */
typedef struct tandem_estimated_gradient {
    double variance;    /* ½·|g₁ − g₂|²: of gradients over batches */
    double mean_square; /* |E g|²: the products with the gradients of all other replicates, their mean */
} tandem_estimated_gradient;

/* Of one replicate of an operator in a precision. */
typedef struct tandem_estimated_error {
    double total;       /* E|d|² */
    double shared;      /* ⟨d₁, d₂⟩: of two batches with one rounded weight */
    double mean_square; /* |E d|²: as that of tandem_estimated_gradient */
    double against;     /* −⟨E g, E d⟩: the mean over all pairs with another replicate, both ways */
    /* total, shared and mean_square with the ranges of TANDEM_WIDE_RANGE times the samples, by samples one
     * range for both batches. Not read where the estimate's range_batch is 0. */
    double wide_total, wide_shared, wide_mean_square;
} tandem_estimated_error;

/* All replicates of a model. Rows of errors: [training point][operator][precision][AMP dtype][replicate].
 * Only the rows of an AMP dtype differ whose precision depends on it; all others have those of f32. */
typedef struct tandem_estimate {
    int64_t batch, steps; /* of the training; training points are steps of it */
    uint64_t seed;
    char data[128]; /* of the store's row; "" where it was not read from one */
    tandem_optimizer optimizer;
    int n_op, n_point, n_replicate;
    int without_bias;    /* 1: no bias was estimated: it is unknown, and every `against` is 0 */
    int64_t range_batch; /* samples whose largest number is the range of a cast; 0: ranges do not convert */
    int64_t point[TANDEM_MAX_TRAINING_POINT]; /* ascending */
    tandem_estimated_gradient *gradient;      /* [n_point × n_replicate] */
    tandem_estimated_error *error;
    unsigned char *is_estimated; /* [n_op × TANDEM_N_PRECISION × TANDEM_N_AMP_DTYPE] */
} tandem_estimate;

/* tandem_estimate_open: all zero, for n_op operators. The caller closes it. TANDEM_USAGE: n_point or
 * n_replicate out of range. TANDEM_NO_MEMORY: *estimate unchanged. */
tandem_status tandem_estimate_open(tandem_estimate *estimate, int n_op, int n_point, int n_replicate,
                                   tandem_error *error);
void tandem_estimate_close(tandem_estimate *estimate); /* all zero is fine */
/* The place of an operator's precision in is_estimated. amp_dtype: f32 where the precision does not depend on
 * it. */
int tandem_estimate_cell(int op, tandem_precision precision, tandem_dtype amp_dtype);
/* Its replicates at a training point, [n_replicate]. */
tandem_estimated_error *tandem_estimate_errors(const tandem_estimate *estimate, int point, int cell);
/* Whether the precision has the device's AMP dtype somewhere. */
int tandem_precision_has_amp(tandem_precision precision);
/* Whether it rounds weights at random, so that their error has a part that all samples share. */
int tandem_precision_draws_weights(tandem_precision precision);

/* --- The sensitivity that follows (predictor/sampled.c) --------------------------------------------------
 * */

/* The step for which a sensitivity holds. */
typedef struct tandem_sensitivity_step {
    int64_t global_batch; /* samples of all ranks and micro-steps */
    int n_micro;          /* ≥ 1; each rounds the weights again */
    /* Variance that the exchange adds to the gradient of all samples, over that gradient's mean square
     * (tandem_allreduce_noise in predictor.h); ≥ 0 */
    double gradient_noise;
    /* [cells of tandem_estimate_cell] the samples of a rank's micro-step that have one range, where they run
     * the cell: of several classes, the geometric mean by share. 0, or NULL: as many as were estimated.
     * Borrowed. */
    const double *micro_batch;
} tandem_sensitivity_step;

/* Half of the 95 % interval of a mean: the jackknife's, Student's t with n − 1 degrees of freedom.
 *   without  [n] the mean without each of n replicates; n ≥ 2 */
double tandem_jackknife_half(const double *without, int n);

/* More samples to the same loss, as a share: 0.01 is 1 %. Half widths are of 95 % intervals. */
typedef struct tandem_sensitivity_estimate {
    /* max(0, noise) + max(0, bias), with that of all-reduces in noise, and the bias of those cells alone
     * whose own interval excludes 0. From 0 upwards; high has the bias of all cells, and its error. */
    double value, low, high;
    double noise, noise_half;
    double bias, bias_half; /* of all cells; NaN: not estimated, or |E g| is lost in noise */
    double at_point[TANDEM_MAX_TRAINING_POINT]; /* as `value` at each training point; the means make it */
} tandem_sensitivity_estimate;

/* tandem_estimate_sensitivity: the sensitivity of a plan, whose error is that of its sum.
 *   share  [cells of tandem_estimate_cell] the part of the global batch that runs the operator so; 0: none
 * TANDEM_MISSING: a cell with a share has no estimate. TANDEM_USAGE: a step without samples, or replicates
 * whose gradients are all 0. *to unchanged on error. Cost: O(cells × training points × replicates²). */
tandem_status tandem_estimate_sensitivity(tandem_sensitivity_estimate *to, const tandem_estimate *estimate,
                                          const double *share, const tandem_sensitivity_step *step,
                                          tandem_error *error);

/* What one plan needs more than another, as a share, with its 95 % interval. What both share drops out: they
 * have the same replicates. */
typedef struct tandem_sensitivity_difference {
    double value, low, high;
} tandem_sensitivity_difference;

/* tandem_estimate_compare: the sensitivity of `more` less that of `less`, in steps that differ in their
 * micro_batch alone. Noise and bias have
 * their own jackknife over replicates, each of the difference. A bias that is clipped at 0 in both plans adds
 * nothing. Errors as tandem_estimate_sensitivity; *difference unchanged then. Cost: three estimates. */
tandem_status tandem_estimate_compare(tandem_sensitivity_difference *difference,
                                      const tandem_estimate *estimate, const double *more,
                                      const tandem_sensitivity_step *step, const double *less,
                                      const tandem_sensitivity_step *step_of_less, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
