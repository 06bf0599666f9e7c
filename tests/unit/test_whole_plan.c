/* folder: predictor */
/* A plan as a whole, by hand: two classes with half of the samples each, of which one rounds. */
#include "tandem/advanced/predictor.h"
#include "tests/support/tandem_test.h"

enum { ROWS = 2, REPLICATES = 3 };

typedef struct by_hand {
    tandem_estimate estimate;
    double share[ROWS * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE], loss_rise[ROWS * REPLICATES];
    tandem_sensitivity_step step;
} by_hand;

static void open_by_hand(by_hand *h, double mean_square)
{
    static const double rise[REPLICATES] = {0.1, 0.2, 0.3};
    const int cell = tandem_estimate_cell(1, TANDEM_PRECISION_INT8_FULL, TANDEM_F32);
    *h = (by_hand){.step = {.global_batch = 16, .n_micro = 1}};
    assert_int_equal(tandem_estimate_open(&h->estimate, ROWS, 1, REPLICATES, NULL), TANDEM_OK);
    h->estimate.batch = 8;
    h->estimate.is_estimated[cell] = 1;
    h->share[cell] = 0.5;
    for (int r = 0; r < REPLICATES; r++) {
        h->estimate.gradient[r] = (tandem_estimated_gradient){.variance = 2, .mean_square = mean_square};
        tandem_estimate_errors(&h->estimate, 0, cell)[r] =
            (tandem_estimated_error){.total = 1, .shared = 0.2, .mean_square = 0.04, .against = 0};
        h->loss_rise[REPLICATES + r] = rise[r];
        h->loss_rise[r] = 1000; /* of the class that does not round */
    }
}

static void parts_of_a_plan(void **state)
{
    by_hand h;
    tandem_whole_plan whole;
    (void)state;
    open_by_hand(&h, 4);
    assert_int_equal(tandem_estimate_whole_plan(&whole, &h.estimate, h.share, h.loss_rise, &h.step, NULL),
                     TANDEM_OK);
    /* half of ½·(1 − 0.2) + (0.2 − 0.04), over ½·2 + 4 */
    assert_true(fabs(whole.samples.noise - 0.056) < 1e-12);
    assert_true(fabs(whole.across - 0.05) < 1e-12); /* half of 0.2, over 2 */
    assert_true(whole.across_half < 1e-12);         /* all replicates are equal */
    assert_true(fabs(whole.stability - 1 / sqrt(3 * (0.056 + 0.002))) < 1e-12);
    assert_true(fabs(whole.loss_rise - 0.1) < 1e-12);
    assert_true(fabs(whole.loss_rise_half - 4.302653 * 0.05 / sqrt(3)) < 1e-6);
    tandem_estimate_close(&h.estimate);
}

static void a_gradient_that_is_lost(void **state)
{
    by_hand h;
    tandem_whole_plan whole = {.across = 7};
    tandem_error error = {0};
    (void)state;
    open_by_hand(&h, -0.1);
    assert_int_equal(tandem_estimate_whole_plan(&whole, &h.estimate, h.share, h.loss_rise, &h.step, NULL),
                     TANDEM_OK);
    assert_true(isnan(whole.across) && isnan(whole.samples.bias) && isfinite(whole.stability));
    h.share[tandem_estimate_cell(0, TANDEM_PRECISION_BF16, TANDEM_F32)] = 0.5; /* not estimated */
    whole.across = 7;
    assert_int_equal(tandem_estimate_whole_plan(&whole, &h.estimate, h.share, h.loss_rise, &h.step, &error),
                     TANDEM_MISSING);
    assert_true(whole.across == 7);
    tandem_estimate_close(&h.estimate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_of_a_plan),
                                       cmocka_unit_test(a_gradient_that_is_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
