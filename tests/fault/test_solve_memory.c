/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* folder: allocator */
/* Every allocation of the solvers fails once: TANDEM_NO_MEMORY, nothing leaks, outputs stay as they were. */
#include "tests/property/drawn_dag.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

static drawn_chain hard; /* thousands of labels, so that everything has to grow */

static tandem_status shortest(tandem_error *error)
{
    double value = -7;
    int choice[DRAWN_CHAIN_LAYERS] = {-7};
    const tandem_status status =
        tandem_solve_shortest(&value, choice, &hard.plan_dag, &hard.limits, 1, 1e-3, 0, error);
    assert_true((status == TANDEM_OK) == (value != -7) && (status == TANDEM_OK) == (choice[0] != -7));
    return status;
}

static tandem_status check_solution(tandem_status status, const tandem_solution *solution)
{
    assert_true((status == TANDEM_OK) == (solution->lower_bound != -7) &&
                (status == TANDEM_OK) == (solution->sensitivity != -7));
    assert_true((status == TANDEM_OK) == (solution->choice[0] != -7) &&
                (status == TANDEM_OK) == (solution->labels != -7));
    return status;
}

static tandem_status lagrange_solve_memory(tandem_error *error)
{
    int choice[DRAWN_CHAIN_LAYERS] = {-7};
    tandem_solution solution = {.lower_bound = -7, .sensitivity = -7, .labels = -7, .choice = choice};
    return check_solution(tandem_solve_lagrange(&solution, NULL, &hard.plan_dag, &hard.limits, error),
                          &solution);
}

static tandem_status exact_solve_memory(tandem_error *error)
{
    int choice[DRAWN_CHAIN_LAYERS] = {-7};
    tandem_solution solution = {.lower_bound = -7, .sensitivity = -7, .labels = -7, .choice = choice};
    return check_solution(
        tandem_solve_exact(&solution, &hard.plan_dag, &hard.limits, INFINITY, 0, INT64_MAX, error),
        &solution);
}

/* With bytes of their own, which need a staircase. */
static tandem_status exact_within_two_limits(tandem_error *error)
{
    static uint64_t bytes[1 + DRAWN_CHAIN_LAYERS * DRAWN_CHAIN_CHOICES];
    int choice[DRAWN_CHAIN_LAYERS] = {-7};
    tandem_solution solution = {.lower_bound = -7, .sensitivity = -7, .labels = -7, .choice = choice};
    tandem_limits limits = hard.limits;
    for (size_t b = 1; b < sizeof bytes / sizeof *bytes; b++)
        bytes[b] = (uint64_t)(hard.time_ns[b] * 7919 % 50);
    limits.bytes = bytes;
    limits.byte_limit = DRAWN_CHAIN_LAYERS * 20;
    return check_solution(
        tandem_solve_exact(&solution, &hard.plan_dag, &limits, INFINITY, 0.001, INT64_MAX, error), &solution);
}

/* An error in the middle leaves the enumeration where it was: what comes then is what comes without it. */
static tandem_status enumerate_solve_memory(tandem_error *error)
{
    tandem_enumeration *e = NULL;
    tandem_limits all = hard.limits;
    double sensitivity = -7, before = 0;
    int choice[DRAWN_CHAIN_LAYERS];
    all.time_limit_ns = INT64_MAX;
    tandem_status status = tandem_enumeration_open(&e, &hard.plan_dag, &all, error);
    if (status != TANDEM_OK) {
        assert_null(e);
        return status;
    }
    tandem_status seen = TANDEM_OK;
    for (int k = 0; k < 40; k++) {
        const double untouched = sensitivity;
        status = tandem_enumeration_next(e, &sensitivity, choice, NULL, 1 << 20, error);
        if (status != TANDEM_OK) {
            assert_true(sensitivity == untouched);
            seen = status;
            status = tandem_enumeration_next(e, &sensitivity, choice, NULL, 1 << 20, NULL);
        }
        assert_int_equal(status, TANDEM_OK);
        assert_true(sensitivity >= before * (1 - 0x1p-29));
        before = sensitivity;
    }
    tandem_enumeration_close(e);
    return seen;
}

/* Calls it with allocation 1, 2, 3 … failing until it succeeds; how many failed. */
static long survive_solve_memory(const char *name, tandem_status (*called)(tandem_error *))
{
    for (long k = 0;; k++) {
        const long alive = tandem_allocations_alive();
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = called(&error);
        const int failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        assert_int_equal(error.status, status);
        assert_true(!failed == !error.text[0]);
        assert_int_equal(tandem_allocations_alive(), alive);
        if (!failed) {
            (void)printf("%s: survived %ld failures\n", name, k);
            return k;
        }
    }
}

static void solvers_survive(void **state)
{
    drawn_chain_make(&hard, 3);
    assert_true(survive_solve_memory("shortest", shortest) == 2);
    assert_true(survive_solve_memory("lagrange", lagrange_solve_memory) > 10);
    assert_true(survive_solve_memory("exact", exact_solve_memory) > 40);
    assert_true(survive_solve_memory("exact, two limits", exact_within_two_limits) > 40);
    assert_true(survive_solve_memory("enumeration", enumerate_solve_memory) > 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(solvers_survive),
    };
    return cmocka_run_group_tests_name("solvers: memory runs out", tests, NULL, NULL);
}
