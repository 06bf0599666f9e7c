/* folder: research */
/* The noise of a plan from those of its parts: known shares, and a relu whose sign changes are counted. */
#include <math.h>

#include <gsl/gsl_randist.h>

#include "research/add_law.h"
#include "tests/support/tandem_test.h"

static void assert_near(double got, double expected, double room)
{
    if (!(fabs(got - expected) <= room)) fail_msg("got %.9g, expected %.9g", got, expected);
}

static double noise_of(const double *whole, const double *halved, const double *weight, int n)
{
    return add_law_noise(&(add_law_parts){whole, halved, weight, n});
}

static void squares_add_up_where_slopes_jump_and_noises_elsewhere(void **state)
{
    const double whole[] = {3, 4, 100}, jumping[] = {1.5, 2, 50}, smooth[] = {0.75, 1, 25},
                 mixed[] = {1.5, 1, 25}, weight[] = {1, 1, 0};
    assert_near(noise_of(whole, jumping, weight, 3), 5, 1e-12);
    assert_near(noise_of(whole, smooth, weight, 3), 7, 1e-12);
    assert_near(noise_of(whole, mixed, weight, 3), 7, 1e-12);
    /* Twice 3 in jumps, with 4 that are smooth. */
    assert_near(noise_of(whole, mixed, (const double[]){2, 1, 0}, 3), 4 + sqrt(18), 1e-12);
}

static void a_share_lies_between_none_and_all(void **state)
{
    const double whole[] = {3, 4}, weight[] = {1, 1};
    assert_near(noise_of(whole, (const double[]){3, 4}, weight, 2), 5, 1e-12);
    assert_near(noise_of(whole, (const double[]){0, -1}, weight, 2), 7, 1e-12);
    assert_near(noise_of((const double[]){-3, 4}, (const double[]){1, 2}, weight, 2), 4, 1e-12);
}

static void powers_of_known_noises(void **state)
{
    assert_near(add_law_power(16, 1, 1, 0.25), 2, 1e-12);
    assert_near(add_law_power(4, 1, 1, 0.25), 1, 1e-12);
    assert_true(isnan(add_law_power(4, 0, 1, 0.25)) && isnan(add_law_power(-1, 1, 1, 0.25)));
}

/* How many of many numbers change their sign, so that a relu's slope jumps, by one error or two. */
static double sign_changes(double first, double second)
{
    enum { N = 400000 };
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    int n = 0;
    for (int i = 0; i < N; i++) {
        const double x = gsl_ran_gaussian(random, 1), e = gsl_ran_gaussian(random, first),
                     f = gsl_ran_gaussian(random, second);
        n += (x > 0) != (x + e + f > 0);
    }
    gsl_rng_free(random);
    return n;
}

static void the_law_counts_sign_changes_and_the_sum_does_not(void **state)
{
    const double whole[] = {sign_changes(0.1, 0), sign_changes(0, 0.1)},
                 halved[] = {sign_changes(0.05, 0), sign_changes(0, 0.05)}, weight[] = {1, 1},
                 both = sign_changes(0.1, 0.1);
    assert_near(noise_of(whole, halved, weight, 2) / both, 1, 0.03);
    assert_true((whole[0] + whole[1]) / both > 1.35);
    assert_near(add_law_power(whole[0], halved[0], 1, 0.5), 1, 0.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_add_up_where_slopes_jump_and_noises_elsewhere),
        cmocka_unit_test(a_share_lies_between_none_and_all),
        cmocka_unit_test(powers_of_known_noises),
        cmocka_unit_test(the_law_counts_sign_changes_and_the_sum_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
