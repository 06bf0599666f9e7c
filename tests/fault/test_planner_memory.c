/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: allocator */
/* Every allocation on the way from a request to a plan fails once: NO_MEMORY is said, and nothing is half
 * done. (That nothing leaks is for SAN=address to see.) */
#include "tandem/planner.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/scored_cluster.h"
#include "tests/support/tandem_test.h"

static const char model[] = "mlp:depth=1,width=8", two_devices[] = "cpu:avx512 + cpu:avx2";
static tandem_planner *const untouched = (tandem_planner *)(uintptr_t)0x10;

static int set_up_planner_memory(void **state)
{
    static costed_cluster p;
    tandem_error error = {0};
    require_ok(costed_cluster_open(&p, model, two_devices, 4, 5, NULL, &error), &error);
    scored_cluster_file(&p, "data", 1);
    *state = &p;
    return 0;
}

static int tear_down_planner_memory(void **state)
{
    costed_cluster_close(*state);
    return 0;
}

static void opening_survives_planner_memory(void **state)
{
    const costed_cluster *p = *state;
    const tandem_request request = {
        .store = p->path, .model = model, .cluster = two_devices, .batch = 4, .memory = "1GiB,2GiB"};
    long k = 0;
    for (int failed = 1; failed; k++) {
        tandem_planner *planner = untouched;
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = tandem_planner_open(&planner, &request, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        assert_int_equal(error.status, status);
        if (failed) assert_ptr_equal(planner, untouched);
        if (!failed) tandem_planner_close(planner);
    }
    assert_true(k > 20); /* it was really on the way */
}

static void allocating_survives(void **state)
{
    const costed_cluster *p = *state;
    const tandem_request request = {.store = p->path, .model = model, .cluster = two_devices, .batch = 4};
    tandem_planner *planner = NULL;
    assert_int_equal(tandem_planner_open(&planner, &request, NULL), TANDEM_OK);
    const tandem_allocation_request question = {0};
    tandem_answer answer = {.goodput = {.samples_per_s = -7}};
    long k = 0;
    for (int failed = 1; failed; k++) {
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = tandem_planner_ask(&answer, planner, &question, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        assert_true((answer.plan == NULL) == failed && (answer.goodput.samples_per_s < 0) == failed);
    }
    assert_true(k > 3);
    tandem_answer_close(&answer);
    tandem_planner_close(planner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_survives_planner_memory),
        cmocka_unit_test(allocating_survives),
    };
    return cmocka_run_group_tests_name("planner memory", tests, set_up_planner_memory,
                                       tear_down_planner_memory);
}
