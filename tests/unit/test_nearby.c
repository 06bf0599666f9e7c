/* folder: predictor */
/* What rows near to a task say of it, worked out by hand, and where a task lies among others. */
#include <math.h>

#include "predictor/form.h"
#include "tests/support/tandem_test.h"

static const double here[TANDEM_N_SHAPE] = {0};

static void assert_near_number(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-12 + 1e-9 * fabs(expected)))
        fail_msg("got %.15g, expected %.15g", got, expected);
}

static void a_row_counts_by_its_weight_and_its_distance(void **state)
{
    const tandem_nearby at_it = {.residual = 0.5, .weight = 3},
                        apart = {.shape = {0, 0.25}, .residual = 0.5, .weight = 3};
    const tandem_nearby_rule rule = {.width = 0.25, .floor = 1};
    assert_near_number(tandem_nearby_residual(NULL, 0, &rule, here), 0);
    assert_near_number(tandem_nearby_residual(&at_it, 1, &rule, here), 3 * 0.5 / (3 + 1));
    const double weight = 3 * exp(-0.5);
    assert_near_number(tandem_nearby_residual(&apart, 1, &rule, here), weight * 0.5 / (weight + 1));
}

/* Half the distance of the second nearest is the width; the nearest decides how far rows reach. */
static void rows_that_lie_apart_count_and_fade(void **state)
{
    const tandem_nearby rows[] = {{.shape = {4}, .residual = 1, .weight = 1},
                                  {.shape = {2}, .residual = -1, .weight = 1},
                                  {.shape = {100}, .residual = 5, .weight = 1}};
    tandem_nearby_rule rule = {.width = 0.1, .reach = 2, .n_nearest = 2};
    const double far = exp(-16 / 8.0), near = exp(-4 / 8.0), mean = (far - near) / (far + near);
    assert_near_number(tandem_nearby_residual(rows, 3, &rule, here), mean * exp(-4 / 8.0));
    rule.reach = 1;
    assert_near_number(tandem_nearby_residual(rows, 3, &rule, here), mean * exp(-4 / 2.0));
}

static void a_row_that_disagrees_says_little(void **state)
{
    const tandem_nearby rows[] = {{.residual = 0.1, .weight = 1},
                                  {.residual = 0.1, .weight = 1},
                                  {.residual = 0.1, .weight = 1},
                                  {.residual = 3.1, .weight = 1}};
    tandem_nearby_rule rule = {.width = 1};
    assert_near_number(tandem_nearby_residual(rows, 4, &rule, here), 0.85);
    rule.agreement = 0.1;
    const double agreed = tandem_nearby_residual(rows, 4, &rule, here);
    assert_true(agreed > 0.1 && agreed < 0.15);
}

static tandem_task_terms terms_of(const char *signature, tandem_work work, const char *device)
{
    tandem_cost_key key = {.kind = TANDEM_COST_OP, .precision = "fp32"};
    tandem_task_terms terms;
    (void)snprintf(key.signature, sizeof key.signature, "%s", signature);
    tandem_task_terms_of(&terms, &work, &key, device);
    return terms;
}

static void bytes_count_again_beyond_each_cache_and_rows_by_their_columns(void **state)
{
    const double bytes = 10 << 20;
    const tandem_work stream = {.bytes = bytes};
    const tandem_task_terms of = terms_of("transpose 4x8x24 axes=1,0,2", stream, "cpu:avx2");
    const double expected[TANDEM_N_TERM] = {1,       bytes,     bytes - (32 << 10), bytes - (1 << 20),
                                            2 << 20, bytes / 24};
    for (int i = 0; i < TANDEM_N_TERM; i++) assert_near_number(of.term[i], expected[i]);
    assert_near_number(of.shape[1], log(24));
    assert_true(of.variant != terms_of("transpose 4x8x24 axes=0,2,1", stream, "cpu:avx2").variant);
}

/* Columns that fill vectors of 16, 8 or 4 numbers have kernels of their own. */
static void shapes_show_what_fills_vectors(void **state)
{
    static const double apart[][2] = {{32, 0}, {24, 0.3}, {12, 0.6}, {7, 0.9}};
    for (size_t i = 0; i < N_OF(apart); i++) {
        const tandem_work product = {
            .is_product = 1, .flops = 100, .bytes = 1e6, .count = 1, .m = 5, .k = 32, .n = apart[i][0]};
        const tandem_task_terms of = terms_of("linear", product, "cpu:avx512");
        assert_near_number(of.term[1], 100 * ceil(apart[i][0] / 16) * 16 / apart[i][0]);
        assert_near_number(of.shape[4], apart[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_counts_by_its_weight_and_its_distance),
        cmocka_unit_test(rows_that_lie_apart_count_and_fade),
        cmocka_unit_test(a_row_that_disagrees_says_little),
        cmocka_unit_test(bytes_count_again_beyond_each_cache_and_rows_by_their_columns),
        cmocka_unit_test(shapes_show_what_fills_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
