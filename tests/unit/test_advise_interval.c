/* folder: cli */
/* What clusters are compared by, and whether an answer holds across the intervals of predicted times. */
#include "cli/command/advise_interval.h"
#include "tests/support/tandem_test.h"

/* A case of a v100 that is busy for `v100_ns`, and a t4 where t4_ns is above 0; one ns of step per sample. */
static candidate_cluster interval_case(const char *name, int64_t v100_ns, int64_t t4_ns, double samples)
{
    candidate_cluster p = {.busy_ns = {v100_ns, t4_ns}, .samples = 1};
    const int64_t step = v100_ns > t4_ns ? v100_ns : t4_ns;
    (void)snprintf(p.name, sizeof p.name, "%s", name);
    p.allocation.step_ns = step;
    p.goodput.samples_per_s = p.rate = samples / (double)step;
    p.sources.n_class = t4_ns > 0 ? 2 : 1;
    (void)snprintf(p.sources.device[0], sizeof p.sources.device[0], "v100");
    (void)snprintf(p.sources.device[1], sizeof p.sources.device[1], "t4");
    p.sources.of[0].form_interval = 0.1;
    p.sources.of[1].form_interval = 0.3;
    return p;
}

static void an_answer_holds_where_no_end_of_an_interval_changes_it(void **state)
{
    /* alone 1000 samples/ns; together 1500, and 1154 where the t4 takes 30 % longer */
    const candidate_cluster all[] = {interval_case("alone", 1000, 0, 1e6),
                                     interval_case("together", 1000, 1000, 1.5e6)};
    advise_interval found;
    char text[256] = "";
    advise_interval_find(&found, all, 2, 0, 1);
    assert_int_equal(found.n, 2);
    assert_true(found.holds && found.best == -1);
    advise_interval_print(text, sizeof text, &found, all);
    assert_string_equal(text, " It holds across the 80% intervals of v100 (10%) and t4 (30%).");
}

static void an_answer_that_one_device_changes_names_it(void **state)
{
    /* together 1200, and 923 where the t4 takes 30 % longer */
    const candidate_cluster all[] = {interval_case("alone", 1000, 0, 1e6),
                                     interval_case("together", 1000, 1000, 1.2e6)};
    advise_interval found;
    char text[256] = "";
    advise_interval_find(&found, all, 2, 0, 1);
    assert_false(found.holds);
    assert_int_equal(found.best, 0);
    assert_true(fabs(found.shift[0].factor - 1) < 1e-12 && fabs(found.shift[1].factor - 1.3) < 1e-12);
    advise_interval_print(text, sizeof text, &found, all);
    assert_string_equal(text, " It does not hold across the 80% intervals: with the times of t4 30% longer, "
                              "alone makes more.");
    json_t *const object = advise_interval_json(&found);
    assert_false(json_is_true(json_object_get(object, "holds")));
    assert_int_equal(json_integer_value(json_object_get(object, "best")), 0);
    assert_int_equal(json_array_size(json_object_get(object, "devices")), 2);
    json_decref(object);
}

static void measured_times_have_no_interval(void **state)
{
    candidate_cluster all[] = {interval_case("alone", 1000, 0, 1e6),
                               interval_case("together", 1000, 1000, 1.2e6)};
    advise_interval found;
    char text[256] = "";
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < 2; c++) all[i].sources.of[c].form_interval = NAN;
    advise_interval_find(&found, all, 2, 0, 1);
    assert_int_equal(found.n, 0);
    advise_interval_print(text, sizeof text, &found, all);
    assert_string_equal(text, "");
    json_t *const object = advise_interval_json(&found);
    assert_true(json_is_null(object));
    json_decref(object);
}

/* A plan of 88 ms that needs twice the samples makes less than one of 91 ms that needs 3 % more. */
static void clusters_are_compared_by_worth_where_every_price_is_known(void **state)
{
    candidate_cluster all[3] = {{.samples = 7}, {.samples = 7}, {.samples = 7}};
    all[0].goodput = (tandem_goodput){.is_known = 1, .sensitivity = 100};
    all[1].goodput = (tandem_goodput){.is_known = 1, .sensitivity = 3};
    tandem_goodput_set_rate(&all[0].goodput, 1000 / 0.088);
    tandem_goodput_set_rate(&all[1].goodput, 1000 / 0.091);
    assert_true(candidate_clusters_rate(all, 3));
    assert_true(fabs(all[0].rate - 500 / 0.088) < 1e-9 && fabs(all[1].rate - 1000 / 0.091 / 1.03) < 1e-9);
    assert_true(all[1].rate > all[0].rate && all[2].rate == 0);
    all[1].goodput.is_known = 0;
    tandem_goodput_set_rate(&all[1].goodput, 1000 / 0.091);
    assert_false(candidate_clusters_rate(all, 3));
    assert_true(all[0].rate == 1000 / 0.088 && all[1].rate == 1000 / 0.091);
    assert_true(all[0].rate > all[1].rate && all[2].rate == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_holds_where_no_end_of_an_interval_changes_it),
        cmocka_unit_test(an_answer_that_one_device_changes_names_it),
        cmocka_unit_test(measured_times_have_no_interval),
        cmocka_unit_test(clusters_are_compared_by_worth_where_every_price_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
