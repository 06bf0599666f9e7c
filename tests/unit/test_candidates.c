/* folder: allocator */
/* What clusters are compared by, and whether an answer holds across the intervals of predicted times. */
#include "allocator/queries/candidate.h"
#include "tests/support/tandem_test.h"

/* A case of a v100 that is busy for `v100_ns`, and a t4 where t4_ns is above 0; one ns of step per sample. */
static tandem_candidate interval_case(const char *name, int64_t v100_ns, int64_t t4_ns, double samples)
{
    tandem_candidate p = {.samples = 1};
    const int64_t step = v100_ns > t4_ns ? v100_ns : t4_ns;
    (void)snprintf(p.name, sizeof p.name, "%s", name);
    p.answer.step.classes[0].busy_ns = v100_ns;
    p.answer.step.classes[1].busy_ns = t4_ns;
    p.answer.allocation.step_ns = step;
    p.rate = samples / (double)step;
    p.answer.sources.n_class = t4_ns > 0 ? 2 : 1;
    (void)snprintf(p.answer.sources.device[0], sizeof p.answer.sources.device[0], "v100");
    (void)snprintf(p.answer.sources.device[1], sizeof p.answer.sources.device[1], "t4");
    p.answer.sources.of[0].form_interval = 0.1;
    p.answer.sources.of[1].form_interval = 0.3;
    return p;
}

static void an_answer_holds_where_no_end_of_an_interval_changes_it(void **state)
{
    /* alone 1000 samples/ns; together 1500, and 1154 where the t4 takes 30 % longer */
    const tandem_candidate all[] = {interval_case("alone", 1000, 0, 1e6),
                                    interval_case("together", 1000, 1000, 1.5e6)};
    tandem_advice_interval found;
    tandem_advice_interval_find(&found, all, 2, 1);
    assert_int_equal(found.n, 2);
    assert_true(found.holds && found.best == -1);
}

static void an_answer_that_one_device_changes_names_it(void **state)
{
    /* together 1200, and 923 where the t4 takes 30 % longer */
    const tandem_candidate all[] = {interval_case("alone", 1000, 0, 1e6),
                                    interval_case("together", 1000, 1000, 1.2e6)};
    tandem_advice_interval found;
    tandem_advice_interval_find(&found, all, 2, 1);
    assert_false(found.holds);
    assert_int_equal(found.best, 0);
    assert_true(fabs(found.shift[0].factor - 1) < 1e-12 && fabs(found.shift[1].factor - 1.3) < 1e-12);
}

static void measured_times_have_no_interval(void **state)
{
    tandem_candidate all[] = {interval_case("alone", 1000, 0, 1e6),
                              interval_case("together", 1000, 1000, 1.2e6)};
    tandem_advice_interval found;
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < 2; c++) all[i].answer.sources.of[c].form_interval = NAN;
    tandem_advice_interval_find(&found, all, 2, 1);
    assert_int_equal(found.n, 0);
}

/* A plan of 88 ms that needs twice the samples makes less than one of 91 ms that needs 3 % more. */
static void clusters_are_compared_by_goodput_where_it_is_known(void **state)
{
    tandem_candidate all[3] = {{.samples = 7}, {.samples = 7}, {.samples = 7}};
    all[0].answer.goodput = (tandem_goodput){.is_known = 1, .sensitivity = 100};
    all[1].answer.goodput = (tandem_goodput){.is_known = 1, .sensitivity = 3};
    tandem_goodput_set_rate(&all[0].answer.goodput, 1000 / 0.088);
    tandem_goodput_set_rate(&all[1].answer.goodput, 1000 / 0.091);
    assert_true(tandem_candidates_rate(all, 3));
    assert_true(fabs(all[0].rate - 500 / 0.088) < 1e-9 && fabs(all[1].rate - 1000 / 0.091 / 1.03) < 1e-9);
    assert_true(all[1].rate > all[0].rate && all[2].rate == 0);
    all[1].answer.goodput.is_known = 0;
    tandem_goodput_set_rate(&all[1].answer.goodput, 1000 / 0.091);
    assert_false(tandem_candidates_rate(all, 3));
    assert_true(all[0].rate == 1000 / 0.088 && all[1].rate == 1000 / 0.091);
    assert_true(all[0].rate > all[1].rate && all[2].rate == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_holds_where_no_end_of_an_interval_changes_it),
        cmocka_unit_test(an_answer_that_one_device_changes_names_it),
        cmocka_unit_test(measured_times_have_no_interval),
        cmocka_unit_test(clusters_are_compared_by_goodput_where_it_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
