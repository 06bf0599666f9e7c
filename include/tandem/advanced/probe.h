/* probe.h: the arithmetic of a probe, over plain arrays: for programs that take gradients of their own.
 *
 * A probe estimates the noise that rounding puts into gradients, of all operators and precisions at once
 * (docs/sensitivity.md, "By a probe"). runtime/estimate/estimate_probe.c has the derivation of every formula
 * below; `tandem sensitivity` and the Python package run these functions. One replicate goes so:
 *
 *   1 Draw a direction z, and keep the weights w that it moves.
 *   2 For each of two batches b take the gradients at w + ε_b·z and w − ε_b·z. Of each operator keep some
 *     numbers of the tensors that are rounded, and of those whose gradients say what rounding changes:
 *     D = (above − below)/2ε (tandem_probe_difference). Sum the gradients in buckets (tandem_probe_project).
 *   3 Add the noise of each tensor in each format to the operator's sums (tandem_probe_add_noise).
 *   4 From the sums of all operators have the ratio of jumps, and the error of each cell.
 * From the buckets of all replicates follow the variances of gradients (tandem_probe_set_gradients).
 *
 * Arrays are in f32, contiguous, in the host's memory, and the caller's. They do not overlap where nothing
 * else is said. Sums have lanes in a fixed order, so that every machine has the same bits. Functions without
 * a status cannot fail. Cost, where nothing is said: one pass over the arrays. */
#ifndef TANDEM_PROBE_H
#define TANDEM_PROBE_H

#include "tandem/advanced/format.h"
#include "tandem/advanced/estimate.h"

TANDEM_BEGIN_DECLARATIONS

enum {
    TANDEM_PROBE_BLOCK = 16,   /* numbers of a parameter that are drawn together */
    TANDEM_PROBE_SKETCH = 4096 /* buckets of a gradient's sums */
};

/* What an operator rounds: its input, the second operand of a product of activations, the gradient of its
 * output, its output, its weight. */
typedef enum tandem_probe_part {
    TANDEM_PROBE_INPUT,
    TANDEM_PROBE_SECOND,
    TANDEM_PROBE_GRADIENT,
    TANDEM_PROBE_RESULT,
    TANDEM_PROBE_WEIGHT,
    TANDEM_N_PROBE_PART
} tandem_probe_part;

/* tandem_probe_formats: the format to which a precision rounds each part. TANDEM_N_FORMAT: not at all.
 *   amp_dtype  of the device
 *   emulation  whose formats represent their dtypes; NULL: every dtype's own */
void tandem_probe_formats(tandem_format of[TANDEM_N_PROBE_PART], tandem_precision precision,
                          tandem_dtype amp_dtype, const tandem_emulation *emulation);

/* --- Directions (runtime/estimate/probe_direction.h says what blocks cost) --------------------------------
 * z has E zzᵀ = the optimizer's metric: signs, over ⁴√v̂ with AdamW's kind. Of a large parameter it has one
 * block of TANDEM_PROBE_BLOCK numbers in each group of s blocks, times √s. */

/* The blocks that are drawn of a parameter with so many numbers. */
int64_t tandem_probe_count_blocks(int64_t elements);
/* Which draw it is: of a replicate at a training point. Stream 0 with seed 0 is the direction of the
 * buckets. */
uint32_t tandem_probe_stream(int64_t point, int replicate);
/* tandem_probe_draw: the blocks of a parameter.
 *   at         [tandem_probe_count_blocks] where each begins in the parameter; the last may reach beyond it
 *   value      [those × TANDEM_PROBE_BLOCK] ±√s; 0 after the parameter's last number
 *   parameter  its number in the model */
void tandem_probe_draw(int64_t *at, float *value, int64_t elements, int parameter, uint64_t seed,
                       uint32_t stream);
/* tandem_probe_weigh: value = value / ⁴√max(v̂, least), v̂ = mean_square·by: the root of the metric 1/√v̂.
 *   at           [n_block] where each block begins in mean_square; NULL: they follow each other */
void tandem_probe_weigh(float *value, int64_t n_block, const int64_t *at, const float *mean_square, float by,
                        float least);
/* The least v̂ that counts as itself, from the sum of all n: weights whose v̂ is far below the mean would
 * count without bounds. 0: all are 0, and the metric is 1. */
float tandem_probe_least_square(double sum, int64_t n);
/* tandem_probe_project: adds by·z·g to n_bucket buckets in turn, block after block. The product of two such
 * sums of gradients is that of the gradients in the metric, with a standard error of |g||g'|·√(2/n_bucket).
 *   n_bucket  a multiple of TANDEM_PROBE_BLOCK
 *   at        [n_block] where each block begins in gradient; NULL: they follow each other */
void tandem_probe_project(float *sum, int n_bucket, const float *value, int64_t n_block, const int64_t *at,
                          const float *gradient, float by);
/* ε of both batches: 2^-10 and 2^-6 of the weights' root mean square over z's, from the sums of their
 * squares; of weights or z that are all 0, 2^-10 and 2^-6. */
void tandem_probe_steps(double step[2], double weight_square, double direction_square);

/* --- Sums of numbers ------------------------------------------------------------------------------------ */

double tandem_probe_sum(const float *x, int64_t n);
double tandem_probe_square(const float *x, int64_t n); /* Σ x² */
/* to = (above − below)·by; to may not be one of them. x = ½(x + y). */
void tandem_probe_difference(float *to, const float *above, const float *below, float by, int64_t n);
void tandem_probe_middle(float *x, const float *y, int64_t n);

/* --- Noise ---------------------------------------------------------------------------------------------- */

/* Of an operator over the two batches of a replicate. The caller sets the first three, all others 0. */
typedef struct tandem_probe_sums {
    int is_before_jump;                      /* a slope after it jumps, as a relu's does */
    int has_second;                          /* its second operand is no weight */
    double n_products;                       /* that an output sums; 0: rows are read as they are */
    double rate_square;                      /* of the output, by unit of ε: mean */
    double mean_square[TANDEM_N_PROBE_PART]; /* of what is rounded */
    double error_square[TANDEM_N_PROBE_PART][TANDEM_N_FORMAT]; /* of rounding it: mean */
    double noise[TANDEM_N_PROBE_PART][TANDEM_N_FORMAT][2];     /* of each batch: |error of the gradient|² */
    double cross[TANDEM_N_FORMAT]; /* of a weight: Σ v·D₁·D₂ of both batches */
} tandem_probe_sums;

/* A tensor that is rounded, as far as it is kept. Borrowed. */
typedef struct tandem_probe_tensor {
    tandem_probe_part part;
    int place;     /* 0 or 1: which batch of the replicate; not read of a weight */
    int64_t n;     /* numbers that are kept; 0: adds nothing */
    int64_t batch; /* samples of the batch */
    /* whole samples that the numbers are of, 2 or more, in turn; 0: a tensor without samples, or a weight:
     * what samples have in common is then not distinguished from noise */
    int64_t n_sample;
    double share;               /* numbers of the whole tensor over n */
    const float *x;             /* [n] */
    const float *difference[2]; /* [n] D; of a weight that of each batch, else [0] alone */
    float range;                /* the largest magnitude of all that one cast rounds; 0: that of x */
    double error_scale;         /* a of tandem_format_cast; 1 */
} tandem_probe_tensor;

/* What the jumps' share needs, once for each tensor, and for each D of an output. */
void tandem_probe_add_square(tandem_probe_sums *sums, const tandem_probe_tensor *tensor);
void tandem_probe_add_rate(tandem_probe_sums *sums, const float *difference, int64_t n);
/* tandem_probe_add_noise: adds what rounding a tensor to a format does to the gradient, and the mean square
 * of the errors. Gradients in f16 have the largest loss scale up to 2^16 at which `range` fits.
 *   room  [n] any numbers; afterwards the errors of rounding, their squares, or their variances
 * TANDEM_LIMIT_EXCEEDED: x has a number that is not finite, and the format a scale; *sums is unchanged. Cost:
 * that of tandem_format_round, and two passes. */
tandem_status tandem_probe_add_noise(tandem_probe_sums *sums, float *room, const tandem_probe_tensor *tensor,
                                     tandem_format format, tandem_error *error);

/* --- Errors of cells ------------------------------------------------------------------------------------ */

/* The logarithms of small over large noise of what makes jumps. log_ratio: [TANDEM_N_PROBE_PART ×
 * TANDEM_N_FORMAT] or more. Returns how many. */
int tandem_probe_log_ratios(double *log_ratio, const tandem_probe_sums *sums);
/* q, from those of all operators, which are sorted: their median's ratio, at least 1; of none, 1. */
double tandem_probe_jump_ratio(double *log_ratio, int n);
/* tandem_probe_add_error: adds to error->total and error->shared what an operator puts into the gradient that
 * rounds its parts to `formats`.
 *   step  of tandem_probe_steps
 *   q     of tandem_probe_jump_ratio */
void tandem_probe_add_error(tandem_estimated_error *error, const tandem_probe_sums *sums,
                            const tandem_format formats[TANDEM_N_PROBE_PART], const double step[2], double q);
/* tandem_probe_set_gradients: from the buckets of all replicates the variances and mean squares of gradients.
 * A cell whose error is not finite in a replicate, as that of a cast that overflows, gets there a noise that
 * no plan takes, 10⁶ times the gradients' mean square.
 *   sketch  [n_replicate][2][TANDEM_PROBE_SKETCH] of the training point, ½(g above + g below) of each
 *   batch */
void tandem_probe_set_gradients(tandem_estimate *estimate, int point_index, const float *sketch);

TANDEM_END_DECLARATIONS
#endif
