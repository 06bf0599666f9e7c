/* folder: graph */
/* Recipes: operands bit for bit against nvfp4_reference.h, the published row, names, and which operators a
 * recipe does. */
#include "tandem/advanced/recipe.h"
#include "tests/support/nvfp4_reference.h"

/* --- Operands ------------------------------------------------------------------------------------------- */

static uint64_t drawn_word;
static uint32_t draw_word(void)
{
    drawn_word = drawn_word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(drawn_word >> 32);
}

/* Zeros, ties of scaled numbers, and magnitudes 2^-8 to 2^8: so the sums of a transform are exact in double,
 * in any order. */
static void draw_operand(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t kind = draw_word() % 8;
        const float sign = draw_word() & 1 ? -1 : 1;
        if (kind == 0)
            x[i] = 0;
        else if (kind == 1)
            x[i] = sign * (float)(draw_word() % 25) / 4;
        else
            x[i] = sign * ldexpf(1 + (float)(draw_word() >> 9) * 0x1p-23F, (int)(draw_word() % 17) - 8);
    }
}

static void check_operand(int64_t batch, int64_t rows, int64_t columns, int variant)
{
    const int64_t n = batch * rows * columns;
    float *const x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    draw_operand(x, n);
    const int is_square = variant >> 1 & 1, is_drawn = variant >> 2 & 1;
    const nvfp4_operand operand = {.x = x,
                                   .batch = batch,
                                   .rows = rows,
                                   .columns = columns,
                                   .sums_rows = variant & 1,
                                   .is_square = is_square,
                                   .has_hadamard = variant >> 3 & 1,
                                   .is_drawn = is_drawn,
                                   .seed = 3 + (uint64_t)variant,
                                   .stream = {5, 7, 18}};
    const tandem_recipe_cast cast = {
        .operand = {is_drawn ? TANDEM_FORMAT_NVFP4_SR : TANDEM_FORMAT_NVFP4, is_square, variant >> 3 & 1},
        .x = x,
        .batch = batch,
        .rows = rows,
        .columns = columns,
        .sums_rows = variant & 1,
        .error_scale = 1,
        .seed = operand.seed,
        .stream = {5, 7, 18}};
    const int64_t copied = tandem_recipe_copied(&cast), scratch = tandem_recipe_scratch(&cast);
    assert_int_equal(copied, nvfp4_copied(&operand));
    float *const expected = malloc((size_t)copied * sizeof *expected),
                 *const out = malloc((size_t)copied * sizeof *out),
                 *const squares = malloc((size_t)(scratch + 1) * sizeof *squares);
    assert_true(expected && out && squares);
    tandem_error error = {0};
    nvfp4_round(expected, &operand);
    require_ok(tandem_recipe_round(out, scratch ? squares : NULL, &cast, &error), &error);
    for (int64_t i = 0; i < copied; i++)
        if (out[i] != expected[i])
            fail_msg("(%lld, %lld, %lld), variant %d: element %lld is %a, %a expected", (long long)batch,
                     (long long)rows, (long long)columns, variant, (long long)i, (double)out[i],
                     (double)expected[i]);
    free(x);
    free(expected);
    free(out);
    free(squares);
}

/* A variant: 1 sums rows, 2 squares, 4 draws, 8 a transform. */
static void operands_have_the_bits_of_the_reference(void **state)
{
    static const int64_t shapes[][3] = {{1, 16, 16}, {1, 48, 32}, {1, 33, 20}, {3, 17, 40},
                                        {2, 5, 3},   {1, 1, 100}, {1, 70, 1}};
    drawn_word = 1;
    for (size_t s = 0; s < N_OF(shapes); s++)
        for (int variant = 0; variant < 16; variant++)
            if ((variant & 10) != 10) check_operand(shapes[s][0], shapes[s][1], shapes[s][2], variant);
}

/* Forward and dgrad read the same numbers of a weight in squares, and others of one in lines. */
static void squares_are_the_same_along_both_sums(void **state)
{
    enum { ROWS = 40, COLUMNS = 24, PADDED_ROWS = 48, PADDED_COLUMNS = 32 };
    static float x[ROWS * COLUMNS], down[COLUMNS * PADDED_ROWS], across[ROWS * PADDED_COLUMNS],
        scratch[PADDED_ROWS * PADDED_COLUMNS];
    drawn_word = 2;
    draw_operand(x, ROWS * COLUMNS);
    for (int is_square = 0; is_square < 2; is_square++) {
        tandem_recipe_cast cast = {.operand = {TANDEM_FORMAT_NVFP4, is_square, 0},
                                   .x = x,
                                   .batch = 1,
                                   .rows = ROWS,
                                   .columns = COLUMNS,
                                   .error_scale = 1};
        tandem_error error = {0};
        int n_other = 0;
        require_ok(tandem_recipe_round(across, scratch, &cast, &error), &error);
        cast.sums_rows = 1;
        require_ok(tandem_recipe_round(down, scratch, &cast, &error), &error);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++)
                n_other += across[r * PADDED_COLUMNS + c] != down[c * PADDED_ROWS + r];
        assert_true(is_square ? n_other == 0 : n_other > 20);
    }
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* What is not rounded keeps its products; each seed has its signs. */
static void a_transform_keeps_products(void **state)
{
    enum { N = 100, PADDED = 112 };
    float x[N], y[N], h[2][PADDED], other[PADDED];
    tandem_error error = {0};
    drawn_word = 3;
    draw_operand(x, N);
    draw_operand(y, N);
    tandem_recipe_cast cast = {
        .operand = {TANDEM_FORMAT_NVFP4, 0, 1}, .x = x, .batch = 1, .rows = 1, .columns = N, .seed = 9};
    require_ok(tandem_recipe_round(h[0], NULL, &cast, &error), &error);
    cast.seed = 10;
    require_ok(tandem_recipe_round(other, NULL, &cast, &error), &error);
    cast.seed = 9;
    cast.x = y;
    require_ok(tandem_recipe_round(h[1], NULL, &cast, &error), &error);
    assert_true(memcmp(h[0], other, sizeof other) != 0);
    assert_true(memcmp(h[0], x, sizeof x) != 0);
    const double size = sqrt(dot(x, x, N) * dot(y, y, N));
    assert_true(fabs(dot(h[0], h[1], PADDED) - dot(x, y, N)) < 1e-6 * size);
    assert_true(fabs(dot(h[0], h[0], PADDED) / dot(x, x, N) - 1) < 1e-6);
}

static void what_is_not_finite_is_refused(void **state)
{
    float x[64], out[64], scratch[256];
    tandem_error error = {0};
    for (int variant = 0; variant < 3; variant++) {
        tandem_recipe_cast cast = {.operand = {TANDEM_FORMAT_NVFP4, variant == 1, variant == 2},
                                   .x = x,
                                   .batch = 1,
                                   .rows = 4,
                                   .columns = 16,
                                   .error_scale = 1};
        for (int i = 0; i < 64; i++) x[i] = 1;
        x[37] = variant ? NAN : INFINITY;
        assert_int_equal(tandem_recipe_round(out, scratch, &cast, &error), TANDEM_LIMIT_EXCEEDED);
    }
}

/* --- The table ------------------------------------------------------------------------------------------ */

/* What arXiv:2509.25149 says of each operand: drawn, square, transformed. */
static void rows_are_the_published_recipe(void **state)
{
    static const struct {
        tandem_recipe recipe;
        int kept_percent, has_draws, has_hadamard, has_squares;
    } rows[] = {{TANDEM_RECIPE_NVFP4_RECIPE, 15, 1, 1, 1},
                {TANDEM_RECIPE_NVFP4_WITHOUT_SR, 15, 0, 1, 1},
                {TANDEM_RECIPE_NVFP4_WITHOUT_HADAMARD, 15, 1, 0, 1},
                {TANDEM_RECIPE_NVFP4_WITHOUT_2D, 15, 1, 1, 0},
                {TANDEM_RECIPE_NVFP4_ALL, 0, 1, 1, 1}};
    assert_int_equal(N_OF(rows), TANDEM_N_RECIPE - 2); /* none, and that of mxfp8 */
    for (size_t k = 0; k < N_OF(rows); k++) {
        const tandem_recipe_row *row = tandem_recipe_get(rows[k].recipe);
        assert_int_equal(row->kept_percent, rows[k].kept_percent);
        assert_false(tandem_recipe_draws_weights(rows[k].recipe));
        for (int product = 0; product < TANDEM_N_RECIPE_PRODUCT; product++)
            for (int r = 0; r < 2; r++) {
                const tandem_recipe_operand *operand = &row->operand[product][r];
                const int is_gradient = product == TANDEM_RECIPE_DGRAD ? r == 0 : product == 2 && r == 1,
                          is_weight = product != TANDEM_RECIPE_WGRAD && r == 1;
                assert_int_equal(operand->format, is_gradient && rows[k].has_draws ? TANDEM_FORMAT_NVFP4_SR
                                                                                   : TANDEM_FORMAT_NVFP4);
                assert_int_equal(operand->is_square, is_weight && rows[k].has_squares);
                assert_int_equal(operand->has_hadamard,
                                 product == TANDEM_RECIPE_WGRAD && rows[k].has_hadamard);
            }
    }
}

/* E4M3 along the sum in all operands, gradients included (arXiv:2506.08027). */
static void mxfp8_rounds_all_operands_alike(void **state)
{
    const tandem_recipe_row *row = tandem_recipe_get(tandem_recipe_of(TANDEM_MXFP8, TANDEM_RECIPE_NONE));
    for (int product = 0; product < TANDEM_N_RECIPE_PRODUCT; product++)
        for (int r = 0; r < 2; r++) {
            assert_int_equal(row->operand[product][r].format, TANDEM_FORMAT_MXFP8_E4M3);
            assert_false(row->operand[product][r].is_square || row->operand[product][r].has_hadamard);
        }
    assert_int_equal(row->kept_percent, 0);
    assert_int_equal(tandem_recipe_padded(33, TANDEM_FORMAT_MXFP8_E4M3), 64);
    assert_int_equal(tandem_recipe_padded(33, TANDEM_FORMAT_NVFP4), 48);
}

static void only_types_with_one_have_a_recipe(void **state)
{
    for (int d = 0; d < TANDEM_N_COMPUTE_DTYPE; d++) {
        const tandem_recipe of = tandem_recipe_of((tandem_dtype)d, TANDEM_RECIPE_NVFP4_WITHOUT_2D);
        assert_int_equal(of, d == TANDEM_S8      ? TANDEM_RECIPE_NVFP4_WITHOUT_2D
                             : d == TANDEM_MXFP8 ? TANDEM_RECIPE_MXFP8_ALL
                             : d == TANDEM_NVFP4 ? TANDEM_RECIPE_NVFP4_ALL
                                                 : TANDEM_RECIPE_NONE);
    }
    tandem_emulation emulation = tandem_emulation_make(1);
    tandem_error error = {0};
    assert_int_equal(tandem_emulation_replace(&emulation, "mxfp8_all", &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "--uniform mxfp8"));
}

static void names_lead_to_recipes(void **state)
{
    tandem_emulation emulation = tandem_emulation_make(1);
    tandem_error error = {0};
    assert_int_equal(emulation.recipe, TANDEM_RECIPE_NONE);
    require_ok(tandem_emulation_replace(&emulation, "nvfp4_without_2d,tf32_cut", &error), &error);
    assert_int_equal(emulation.recipe, TANDEM_RECIPE_NVFP4_WITHOUT_2D);
    assert_int_equal(emulation.format[TANDEM_S8], TANDEM_FORMAT_NVFP4);
    assert_int_equal(emulation.format[TANDEM_TF32], TANDEM_FORMAT_TF32_CUT);
    const tandem_emulation before = emulation;
    assert_int_equal(tandem_emulation_replace(&emulation, "s4,nvfp4_without_rs", &error),
                     TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "'nvfp4_without_sr'"));
    assert_memory_equal(&before, &emulation, sizeof before);
    assert_int_equal(tandem_emulation_replace(&emulation, "nvfp", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'nvfp4'?"));
    assert_int_equal(tandem_emulation_replace(&emulation, "nvfp4_recipe,s4", &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "nvfp4_recipe and s4 both take the place of s8"));
    assert_memory_equal(&before, &emulation, sizeof before);
    require_ok(tandem_emulation_replace(&emulation, "s4", &error), &error);
    assert_int_equal(emulation.recipe, TANDEM_RECIPE_NONE);
    assert_int_equal(emulation.format[TANDEM_S8], TANDEM_FORMAT_S4);
}

/* --- Operators ------------------------------------------------------------------------------------------ */

static void check_rules(const char *model, int n_rounds, int n_keeps, int n_lacks)
{
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    int n[3] = {0}, last_linear = -1;
    require_ok(tandem_graph_open(&graph, model, 2, &error), &error);
    for (int i = 0; i < graph->n_op; i++) {
        const int can = tandem_op_row_get(graph->op[i].kind)->precisions >> TANDEM_PRECISION_INT8_FULL & 1;
        if (can) n[tandem_recipe_rule_of(TANDEM_RECIPE_NVFP4_RECIPE, graph, i)]++;
        if (graph->op[i].kind == TANDEM_OP_LINEAR) last_linear = i;
    }
    assert_int_equal(tandem_recipe_rule_of(TANDEM_RECIPE_NVFP4_RECIPE, graph, last_linear),
                     TANDEM_RECIPE_KEEPS);
    assert_int_equal(n[TANDEM_RECIPE_ROUNDS], n_rounds);
    assert_int_equal(n[TANDEM_RECIPE_KEEPS], n_keeps);
    assert_int_equal(n[TANDEM_RECIPE_LACKS], n_lacks);
    tandem_graph_close(graph);
}

/* Of 4 linear operators one is kept, of 7 two: 15 %, rounded up. */
static void the_last_linear_operators_are_kept(void **state)
{
    check_rules("mlp:width=16,depth=3", 3, 1, 0);
    check_rules("mlp:width=16,depth=6", 5, 2, 0);
    check_rules("resnet20:width=8,image=8x8x1", 0, 1, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_have_the_bits_of_the_reference),
        cmocka_unit_test(squares_are_the_same_along_both_sums),
        cmocka_unit_test(a_transform_keeps_products),
        cmocka_unit_test(what_is_not_finite_is_refused),
        cmocka_unit_test(rows_are_the_published_recipe),
        cmocka_unit_test(mxfp8_rounds_all_operands_alike),
        cmocka_unit_test(only_types_with_one_have_a_recipe),
        cmocka_unit_test(names_lead_to_recipes),
        cmocka_unit_test(the_last_linear_operators_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
