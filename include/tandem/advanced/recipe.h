/* recipe.h: recipes (recipe.def): how each operand of a product is copied, transformed and rounded while a
 * step is emulated (docs/recipes.md). */
#ifndef TANDEM_RECIPE_H
#define TANDEM_RECIPE_H

#include "tandem/advanced/format.h"
#include "tandem/graph.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { TANDEM_RECIPE_BLOCK = 16 }; /* side of a square block; numbers of a Hadamard transform */

typedef enum tandem_recipe_product {
    TANDEM_RECIPE_FORWARD,
    TANDEM_RECIPE_DGRAD,
    TANDEM_RECIPE_WGRAD,
    TANDEM_N_RECIPE_PRODUCT
} tandem_recipe_product;

typedef struct tandem_recipe_operand {
    tandem_format format;
    int is_square, has_hadamard;
} tandem_recipe_operand;

/* The columns of recipe.def. operand[product]: of the task's reads 0 and 1. */
typedef struct tandem_recipe_row {
    const char *name;
    int kept_percent;
    tandem_recipe_operand operand[TANDEM_N_RECIPE_PRODUCT][2];
} tandem_recipe_row;

/* Of any recipe but TANDEM_RECIPE_NONE. */
const tandem_recipe_row *tandem_recipe_get(tandem_recipe recipe);
/* By name. TANDEM_RECIPE_NONE: there is none. */
tandem_recipe tandem_recipe_find(const char *name);
/* The recipe of products whose operands have this dtype: of mxfp8 and nvfp4 their own, of s8 the one that is
 * emulated in its place; else TANDEM_RECIPE_NONE. */
tandem_recipe tandem_recipe_of(tandem_dtype dtype, tandem_recipe of_s8);
/* 1: some product draws the rounding of its weight. */
int tandem_recipe_draws_weights(tandem_recipe recipe);

/* --- Operators -------------------------------------------------------------------------------------------
 * */

/* What a recipe does with the products of an operator whose precision has it. */
typedef enum tandem_recipe_rule {
    TANDEM_RECIPE_ROUNDS, /* linear and matmul: their operands are rounded as the row says */
    TANDEM_RECIPE_KEEPS,  /* linear, one of the last: operands are rounded to bf16 */
    TANDEM_RECIPE_LACKS   /* all others: whole tensors are rounded to the format of `forward x` */
} tandem_recipe_rule;
/* Cost: linear in the operators. */
tandem_recipe_rule tandem_recipe_rule_of(tandem_recipe recipe, const tandem_graph *graph, int op);

/* --- Operands --------------------------------------------------------------------------------------------
 * */

/* An operand in f32: matrices, one after the other, row-major. */
typedef struct tandem_recipe_cast {
    tandem_recipe_operand operand;
    const float *x; /* [batch × rows × columns] */
    int64_t batch, rows, columns;
    int sums_rows;      /* 1: the product sums over rows; 0: over columns */
    double error_scale; /* as in tandem_format_cast; of transformed numbers where they are transformed */
    uint64_t seed;      /* of draws, and of the signs of a Hadamard transform */
    uint32_t stream[3];
} tandem_recipe_cast;

/* Floats of a copy, [batch × lines × padded sum], and of the scratch that rounding needs, given operand and
 * sizes. */
int64_t tandem_recipe_copied(const tandem_recipe_cast *cast);
int64_t tandem_recipe_scratch(const tandem_recipe_cast *cast);
int64_t tandem_recipe_padded(int64_t n, tandem_format format); /* the next multiple of its blocks */

/* tandem_recipe_round: copies an operand so that the summed dimension is last, pads each line with zeros to a
 * multiple of the format's block, transforms and rounds.
 *   out      [tandem_recipe_copied]; overlaps nothing
 *   scratch  [tandem_recipe_scratch]; NULL where that is 0
 * Element i of `out` has draw i; of blocks of 16 × 16, draws follow blocks, rows of blocks after rows, and
 * rows within a block. A Hadamard transform is summed in f64, and its result is rounded to f32.
 * TANDEM_LIMIT_EXCEEDED: x has a number that is not finite; out is then not to be read.
 * Cost: that of tandem_format_round, and 2 to 5 ns per element for the copy. */
tandem_status tandem_recipe_round(float *out, float *scratch, const tandem_recipe_cast *cast,
                                  tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
