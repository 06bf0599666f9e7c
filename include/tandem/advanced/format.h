/* format.h: number formats (format.def): rounding tensors to them, and the error that this is expected to
 * make.
 *
 * These are references in plain C: one for each row, with the bits of the kernels where a kernel does the
 * same (tests/unit/test_format.c, tests/conformance/test_formats.c). */
#ifndef TANDEM_FORMAT_H
#define TANDEM_FORMAT_H

#include "tandem/dtype.h"
#include "tandem/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#pragma push_macro("ROW") /* an including program may have one of its own */
#undef ROW
typedef enum tandem_format {
#define ROW(NAME, ...) TANDEM_FORMAT_##NAME,
#include "tandem/format.def"
#undef ROW
    TANDEM_N_FORMAT
} tandem_format;
#pragma pop_macro("ROW")

typedef enum tandem_format_kind { TANDEM_FORMAT_KIND_FLOAT, TANDEM_FORMAT_KIND_INTEGER } tandem_format_kind;
typedef enum tandem_overflow { TANDEM_OVERFLOW_INFINITE, TANDEM_OVERFLOW_SATURATING } tandem_overflow;
typedef enum tandem_format_rounding {
    TANDEM_ROUNDING_NEAREST,
    TANDEM_ROUNDING_STOCHASTIC,
    TANDEM_ROUNDING_TOWARD_ZERO
} tandem_format_rounding;
typedef enum tandem_format_scale {
    TANDEM_FORMAT_SCALE_NONE,
    TANDEM_FORMAT_SCALE_LOSS,
    TANDEM_FORMAT_SCALE_TENSOR,
    TANDEM_FORMAT_SCALE_ROW,
    TANDEM_FORMAT_SCALE_BLOCK_E8M0, /* this one and those that follow are of blocks */
    TANDEM_FORMAT_SCALE_BLOCK_E4M3,
    TANDEM_FORMAT_SCALE_BLOCK_F32
} tandem_format_scale;

/* The columns of format.def. */
typedef struct tandem_format_row {
    const char *name;
    tandem_dtype dtype;
    tandem_format_kind kind;
    int bits, mantissa, significand, exponent, least;
    tandem_overflow overflow;
    tandem_format_rounding rounding;
    tandem_format_scale scale;
    int block, sum_bits;
} tandem_format_row;

const tandem_format_row *tandem_format_get(tandem_format format);
/* The first row of a dtype: what its kernels do. TANDEM_N_FORMAT: f32 and s32, to which nothing is rounded.
 * */
tandem_format tandem_format_of_dtype(tandem_dtype dtype);
/* By name. TANDEM_UNKNOWN_NAME: names the nearest one, or the first with the numbers of a name such as e2m1.
 * */
tandem_status tandem_format_find(tandem_format *format, const char *name, tandem_error *error);
double tandem_format_largest(const tandem_format_row *row);

/* A tensor (rows, columns) in f32 that is rounded to a format. */
typedef struct tandem_format_cast {
    tandem_format format;
    const float *x; /* [rows × columns] */
    int64_t rows, columns;
    /* > 0: known before, in the place of the largest magnitude of the tensor, for the scales TENSOR and
     * BLOCK_E4M3; else found */
    float range;
    double error_scale; /* a: the result is x + a·(Q(x) − x). 1: Q(x), to the bit; 0: x, to the bit */
    /* The draws of a stochastic rounding, those of casts to s8 (base/philox.h): element i, counted over the
     * tensor, takes half-word i mod 8 of block i / 8. */
    uint64_t seed;
    uint32_t stream[3];
    int64_t block; /* > 0: numbers of a block, in the place of the row's; of rows with blocks only */
} tandem_format_cast;

/* tandem_format_round: rounds a tensor. Scaled numbers are scaled back.
 *   out   [rows × columns] in f32; may be x
 *   amax  [out] the largest magnitude of x; may be NULL
 * TANDEM_LIMIT_EXCEEDED: x has a number that is not finite, and the format has a scale; out is unchanged.
 * Cost: some 5 ns per element, 10 with draws. */
tandem_status tandem_format_round(float *out, float *amax, const tandem_format_cast *cast,
                                  tandem_error *error);

/* tandem_format_variance: the mean square of the error Q(x) − x of each element, over the draws: with the
 * step s and the fraction f of x/s, s²·f(1 − f) for stochastic rounding; else the squared error itself.
 * Clamped numbers have the squared error, in every rounding. error_scale, seed and stream are not read.
 *   variance  [rows × columns], or NULL
 *   sum       [out] of all elements; may be NULL
 * Errors and cost: those of tandem_format_round. */
tandem_status tandem_format_variance(float *variance, double *sum, const tandem_format_cast *cast,
                                     tandem_error *error);

/* --- Emulation -------------------------------------------------------------------------------------------
 * */

#pragma push_macro("ROW")
#undef ROW
/* The rows of recipe.def (recipe.h); NONE: a tensor is rounded once, for all products. */
typedef enum tandem_recipe {
    TANDEM_RECIPE_NONE,
#define ROW(NAME, ...) TANDEM_RECIPE_##NAME,
#include "tandem/recipe.def"
#undef ROW
    TANDEM_N_RECIPE
} tandem_recipe;
#pragma pop_macro("ROW")

/* How an executor emulates: its step keeps all values in f32 (tandem_step_options.emulated), products
 * multiply in f32, and what a plan casts to a dtype, or writes in it, is rounded to that dtype's format. */
typedef struct tandem_emulation {
    tandem_format format[TANDEM_N_COMPUTE_DTYPE]; /* of each dtype */
    double error_scale;                           /* of tandem_format_cast */
    const double *task_scale; /* [n_task] multiplies error_scale in each task; NULL: 1; borrowed */
    uint64_t seed;            /* of stochastic rounding */
    int same_weight_draws;    /* 1: weights draw as in step 0 in every step */
    int exact_micro_steps; /* that many of a step's micro-steps, the first, round nothing: they represent the
                               * samples of ranks that run in fp32 */
    /* 1: with delayed scaling, a range is the largest of the window and of the tensor itself, so that nothing
     * is clamped: that of `window` + 1 batches */
    int widens_ranges;
    /* In the place of s8: products round their operands, and casts to s8 copy. That of the step's options.
     * format[TANDEM_S8] is then the format of what no recipe does. */
    tandem_recipe recipe;
} tandem_emulation;

/* Every dtype's own format, unscaled errors. */
tandem_emulation tandem_emulation_make(uint64_t seed);
/* Puts formats of a list with commas, "s4,tf32_cut", in the place of those of their dtypes, and a recipe in
 * the place of s8. TANDEM_UNKNOWN_NAME: names the nearest one. TANDEM_USAGE: two of one dtype. *emulation
 * unchanged then. */
tandem_status tandem_emulation_replace(tandem_emulation *emulation, const char *formats, tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
