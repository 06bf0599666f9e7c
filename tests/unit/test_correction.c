/* folder: predictor */
/* Corrections by trials, beside made-up models: of each, one plan was tried and another is asked about. */
#include <gsl/gsl_randist.h>

#include "tandem/advanced/predictor.h"
#include "tests/support/tandem_test.h"

enum { MODELS = 500 };

static gsl_rng *rng_of(unsigned long seed)
{
    gsl_rng *const rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, seed);
    return rng;
}

/* Deviations of correction.c. The trial's error is a tenth of what it measures. */
static void intervals_hold_other_plans(void **state)
{
    static const int n_tried[] = {1, 2, 6};
    double median_width[3];
    for (int t = 0; t < 3; t++) {
        gsl_rng *const rng = rng_of(11);
        double width[MODELS];
        int n_inside = 0, above = 0;
        for (int m = 0; m < MODELS; m++) {
            tandem_tried_plan tried[6];
            const double factor = exp(gsl_ran_gaussian(rng, 1.0));
            for (int k = 0; k < n_tried[t]; k++) {
                const double predicted = 0.1 * exp(gsl_ran_gaussian(rng, 1)),
                             needs = predicted * factor * exp(gsl_ran_gaussian(rng, 0.5)),
                             extra = needs * (1 + gsl_ran_gaussian(rng, 0.1)), half = 1.96 * 0.1 * needs;
                tried[k] = (tandem_tried_plan){
                    .predicted = predicted, .extra = extra, .low = extra - half, .high = extra + half};
            }
            const double of_another = factor * exp(gsl_ran_gaussian(rng, 0.5));
            const tandem_correction got = tandem_correction_find(tried, n_tried[t]);
            assert_int_equal(got.n_trial, n_tried[t]);
            n_inside += got.low <= of_another && of_another <= got.high;
            above += of_another > got.factor;
            width[m] = got.high / got.low;
        }
        gsl_rng_free(rng);
        median_width[t] = tandem_median(width, MODELS);
        printf("# %d tried: %.1f %% hold, %.1f %% above the median, high by low %.1f\n", n_tried[t],
               100.0 * n_inside / MODELS, 100.0 * above / MODELS, median_width[t]);
        assert_true(n_inside > 0.92 * MODELS && n_inside < 0.98 * MODELS);
        assert_true(above > 0.43 * MODELS && above < 0.57 * MODELS);
    }
    assert_true(median_width[2] < median_width[1] && median_width[1] < median_width[0]);
}

static void trials_that_say_nothing(void **state)
{
    const tandem_tried_plan silent[] = {
        {.predicted = 0.1, .extra = NAN, .low = NAN, .high = NAN},
        {.predicted = 0.1, .extra = 0.2, .low = -INFINITY, .high = INFINITY}, /* one pair */
        {.predicted = 0, .extra = 0.2, .low = 0.1, .high = 0.3},
        {.predicted = NAN, .extra = 0.2, .low = 0.1, .high = 0.3}};
    const tandem_correction none = tandem_correction_find(silent, 4);
    assert_true(none.n_trial == 0 && isnan(none.factor) && isnan(none.low) && isnan(none.high));
    assert_int_equal(tandem_correction_find(NULL, 0).n_trial, 0);
}

static void plans_that_diverge_or_have_no_limit(void **state)
{
    const tandem_tried_plan diverged = {.predicted = 0.05,
                                        .diverged = 1,
                                        .extra = INFINITY,
                                        .low = INFINITY,
                                        .high = INFINITY},
                            endless = {.predicted = 0.05, .extra = INFINITY, .low = 0.5, .high = INFINITY},
                            open = {.predicted = 0.05, .extra = 1, .low = 0.5, .high = INFINITY};
    const tandem_correction of_diverged = tandem_correction_find(&diverged, 1),
                            of_endless = tandem_correction_find(&endless, 1),
                            of_open = tandem_correction_find(&open, 1);
    assert_true(of_diverged.n_trial == 1 && of_diverged.factor > 10);
    assert_true(of_endless.factor == of_diverged.factor);
    assert_true(of_open.n_trial == 1 && of_open.factor > 3 && isfinite(of_open.high));
}

static void an_exact_trial_says_most(void **state)
{
    const tandem_tried_plan exact = {.predicted = 0.1, .extra = 0.3, .low = 0.3, .high = 0.3},
                            near = {.predicted = 0.1, .extra = 0.3, .low = 0.29, .high = 0.31};
    const tandem_correction of_exact = tandem_correction_find(&exact, 1),
                            of_near = tandem_correction_find(&near, 1);
    assert_true(of_exact.n_trial == 1 && of_exact.factor > 2.2 && of_exact.factor < 3.3);
    assert_true(fabs(of_exact.factor - of_near.factor) < 0.05 * of_near.factor);
}

/* A trial that finds less than nothing, as of a plan that costs little, lowers the factor and is no error. */
static void a_plan_better_than_its_base(void **state)
{
    const tandem_tried_plan better = {.predicted = 0.1, .extra = -0.01, .low = -0.03, .high = 0.01};
    const tandem_correction got = tandem_correction_find(&better, 1);
    assert_true(got.n_trial == 1 && got.low > 0 && got.factor < 0.3);
}

/* ---- Without trials ---- */

/* By hand, with 1.959964·√(1.0² + 0.5²) = 2.19131: a factor of e^2.19131 = 8.9469 to each side. Sampling
 * adds its own: where it says 4 times, a deviation of ln 4/1.959964 = 0.70731. */
static void a_prediction_is_as_wide_as_trainings_scatter(void **state)
{
    const tandem_prediction exact = tandem_prediction_interval(2, 2, 2),
                            wide = tandem_prediction_interval(2, 0.5, 8);
    assert_true(fabs(exact.high / 2 - 8.9469) < 0.001 && fabs(exact.low * exact.high - 4) < 1e-9);
    assert_true(fabs(log(wide.high / 2) - 2.59300) < 1e-4 && fabs(wide.low * wide.high - 4) < 1e-9);
    assert_true(tandem_prediction_interval(2, -1, 2).low == -1 &&
                tandem_prediction_interval(2, 0, 2).low == 0);
}

static void a_prediction_of_nothing_keeps_its_sampling(void **state)
{
    const tandem_prediction none = tandem_prediction_interval(0, 0, 0),
                            less = tandem_prediction_interval(-1, -2, 1),
                            unknown = tandem_prediction_interval(NAN, NAN, NAN);
    assert_true(none.low == 0 && none.high == 0);
    assert_true(less.low == -2 && fabs(less.high - 8.9469) < 0.001);
    assert_true(isnan(unknown.low) && isnan(unknown.high));
    assert_true(tandem_prediction_interval(-1, -2, -0.5).high == -0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_prediction_is_as_wide_as_trainings_scatter),
                                       cmocka_unit_test(a_prediction_of_nothing_keeps_its_sampling),
                                       cmocka_unit_test(intervals_hold_other_plans),
                                       cmocka_unit_test(trials_that_say_nothing),
                                       cmocka_unit_test(plans_that_diverge_or_have_no_limit),
                                       cmocka_unit_test(an_exact_trial_says_most),
                                       cmocka_unit_test(a_plan_better_than_its_base)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
