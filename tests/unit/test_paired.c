/* folder: predictor */
/* Student's t of pairs and two one-sided tests, against published figures and by simulation. */
#include <math.h>

#include <gsl/gsl_randist.h>

#include "predictor/paired.h"
#include "tests/support/tandem_test.h"

static void assert_close(double got, double expected, double room)
{
    if (!(fabs(got - expected) <= room)) fail_msg("got %.9g, expected %.9g", got, expected);
}

/* Hours of sleep gained by ten patients with two drugs: A. R. Cushny, A. R. Peebles, J. Physiol. 32, 1905, in
 * Student, "The Probable Error of a Mean", Biometrika 6, 1908. R prints for its paired t test: mean −1.58, t
 * = −4.0621, p = 0.002833, 95 % interval −2.4598858 to −0.7001142. */
static const double sleep_differences[] = {-1.2, -2.4, -1.3, -1.3, 0, -1, -1.8, -0.8, -4.6, -1.4};

static void student_of_the_sleep_data(void **state)
{
    const paired_difference of = paired_difference_of(sleep_differences, 10);
    const paired_interval interval = paired_interval_of(&of, 0.95);
    assert_close(of.mean, -1.58, 1e-12);
    assert_close(of.mean / of.error, -4.0621, 5e-5);
    assert_close(interval.low, -2.4598858, 5e-8);
    assert_close(interval.high, -0.7001142, 5e-8);
    /* Margin 0 turns the larger one-sided test about: 1 − 0.002833/2. */
    assert_close(paired_equivalence_p(&of, 0), 1 - 0.002833 / 2, 5e-7);
    /* At twice the mean, the nearer side is as far away as 0. */
    assert_close(paired_equivalence_p(&of, 3.16), 0.002833 / 2, 5e-7);
}

/* At an end of the 90 % interval as margin, p is 5 %, whichever sign the mean has. */
static void p_is_5_percent_at_the_end_of_the_interval(void **state)
{
    double differences[10];
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int i = 0; i < 10; i++) differences[i] = sign * sleep_differences[i];
        const paired_difference of = paired_difference_of(differences, 10);
        const paired_interval interval = paired_interval_of(&of, 0.9);
        const double end = fmax(-interval.low, interval.high);
        assert_close(paired_equivalence_p(&of, end), 0.05, 1e-9);
        assert_true(paired_equivalence_p(&of, 0.99 * end) > 0.05);
        assert_true(paired_equivalence_p(&of, 1.01 * end) < 0.05);
    }
}

/* A crossover study of 40 subjects, coefficient of variation 30 %, true ratio 95 %, limits 80 to 125 %: power
 * 0.815845, the exact value that PowerTOST (its vignette; Owen's Q) prints. With 38 it is below 80 %. */
static void power_of_a_published_study(void **state)
{
    const double deviation = sqrt(log(1 + 0.3 * 0.3)), margin = log(1.25), difference = log(0.95);
    assert_close(paired_equivalence_power(difference, margin, deviation * sqrt(2.0 / 40), 38, 0.05), 0.815845,
                 1e-5);
    assert_true(paired_equivalence_power(difference, margin, deviation * sqrt(2.0 / 38), 36, 0.05) < 0.8);
}

static double simulated_power(double deviation, double margin, int n)
{
    enum { STUDIES = 20000, MOST = 64 };
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    double differences[MOST];
    int n_shown = 0;
    for (int k = 0; k < STUDIES; k++) {
        for (int i = 0; i < n; i++) differences[i] = gsl_ran_gaussian(random, deviation);
        const paired_difference of = paired_difference_of(differences, n);
        n_shown += paired_equivalence_p(&of, margin) < 0.05;
    }
    gsl_rng_free(random);
    return (double)n_shown / STUDIES;
}

static void pairs_have_their_power(void **state)
{
    static const double deviations[] = {0.5, 1, 2};
    for (int i = 0; i < 3; i++) {
        const int n = paired_equivalence_pairs(deviations[i], 1, 0.05, 0.8, 64);
        assert_true(n <= 64);
        assert_true(simulated_power(deviations[i], 1, n) > 0.79);
        assert_true(simulated_power(deviations[i], 1, n - 1) < 0.81);
    }
    /* Many pairs: (z₉₅ + z₉₀)² = 8.5638 squares of deviation over margin, and one or two for the t. */
    const int n = paired_equivalence_pairs(5, 1, 0.05, 0.8, 1000);
    assert_in_range(n, 215, 217);
    assert_in_range(paired_equivalence_pairs(100, 1, 0.05, 0.8, 100000), 85639, 85642);
}

static void few_pairs_show_nothing(void **state)
{
    const double same[] = {0.25, 0.25, 0.25};
    const paired_difference one = paired_difference_of(same, 1), equal = paired_difference_of(same, 3),
                            lost = paired_difference_of((const double[]){0.1, NAN, 0.1}, 3);
    assert_true(paired_equivalence_p(&one, 1) == 1);
    assert_true(isinf(paired_interval_of(&one, 0.9).high));
    assert_true(paired_equivalence_p(&equal, 0.2) == 1);
    assert_true(paired_equivalence_p(&equal, 0.3) == 0);
    assert_true(paired_equivalence_p(&lost, 1e9) == 1);
    assert_int_equal(paired_equivalence_pairs(0, 1, 0.05, 0.8, 64), 3);
    assert_int_equal(paired_equivalence_pairs(1e9, 1, 0.05, 0.8, 64), 65);
    assert_int_equal(paired_equivalence_pairs(NAN, 1, 0.05, 0.8, 64), 65);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(student_of_the_sleep_data),
        cmocka_unit_test(p_is_5_percent_at_the_end_of_the_interval),
        cmocka_unit_test(power_of_a_published_study),
        cmocka_unit_test(pairs_have_their_power),
        cmocka_unit_test(few_pairs_show_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
