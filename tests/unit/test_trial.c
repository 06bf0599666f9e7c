/* folder: predictor */
/* Trials of made-up trainings: what they say of a plan whose extra samples and noise are known. */
#include <gsl/gsl_randist.h>

#include "tandem/trial.h"
#include "tests/support/tandem_test.h"

enum { STEPS = 200, MOST = 12 };

static double base_loss_at(double step) { return 0.8 + 1.5 * pow(step, -0.4); }

typedef struct made_pairs {
    double base[MOST][STEPS], plan[MOST][STEPS];
    tandem_trial_pair pair[MOST];
} made_pairs;

static gsl_rng *rng_of(unsigned long seed)
{
    gsl_rng *const rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, seed);
    return rng;
}

/* A plan that is late by `extra`: samples' noise is shared, each branch has its own deviation, too. */
static void make_pairs(made_pairs *made, int n, double extra, double noise, double deviation,
                       const gsl_rng *rng)
{
    for (int i = 0; i < n; i++) {
        const double own[2] = {gsl_ran_gaussian(rng, deviation), gsl_ran_gaussian(rng, deviation)};
        for (int k = 0; k < STEPS; k++) {
            const double shared = gsl_ran_gaussian(rng, noise);
            made->base[i][k] = base_loss_at(k + 1) + shared + own[0];
            made->plan[i][k] = base_loss_at((k + 1) / (1 + extra)) + shared + own[1];
        }
        made->pair[i] = (tandem_trial_pair){made->base[i], made->plan[i], made->base[i][STEPS - 1],
                                            made->plan[i][STEPS - 1], NAN};
    }
}

static tandem_trial_result judge(const made_pairs *made, int n, double at_most, int n_look)
{
    tandem_trial_result result;
    tandem_error error = {0};
    const tandem_trial_question question = {.n_step = STEPS, .at_most = at_most, .n_look = n_look};
    require_ok(tandem_trial_conclude(&result, made->pair, n, &question, &error), &error);
    return result;
}

static void extra_samples_of_a_late_plan(void **state)
{
    static const double late[] = {-0.15, -0.05, 0.02, 0.1, 0.25, 0.5, 0.9, 1.5, 2.5, 4.5};
    static made_pairs made;
    gsl_rng *const rng = rng_of(1);
    (void)state;
    for (size_t k = 0; k < N_OF(late); k++) {
        const double extra = late[k];
        make_pairs(&made, 3, extra, 0, 0, rng);
        const tandem_trial_result got = judge(&made, 3, NAN, 0);
        if (fabs(got.extra.mean - extra) > 0.02 + 0.05 * fabs(extra))
            fail_msg("a plan that needs %g more: %g", extra, got.extra.mean);
        assert_true(got.answer == TANDEM_TRIAL_UNDECIDED && got.pairs_needed == 0);
    }
    /* the same loss in both branches: exactly nothing */
    for (int k = 0; k < STEPS; k++) made.plan[0][k] = made.base[0][k];
    made.pair[0].plan_held_out = made.pair[0].base_held_out;
    const tandem_trial_result same = judge(&made, 1, NAN, 0);
    assert_true(same.training.mean == 0 && same.held_out.mean == 0 && same.extra.mean == 0);
    assert_true(isnan(same.held_out_in_base.mean) && same.training.high == INFINITY);
    gsl_rng_free(rng);
}

/* 1,000 trials of 5 pairs each, whose mean is known: the interval holds it in 95 of 100. */
static void intervals_hold_the_mean(void **state)
{
    enum { TRIALS = 1000, PAIRS = 5 };
    static made_pairs made;
    const double extra = 0.1, deviation = 0.01;
    gsl_rng *const rng = rng_of(2);
    int n_held = 0, n_extra = 0;
    double rise = 0;
    (void)state;
    for (int k = STEPS - STEPS / 4; k < STEPS; k++)
        rise += (base_loss_at((k + 1) / (1 + extra)) - base_loss_at(k + 1)) / (STEPS / 4);
    for (int i = 0; i < TRIALS; i++) {
        make_pairs(&made, PAIRS, extra, 0.05, deviation, rng);
        const tandem_trial_result got = judge(&made, PAIRS, NAN, 0);
        n_held += got.training.low <= rise && rise <= got.training.high;
        n_extra += got.extra.low <= extra && extra <= got.extra.high;
    }
    if (n_held < 930 || n_held > 970) fail_msg("%d of %d intervals hold the difference", n_held, TRIALS);
    if (n_extra < 920 || n_extra > 980)
        fail_msg("%d of %d intervals hold the extra samples", n_extra, TRIALS);
    gsl_rng_free(rng);
}

/* Asked after each pair, as a trial that stops early does it: wrong in no more than 5 of 100. The curve
 * itself is known to some percent of the extra samples only. */
static void answers_are_right(void **state)
{
    enum { TRIALS = 400 };
    static const double asked[] = {0.02, 0.095, 0.105, 0.3};
    static made_pairs made;
    gsl_rng *const rng = rng_of(3);
    (void)state;
    for (int a = 0; a < 4; a++) {
        int n_wrong = 0, n_decided = 0;
        for (int i = 0; i < TRIALS; i++) {
            tandem_trial_result got = {.answer = TANDEM_TRIAL_UNDECIDED};
            make_pairs(&made, MOST, 0.1, 0.02, 0.0015, rng);
            for (int n = TANDEM_TRIAL_LEAST_PAIRS; n <= MOST && got.answer == TANDEM_TRIAL_UNDECIDED; n++)
                got = judge(&made, n, asked[a], MOST - TANDEM_TRIAL_LEAST_PAIRS + 1);
            n_decided += got.answer != TANDEM_TRIAL_UNDECIDED;
            n_wrong += got.answer == (asked[a] < 0.1 ? TANDEM_TRIAL_WITHIN : TANDEM_TRIAL_BEYOND);
            if (got.answer == TANDEM_TRIAL_UNDECIDED)
                assert_true(got.pairs_needed == -1 || got.pairs_needed > MOST);
        }
        if (n_wrong > TRIALS / 20) fail_msg("%d of %d answers to %g are wrong", n_wrong, TRIALS, asked[a]);
        if ((a == 0 || a == 3) && n_decided < TRIALS * 8 / 10)
            fail_msg("only %d of %d answers to %g", n_decided, TRIALS, asked[a]);
    }
    gsl_rng_free(rng);
}

static void plans_that_diverge(void **state)
{
    static made_pairs made;
    gsl_rng *const rng = rng_of(4);
    (void)state;
    make_pairs(&made, 3, 0.1, 0, 0.01, rng);
    made.plan[1][60] = NAN;
    const tandem_trial_result got = judge(&made, 3, 0.5, 0), first = judge(&made, 1, 0.5, 0);
    assert_true(got.n_diverged == 1 && got.answer == TANDEM_TRIAL_BEYOND && got.extra.mean == INFINITY &&
                got.extra.low == INFINITY && got.held_out.mean == INFINITY);
    assert_true(first.n_diverged == 0 && first.answer == TANDEM_TRIAL_UNDECIDED);
    for (int k = 0; k < STEPS; k++) made.plan[0][k] = 100; /* finite, above all of the base's curve */
    assert_true(judge(&made, 1, 0.5, 0).extra.mean == INFINITY);
    gsl_rng_free(rng);
}

static void bases_that_do_not_fall(void **state)
{
    static made_pairs made;
    gsl_rng *const rng = rng_of(5);
    (void)state;
    make_pairs(&made, 3, 0.1, 0, 0.001, rng);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < STEPS; k++) made.base[i][k] = 1 + 0.001 * k;
    const tandem_trial_result got = judge(&made, 3, 0.5, 0);
    assert_true(isnan(got.extra.mean) && isfinite(got.training.high) && got.pairs_needed == -1);
    gsl_rng_free(rng);
}

static void wrong_trials(void **state)
{
    static made_pairs made;
    gsl_rng *const rng = rng_of(6);
    tandem_trial_result result = {.n_pair = 77};
    tandem_error error = {0};
    const tandem_trial_question few = {.n_step = TANDEM_TRIAL_LEAST_STEPS - 1, .at_most = NAN},
                                right = {.n_step = STEPS, .at_most = NAN};
    (void)state;
    make_pairs(&made, 3, 0, 0, 0, rng);
    assert_int_equal(tandem_trial_conclude(&result, made.pair, 3, &few, &error), TANDEM_USAGE);
    assert_int_equal(tandem_trial_conclude(&result, made.pair, 0, &right, &error), TANDEM_USAGE);
    assert_int_equal(tandem_trial_conclude(&result, made.pair, TANDEM_TRIAL_MOST_PAIRS + 1, &right, &error),
                     TANDEM_USAGE);
    made.base[2][7] = INFINITY;
    assert_int_equal(tandem_trial_conclude(&result, made.pair, 3, &right, &error), TANDEM_LIMIT_EXCEEDED);
    assert_non_null(strstr(error.text, "in pair 3"));
    assert_int_equal(result.n_pair, 77);
    assert_string_equal(tandem_trial_answer_name(TANDEM_TRIAL_WITHIN), "within");
    gsl_rng_free(rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(extra_samples_of_a_late_plan),
                                       cmocka_unit_test(intervals_hold_the_mean),
                                       cmocka_unit_test(answers_are_right),
                                       cmocka_unit_test(plans_that_diverge),
                                       cmocka_unit_test(bases_that_do_not_fall),
                                       cmocka_unit_test(wrong_trials)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
