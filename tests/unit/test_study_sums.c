/* folder: research */
/* What `tandem-study rank` and `add` count: Kendall's tau over the pairs that are distinguished, and how near
 * to 1 the ratios of plans are. */
#include <math.h>

#include "research/add.h"
#include "research/rank.h"
#include "tests/support/tandem_test.h"

enum { N_OP = 3, N_PAIR = 3 };

/* Measured 3, 2, 1; by half the intervals of the pairs' differences. */
typedef struct ranked {
    rank_study study;
    double value[2][RANK_N_METHOD * N_OP], noise[2][N_OP + N_PAIR];
    int method;
} ranked;

static void open_ranked(ranked *r, double a, double b, double c)
{
    const double noise[N_OP + N_PAIR] = {3, 2, 1, 0.5, 0.5, 0.5};
    *r = (ranked){.method = rank_method_find("qsync")};
    r->study.lab.n_op = N_OP;
    for (int p = 0; p < 2; p++) {
        memcpy(r->noise[p], noise, sizeof noise);
        r->study.result[p] = (rank_result){.value = r->value[p], .noise = r->noise[p]};
        double *const value = r->value[p] + r->method * N_OP;
        value[0] = a, value[1] = b, value[2] = c;
    }
}

static double tau_of_ranked(const ranked *r, int first, int n_precision, const int *times)
{
    return rank_tau_of_method(&r->study, r->method, first, n_precision, times, 0);
}

static void assert_tau(double got, double expected)
{
    if (!(fabs(got - expected) < 1e-12)) fail_msg("got %.15g, expected %.15g", got, expected);
}

static void tau_counts_pairs_that_are_distinguished(void **state)
{
    static const int twice[N_OP] = {2, 1, 1}, second[N_OP] = {1, 2, 1}, two[N_OP] = {2, 0, 1};
    ranked r;
    (void)state;
    open_ranked(&r, 5, 1, 2); /* two pairs in order, one in the other */
    assert_tau(tau_of_ranked(&r, 0, 1, NULL), (2.0 - 1) / 3);
    assert_tau(tau_of_ranked(&r, 0, 1, twice), (4.0 - 1) / 5);
    assert_tau(tau_of_ranked(&r, 0, 1, second), (3.0 - 2) / 5);
    assert_tau(tau_of_ranked(&r, 0, 1, two), 1);
    r.noise[0][N_OP + 2] = 1; /* the other one is not distinguished: its difference is 1 */
    assert_tau(tau_of_ranked(&r, 0, 1, NULL), 1);
    for (int k = 0; k < N_OP; k++) r.value[1][r.method * N_OP + k] = k; /* all in the other order */
    assert_tau(tau_of_ranked(&r, 1, 1, NULL), -1);
    assert_tau(tau_of_ranked(&r, 0, 2, NULL), (2.0 - 3) / 5);
    open_ranked(&r, 5, 1, 1);
    assert_tau(tau_of_ranked(&r, 0, 1, NULL), 2 / sqrt(2 * 3));
    open_ranked(&r, 1, 1, 1);
    assert_tau(tau_of_ranked(&r, 0, 1, NULL), 0);
    for (int i = 0; i < N_PAIR; i++) r.noise[0][N_OP + i] = 9;
    assert_true(isnan(tau_of_ranked(&r, 0, 1, NULL)));
}

static void errors_are_magnified_where_few_pairs_are_distinguished(void **state)
{
    ranked r;
    (void)state;
    open_ranked(&r, 1, 2, 3);
    r.noise[0][N_OP + 1] = 2; /* between the first and the last: 2 */
    rank_count_distinguished(&r.study.result[0], N_OP);
    assert_true(r.study.result[0].n_pair == 3 && r.study.result[0].n_distinguished == 2);
    assert_true(rank_has_few_distinguished(&(rank_result){.n_pair = 10, .n_distinguished = 2}));
    assert_false(rank_has_few_distinguished(&(rank_result){.n_pair = 10, .n_distinguished = 3}));
}

/* Draws of 1 to 9 of one method, and none where the draw has no pair; less another's, which are 1. */
static void an_interval_is_that_of_draws_with_a_pair(void **state)
{
    enum { N_DRAW = 400 };
    static double drawn[RANK_N_METHOD * N_DRAW], room[N_DRAW];
    const rank_plan plan = {.n_bootstrap = N_DRAW};
    rank_study s = {.plan = &plan, .drawn = {drawn}, .room = room};
    (void)state;
    for (int i = 0; i < N_DRAW; i++) {
        drawn[i] = i < 200 ? NAN : (i - 199) / 200.0; /* 1/200 … 1 */
        drawn[N_DRAW + i] = 1;
    }
    const study_interval own = rank_interval_of(&s, 0, 0, -1), less = rank_interval_of(&s, 0, 0, 1);
    if (!(fabs(own.low - 0.025) < 0.01 && fabs(own.high - 0.975) < 0.01))
        fail_msg("%g to %g", own.low, own.high);
    if (!(fabs(less.low + 0.975) < 0.01 && fabs(less.high + 0.025) < 0.01))
        fail_msg("less: %g to %g", less.low, less.high);
}

static void assert_summary(const add_summary *got, int n, double median, double close, double inside)
{
    if (got->n != n || !(fabs(got->median - median) < 1e-12 && fabs(got->close - close) < 1e-12 &&
                         fabs(got->inside - inside) < 1e-12))
        fail_msg("%d: %g, %g, %g", got->n, got->median, got->close, got->inside);
}

static void ratios_are_summed_up(void **state)
{
    double ratio[] = {0.81, 1.19, 1.21, 0.79, 1};
    add_result result[] = {{.ratio = 1.1, .half = 0.2, .by_operators = 2},
                           {.ratio = 0.5, .half = 0.1, .by_operators = 3, .shares = 0.5}};
    const add_study s = {.n_plan = 2, .result = result};
    tandem_error error = {0};
    add_summary of = add_summary_of(ratio, 5);
    (void)state;
    assert_summary(&of, 5, 1, 0.6, 0);
    require_ok(add_summary_of_plans(&of, &s, 0, 0, &error), &error);
    assert_summary(&of, 2, 0.8, 0.5, 0.5);
    require_ok(add_summary_of_plans(&of, &s, 1, 0, &error), &error); /* with a shared cast */
    assert_summary(&of, 1, 0.5, 0, 0);
    require_ok(add_summary_of_plans(&of, &s, 0, 1, &error), &error); /* over single operators */
    assert_summary(&of, 2, 2.5, 0, 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tau_counts_pairs_that_are_distinguished),
        cmocka_unit_test(errors_are_magnified_where_few_pairs_are_distinguished),
        cmocka_unit_test(an_interval_is_that_of_draws_with_a_pair),
        cmocka_unit_test(ratios_are_summed_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
