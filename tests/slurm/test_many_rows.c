/* folder: plugins */
/* A store that holds a hundred thousand costs of other models gives the same plan as a small one. With
 * arguments STORE DEVICE… it only adds such rows to a store, for tests/slurm/run.sh. */
#include "base/clock.h"
#include "tandem/planner.h"
#include "tandem/advanced/store.h"
#include "tests/support/drawn_estimate.h"
#include "tests/support/replay_store.h"
#include "tests/support/tandem_test.h"

enum { N_ROW = 100000, BATCH = 4 };
static const char model[] = "mlp:width=16";
static const char *const devices[] = {"cpu:avx512", "cpu:sse41"};

/* Costs of operators that no model here has, of the devices in turn, alone and beside one another. */
static tandem_status add_rows(tandem_store *store, const char *const *device, int n_device,
                              tandem_error *error)
{
    static const char *const precisions[] = {"fp32", "int8"};
    tandem_status status = tandem_store_begin(store, error);
    for (int i = 0; i < N_ROW && status == TANDEM_OK; i++) {
        const int k = i / n_device;
        tandem_cost_key key = {
            .kind = TANDEM_COST_OP, .precision = precisions[k % 2], .pass = (tandem_pass)(k / 2 % 3)};
        const tandem_cost cost = replay_cost(1000 + i, 0);
        (void)snprintf(key.signature, sizeof key.signature, "linear m=%d k=%d n=16", 1 + k / 12, 100000 + k);
        status = tandem_store_put_cost(store, device[i % n_device],
                                       k / 6 % 2 ? device[(i + 1) % n_device] : "", &key, &cost, error);
    }
    if (status == TANDEM_OK) return tandem_store_commit(store, error);
    tandem_store_rollback(store);
    return status;
}

static int64_t rule(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
{
    (void)context;
    (void)workspace_bytes;
    return 1000 + (int64_t)strlen(key->signature) *
                      (key->precision && strcmp(key->precision, "fp32") == 0 ? 200 : 100);
}

static void fill_many_rows(replay_store *s)
{
    tandem_graph *graph = NULL;
    assert_int_equal(tandem_graph_open(&graph, model, BATCH, NULL), TANDEM_OK);
    for (int d = 0; d < 2; d++) replay_store_fill(s, graph, TANDEM_F32, 0, devices[d], "", rule, NULL);
    file_drawn_estimate(s->store, graph, "noise", 1);
    tandem_graph_close(graph);
}

/* The plan's text, and how long it took to make. */
static char *plan_text(const replay_store *s)
{
    const tandem_allocation_request request = {
        .of = {.store = s->path,
               .model = model,
               .cluster = "cpu:avx512@1 + cpu:sse41@1 net=10Gbit/s,20us",
               .batch = BATCH}};
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    const int64_t begin_ns = tandem_now_ns();
    if (tandem_answer_open(&answer, &request, &error) != TANDEM_OK) fail_msg("%s", error.text);
    (void)printf("# a plan in %.1f ms\n", (double)(tandem_now_ns() - begin_ns) * 1e-6);
    char *text = tandem_plan_text(answer.plan, tandem_planner_graph(answer.planner, 0));
    assert_non_null(text);
    tandem_answer_close(&answer);
    return text;
}

static void other_models_costs_change_nothing(void **state)
{
    replay_store s = {0};
    tandem_error error = {0};
    replay_store_open(&s);
    fill_many_rows(&s);
    char *few = plan_text(&s);
    require_ok(add_rows(s.store, devices, 2, &error), &error);
    char *many = plan_text(&s);
    assert_string_equal(few, many);
    free(many);
    free(few);
    replay_store_close(&s);
}

static int add_to(int argc, char **argv)
{
    tandem_store *store = NULL;
    tandem_error error = {0};
    tandem_status status = tandem_store_open(&store, argv[1], TANDEM_STORE_WRITE, &error);
    if (status == TANDEM_OK) status = add_rows(store, (const char *const *)argv + 2, argc - 2, &error);
    tandem_store_close(store);
    if (status != TANDEM_OK) (void)fprintf(stderr, "%s\n", error.text);
    return status != TANDEM_OK;
}

int main(int argc, char **argv)
{
    if (argc > 2) return add_to(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_models_costs_change_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
