/* folder: research */
/* The interval of a ratio of squares holds the true ratio as often as it says, by simulation. */
#include <math.h>

#include <gsl/gsl_randist.h>

#include "research/batch_ratio.h"
#include "tests/support/tandem_test.h"

enum { N_BATCH = 16, N_TRIAL = 4000 };

/* How many intervals hold 1: of squares whose logarithms have this deviation from batch to batch, and of what
 * `n_probe` squares of one sum predict. */
static double coverage(gsl_rng *random, double deviation, int n_probe)
{
    int n_inside = 0;
    for (int i = 0; i < N_TRIAL; i++) {
        double measured[N_BATCH], predicted[N_BATCH];
        for (int b = 0; b < N_BATCH; b++) {
            measured[b] = exp(gsl_ran_gaussian(random, deviation));
            predicted[b] = measured[b] * gsl_ran_chisq(random, n_probe) / n_probe;
        }
        const batch_ratio of = batch_ratio_of(predicted, measured, N_BATCH);
        n_inside += of.ratio <= of.factor && of.ratio >= 1 / of.factor;
    }
    return (double)n_inside / N_TRIAL;
}

static void intervals_hold_the_ratio(void **state)
{
    static const double deviation[] = {0, 0.5, 1};
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    for (size_t d = 0; d < N_OF(deviation); d++)
        for (int n_probe = 4; n_probe <= 16; n_probe *= 4) {
            const double share = coverage(random, deviation[d], n_probe);
            if (share < 0.93 || share > 0.98)
                fail_msg("deviation %g, %d probes: %g of the intervals hold the ratio", deviation[d], n_probe,
                         share);
        }
    gsl_rng_free(random);
}

static void a_known_ratio(void **state)
{
    const double measured[] = {1, 2, 3}, twice[] = {2, 4, 6}, zero[] = {0, 0, 0};
    const batch_ratio of = batch_ratio_of(twice, measured, 3);
    assert_true(of.ratio == 2 && of.factor == 1);
    assert_true(!isfinite(batch_ratio_of(zero, zero, 3).ratio));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_hold_the_ratio),
        cmocka_unit_test(a_known_ratio),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
