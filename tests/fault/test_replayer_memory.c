/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* folder: replayer */
/* Every allocation on the way to a replay fails once: NO_MEMORY is said, nothing leaks, nothing is half
 * done; and a run without a memory plan allocates nothing at all. */
#include "replayer/collective.h"
#include "tandem/advanced/zero.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/replay_store.h"
#include "tests/support/tandem_test.h"

static tandem_replayer *const untouched = (tandem_replayer *)(uintptr_t)0x10;

typedef struct bench {
    replay_store profile;
    tandem_graph *graph;
    const tandem_graph *graphs[2];
    tandem_cluster cluster;
} bench;

static int64_t cost_replayer_memory(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
{
    (void)context;
    (void)key;
    *workspace_bytes = 64;
    return 100;
}

static int set_up_replayer_memory(void **state)
{
    static bench b;
    replay_store_open(&b.profile);
    assert_int_equal(tandem_graph_open(&b.graph, "mlp", 4, NULL), TANDEM_OK);
    b.graphs[0] = b.graphs[1] = b.graph;
    b.cluster.n_class = 2;
    b.cluster.classes[0] = replay_class("cpu:avx512", TANDEM_F32, 1, 0);
    b.cluster.classes[1] = replay_class("cpu:avx2", TANDEM_F32, 1, 0);
    for (int c = 0; c < 2; c++) {
        const char *const co_runner[2] = {"", b.cluster.classes[1 - c].device.name};
        for (int contended = 0; contended < 2; contended++)
            replay_store_fill(&b.profile, b.graph, TANDEM_F32, 0, b.cluster.classes[c].device.name,
                              co_runner[contended], cost_replayer_memory, NULL);
        assert_int_equal(tandem_store_put_interference(b.profile.store, b.cluster.classes[c].device.name,
                                                       "cpu:avx2+cpu:avx512 in shared memory",
                                                       "compute_under_comm", 4096, 1.5, 1, NULL),
                         TANDEM_OK);
    }
    for (int loaded = 0; loaded < 2; loaded++)
        replay_store_put_curve(&b.profile, "cpu:avx2+cpu:avx512 in shared memory", loaded, 1000, 500);
    *state = &b;
    return 0;
}

static int tear_down_replayer_memory(void **state)
{
    bench *b = *state;
    tandem_graph_close(b->graph);
    replay_store_close(&b->profile);
    return 0;
}

static void survive_opening(const bench *b, const tandem_graph *const *graphs,
                            tandem_replayer_options options, long least)
{
    long k = 0, n_failed = 0;
    for (int failed = 1; failed; k += k < 100 || test_is_long() ? 1 : 5) {
        const long alive = tandem_allocations_alive();
        tandem_replayer *replayer = untouched;
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status =
            tandem_replayer_open_with(&replayer, &b->cluster, graphs, b->profile.store, &options, &error);
        failed = tandem_allocation_failed();
        n_failed += failed;
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        assert_int_equal(error.status, status);
        if (!failed) tandem_replayer_close(replayer);
        if (failed) assert_ptr_equal(replayer, untouched);
        if (failed) assert_true(error.text[0] != '\0');
        assert_int_equal(tandem_allocations_alive(), alive);
    }
    (void)printf("opening: survived %ld failures\n", n_failed);
    assert_true(k > least);
}

static void opening_survives_replayer_memory(void **state)
{
    const bench *b = *state;
    /* both classes: step program, costs, list and timeline; the wire */
    survive_opening(b, b->graphs, (tandem_replayer_options){0}, 40);
    survive_opening(b, b->graphs, (tandem_replayer_options){.step = {2, TANDEM_RECOMPUTE_SQRT}}, 42);
}

/* Costs at other batches: their graphs, step programs and tables, too. */
static void opening_between_batches_survives(void **state)
{
    bench *b = *state;
    tandem_graph *graph[2] = {NULL, NULL}, *between = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tandem_graph_open(&graph[i], "mlp", i ? 12 : 6, NULL), TANDEM_OK);
        for (int c = 0; c < 2; c++)
            for (int contended = 0; contended < 2; contended++)
                replay_store_fill(&b->profile, graph[i], TANDEM_F32, 0, b->cluster.classes[c].device.name,
                                  contended ? b->cluster.classes[1 - c].device.name : "",
                                  cost_replayer_memory, NULL);
    }
    assert_int_equal(tandem_graph_open(&between, "mlp", 8, NULL), TANDEM_OK);
    const tandem_graph *const graphs[2] = {between, between};
    survive_opening(b, graphs, (tandem_replayer_options){0}, 200);
    tandem_graph_close(between);
    for (int i = 0; i < 2; i++) tandem_graph_close(graph[i]);
}

/* Another model, all of whose times are fitted to the first one's. */
static void opening_with_predictions_survives(void **state)
{
    const bench *b = *state;
    tandem_graph *other = NULL;
    assert_int_equal(tandem_graph_open(&other, "mlp:width=40,depth=1", 3, NULL), TANDEM_OK);
    const tandem_graph *const graphs[2] = {other, other};
    survive_opening(b, graphs, (tandem_replayer_options){.predict = 1}, 100);
    tandem_graph_close(other);
}

/* The memory of a plan and its timeline, when the one allocation of each fails. */
static void looking_at_memory_survives(void **state)
{
    bench *b = *state;
    tandem_replayer *replayer = NULL;
    tandem_memory_row row[256];
    tandem_memory memory = {.peak = 7};
    assert_int_equal(tandem_replayer_open(&replayer, &b->cluster, b->graphs, b->profile.store, 0, NULL),
                     TANDEM_OK);
    const tandem_step *step = tandem_replayer_step(replayer, 0);
    assert_in_range(step->n_task, 1, 256);
    for (int fails = 1; fails >= 0; fails--) {
        const tandem_status wanted = fails ? TANDEM_NO_MEMORY : TANDEM_OK;
        row[0].bytes[0] = 7;
        tandem_fail_allocation_after(fails ? 0 : -1);
        assert_int_equal(tandem_replayer_plan_memory(replayer, 0, &memory, NULL), wanted);
        tandem_fail_allocation_after(fails ? 0 : -1);
        assert_int_equal(tandem_memory_timeline(row, step, tandem_replayer_workspace(replayer, 0), NULL),
                         wanted);
        tandem_fail_allocation_after(-1);
        assert_true((memory.peak == 7) == fails && (row[0].bytes[0] == 7) == fails);
    }
    tandem_replayer_close(replayer);
}

static void running_allocates_nothing_without_memory(void **state)
{
    bench *b = *state;
    tandem_replayer *replayer = NULL;
    tandem_replay replay = {0}, after = {0};
    assert_int_equal(tandem_replayer_open(&replayer, &b->cluster, b->graphs, b->profile.store, 0, NULL),
                     TANDEM_OK);
    for (int i = 0; i < b->graph->n_op; i++) {
        if (!tandem_op_row_get(b->graph->op[i].kind)->precisions) continue;
        tandem_fail_allocation_after(0);
        tandem_replayer_set(replayer, 1, i, TANDEM_PRECISION_INT8);
        assert_int_equal(tandem_replayer_run(replayer, &replay, 0, NULL), TANDEM_OK);
        assert_int_equal(tandem_replayer_run(replayer, &replay, TANDEM_REPLAY_EVENTS, NULL), TANDEM_OK);
        assert_false(tandem_allocation_failed());
        tandem_fail_allocation_after(-1);
    }
    after = replay;
    long k = 0;
    for (tandem_status status = TANDEM_NO_MEMORY; status != TANDEM_OK; k++) {
        const long alive = tandem_allocations_alive();
        tandem_fail_allocation_after(k);
        status = tandem_replayer_run(replayer, &after, TANDEM_REPLAY_MEMORY, NULL);
        assert_int_equal(status, tandem_allocation_failed() ? TANDEM_NO_MEMORY : TANDEM_OK);
        tandem_fail_allocation_after(-1);
        assert_int_equal(tandem_allocations_alive(), alive);
        if (status != TANDEM_OK) assert_memory_equal(&after, &replay, sizeof after);
    }
    assert_true(k > 2); /* there was something to survive */
    assert_int_equal(after.step_ns, replay.step_ns);
    for (int c = 0; c < 2; c++)
        assert_true(after.classes[c].peak_bytes > 0 && replay.classes[c].peak_bytes == 0);
    tandem_replayer_close(replayer);
}

/* What a task takes changes no memory: it is not planned again. */
static void another_time_plans_no_memory(void **state)
{
    bench *b = *state;
    tandem_replayer *replayer = NULL;
    tandem_replay before, after;
    assert_int_equal(tandem_replayer_open(&replayer, &b->cluster, b->graphs, b->profile.store, 0, NULL),
                     TANDEM_OK);
    assert_int_equal(tandem_replayer_run(replayer, &before, TANDEM_REPLAY_MEMORY, NULL), TANDEM_OK);
    const tandem_step *step = tandem_replayer_step(replayer, 0);
    for (int t = 0; t < step->n_task; t++) {
        if (!step->task[t].active) continue;
        tandem_fail_allocation_after(0);
        for (int contended = 0; contended < 2; contended++)
            tandem_replayer_set_variant_ns(replayer, 0, t, step->task[t].variant, contended, 1000 + t);
        assert_int_equal(tandem_replayer_run(replayer, &after, TANDEM_REPLAY_MEMORY, NULL), TANDEM_OK);
        assert_false(tandem_allocation_failed());
        tandem_fail_allocation_after(-1);
        for (int c = 0; c < 2; c++) assert_true(after.classes[c].peak_bytes == before.classes[c].peak_bytes);
    }
    assert_int_not_equal(after.step_ns, before.step_ns);
    tandem_replayer_close(replayer);
}

/* The links of a cluster and their messages; every rank by itself in the general engine. */
static void opening_a_topology_survives(void **state)
{
    (void)state;
    tandem_cluster cluster;
    assert_int_equal(tandem_cluster_parse(&cluster, "5*a100@2 + 3*v100 node=1GB/s,1us net=1GB/s,1us", NULL),
                     TANDEM_OK);
    long n_open = 0;
    for (tandem_status status = TANDEM_NO_MEMORY; status != TANDEM_OK; n_open++) {
        const long alive = tandem_allocations_alive();
        tandem_topology *topology = NULL;
        tandem_fail_allocation_after(n_open);
        status = tandem_topology_open(&topology, &cluster, TANDEM_AUTO, NULL);
        assert_int_equal(status, tandem_allocation_failed() ? TANDEM_NO_MEMORY : TANDEM_OK);
        tandem_fail_allocation_after(-1);
        tandem_topology_close(topology);
        assert_int_equal(tandem_allocations_alive(), alive);
    }
    assert_true(n_open > 6);
}

static tandem_status draw_some(tandem_replayer *replayer, tandem_error *error)
{
    const tandem_monte_carlo_options options = {.n_simulation = 3, .spread = 0.1};
    tandem_monte_carlo noise = {.n_rank = -7};
    const tandem_status status = tandem_replayer_monte_carlo(&noise, replayer, &options, error);
    assert_int_equal(noise.n_rank, status == TANDEM_OK ? 2 : -7);
    return status;
}

static tandem_status share_all(tandem_replayer *replayer, tandem_error *error)
{
    tandem_zero zero = {.n_gather = -7};
    const tandem_status status = tandem_replayer_zero(&zero, replayer, &(tandem_sharding){.stage = 3}, error);
    assert_int_equal(zero.n_gather != -7, status == TANDEM_OK);
    return status;
}

static void survive_replays(const tandem_cluster *cluster, const bench *b,
                            tandem_status (*replay)(tandem_replayer *replayer, tandem_error *error))
{
    tandem_replayer *replayer = NULL;
    assert_int_equal(tandem_replayer_open(&replayer, cluster, b->graphs, b->profile.store, 0, NULL),
                     TANDEM_OK);
    long k = 0;
    for (tandem_status status = TANDEM_NO_MEMORY; status != TANDEM_OK; k++) {
        const long alive = tandem_allocations_alive();
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        status = replay(replayer, &error);
        assert_int_equal(status, tandem_allocation_failed() ? TANDEM_NO_MEMORY : TANDEM_OK);
        assert_int_equal(error.status, status);
        tandem_fail_allocation_after(-1);
        assert_int_equal(tandem_allocations_alive(), alive);
    }
    assert_true(k > 1);
    tandem_replayer_close(replayer);
}

/* Over measured curves and over links. */
static void drawing_and_sharing_survive(void **state)
{
    const bench *b = *state;
    tandem_cluster linked = {.n_class = 1, .link_bytes_per_s = 1e9};
    linked.classes[0] = replay_class("cpu:avx512", TANDEM_F32, 2, 1);
    survive_replays(&b->cluster, b, draw_some);
    survive_replays(&b->cluster, b, share_all);
    survive_replays(&linked, b, draw_some);
    survive_replays(&linked, b, share_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_survives_replayer_memory),
        cmocka_unit_test(looking_at_memory_survives),
        cmocka_unit_test(opening_between_batches_survives),
        cmocka_unit_test(opening_with_predictions_survives),
        cmocka_unit_test(running_allocates_nothing_without_memory),
        cmocka_unit_test(another_time_plans_no_memory),
        cmocka_unit_test(opening_a_topology_survives),
        cmocka_unit_test(drawing_and_sharing_survive),
    };
    return cmocka_run_group_tests_name("replayer: memory runs out", tests, set_up_replayer_memory,
                                       tear_down_replayer_memory);
}
