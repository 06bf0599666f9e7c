/* folder: research */
/* The margins of the study: each value as it was agreed, in the first line of records, before they are. */
#include <math.h>
#include <string.h>

#include "research/drift.h"
#include "research/exchange.h"
#include "research/null.h"
#include "research/plans.h"
#include "research/price.h"
#include "research/study_records.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

typedef struct agreed_margin {
    const char *name;
    double value;
} agreed_margin;

/* Written out once more: whoever changes a margin is asked here whether a run has been judged by it. */
static const struct agreed_part {
    const char *part;
    agreed_margin margin[STUDY_MAX_MARGINS];
} agreed[] = {
    {"rounding", {{"max_error", 0.02}, {"normal", 1.96}}},
    {"sampled",
     {{"max_ratio", 1.5},
      {"median_low", 0.95},
      {"median_high", 1.05},
      {"least_close", 0.9},
      {"inside_low", 0.9},
      {"inside_high", 0.98}}},
    {"batch",
     {{"max_ratio", 1.2},
      {"median_low", 0.95},
      {"median_high", 1.05},
      {"least_close", 0.9},
      {"inside_low", 0.9},
      {"inside_high", 0.98}}},
    {"rank", {{"least_tau", 0.9}, {"least_told", 0.3}}},
    {"add", {{"max_median_off", 0.05}, {"max_off", 0.2}, {"least_close", 0.95}}},
    {"exchange",
     {{"max_half_width", 0.3},
      {"selected_least", 0.05},
      {"selected_most", 1},
      {"max_ratio", 2},
      {"least_share", 0.8},
      {"mean_low", 0.8},
      {"mean_high", 1.25},
      {"exponent", 2},
      {"exponent_room", 0.2}}},
    {"null", {{"loss", 1}, {"points", 0.3}, {"alpha", 0.05}, {"power", 0.8}}},
    {"price",
     {{"least_inside", 0.85},
      {"most_width", 4},
      {"close_ratio", 2},
      {"least_close", 0.9},
      {"most_at_edge", 0},
      {"floor", 0.01},
      {"ceiling", 3}}},
    {"plans", {{"least_tasks", 2}, {"level", 0.95}}},
    {"drift", {{"level", 0.95}}},
};
enum { N_AGREED = sizeof agreed / sizeof *agreed };

static void each_margin_is_the_agreed_one(void **state)
{
    int n = 0;
    for (int p = 0; p < N_AGREED; p++) {
        const study_margins got = study_margins_of(agreed[p].part);
        int i = 0;
        for (; i < STUDY_MAX_MARGINS && agreed[p].margin[i].name; i++) {
            assert_in_range(got.n, i + 1, STUDY_MAX_MARGINS);
            assert_string_equal(got.row[i].name, agreed[p].margin[i].name);
            if (got.row[i].value != agreed[p].margin[i].value)
                fail_msg("%s of %s is %g; %g was agreed before it ran", got.row[i].name, agreed[p].part,
                         got.row[i].value, agreed[p].margin[i].value);
        }
        assert_int_equal(got.n, i);
        n += i;
    }
    assert_int_equal(n, (int)(sizeof study_margin / sizeof(double))); /* no part is left out */
}

/* What is planned decides the verdict, too. */
static void plans_have_the_agreed_seeds(void **state)
{
    assert_int_equal(exchange_plan_full.n_seed, 64);
    assert_int_equal(exchange_plan_full.is_with_first_order, 0);
    assert_int_equal(crossed_plan_full.n_seed, 128);
    assert_int_equal(crossed_plan_full.first_seed, 96);
    assert_int_equal(crossed_plan_full.is_with_first_order, 1);
    assert_int_equal(null_plan_full.n_least, 12);
    assert_int_equal(null_plan_full.n_pair, 64);
    assert_int_equal(price_plan_full.n_seed, 8);
    assert_int_equal(plans_plan_full.n_seed, 10);
    assert_int_equal(drift_plan_full.n_seed, 16);
}

static void crossed_has_the_margins_of_exchange_and_its_plan(void **state)
{
    const study_margins of = exchange_margins_of(&crossed_plan_full), table = study_margins_of("exchange");
    const char *const own[] = {"seeds",       "draws",       "with_first_order", "is_fitted_1",
                               "is_fitted_2", "is_fitted_3", "is_fitted_4"};
    const double value[] = {128, 4000, 1, 1, 0, 0, 1};
    assert_int_equal(of.n, table.n + 7);
    assert_true(of.n < STUDY_MAX_MARGINS); /* nothing was dropped for want of room */
    for (int i = 0; i < table.n; i++) assert_string_equal(of.row[i].name, table.row[i].name);
    for (int i = 0; i < 7; i++) {
        assert_string_equal(of.row[table.n + i].name, own[i]);
        assert_true(of.row[table.n + i].value == value[i]);
    }
}

/* Every value, and every name, has its part of the hash. */
static void each_change_changes_the_hash(void **state)
{
    char first[STUDY_MARGINS_HASH], other[STUDY_MARGINS_HASH];
    for (int p = 0; p < N_AGREED; p++) {
        const study_margins of = study_margins_of(agreed[p].part);
        study_margins_hash(first, &of);
        assert_int_equal(strlen(first), STUDY_MARGINS_HASH - 1);
        for (int i = 0; i < of.n; i++) {
            study_margins changed = of;
            changed.row[i].value = nextafter(of.row[i].value, INFINITY);
            study_margins_hash(other, &changed);
            assert_string_not_equal(first, other);
            changed = of;
            changed.row[i].name = "other";
            study_margins_hash(other, &changed);
            assert_string_not_equal(first, other);
        }
        study_margins fewer = of;
        fewer.n--;
        study_margins_hash(other, &fewer);
        assert_string_not_equal(first, other);
    }
}

/* --- Records ------------------------------------------------------------------------------------------- */

static tandem_status open_and_close(study_margins *margins, const char *path, tandem_error *error)
{
    study_records records;
    const tandem_status status = study_records_open(&records, path, "plan", margins, error);
    if (status == TANDEM_OK) study_records_close(&records);
    return status;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void records_name_the_margins_before_anything_ran(void **state)
{
    const char *const path = ((const test_folder *)*state)->path;
    tandem_error error = {0};
    char text[4096] = "", hash[STUDY_MARGINS_HASH];
    study_margins margins = study_margins_of("add");
    (void)remove(path);
    assert_int_equal(open_and_close(&margins, path, &error), TANDEM_OK);
    assert_string_equal(margins.late, "");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    study_margins_hash(hash, &margins);
    assert_non_null(strstr(text, hash));
    assert_non_null(strstr(text, "\"margins\":{\"max_median_off\":0.05"));

    (void)strcpy(margins.late, "unknown");
    assert_int_equal(open_and_close(&margins, path, &error), TANDEM_OK);
    assert_string_equal(margins.late, "");
}

static void margins_of_after_the_run_are_said(void **state)
{
    const char *const path = ((const test_folder *)*state)->path;
    tandem_error error = {0};
    const study_margins of = study_margins_of("add");
    for (int i = 0; i < of.n; i++) {
        study_margins margins = of;
        (void)remove(path);
        assert_int_equal(open_and_close(&margins, path, &error), TANDEM_OK);
        margins.row[i].value = 0.25;
        assert_int_equal(open_and_close(&margins, path, &error), TANDEM_OK);
        assert_non_null(strstr(margins.late, of.row[i].name));
        assert_non_null(strstr(margins.late, " is 0.25, and was 0."));
    }
    study_margins one_more = of;
    study_margins_add(&one_more, "selected_least", 0.05);
    assert_int_equal(open_and_close(&one_more, path, &error), TANDEM_OK);
    assert_string_equal(one_more.late, "they do not name selected_least");
}

static void records_without_margins_and_with_false_ones_are_said(void **state)
{
    const char *const path = ((const test_folder *)*state)->path;
    tandem_error error = {0};
    study_margins margins = study_margins_of("add");
    char text[512], hash[STUDY_MARGINS_HASH];
    write_text(path, "{\"plan\":\"plan\"}\n{\"name\":\"a\",\"value\":[1.0]}\n");
    assert_int_equal(open_and_close(&margins, path, &error), TANDEM_OK);
    assert_string_equal(margins.late, "they name none");

    study_margins_hash(hash, &margins); /* of now, beside other values: the head was written by hand */
    (void)snprintf(text, sizeof text,
                   "{\"plan\":\"plan\",\"margins_hash\":\"%s\",\"margins\":{\"max_median_off\":0.05,"
                   "\"max_off\":0.4,\"least_close\":0.95}}\n",
                   hash);
    write_text(path, text);
    assert_int_equal(open_and_close(&margins, path, &error), TANDEM_OK);
    assert_string_equal(margins.late, "max_off is 0.2, and was 0.4");

    write_text(path, "{\"plan\":\"plan\",\"margins_hash\":\"0\",\"margins\":{\"max_median_off\":0.05,"
                     "\"max_off\":0.2,\"least_close\":0.95}}\n");
    assert_int_equal(open_and_close(&margins, path, &error), TANDEM_OK);
    assert_string_equal(margins.late, "they name other margins");

    write_text(path, "{\"plan\":\"another\"}\n");
    assert_int_equal(open_and_close(&margins, path, &error), TANDEM_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_margin_is_the_agreed_one),
        cmocka_unit_test(plans_have_the_agreed_seeds),
        cmocka_unit_test(crossed_has_the_margins_of_exchange_and_its_plan),
        cmocka_unit_test(each_change_changes_the_hash),
        cmocka_unit_test_setup_teardown(records_name_the_margins_before_anything_ran, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(margins_of_after_the_run_are_said, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(records_without_margins_and_with_false_ones_are_said,
                                        test_folder_open, test_folder_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
