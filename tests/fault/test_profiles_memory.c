/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: profiles */
/* Plan files and cluster files are read while memory runs out: NO_MEMORY is said, and nothing is read
 * wrongly. */
#include <jansson.h>

#include "profiles/cluster/cluster_text.h"
#include "profiles/plan/plan_json.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

static const char cluster_text[] = "2*cpu:avx2@1 batch=8 memory=1GiB + cpu:avx batch=4 net=100Gbit/s,5us";

/* jansson's memory comes through here as well, so that its allocations fail with ours. */
static void *json_allocate(size_t bytes) { return malloc(bytes); }
static void json_release(void *block) { free(block); }

typedef struct job {
    tandem_status (*run)(void *argument, tandem_error *error);
    void *argument;
    long least; /* allocations that it must have */
} job;

/* Lets allocation 1, 2, 3, … fail until there are no more. */
static void survive_profiles_memory(const job *j)
{
    long k = 0;
    for (int failed = 1; failed; k++) {
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = j->run(j->argument, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        if (status != (failed ? TANDEM_NO_MEMORY : TANDEM_OK) || error.status != status)
            fail_msg("allocation %ld: %s: %s", k, tandem_status_name(status), error.text);
    }
    (void)printf("survived %ld failures\n", k - 1);
    assert_true(k - 1 >= j->least);
}

static tandem_status read_cluster(void *argument, tandem_error *error)
{
    const char *const json = argument;
    tandem_cluster cluster;
    return tandem_cluster_parse_json(&cluster, json, strlen(json), "cluster.json", error);
}

static void a_cluster_file_survives(void **state)
{
    static char json[] =
        "{\"schema\":\"tandem.cluster/1\",\"net\":\"1GB/s,5us\",\"classes\":[{\"device\":\"cpu:avx2\"}]}";
    survive_profiles_memory(&(job){read_cluster, json, 10});
}

static tandem_status read_plan(void *argument, tandem_error *error)
{
    const char *const json = argument;
    tandem_plan *const no_plan = (tandem_plan *)(uintptr_t)16, *plan = no_plan;
    tandem_graph *const no_graph = (tandem_graph *)(uintptr_t)16, *graph = no_graph;
    const tandem_status status = tandem_plan_parse(&plan, &graph, json, strlen(json), "plan.json", error);
    if (status == TANDEM_OK) {
        tandem_plan_close(plan);
        tandem_graph_close(graph);
    } else {
        assert_ptr_equal(plan, no_plan);
        assert_ptr_equal(graph, no_graph);
    }
    return status;
}

typedef struct fixture {
    tandem_graph *graph;
    tandem_plan *plan;
    char *text;
} fixture;

static int open_fixture_profiles_memory(void **state)
{
    fixture *const f = calloc(1, sizeof *f);
    tandem_cluster cluster;
    if (!f || tandem_graph_open(&f->graph, "mlp", 8, NULL) != TANDEM_OK ||
        tandem_cluster_parse(&cluster, cluster_text, NULL) != TANDEM_OK ||
        tandem_plan_open(&f->plan, f->graph, &cluster, "x", NULL) != TANDEM_OK)
        return -1;
    f->text = tandem_plan_text(f->plan, f->graph);
    *state = f;
    return f->text ? 0 : -1;
}

static int close_fixture_profiles_memory(void **state)
{
    fixture *const f = *state;
    tandem_plan_close(f->plan);
    tandem_graph_close(f->graph);
    free(f->text);
    free(f);
    return 0;
}

static void a_plan_survives_reading(void **state)
{
    const fixture *const f = *state;
    survive_profiles_memory(&(job){read_plan, f->text, 50});
}

static tandem_status open_plan_profiles_memory(void *argument, tandem_error *error)
{
    const fixture *const f = argument;
    tandem_plan *plan = NULL;
    const tandem_status status = tandem_plan_open(&plan, f->graph, &f->plan->cluster, "x", error);
    assert_int_equal(plan != NULL, status == TANDEM_OK);
    tandem_plan_close(plan);
    return status;
}

static void a_plan_survives_opening(void **state)
{
    survive_profiles_memory(&(job){open_plan_profiles_memory, *state, 2});
}

int main(void)
{
    json_set_alloc_funcs(json_allocate, json_release);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cluster_file_survives),
        cmocka_unit_test_setup_teardown(a_plan_survives_reading, open_fixture_profiles_memory,
                                        close_fixture_profiles_memory),
        cmocka_unit_test_setup_teardown(a_plan_survives_opening, open_fixture_profiles_memory,
                                        close_fixture_profiles_memory),
    };
    return cmocka_run_group_tests_name("profiles without memory", tests, NULL, NULL);
}
