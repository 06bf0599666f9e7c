/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* folder: allocator */
/* Every allocation while a plan DAG opens fails once: NO_MEMORY is said, nothing leaks, nothing is half
 * done. */
#include "allocator/bound/plan_dag.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/costed_cluster.h"
#include "tests/support/tandem_test.h"

static tandem_plan_dag *const untouched = (tandem_plan_dag *)(uintptr_t)0x10;

/* Of a model large enough that everything that grows has to grow. */
static void opening_survives_plan_dag_memory(void **state)
{
    costed_cluster p;
    tandem_error error = {0};
    require_ok(costed_cluster_open(&p, "gpt_tiny", "cpu:avx512_bf16", 4, 5, NULL, &error), &error);
    unsigned *allowed = calloc((size_t)p.graph[0]->n_op, sizeof *allowed);
    assert_non_null(allowed);
    for (int i = 0; i < p.graph[0]->n_op; i++)
        allowed[i] = tandem_op_row_get(p.graph[0]->op[i].kind)->precisions;
    long k = 0;
    for (int failed = 1; failed; k++) {
        const long alive = tandem_allocations_alive();
        tandem_plan_dag *plan_dag = untouched;
        error = (tandem_error){0};
        tandem_fail_allocation_after(k);
        const tandem_status status =
            tandem_plan_dag_open(&plan_dag, p.replayer, 0, allowed, p.sensitivity[0], &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        assert_int_equal(error.status, status);
        if (!failed) tandem_plan_dag_close(plan_dag);
        if (failed) assert_ptr_equal(plan_dag, untouched);
        if (failed) assert_true(error.text[0] != '\0');
        assert_int_equal(tandem_allocations_alive(), alive);
    }
    (void)printf("opening: survived %ld failures\n", k - 1);
    assert_true(k > 40);
    free(allowed);
    costed_cluster_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_survives_plan_dag_memory),
    };
    return cmocka_run_group_tests_name("plan DAG: memory runs out", tests, NULL, NULL);
}
