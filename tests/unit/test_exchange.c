/* folder: research */
/* The first order of a gradient's error, of errors whose first order is known. */
#include <math.h>

#include <gsl/gsl_randist.h>

#include "research/exchange.h"
#include "tests/support/tandem_test.h"

enum { REPLICATES = 64, WEIGHTS = 400, MAX_CELLS = TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE };

typedef struct first_order {
    double value, half;
} first_order;

/* Gradients are 1 + noise in every weight. Their errors: mean + of_gradient · g + of_noise · (g − 1), and
 * noise of their own. */
typedef struct error_law {
    double mean, of_gradient, of_noise, own_noise;
    int is_lost; /* gradients are noise in every weight, without the 1 */
} error_law;

static double product(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < WEIGHTS; i++) sum += a[i] * b[i];
    return sum;
}

/* [2 · REPLICATES][WEIGHTS] */
static double gradient[2 * REPLICATES][WEIGHTS], change[2 * REPLICATES][WEIGHTS];

static void draw_batches(const error_law *law)
{
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    for (int b = 0; b < 2 * REPLICATES; b++)
        for (int i = 0; i < WEIGHTS; i++) {
            const double noise = gsl_ran_gaussian(random, 3);
            gradient[b][i] = (law->is_lost ? 0 : 1) + noise;
            change[b][i] = law->mean + law->of_gradient * gradient[b][i] + law->of_noise * noise +
                           gsl_ran_gaussian(random, law->own_noise);
        }
    gsl_rng_free(random);
}

/* The products of a replicate with the others: of pairs, as the estimate has them. */
static void fill_replicate(tandem_estimate *estimate, double own[REPLICATES], int cell, int r)
{
    double mean_square = 0, against = 0;
    for (int s = 0; s < REPLICATES; s++)
        for (int k = 0; k < 4 && s != r; k++) {
            const double *g = gradient[2 * r + k / 2], *other = gradient[2 * s + k % 2];
            mean_square += product(g, other) / 4 / (REPLICATES - 1);
            against -= (product(g, change[2 * s + k % 2]) + product(change[2 * r + k / 2], other)) / 8 /
                       (REPLICATES - 1);
        }
    const double *g = gradient[2 * r], *h = gradient[2 * r + 1];
    estimate->gradient[r] = (tandem_estimated_gradient){
        .variance = 0.5 * (product(g, g) + product(h, h)) - product(g, h), .mean_square = mean_square};
    tandem_estimate_errors(estimate, 0, cell)[r].against = against;
    own[r] = 0.5 * (product(g, change[2 * r]) + product(h, change[2 * r + 1]));
}

static first_order first_order_of(const error_law *law)
{
    const int cell = tandem_estimate_cell(0, TANDEM_PRECISION_INT8, TANDEM_F32);
    tandem_estimate estimate = {0};
    double own[REPLICATES], share[MAX_CELLS] = {0};
    tandem_error error = {0};
    first_order of;
    assert_int_equal(tandem_estimate_open(&estimate, 1, 1, REPLICATES, &error), TANDEM_OK);
    draw_batches(law);
    for (int r = 0; r < REPLICATES; r++) fill_replicate(&estimate, own, cell, r);
    share[cell] = 1;
    of.value = exchange_first_order(&of.half, &estimate, 0, share, own);
    tandem_estimate_close(&estimate);
    return of;
}

static void assert_first_order(error_law law, double expected)
{
    const first_order got = first_order_of(&law);
    if (!(fabs(got.value - expected) <= 1.5 * got.half + 1e-12) || !(got.half < 0.1))
        fail_msg("got %.4f ± %.4f, expected %.4f", got.value, got.half, expected);
}

static void noise_of_its_own_has_none(void **state) { assert_first_order((error_law){.own_noise = 1}, 0); }

/* A step of another length is another rate: nothing is lost. */
static void a_scaled_gradient_has_none(void **state)
{
    assert_first_order((error_law){.of_gradient = -0.2}, 0);
    assert_first_order((error_law){.of_gradient = 0.1, .own_noise = 0.5}, 0);
}

static void what_shrinks_the_noise_of_batches_counts_twice(void **state)
{
    assert_first_order((error_law){.of_noise = -0.1}, -0.2);
    assert_first_order((error_law){.of_noise = 0.05, .own_noise = 0.5}, 0.1);
}

static void what_shrinks_the_mean_counts_twice(void **state)
{
    assert_first_order((error_law){.mean = -0.1}, 0.2);
    assert_first_order((error_law){.mean = 0.05, .own_noise = 0.5}, -0.1);
}

/* Where no mean is seen, a ratio to it would be anything. */
static void a_mean_that_is_lost_counts_nothing(void **state)
{
    assert_first_order((error_law){.mean = 0.1, .own_noise = 0.5, .is_lost = 1}, 0);
    assert_first_order((error_law){.of_noise = -0.1, .is_lost = 1}, -0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_of_its_own_has_none),
        cmocka_unit_test(a_scaled_gradient_has_none),
        cmocka_unit_test(what_shrinks_the_noise_of_batches_counts_twice),
        cmocka_unit_test(what_shrinks_the_mean_counts_twice),
        cmocka_unit_test(a_mean_that_is_lost_counts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
