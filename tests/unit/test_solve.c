/* folder: allocator */
/* Solvers of plan DAGs, against numbers worked out by hand. */
#include "allocator/bound/solve.h"
#include "tests/support/tandem_test.h"

/* Two layers with two choices each, one state between them; every path has 1 ns and 2 bytes besides:
 *
 *   choices  sensitivity  time  bytes
 *   0 0       0     31    12
 *   1 0       3     25    14
 *   0 1       7     21    20
 *   1 1      10     15    22   */
static const int64_t time_ns[] = {1, 10, 4, 20, 10};
static const uint64_t bytes[] = {2, 4, 6, 6, 14};
static tandem_arc arcs[] = {
    {.to = 1, .task_set = 1, .choice = 0, .sensitivity = 0},
    {.to = 1, .task_set = 2, .choice = 1, .sensitivity = 3},
    {.to = 2, .task_set = 3, .choice = 0, .sensitivity = 0},
    {.to = 2, .task_set = 4, .choice = 1, .sensitivity = 7},
};
static int state_start[] = {0, 1, 2, 3}, arc_start[] = {0, 2, 4, 4};
static const tandem_plan_dag chain = {
    .n_layer = 2, .state_start = state_start, .arc_start = arc_start, .arc = arcs, .n_task_set = 5};

static tandem_limits within(int64_t limit_ns, uint64_t byte_limit)
{
    return (tandem_limits){
        .time_ns = time_ns, .time_limit_ns = limit_ns, .bytes = bytes, .byte_limit = byte_limit};
}

static tandem_solution exact_solve(const tandem_plan_dag *plan_dag, tandem_limits limits, int *choice)
{
    tandem_solution solution = {.choice = choice};
    tandem_error error = {0};
    require_ok(tandem_solve_exact(&solution, plan_dag, &limits, INFINITY, 0, INT64_MAX, &error), &error);
    return solution;
}

static tandem_solution lagrange_solve(const tandem_plan_dag *plan_dag, tandem_limits limits,
                                      double multiplier[2])
{
    tandem_solution solution = {0};
    tandem_error error = {0};
    require_ok(tandem_solve_lagrange(&solution, multiplier, plan_dag, &limits, &error), &error);
    return solution;
}

static void assert_near_solve(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-6 * fabs(expected))) fail_msg("%.17g is not %.17g", got, expected);
}

/* --- A chain -------------------------------------------------------------------------------------------- */

static void the_shortest_path_is_that_of_its_weights(void **state)
{
    const tandem_limits limits = within(1, 1); /* they do not count */
    double value = 0;
    int choice[2] = {9, 9};
    assert_int_equal(tandem_solve_shortest(&value, choice, &chain, &limits, 1, 0, 0, NULL), TANDEM_OK);
    assert_true(value == 0 && choice[0] == 0 && choice[1] == 0);
    assert_int_equal(tandem_solve_shortest(&value, choice, &chain, &limits, 0, 1, 0, NULL), TANDEM_OK);
    assert_true(value == 15 && choice[0] == 1 && choice[1] == 1);
    assert_int_equal(tandem_solve_shortest(&value, choice, &chain, &limits, 0, 0, 1, NULL), TANDEM_OK);
    assert_true(value == 12 && choice[0] == 0 && choice[1] == 0);
    assert_int_equal(tandem_solve_shortest(&value, choice, &chain, &limits, 1, 0.6, 0.25, NULL), TANDEM_OK);
    assert_near_solve(value, 3 + 0.6 * 25 + 0.25 * 14);
    assert_true(choice[0] == 1 && choice[1] == 0);
    assert_int_equal(tandem_solve_shortest(&value, NULL, &chain, &limits, 1, 0, 0, NULL), TANDEM_OK);
}

static void the_least_sensitivity_within_a_time(void **state)
{
    static const struct {
        int64_t limit_ns;
        double sensitivity;
        int first, second;
    } cases[] = {{INT64_MAX, 0, 0, 0}, {31, 0, 0, 0}, {30, 3, 1, 0},  {25, 3, 1, 0},
                 {24, 7, 0, 1},        {21, 7, 0, 1}, {20, 10, 1, 1}, {15, 10, 1, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int choice[2] = {9, 9};
        const tandem_solution s = exact_solve(&chain, within(cases[k].limit_ns, UINT64_MAX), choice);
        assert_true(s.proven && s.sensitivity == cases[k].sensitivity &&
                    s.lower_bound == cases[k].sensitivity);
        assert_int_equal(choice[0], cases[k].first);
        assert_int_equal(choice[1], cases[k].second);
        assert_int_equal(s.time_ns, 31 - 6 * choice[0] - 10 * choice[1]);
        assert_int_equal(s.bytes, 12 + 2 * choice[0] + 8 * choice[1]);
    }
}

static void no_time_is_enough_for_nothing(void **state)
{
    int choice[2] = {9, 9};
    const int64_t limits_ns[] = {14, 0, -5, INT64_MIN};
    for (int k = 0; k < 4; k++) {
        const tandem_solution s = exact_solve(&chain, within(limits_ns[k], UINT64_MAX), choice);
        assert_true(s.proven && isinf(s.sensitivity) && isinf(s.lower_bound));
        assert_int_equal(choice[0], 9);
        assert_true(isinf(lagrange_solve(&chain, within(limits_ns[k], UINT64_MAX), NULL).lower_bound));
    }
}

static void bytes_limit_too(void **state)
{
    int choice[2];
    tandem_solution s = exact_solve(&chain, within(INT64_MAX, 11), choice);
    assert_true(isinf(s.lower_bound)); /* 12 are needed */
    s = exact_solve(&chain, within(30, 14), choice);
    assert_true(s.sensitivity == 3 && s.bytes == 14);
    /* time asks for the first change or the second, each of which takes more */
    s = exact_solve(&chain, within(30, 13), choice);
    assert_true(s.proven && isinf(s.sensitivity) && isinf(s.lower_bound));
    s = exact_solve(&chain, within(21, 22), choice);
    assert_true(s.sensitivity == 7);
    s = exact_solve(&chain, within(21, 20), choice);
    assert_true(s.sensitivity == 7);
}

/* The hull of (time, sensitivity) runs through (31, 0) and (25, 3). */
static void the_bound_is_the_hull(void **state)
{
    double multiplier[2];
    tandem_solution s = lagrange_solve(&chain, within(28, UINT64_MAX), multiplier);
    assert_near_solve(s.lower_bound, 1.5);
    assert_near_solve(multiplier[0], 0.5);
    assert_true(multiplier[1] == 0 && !s.proven);
    assert_true(s.sensitivity == 3 && s.time_ns == 25);
    s = lagrange_solve(&chain, within(30, UINT64_MAX), multiplier);
    assert_near_solve(s.lower_bound, 0.5);
    s = lagrange_solve(&chain, within(31, UINT64_MAX), multiplier);
    assert_true(s.proven && s.sensitivity == 0 && s.lower_bound == 0);
    s = lagrange_solve(&chain, within(25, UINT64_MAX), multiplier);
    assert_near_solve(s.lower_bound, 3);
    assert_true(s.lower_bound <= 3 && s.sensitivity == 3 && s.proven);
}

/* Whoever takes the second layer's first choice needs 25 ns: without it, (0 1) and (1 1) remain, and no hull
 * in between. */
static void what_no_path_within_a_limit_takes_is_left_out(void **state)
{
    const tandem_solution s = lagrange_solve(&chain, within(24, UINT64_MAX), NULL);
    assert_near_solve(s.lower_bound, 7);
    assert_true(s.sensitivity == 7 && s.proven);
    /* (1 0) takes 14 bytes, (0 0) 31 ns */
    assert_true(isinf(lagrange_solve(&chain, within(28, 13), NULL).lower_bound));
}

/* Four layers alike: 10 ns and 10 bytes for nothing, 6 of the one or of the other less for 4. Of each limit 9
 * must be saved: a mixture does it with half of three changes in each direction, a path with two and two. */
static void the_bound_of_two_limits(void **state)
{
    static const int64_t ns[] = {0, 10, 4, 10};
    static const uint64_t size_bytes[] = {0, 10, 10, 4};
    tandem_arc alike[12];
    int starts[6], first[6], choice[4];
    double multiplier[2];
    for (int l = 0; l < 6; l++) {
        starts[l] = l;
        first[l] = l < 4 ? 3 * l : 12;
        for (int k = 0; k < 3 && l < 4; k++)
            alike[3 * l + k] =
                (tandem_arc){.to = l + 1, .task_set = k + 1, .choice = k, .sensitivity = k > 0 ? 4 : 0};
    }
    const tandem_plan_dag plan_dag = {
        .n_layer = 4, .state_start = starts, .arc_start = first, .arc = alike, .n_task_set = 4};
    const tandem_limits limits = {.time_ns = ns, .time_limit_ns = 31, .bytes = size_bytes, .byte_limit = 31};
    tandem_solution s = lagrange_solve(&plan_dag, limits, multiplier);
    assert_near_solve(s.lower_bound, 12);
    assert_near_solve(multiplier[0], 4.0 / 6);
    assert_near_solve(multiplier[1], 4.0 / 6);
    s = exact_solve(&plan_dag, limits, choice);
    assert_true(s.proven && s.sensitivity == 16 && s.lower_bound == 16 && s.time_ns == 28 && s.bytes == 28);
}

static void a_cutoff_and_a_tolerance_end_the_search(void **state)
{
    const tandem_limits limits = within(28, UINT64_MAX);
    tandem_solution s = {0};
    assert_int_equal(tandem_solve_exact(&s, &chain, &limits, 2.5, 0, INT64_MAX, NULL), TANDEM_OK);
    assert_true(s.proven && s.lower_bound >= 2.5 && s.lower_bound <= 3);
    assert_int_equal(tandem_solve_exact(&s, &chain, &limits, 3.5, 0, INT64_MAX, NULL), TANDEM_OK);
    assert_true(s.proven && s.sensitivity == 3 && s.lower_bound == 3);
    assert_int_equal(tandem_solve_exact(&s, &chain, &limits, INFINITY, 0.55, INT64_MAX, NULL), TANDEM_OK);
    /* 1.5 is near enough to 3, nothing else is tried */
    assert_true(s.proven && s.sensitivity == 3 && s.lower_bound < 1.51);
}

/* --- States --------------------------------------------------------------------------------------------- */

/* What is best in the first layer decides what the second costs: 0 leads to state 1, from which choice 0 is
 * slow; 1 leads to state 2. State 3 is never reached, and from state 2 choice 1 leads to state 5, where no
 * path goes on. */
static void what_is_left_open_decides(void **state)
{
    static const int64_t ns[] = {0, 1, 2, 9, 5, 1, 1, 1};
    tandem_arc branching[] = {
        {.to = 1, .task_set = 1, .choice = 0, .sensitivity = 0},
        {.to = 2, .task_set = 2, .choice = 1, .sensitivity = 1},
        {.to = 4, .task_set = 3, .choice = 0, .sensitivity = 0},
        {.to = 4, .task_set = 4, .choice = 1, .sensitivity = 4},
        {.to = 4, .task_set = 5, .choice = 0, .sensitivity = 1},
        {.to = 5, .task_set = 6, .choice = 1, .sensitivity = 0},
        {.to = 4, .task_set = 7, .choice = 0, .sensitivity = -1},
        {.to = 6, .task_set = 7, .choice = 0, .sensitivity = 0},
        {.to = 6, .task_set = 1, .choice = 1, .sensitivity = NAN},
    };
    int starts[] = {0, 1, 4, 6, 7}, first[] = {0, 2, 4, 6, 7, 9, 9, 9}, choice[3] = {9, 9, 9};
    const tandem_plan_dag plan_dag = {
        .n_layer = 3, .state_start = starts, .arc_start = first, .arc = branching, .n_task_set = 8};
    tandem_limits limits = {.time_ns = ns, .time_limit_ns = 11, .byte_limit = UINT64_MAX};
    tandem_solution s = exact_solve(&plan_dag, limits, choice);
    assert_true(s.sensitivity == 0 && s.time_ns == 11);
    limits.time_limit_ns = 10;
    s = exact_solve(&plan_dag, limits, choice);
    assert_true(s.sensitivity == 2 && s.time_ns == 4 && choice[0] == 1 && choice[1] == 0 && choice[2] == 0);
    limits.time_limit_ns = 3;
    s = exact_solve(&plan_dag, limits, choice);
    assert_true(isinf(s.lower_bound));
    double value;
    assert_int_equal(tandem_solve_shortest(&value, choice, &plan_dag, &limits, 0, 1, 0, NULL), TANDEM_OK);
    assert_true(value == 4);
}

static void no_layer_is_one_path_and_no_arc_is_none(void **state)
{
    int starts[] = {0, 1, 2}, first[] = {0, 0, 0};
    const tandem_plan_dag empty = {.n_layer = 0, .state_start = starts, .arc_start = first, .n_task_set = 1};
    tandem_solution s = exact_solve(&empty, within(1, 2), NULL);
    assert_true(s.proven && s.sensitivity == 0 && s.lower_bound == 0 && s.time_ns == 1 && s.bytes == 2);
    assert_true(isinf(exact_solve(&empty, within(0, 2), NULL).lower_bound));
    const tandem_plan_dag closed = {.n_layer = 1, .state_start = starts, .arc_start = first, .n_task_set = 1};
    s = exact_solve(&closed, within(INT64_MAX, UINT64_MAX), NULL);
    assert_true(s.proven && isinf(s.sensitivity) && isinf(s.lower_bound));
    double value = 0;
    const tandem_limits limits = within(1, 1);
    assert_int_equal(tandem_solve_shortest(&value, NULL, &closed, &limits, 1, 1, 1, NULL), TANDEM_OK);
    assert_true(isinf(value));
}

static void sums_that_doubles_cannot_hold_are_refused(void **state)
{
    static const int64_t long_ns[] = {0, INT64_C(1) << 52, 4, INT64_C(1) << 52, 10};
    const tandem_limits limits = {.time_ns = long_ns, .time_limit_ns = 20, .byte_limit = UINT64_MAX};
    tandem_solution s = {.labels = -7};
    tandem_error error = {0};
    assert_int_equal(tandem_solve_exact(&s, &chain, &limits, INFINITY, 0, INT64_MAX, &error),
                     TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "2^53"));
    assert_int_equal(s.labels, -7);
    assert_int_equal(tandem_solve_lagrange(&s, NULL, &chain, &limits, &error), TANDEM_MALFORMED);
    assert_int_equal(s.labels, -7);
}

/* 1e-16 beside 1e-5: the small ones decide, to their last digits. */
static void small_sensitivities_count_beside_large_ones(void **state)
{
    tandem_arc wide[] = {
        {.to = 1, .task_set = 1, .choice = 0, .sensitivity = 1e-16},
        {.to = 1, .task_set = 2, .choice = 1, .sensitivity = 3e-16},
        {.to = 2, .task_set = 3, .choice = 0, .sensitivity = 1e-5},
        {.to = 2, .task_set = 4, .choice = 1, .sensitivity = 2e-16},
    };
    const tandem_plan_dag plan_dag = {
        .n_layer = 2, .state_start = state_start, .arc_start = arc_start, .arc = wide, .n_task_set = 5};
    assert_true(exact_solve(&plan_dag, within(24, UINT64_MAX), NULL).sensitivity == 1e-16 + 2e-16);
    assert_true(exact_solve(&plan_dag, within(20, UINT64_MAX), NULL).lower_bound == 3e-16 + 2e-16);
    assert_near_solve(lagrange_solve(&plan_dag, within(24, UINT64_MAX), NULL).lower_bound, 3e-16);
}

/* --- In order ------------------------------------------------------------------------------------------- */

static void paths_come_in_order(void **state)
{
    static const double sensitivities[] = {3, 7, 10};
    static const int choices[][2] = {{1, 0}, {0, 1}, {1, 1}};
    const tandem_limits limits = within(25, UINT64_MAX);
    tandem_enumeration *e = NULL;
    double sensitivity = 0, bound = 0;
    int choice[2];
    assert_int_equal(tandem_enumeration_open(&e, &chain, &limits, NULL), TANDEM_OK);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(tandem_enumeration_next(e, &sensitivity, choice, &bound, 100, NULL), TANDEM_OK);
        assert_true(sensitivity == sensitivities[k]);
        assert_memory_equal(choice, choices[k], sizeof choice);
        assert_true(k == 2 ? isinf(bound) : bound <= sensitivities[k + 1]);
    }
    for (int k = 0; k < 2; k++) { /* and there it stays */
        assert_int_equal(tandem_enumeration_next(e, &sensitivity, choice, &bound, 100, NULL), TANDEM_OK);
        assert_true(isinf(sensitivity) && isinf(bound));
        assert_memory_equal(choice, choices[2], sizeof choice);
    }
    tandem_enumeration_close(e);
    tandem_enumeration_close(NULL);
}

/* 2^40 paths of the same sensitivity, which are the same sum in many orders: the first ones come at once, the
 * lower choices first. */
static void equal_paths_come_by_their_choices(void **state)
{
    enum { LAYERS = 40 };
    static tandem_arc equal[2 * LAYERS];
    static int starts[LAYERS + 2], first[LAYERS + 2];
    static int64_t no_time_ns[1];
    for (int l = 0; l < LAYERS + 2; l++) {
        starts[l] = l;
        first[l] = l < LAYERS ? 2 * l : 2 * LAYERS;
        for (int k = 0; k < 2 && l < LAYERS; k++)
            equal[2 * l + k] = (tandem_arc){.to = l + 1, .choice = k, .sensitivity = 0.1 * (1 + l % 3)};
    }
    const tandem_plan_dag plan_dag = {
        .n_layer = LAYERS, .state_start = starts, .arc_start = first, .arc = equal, .n_task_set = 1};
    const tandem_limits limits = {
        .time_ns = no_time_ns, .time_limit_ns = INT64_MAX, .byte_limit = UINT64_MAX};
    tandem_enumeration *e = NULL;
    assert_int_equal(tandem_enumeration_open(&e, &plan_dag, &limits, NULL), TANDEM_OK);
    for (int k = 0; k < 8; k++) {
        double sensitivity = 0;
        int choice[LAYERS], sum = 0;
        assert_int_equal(tandem_enumeration_next(e, &sensitivity, choice, NULL, 1000, NULL), TANDEM_OK);
        assert_near_solve(sensitivity, 0.1 * (14 * 1 + 13 * 2 + 13 * 3));
        for (int l = 0; l < LAYERS; l++) sum += choice[l];
        assert_int_equal(4 * choice[LAYERS - 3] + 2 * choice[LAYERS - 2] + choice[LAYERS - 1], k);
        assert_int_equal(sum, choice[LAYERS - 3] + choice[LAYERS - 2] + choice[LAYERS - 1]);
    }
    tandem_enumeration_close(e);
}

static void it_gives_up_and_goes_on(void **state)
{
    const tandem_limits limits = within(INT64_MAX, UINT64_MAX);
    tandem_enumeration *e = NULL;
    double sensitivity = 0, bound = -1;
    int choice[2] = {9, 9}, n_call = 0;
    assert_int_equal(tandem_enumeration_open(&e, &chain, &limits, NULL), TANDEM_OK);
    assert_int_equal(tandem_enumeration_next(e, &sensitivity, choice, &bound, 0, NULL), TANDEM_OK);
    assert_true(isnan(sensitivity) && bound >= 0 && bound <= 1e-12 && choice[0] == 9);
    do {
        assert_int_equal(tandem_enumeration_next(e, &sensitivity, choice, &bound, 1, NULL), TANDEM_OK);
        n_call++;
    } while (isnan(sensitivity));
    assert_true(sensitivity == 0 && n_call > 1);
    tandem_enumeration_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shortest_path_is_that_of_its_weights),
        cmocka_unit_test(the_least_sensitivity_within_a_time),
        cmocka_unit_test(no_time_is_enough_for_nothing),
        cmocka_unit_test(bytes_limit_too),
        cmocka_unit_test(the_bound_is_the_hull),
        cmocka_unit_test(what_no_path_within_a_limit_takes_is_left_out),
        cmocka_unit_test(the_bound_of_two_limits),
        cmocka_unit_test(a_cutoff_and_a_tolerance_end_the_search),
        cmocka_unit_test(what_is_left_open_decides),
        cmocka_unit_test(no_layer_is_one_path_and_no_arc_is_none),
        cmocka_unit_test(sums_that_doubles_cannot_hold_are_refused),
        cmocka_unit_test(small_sensitivities_count_beside_large_ones),
        cmocka_unit_test(paths_come_in_order),
        cmocka_unit_test(equal_paths_come_by_their_choices),
        cmocka_unit_test(it_gives_up_and_goes_on),
    };
    return cmocka_run_group_tests_name("solvers", tests, NULL, NULL);
}
