/* bench/mckp: the file, its units and errors, and the policies on problems solved by hand. */
#include "bench/mckp/mckp.h"
#include "tests/support/tandem_test.h"

static mckp *parse_mckp(const char *text)
{
    mckp *problem = NULL;
    tandem_error error = {0};
    require_ok(mckp_parse(&problem, text, strlen(text), "test.json", &error), &error);
    return problem;
}

/* --- The file ------------------------------------------------------------------------------------------- */

#define CHOICES(a, b)                                                                                        \
    "[{\"name\": \"int8\", \"time_ns\": " a ", \"sensitivity\": 0.5}, {\"name\": \"int4\", \"time_ns\": " b  \
    ", \"sensitivity\": 2}]"
#define ITEM(name, a, b) "{\"name\": \"" name "\", \"choices\": " CHOICES(a, b) "}"
#define PROBLEM(items, rest) "{\"schema\": \"tandem.mckp/1\", \"items\": [" items "]" rest "}"

static void a_file_is_what_it_says(void **state)
{
    mckp *problem = parse_mckp(PROBLEM(
        ITEM("a", "10", "4") "," ITEM("b", "7.25", "3.5") "," ITEM("c", "1", "1") "," ITEM("d", "2", "1"),
        ", \"ties\": [[\"d\", \"b\"], [3, 1]], \"limits\": {\"time_ns\": 12.755}"));
    assert_int_equal(problem->n_item, 4);
    assert_int_equal(problem->n_group, 3);
    assert_int_equal(problem->item[0].group, 0);
    assert_int_equal(problem->item[1].group, 1);
    assert_int_equal(problem->item[2].group, 2);
    assert_int_equal(problem->item[3].group, 1);
    assert_string_equal(problem->item[1].name, "b");
    assert_int_equal(problem->item[1].n_choice, 2);
    assert_string_equal(problem->item[1].choice[1].name, "int4");
    assert_true(problem->item[1].choice[1].sensitivity == 2 && problem->item[1].choice[1].bytes == 0);
    assert_int_equal(problem->decimals, 2);
    assert_false(problem->is_rounded);
    assert_int_equal(problem->item[1].choice[0].time, 725);
    assert_int_equal(problem->item[0].choice[1].time, 400);
    assert_int_equal(problem->time_limit, 1275); /* the half unit is of no use */
    assert_true(problem->time_limit_ns == 12.755);
    assert_true(problem->byte_limit == UINT64_MAX);
    mckp_close(problem);
}

static void ties_that_meet_make_one_group(void **state)
{
    mckp *problem = parse_mckp(
        PROBLEM(ITEM("a", "1", "1") "," ITEM("b", "1", "1") "," ITEM("c", "1", "1") "," ITEM("d", "1", "1"),
                ", \"ties\": [[3, 2], [1, \"c\"], [\"d\", \"d\"]], \"limits\": {}"));
    const int groups[] = {0, 1, 1, 1};
    for (int i = 0; i < 4; i++) assert_int_equal(problem->item[i].group, groups[i]);
    assert_int_equal(problem->n_group, 2);
    assert_true(problem->time_limit == INT64_MAX);
    mckp_close(problem);
}

/* 0.1 + 0.2 is 0.3 here, though not in doubles; and 17 digits are as many as fit. */
static void fractions_are_kept(void **state)
{
    static const struct {
        const char *longer, *shorter, *limit;
        int64_t time[2], time_limit;
        int decimals, rounded;
    } cases[] = {
        {"0.1", "0.2", "0.3", {1, 2}, 3, 1, 0},
        {"0.1", "0.2", "0.30000000000000004", {1, 2}, 3, 1, 0}, /* as others add them up */
        {"0.1", "0.2", "0.29", {1, 2}, 2, 1, 0},
        {"361891.11", "210944.04", "572835.15", {36189111, 21094404}, 57283515, 2, 0},
        {"1e-9", "1e9", "1", {1, INT64_C(1000000000000000000)}, 0, 0, 1}, /* see below */
        {"0.1234567890123456", "4000000", "5e6", {0, 0}, 0, 0, 1},
        {"1000", "2e3", "1e300", {1000, 2000}, INT64_C(1) << 52, 0, 0},
        {"0", "0", "0", {0, 0}, 0, 0, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[512];
        (void)snprintf(text, sizeof text, PROBLEM(ITEM("a", "%s", "%s"), ", \"limits\": {\"time_ns\": %s}"),
                       cases[k].longer, cases[k].shorter, cases[k].limit);
        mckp *problem = parse_mckp(text);
        assert_int_equal(problem->is_rounded, cases[k].rounded);
        if (!cases[k].rounded) {
            assert_int_equal(problem->decimals, cases[k].decimals);
            for (int c = 0; c < 2; c++) assert_int_equal(problem->item[0].choice[c].time, cases[k].time[c]);
            assert_int_equal(problem->time_limit, cases[k].time_limit);
        } else {              /* the longer one has all its digits in the unit, the sum stays below 2^52 */
            double units = 1; /* in a ns */
            for (int d = 0; d < problem->decimals; d++) units *= 10;
            const double longest = fmax(strtod(cases[k].longer, NULL), strtod(cases[k].shorter, NULL));
            assert_true(longest * units < 0x1p52 && longest * units * 10 >= 0x1p52);
            for (int c = 0; c < 2; c++) {
                const double given = strtod(c ? cases[k].shorter : cases[k].longer, NULL);
                assert_true(fabs((double)problem->item[0].choice[c].time - given * units) <= 0.501);
            }
        }
        mckp_close(problem);
    }
}

static void complaints_say_where(void **state)
{
    static const char *const cases[][2] = {
        {"", "not JSON"},
        {"[]", "top level: must be an object"},
        {"{}", "schema: is missing"},
        {"{\"schema\": \"tandem.plan/1\", \"items\": []}", "schema: must be \"tandem.mckp/1\""},
        {"{\"schema\": \"tandem.mckp/1\"}", "items: must be an array"},
        {PROBLEM("", ""), "items: must be an array of 1 to 10000"},
        {PROBLEM("7", ""), "items[0]: must be an object"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"limit\": {}"), "Did you mean 'limits'"},
        {PROBLEM(ITEM("", "1", "1"), ""), "items[0].name: must not be empty"},
        {PROBLEM(ITEM("a", "1", "1") "," ITEM("a", "1", "1"), ""), "items[1].name: 'a' is the name of "
                                                                   "items[0]"},
        {PROBLEM("{\"name\": \"a\"}", ""), "items[0].choices: must be an array"},
        {PROBLEM("{\"name\": \"a\", \"choices\": []}", ""), "items[0].choices: must be an array"},
        {PROBLEM("{\"name\": \"a\", \"choices\": [{\"name\": \"x\"}]}", ""),
         "items[0].choices[0].sensitivity: is "
         "missing"},
        {PROBLEM("{\"name\": \"a\", \"choices\": [{\"name\": \"x\", \"sensitivity\": -1}]}", ""),
         "sensitivity: must be a number from 0"},
        {PROBLEM("{\"name\": \"a\", \"choices\": [{\"name\": \"x\", \"sensitivity\": 1e101}]}", ""),
         "sensitivity: must be a number"},
        {PROBLEM("{\"name\": \"a\", \"choices\": [{\"name\": \"x\", \"sensitivity\": \"1\"}]}", ""),
         "sensitivity: must be a number"},
        {PROBLEM("{\"name\": \"a\", \"choices\": [{\"name\": \"x\", \"sensitivity\": 1}]}",
                 ", \"limits\": "
                 "{\"time_ns\": 1}"),
         "choices[0].time_ns: is missing"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"limits\": {\"bytes\": 1}"), "choices[0].bytes: is missing"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"limits\": {\"bytes\": 1.5}"), "limits.bytes: must be a whole "
                                                                         "number"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"limits\": {\"time_ns\": -1}"), "limits.time_ns: must be a number "
                                                                          "from 0"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"limits\": []"), "limits: must be an object"},
        {PROBLEM(ITEM("a", "-1", "1"), ""), "items[0].choices[0].time_ns: must be a number from 0"},
        {PROBLEM(ITEM("a", "4e15", "1") "," ITEM("b", "1", "4e15"), ""), "items: their longest choices"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"ties\": 3"), "ties: must be an array"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"ties\": [0]"), "ties[0]: must be an array of two"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"ties\": [[0]]"), "ties[0]: must be an array of two"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"ties\": [[0, 1]]"),
         "ties[0][1]: must be the name of an item, or its number from 0 to 0"},
        {PROBLEM(ITEM("a", "1", "1"), ", \"ties\": [[0, \"b\"]]"), "ties[0][1]: there is no item 'b'"},
        {PROBLEM(
             ITEM("a", "1", "1") ", {\"name\": \"b\", \"choices\": [{\"name\": \"x\", \"sensitivity\": 1}]}",
             ", \"ties\": [[0, 1]]"),
         "'a' has 2 choices and 'b' 1"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mckp *problem = NULL;
        tandem_error error = {0};
        const tandem_status status =
            mckp_parse(&problem, cases[k][0], strlen(cases[k][0]), "test.json", &error);
        if (status != TANDEM_MALFORMED || !strstr(error.text, cases[k][1]) ||
            !strstr(error.text, "test.json"))
            fail_msg("%s\ngave: %s\nnot:  %s", cases[k][0], error.text, cases[k][1]);
        assert_null(problem);
    }
}

/* --- Policies ------------------------------------------------------------------------------------------- */

/* Save 6 ns for 3, 5 ns for 2, 4 ns for 1.9; in all 15 of 30 ns. */
#define CHOICE(name, time, sensitivity, bytes)                                                               \
    "{\"name\": \"" name "\", \"time_ns\": " time ", \"sensitivity\": " sensitivity ", \"bytes\": " bytes "}"
#define OF_THREE(name, low)                                                                                  \
    "{\"name\": \"" name "\", \"choices\": [" CHOICE("wide", "10", "0", "1") "," low "]}"
#define THREE(limits)                                                                                        \
    PROBLEM(OF_THREE("a", CHOICE("low", "4", "3", "8")) "," OF_THREE(                                        \
                "b", CHOICE("low", "5", "2", "2")) "," OF_THREE("c", CHOICE("low", "6", "1.9", "4")),        \
            limits)

static tandem_status solve_mckp_test(mckp_answer *answer, const char *text, const char *policy,
                                     tandem_error *error)
{
    mckp *problem = parse_mckp(text);
    const tandem_status status = mckp_solve(answer, problem, policy, error);
    mckp_close(problem);
    return status;
}

static void assert_answer(const char *text, const char *policy, double sensitivity, double time_ns,
                          double min_bound)
{
    int choice[3] = {9, 9, 9};
    mckp_answer answer = {.choice = choice};
    tandem_error error = {0};
    require_ok(solve_mckp_test(&answer, text, policy, &error), &error);
    if (fabs(answer.sensitivity - sensitivity) > 1e-12 || answer.time_ns != time_ns)
        fail_msg("%s: sensitivity %.17g in %.17g ns", policy, answer.sensitivity, answer.time_ns);
    assert_true(answer.lower_bound <= answer.sensitivity && answer.lower_bound >= min_bound * (1 - 1e-6));
    assert_true(fabs(answer.gap -
                     (answer.sensitivity > 0 ? 1 - answer.lower_bound / answer.sensitivity : 0)) < 1e-12);
}

/* 24 ns: 6 must be saved: by a (3), or by b and c (3.9). From the fastest, greedy takes back a first (0.5 for
 * each of 6 ns), then none of b (5 ns) and c (4 ns) has room in 24 − 21 ns. The bound: b wholly and a quarter
 * of c are 2.475, at 0.475 a ns. */
static void policies_choose_as_they_say(void **state)
{
    assert_answer(THREE(", \"limits\": {\"time_ns\": 24}"), "exact", 3, 24, 3);
    assert_answer(THREE(", \"limits\": {\"time_ns\": 24}"), "greedy", 3.9, 21, 2.475);
    assert_answer(THREE(", \"limits\": {\"time_ns\": 24}"), "bound", 3.9, 21, 2.475);
    assert_answer(THREE(", \"limits\": {\"time_ns\": 15}"), "exact", 6.9, 15, 6.9);
    assert_answer(THREE(", \"limits\": {\"time_ns\": 15}"), "greedy", 6.9, 15, 6.9);
    assert_answer(THREE(""), "exact", 0, 30, 0);
    assert_answer(THREE(""), "greedy", 0, 30, 0);
    assert_answer(THREE(""), "bound", 0, 30, 0);
    /* a is out: it takes 8 of 7 bytes, and with it b and c */
    assert_answer(THREE(", \"limits\": {\"time_ns\": 24, \"bytes\": 7}"), "exact", 3.9, 21, 3.9);
    assert_answer(THREE(", \"limits\": {\"bytes\": 3}"), "greedy", 0, 30, 0);
}

/* Steps of 4 ns each; the other item has 6 ns to give for 3. */
#define STEPS(middle, limit)                                                                                 \
    "{\"schema\": \"tandem.mckp/1\", \"items\": ["                                                           \
    "{\"name\": \"a\", \"choices\": [{\"name\": \"wide\", \"time_ns\": 10, \"sensitivity\": 0},"             \
    "                                {\"name\": \"middle\", \"time_ns\": 6, \"sensitivity\": " middle "},"   \
    "                                {\"name\": \"low\", \"time_ns\": 2, \"sensitivity\": 5}]},"             \
    "{\"name\": \"b\", \"choices\": [{\"name\": \"wide\", \"time_ns\": 10, \"sensitivity\": 0},"             \
    "                                {\"name\": \"low\", \"time_ns\": 4, \"sensitivity\": 3}]}],"            \
    "\"limits\": {\"time_ns\": " limit "}}"

static void greedy_takes_the_best_step_that_fits(void **state)
{
    /* of 10 ns: 4 for 4, then 6 for 3 (0.5 a ns, more than the 0.25 of the second step of a) */
    assert_answer(STEPS("1", "16"), "greedy", 1, 16, 1);
    /* of 5 ns: 8 for 5 would be best, and 6 for 3, but only 4 for 0.5 fits */
    assert_answer(STEPS("4.5", "11"), "greedy", 7.5, 10, 0);
    assert_answer(STEPS("4.5", "11"), "exact", 7.5, 10, 7.5);
}

static void tied_items_choose_alike(void **state)
{
    int choice[3] = {9, 9, 9};
    mckp_answer answer = {.choice = choice};
    tandem_error error = {0};
    static const char tied[] = THREE(", \"ties\": [[\"a\", \"c\"]], \"limits\": {\"time_ns\": 24}");
    assert_int_equal(solve_mckp_test(&answer, tied, "exact", &error), TANDEM_OK);
    assert_int_equal(choice[0], 1);
    assert_int_equal(choice[1], 0);
    assert_int_equal(choice[2], 1);
    assert_true(fabs(answer.sensitivity - 4.9) < 1e-12 && answer.time_ns == 20 && answer.bytes == 13);
}

/* A limit that is met to the last digit is met, in decimals as they are written: 0.1 + 0.2 against 0.3. */
static void decimals_add_up(void **state)
{
    static const char text[] =
        PROBLEM(ITEM("a", "0.1", "0") "," ITEM("b", "0.2", "0"), ", \"limits\": {\"time_ns\": 0.3}");
    mckp_answer answer = {0};
    tandem_error error = {0};
    assert_int_equal(solve_mckp_test(&answer, text, "exact", &error), TANDEM_OK);
    assert_true(answer.sensitivity == 1 && answer.time_ns == 0.3);
}

static void what_cannot_be_is_said(void **state)
{
    static const char *const policies[] = {"exact", "greedy", "bound"};
    for (int p = 0; p < 3; p++) {
        mckp_answer answer = {.sensitivity = -7};
        tandem_error error = {0};
        assert_int_equal(
            solve_mckp_test(&answer, THREE(", \"limits\": {\"time_ns\": 14.5}"), policies[p], &error),
            TANDEM_INFEASIBLE);
        assert_non_null(strstr(error.text, "no choices keep the limits"));
        assert_non_null(strstr(error.text, "smallest time is 15 ns, the limit 14.5 ns"));
        assert_int_equal(solve_mckp_test(&answer, THREE(", \"limits\": {\"bytes\": 2}"), policies[p], &error),
                         TANDEM_INFEASIBLE);
        assert_non_null(strstr(error.text, "fewest bytes are 3, the limit 2"));
        assert_int_equal(solve_mckp_test(&answer, THREE(", \"limits\": {\"time_ns\": 24, \"bytes\": 6}"),
                                         policies[p], &error),
                         TANDEM_INFEASIBLE);
        assert_int_equal(strstr(error.text, "Each limit can be kept, but not both at once") != NULL, p == 0);
        assert_true(answer.sensitivity == -7);
    }
    mckp_answer answer = {0};
    tandem_error error = {0};
    assert_int_equal(solve_mckp_test(&answer, THREE(""), "exakt", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'exact'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_what_it_says),      cmocka_unit_test(ties_that_meet_make_one_group),
        cmocka_unit_test(fractions_are_kept),          cmocka_unit_test(complaints_say_where),
        cmocka_unit_test(policies_choose_as_they_say), cmocka_unit_test(greedy_takes_the_best_step_that_fits),
        cmocka_unit_test(tied_items_choose_alike),     cmocka_unit_test(decimals_add_up),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests_name("mckp", tests, NULL, NULL);
}
