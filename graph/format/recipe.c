/* recipe.c: the table of recipe.def, and how a recipe copies, transforms and rounds an operand.
 *
 * A copy has the summed dimension last, in lines that are padded with zeros to whole blocks. So blocks of
 * consecutive numbers of the whole copy (format.c) lie along the sum and within a line, as tensor cores have
 * them. Blocks of 16 × 16 are gathered one after the other, and rounded as blocks of 256 numbers. */
#include "tandem/advanced/recipe.h"

#include <assert.h>
#include <string.h>

#include "base/nearest.h"
#include "base/philox.h"

/* --- The table ------------------------------------------------------------------------------------------ */

enum { BLOCK = TANDEM_RECIPE_BLOCK, SQUARE_BLOCK = BLOCK * BLOCK };

#define IS_SQUARE_LINE 0
#define IS_SQUARE_SQUARE 1
#define HAS_HADAMARD_PLAIN 0
#define HAS_HADAMARD_HADAMARD 1
#define OPERAND(format, block, transform)                                                                    \
    {                                                                                                        \
        TANDEM_FORMAT_##format, IS_SQUARE_##block, HAS_HADAMARD_##transform                                  \
    }
#define IS_SQUARE_OPERAND(format, block, transform) IS_SQUARE_##block
#define HAS_HADAMARD_OPERAND(format, block, transform) HAS_HADAMARD_##transform

static const tandem_recipe_row recipes[TANDEM_N_RECIPE] = {
    [TANDEM_RECIPE_NONE] = {.name = ""},
#define ROW(NAME, name, kept, forward_x, forward_w, dgrad_g, dgrad_w, wgrad_x, wgrad_g)                      \
    [TANDEM_RECIPE_##NAME] = {#name,                                                                         \
                              kept,                                                                          \
                              {{OPERAND forward_x, OPERAND forward_w},                                       \
                               {OPERAND dgrad_g, OPERAND dgrad_w},                                           \
                               {OPERAND wgrad_x, OPERAND wgrad_g}}},
#include "tandem/recipe.def"
#undef ROW
};

#define ROW(NAME, name, kept, forward_x, forward_w, dgrad_g, dgrad_w, wgrad_x, wgrad_g)                      \
    _Static_assert(!(IS_SQUARE_OPERAND forward_x || IS_SQUARE_OPERAND dgrad_g ||                             \
                     IS_SQUARE_OPERAND wgrad_x || IS_SQUARE_OPERAND wgrad_g),                                \
                   "recipe " #name ": only weights have square blocks");                                     \
    _Static_assert(HAS_HADAMARD_OPERAND forward_x == HAS_HADAMARD_OPERAND forward_w &&                       \
                       HAS_HADAMARD_OPERAND dgrad_g == HAS_HADAMARD_OPERAND dgrad_w &&                       \
                       HAS_HADAMARD_OPERAND wgrad_x == HAS_HADAMARD_OPERAND wgrad_g,                         \
                   "recipe " #name ": both operands of a product are transformed, or none");                 \
    _Static_assert(!(IS_SQUARE_OPERAND forward_w && HAS_HADAMARD_OPERAND forward_w) &&                       \
                       !(IS_SQUARE_OPERAND dgrad_w && HAS_HADAMARD_OPERAND dgrad_w),                         \
                   "recipe " #name ": square blocks are not transformed");                                   \
    _Static_assert((kept) >= 0 && (kept) <= 100, "recipe " #name ": a percentage");
#include "tandem/recipe.def"
#undef ROW

const tandem_recipe_row *tandem_recipe_get(tandem_recipe recipe)
{
    assert(recipe > TANDEM_RECIPE_NONE && recipe < TANDEM_N_RECIPE);
    return &recipes[recipe];
}

tandem_recipe tandem_recipe_find(const char *name)
{
    return (tandem_recipe)(1 + tandem_name_find(name, &recipes[1].name, TANDEM_N_RECIPE - 1,
                                                sizeof recipes[0], NULL));
}

tandem_recipe tandem_recipe_of(tandem_dtype dtype, tandem_recipe of_s8)
{
    switch (dtype) {
    case TANDEM_S8: return of_s8;
    case TANDEM_MXFP8: return TANDEM_RECIPE_MXFP8_ALL;
    case TANDEM_NVFP4: return TANDEM_RECIPE_NVFP4_ALL;
    default: return TANDEM_RECIPE_NONE;
    }
}

int tandem_recipe_draws_weights(tandem_recipe recipe)
{
    if (recipe == TANDEM_RECIPE_NONE) return 0;
    const tandem_recipe_row *row = tandem_recipe_get(recipe);
    for (int product = TANDEM_RECIPE_FORWARD; product <= TANDEM_RECIPE_DGRAD; product++)
        if (tandem_format_get(row->operand[product][1].format)->rounding == TANDEM_ROUNDING_STOCHASTIC)
            return 1;
    return 0;
}

/* --- Operators ------------------------------------------------------------------------------------------ */

tandem_recipe_rule tandem_recipe_rule_of(tandem_recipe recipe, const tandem_graph *graph, int op)
{
    const tandem_op_kind kind = graph->op[op].kind;
    if (kind == TANDEM_OP_MATMUL) return TANDEM_RECIPE_ROUNDS;
    if (kind != TANDEM_OP_LINEAR) return TANDEM_RECIPE_LACKS;
    int n_linear = 0, n_later = 0;
    for (int i = 0; i < graph->n_op; i++) {
        n_linear += graph->op[i].kind == TANDEM_OP_LINEAR;
        n_later += graph->op[i].kind == TANDEM_OP_LINEAR && i > op;
    }
    const int n_kept = (n_linear * tandem_recipe_get(recipe)->kept_percent + 99) / 100;
    return n_later < n_kept ? TANDEM_RECIPE_KEEPS : TANDEM_RECIPE_ROUNDS;
}

/* --- Copies --------------------------------------------------------------------------------------------- */

static int64_t whole_blocks(int64_t n, int64_t block) { return (n + block - 1) / block * block; }

int64_t tandem_recipe_padded(int64_t n, tandem_format format)
{
    return whole_blocks(n, tandem_format_get(format)->block);
}

int64_t tandem_recipe_copied(const tandem_recipe_cast *cast)
{
    const int64_t lines = cast->sums_rows ? cast->columns : cast->rows,
                  sum = cast->sums_rows ? cast->rows : cast->columns;
    return cast->batch * lines * tandem_recipe_padded(sum, cast->operand.format);
}

int64_t tandem_recipe_scratch(const tandem_recipe_cast *cast)
{
    return cast->operand.is_square
               ? cast->batch * whole_blocks(cast->rows, BLOCK) * whole_blocks(cast->columns, BLOCK)
               : 0;
}

/* Line l of one matrix, as it is summed; `padded` numbers. */
static void copy_line(float *out, const tandem_recipe_cast *cast, const float *x, int64_t l, int64_t padded)
{
    const int64_t n = cast->sums_rows ? cast->rows : cast->columns;
    if (cast->sums_rows)
        for (int64_t i = 0; i < n; i++) out[i] = x[i * cast->columns + l];
    else
        memcpy(out, x + l * n, (size_t)n * sizeof *out);
    memset(out + n, 0, (size_t)(padded - n) * sizeof *out);
}

/* 16 signs, the same for all operands of a run. */
static void draw_signs(double sign[BLOCK], uint64_t seed)
{
    const tandem_philox_block block = tandem_philox((const uint32_t[]){0, 0, 0, TANDEM_RNG_HADAMARD}, seed);
    for (int k = 0; k < BLOCK; k++) sign[k] = block.word[0] >> k & 1 ? -1 : 1;
}

/* H·D·x/4, by sums and differences of pairs (the fast Walsh-Hadamard transform). */
static void transform_block(float x[BLOCK], const double sign[BLOCK])
{
    double h[BLOCK];
    for (int k = 0; k < BLOCK; k++) h[k] = sign[k] * (double)x[k];
    for (int half = 1; half < BLOCK; half *= 2)
        for (int k = 0; k < BLOCK; k++) {
            if (k & half) continue;
            const double a = h[k], b = h[k + half];
            h[k] = a + b;
            h[k + half] = a - b;
        }
    for (int k = 0; k < BLOCK; k++) x[k] = (float)(h[k] / 4);
}

static tandem_status round_lines(float *out, const tandem_recipe_cast *cast, tandem_error *error)
{
    const int64_t lines = cast->sums_rows ? cast->columns : cast->rows, n = tandem_recipe_copied(cast),
                  padded = n / (cast->batch * lines);
    for (int64_t l = 0; l < cast->batch * lines; l++)
        copy_line(out + l * padded, cast, cast->x + l / lines * cast->rows * cast->columns, l % lines,
                  padded);
    double sign[BLOCK];
    if (cast->operand.has_hadamard) draw_signs(sign, cast->seed);
    for (int64_t i = 0; i < n && cast->operand.has_hadamard; i += BLOCK) transform_block(out + i, sign);
    const tandem_format_cast rounded = {.format = cast->operand.format,
                                        .x = out,
                                        .rows = n / padded,
                                        .columns = padded,
                                        .error_scale = cast->error_scale,
                                        .seed = cast->seed,
                                        .stream = {cast->stream[0], cast->stream[1], cast->stream[2]}};
    return tandem_format_round(out, NULL, &rounded, error);
}

/* --- Blocks of 16 × 16 ---------------------------------------------------------------------------------- */

/* Gathers the blocks of one matrix, each padded with zeros. */
static void gather_squares(float *out, const float *x, int64_t rows, int64_t columns)
{
    for (int64_t row = 0; row < rows; row += BLOCK)
        for (int64_t column = 0; column < columns; column += BLOCK, out += SQUARE_BLOCK) {
            const int64_t n = columns - column < BLOCK ? columns - column : BLOCK;
            memset(out, 0, SQUARE_BLOCK * sizeof *out);
            for (int64_t r = 0; r < BLOCK && row + r < rows; r++)
                memcpy(out + r * BLOCK, x + (row + r) * columns + column, (size_t)n * sizeof *out);
        }
}

/* From blocks into lines. */
static void spread_squares(float *out, const float *square, const tandem_recipe_cast *cast)
{
    const int64_t padded_rows = whole_blocks(cast->rows, BLOCK),
                  padded_columns = whole_blocks(cast->columns, BLOCK);
    for (int64_t r = 0; r < padded_rows; r++)
        for (int64_t c = 0; c < padded_columns; c++) {
            const int64_t block = r / BLOCK * (padded_columns / BLOCK) + c / BLOCK;
            const float value = square[block * SQUARE_BLOCK + r % BLOCK * BLOCK + c % BLOCK];
            if (cast->sums_rows && c < cast->columns) out[c * padded_rows + r] = value;
            if (!cast->sums_rows && r < cast->rows) out[r * padded_columns + c] = value;
        }
}

static tandem_status round_squares(float *out, float *scratch, const tandem_recipe_cast *cast,
                                   tandem_error *error)
{
    const int64_t n = tandem_recipe_scratch(cast), each = n / cast->batch,
                  copied = tandem_recipe_copied(cast) / cast->batch;
    for (int64_t b = 0; b < cast->batch; b++)
        gather_squares(scratch + b * each, cast->x + b * cast->rows * cast->columns, cast->rows,
                       cast->columns);
    const tandem_format_cast rounded = {.format = cast->operand.format,
                                        .x = scratch,
                                        .rows = n / SQUARE_BLOCK,
                                        .columns = SQUARE_BLOCK,
                                        .block = SQUARE_BLOCK,
                                        .error_scale = cast->error_scale,
                                        .seed = cast->seed,
                                        .stream = {cast->stream[0], cast->stream[1], cast->stream[2]}};
    const tandem_status status = tandem_format_round(scratch, NULL, &rounded, error);
    for (int64_t b = 0; b < cast->batch && status == TANDEM_OK; b++)
        spread_squares(out + b * copied, scratch + b * each, cast);
    return status;
}

tandem_status tandem_recipe_round(float *out, float *scratch, const tandem_recipe_cast *cast,
                                  tandem_error *error)
{
    assert(!cast->operand.is_square || tandem_format_get(cast->operand.format)->block == BLOCK);
    return cast->operand.is_square ? round_squares(out, scratch, cast, error) : round_lines(out, cast, error);
}
