/* folder: trace */
/* Laws of the engine on random graphs: it agrees with a relaxation that knows nothing of order, longer
 * durations never shorten anything, and the order of dependencies does not matter. */
#include "base/philox.h"
#include "tandem/advanced/dag_simulator.h"
#include "tests/support/tandem_test.h"

enum { GRAPHS = 300, MAX_OP = 60, MAX_EDGE = 120, MAX_STREAM = 6, MAX_GROUP = 8 };

typedef struct drawn {
    tandem_dag graph;
    int stream[MAX_OP], group[MAX_OP];
    tandem_dag_edge edge[MAX_EDGE];
    int64_t duration_ns[MAX_OP];
    uint64_t seed;
    uint32_t n_draw;
} drawn;

static int below_dag_simulator(drawn *d, int n)
{
    const uint32_t counter[4] = {d->n_draw++, 0, 0, 0};
    return (int)((uint64_t)tandem_philox(counter, d->seed).word[0] * (uint64_t)n >> 32);
}

/* Edges lead forwards and a group's members follow one another, so that there are no circles. */
static void draw_graph(drawn *d, uint64_t seed)
{
    *d = (drawn){.seed = seed};
    const int n = 1 + below_dag_simulator(d, MAX_OP);
    d->graph = (tandem_dag){.n_op = n,
                            .n_stream = 1 + below_dag_simulator(d, MAX_STREAM),
                            .n_group = MAX_GROUP,
                            .stream = d->stream,
                            .group = d->group,
                            .edge = d->edge};
    int group = 0, left = 0;
    for (int i = 0; i < n; i++) {
        d->duration_ns[i] = below_dag_simulator(d, 4) ? below_dag_simulator(d, 1000) : 0;
        d->stream[i] = left ? -1 : below_dag_simulator(d, d->graph.n_stream + 1) - 1;
        if (!left && group < MAX_GROUP && below_dag_simulator(d, 3) == 0)
            left = 1 + below_dag_simulator(d, 4);
        d->group[i] = left ? group : -1;
        if (left && --left == 0) group++;
    }
    for (int k = n > 1 ? below_dag_simulator(d, MAX_EDGE) : 0; k > 0; k--) {
        const int before = below_dag_simulator(d, n - 1),
                  after = before + 1 + below_dag_simulator(d, n - 1 - before);
        if (d->group[before] < 0 || d->group[before] != d->group[after])
            d->edge[d->graph.n_edge++] = (tandem_dag_edge){before, after};
    }
}

/* Ends grow until all rules hold. */
static void relax(const drawn *d, const int64_t *duration_ns, int64_t *ready_ns, int64_t *end_ns)
{
    const int n = d->graph.n_op;
    memset(ready_ns, 0, MAX_OP * sizeof *ready_ns);
    memset(end_ns, 0, MAX_OP * sizeof *end_ns);
    for (int changed = 1; changed;) {
        changed = 0;
        for (int i = 0; i < n; i++) {
            int64_t ready = 0, begin = 0;
            for (int k = 0; k < d->graph.n_edge; k++)
                if (d->edge[k].after == i && end_ns[d->edge[k].before] > ready)
                    ready = end_ns[d->edge[k].before];
            for (int k = 0; k < i; k++)
                if (d->stream[i] >= 0 && d->stream[k] == d->stream[i] && end_ns[k] > ready) ready = end_ns[k];
            begin = ready;
            for (int k = 0; k < n; k++)
                if (d->group[i] >= 0 && d->group[k] == d->group[i] && ready_ns[k] > begin)
                    begin = ready_ns[k];
            if (ready != ready_ns[i] || begin + duration_ns[i] != end_ns[i]) changed = 1;
            ready_ns[i] = ready;
            end_ns[i] = begin + duration_ns[i];
        }
    }
}

static void check_graph_dag_simulator(drawn *d)
{
    tandem_dag_simulator *simulator = NULL;
    tandem_error error = {0};
    int64_t ready_ns[MAX_OP], end_ns[MAX_OP], expected_ready[MAX_OP], expected_end[MAX_OP], length_ns = -1,
                                                                                            longest = 0;
    const size_t bytes = (size_t)d->graph.n_op * sizeof(int64_t);
    if (tandem_dag_simulator_open(&simulator, &d->graph, &error) != TANDEM_OK)
        fail_msg("seed %llu: %s", (unsigned long long)d->seed, error.text);
    relax(d, d->duration_ns, expected_ready, expected_end);
    assert_int_equal(
        tandem_dag_simulator_run(simulator, d->duration_ns, ready_ns, end_ns, &length_ns, &error), TANDEM_OK);
    for (int i = 0; i < d->graph.n_op; i++)
        if (expected_end[i] > longest) longest = expected_end[i];
    if (memcmp(ready_ns, expected_ready, bytes) != 0 || memcmp(end_ns, expected_end, bytes) != 0 ||
        length_ns != longest)
        fail_msg("seed %llu: other times", (unsigned long long)d->seed);

    const int longer = below_dag_simulator(d, d->graph.n_op);
    int64_t later_ns[MAX_OP], later = 0;
    d->duration_ns[longer] += 500;
    assert_int_equal(tandem_dag_simulator_run(simulator, d->duration_ns, NULL, later_ns, &later, &error),
                     TANDEM_OK);
    for (int i = 0; i < d->graph.n_op; i++)
        if (later_ns[i] < end_ns[i]) fail_msg("seed %llu: %d ends earlier", (unsigned long long)d->seed, i);
    assert_true(later - length_ns <= 500);
    tandem_dag_simulator_close(simulator);

    for (int k = 0; k < d->graph.n_edge / 2; k++) { /* the same edges, backwards */
        const tandem_dag_edge edge = d->edge[k];
        d->edge[k] = d->edge[d->graph.n_edge - 1 - k];
        d->edge[d->graph.n_edge - 1 - k] = edge;
    }
    assert_int_equal(tandem_dag_simulator_open(&simulator, &d->graph, &error), TANDEM_OK);
    assert_int_equal(tandem_dag_simulator_run(simulator, d->duration_ns, NULL, end_ns, &length_ns, &error),
                     TANDEM_OK);
    assert_memory_equal(end_ns, later_ns, bytes);
    tandem_dag_simulator_close(simulator);
}

static void it_agrees_with_relaxation(void **state)
{
    const char *const given = getenv("TANDEM_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < GRAPHS; i++) {
        drawn d;
        draw_graph(&d, seed * GRAPHS + (uint64_t)i);
        check_graph_dag_simulator(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_agrees_with_relaxation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
