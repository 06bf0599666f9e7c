/* folder: trace */
/* The engine: timelines worked out by hand, and graphs that it must refuse. */
#include <limits.h>

#include "tandem/advanced/dag_simulator.h"
#include "tests/support/tandem_test.h"

static tandem_dag_simulator *open_good(const tandem_dag *graph)
{
    tandem_dag_simulator *simulator = NULL;
    tandem_error error = {0};
    require_ok(tandem_dag_simulator_open(&simulator, graph, &error), &error);
    return simulator;
}

static void a_message_waits_for_both_ends(void **state)
{
    /* rank 0: compute 5, send; rank 1: compute 9, receive, compute 7. The transfer begins at 9. */
    const int stream[] = {0, 0, 1, 1, 1}, group[] = {-1, 0, -1, 0, -1}, size[] = {2};
    const tandem_dag graph = {
        .n_op = 5, .n_stream = 2, .n_group = 1, .stream = stream, .group = group, .group_size = size};
    const int64_t duration_ns[] = {5, 2, 9, 3, 7};
    int64_t ready_ns[5], end_ns[5], length_ns = 0;
    tandem_dag_simulator *const simulator = open_good(&graph);
    assert_int_equal(tandem_dag_simulator_run(simulator, duration_ns, ready_ns, end_ns, &length_ns, NULL),
                     TANDEM_OK);
    const int64_t ready[] = {0, 5, 0, 9, 12}, end[] = {5, 11, 9, 12, 19};
    assert_memory_equal(ready_ns, ready, sizeof ready);
    assert_memory_equal(end_ns, end, sizeof end);
    assert_int_equal(length_ns, 19);
    /* the same engine, other durations, and only the length */
    const int64_t other_ns[] = {20, 0, 0, 0, 1};
    assert_int_equal(tandem_dag_simulator_run(simulator, other_ns, NULL, NULL, &length_ns, NULL), TANDEM_OK);
    assert_int_equal(length_ns, 21);
    tandem_dag_simulator_close(simulator);
}

static void dependencies_cross_streams(void **state)
{
    /* 3 is on no stream and waits for 0 and 2; 2 is after 1 on its stream, which waits for 3's friend 0.
     * */
    const int stream[] = {0, 1, 1, -1}, group[] = {-1, -1, -1, -1};
    const tandem_dag_edge edge[] = {{0, 3}, {2, 3}, {0, 1}, {0, 3}};
    const tandem_dag graph = {
        .n_op = 4, .n_stream = 2, .n_edge = N_OF(edge), .stream = stream, .group = group, .edge = edge};
    const int64_t duration_ns[] = {10, 1, 2, 4};
    int64_t end_ns[4], length_ns = 0;
    tandem_dag_simulator *const simulator = open_good(&graph);
    assert_int_equal(tandem_dag_simulator_run(simulator, duration_ns, NULL, end_ns, &length_ns, NULL),
                     TANDEM_OK);
    const int64_t end[] = {10, 11, 13, 17};
    assert_memory_equal(end_ns, end, sizeof end);
    tandem_dag_simulator_close(simulator);
}

static void nothing_takes_no_time(void **state)
{
    const tandem_dag empty = {.n_op = 0};
    const int stream[] = {-1}, group[] = {-1};
    /* groups without members */
    const tandem_dag one = {.n_op = 1, .n_group = 3, .stream = stream, .group = group};
    const int64_t duration_ns = 8;
    int64_t length_ns = 77;
    tandem_dag_simulator *simulator = open_good(&empty);
    assert_int_equal(tandem_dag_simulator_run(simulator, NULL, NULL, NULL, &length_ns, NULL), TANDEM_OK);
    assert_int_equal(length_ns, 0);
    tandem_dag_simulator_close(simulator);
    simulator = open_good(&one);
    assert_int_equal(tandem_dag_simulator_run(simulator, &duration_ns, NULL, NULL, &length_ns, NULL),
                     TANDEM_OK);
    assert_int_equal(length_ns, 8);
    tandem_dag_simulator_close(simulator);
    tandem_dag_simulator_close(NULL);
}

static void name_of(char *text, size_t size, const void *context, int op)
{
    (void)snprintf(text, size, "%s%c", (const char *)context, 'A' + op);
}

/* What is wrong with the graph, and words that say so. */
static void refused_dag_simulator(const tandem_dag *graph, const char *const *words, int n_word)
{
    tandem_dag_simulator *const untouched = (tandem_dag_simulator *)(uintptr_t)16, *simulator = untouched;
    tandem_error error = {0};
    assert_int_equal(tandem_dag_simulator_open(&simulator, graph, &error), TANDEM_MALFORMED);
    assert_ptr_equal(simulator, untouched);
    for (int i = 0; i < n_word; i++)
        if (!strstr(error.text, words[i])) fail_msg("'%s' is not said: %s", words[i], error.text);
}

static void graphs_that_lead_nowhere_are_refused(void **state)
{
    const int on_0[] = {0, 0}, on_1[] = {0, 1}, below[] = {0, -2}, alone[] = {-1, -1}, second[] = {-1, 1};
    const tandem_dag_edge after[] = {{0, 1}, {0, 2}}, before[] = {{-1, 0}}, far[] = {{INT_MAX, INT_MIN}};
    const tandem_dag good = {.n_op = 2,
                             .n_stream = 1,
                             .n_group = 1,
                             .stream = on_0,
                             .group = alone,
                             .name = name_of,
                             .context = "op "};
    tandem_dag bad = good;
    bad.stream = on_1;
    refused_dag_simulator(&bad, (const char *const[]){"op B", "stream 1", "0 to 0"}, 3);
    bad.stream = below;
    refused_dag_simulator(&bad, (const char *const[]){"op B", "stream -2"}, 2);
    bad = good;
    bad.group = second;
    refused_dag_simulator(&bad, (const char *const[]){"op B", "group 1", "0 to 0"}, 3);
    bad = good;
    bad.edge = after;
    bad.n_edge = 2;
    refused_dag_simulator(&bad, (const char *const[]){"dependency 1", "op A"}, 2);
    bad.edge = before;
    bad.n_edge = 1;
    refused_dag_simulator(&bad, (const char *const[]){"dependency 0", "op A"}, 2);
    bad.edge = far;
    bad.name = NULL;
    refused_dag_simulator(&bad, (const char *const[]){"dependency 0", "missing"}, 2);
}

static void a_missing_partner_is_named(void **state)
{
    const int stream[] = {0, 1, 2}, group[] = {-1, 0, 1}, two_each[] = {2, 1}, one_each[] = {1, 1},
              both[] = {0, 0, 0};
    tandem_dag graph = {.n_op = 3,
                        .n_stream = 3,
                        .n_group = 2,
                        .stream = stream,
                        .group = group,
                        .group_size = two_each,
                        .name = name_of,
                        .context = "rank "};
    refused_dag_simulator(&graph, (const char *const[]){"rank B", "1 of 2", "its partner is missing"}, 3);
    graph.group = both;
    refused_dag_simulator(&graph, (const char *const[]){"rank A", "3 of 2", "too many"}, 3);
    graph.group_size = one_each;
    graph.n_op = 0;
    refused_dag_simulator(&graph, (const char *const[]){"group 0", "none"}, 2);
}

static void circles_are_named(void **state)
{
    const int stream[] = {0, 0, 1, 1}, alone[] = {-1, -1, -1, -1}, none[] = {-1, -1, -1, -1};
    const tandem_dag_edge to_itself[] = {{3, 3}}, back[] = {{1, 2}, {3, 0}};
    tandem_dag graph = {.n_op = 4,
                        .n_stream = 2,
                        .n_edge = 1,
                        .stream = none,
                        .group = alone,
                        .edge = to_itself,
                        .name = name_of,
                        .context = ""};
    refused_dag_simulator(&graph,
                          (const char *const[]){"1 operators form a dependency cycle", "D, and round"}, 2);
    graph.stream = stream;
    graph.edge = back; /* A B | C D, B → C, D → A */
    graph.n_edge = 2;
    refused_dag_simulator(&graph, (const char *const[]){"4 operators", "A", "B", "C", "D", "and round again"},
                          6);
    /* two ranks that meet in two messages in different orders: the classic deadlock */
    const int crossed[] = {0, 1, 1, 0};
    graph.group = crossed;
    graph.n_group = 2;
    graph.n_edge = 0;
    refused_dag_simulator(&graph, (const char *const[]){"2 operators form a dependency cycle"}, 1);
}

static void long_circles_are_cut(void **state)
{
    enum { N = 2000 };
    static int none[N];
    static tandem_dag_edge edge[N];
    for (int i = 0; i < N; i++) {
        none[i] = -1;
        edge[i] = (tandem_dag_edge){i, (i + 1) % N};
    }
    const tandem_dag graph = {.n_op = N, .n_edge = N, .stream = none, .group = none, .edge = edge};
    refused_dag_simulator(&graph, (const char *const[]){"2000 operators", "…"}, 2);
}

static void durations_out_of_range_are_refused(void **state)
{
    enum { N = 1100 };
    static int none[N];
    static int64_t duration_ns[N];
    for (int i = 0; i < N; i++) none[i] = -1;
    const tandem_dag graph = {.n_op = N, .stream = none, .group = none, .name = name_of, .context = "op "};
    tandem_dag_simulator *const simulator = open_good(&graph);
    int64_t length_ns = -7;
    tandem_error error = {0};
    duration_ns[2] = -1;
    assert_int_equal(tandem_dag_simulator_run(simulator, duration_ns, NULL, NULL, &length_ns, &error),
                     TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "op C takes -1 ns"));
    duration_ns[2] = TANDEM_DAG_MAX_NS + 1;
    assert_int_equal(tandem_dag_simulator_run(simulator, duration_ns, NULL, NULL, &length_ns, &error),
                     TANDEM_MALFORMED);
    duration_ns[2] = INT64_MIN;
    assert_int_equal(tandem_dag_simulator_run(simulator, duration_ns, NULL, NULL, &length_ns, &error),
                     TANDEM_MALFORMED);
    duration_ns[2] = TANDEM_DAG_MAX_NS;
    assert_int_equal(length_ns, -7);
    assert_int_equal(tandem_dag_simulator_run(simulator, duration_ns, NULL, NULL, &length_ns, &error),
                     TANDEM_OK);
    assert_int_equal(length_ns, TANDEM_DAG_MAX_NS);
    for (int i = 0; i < N; i++) duration_ns[i] = TANDEM_DAG_MAX_NS; /* 1100 · 2^53 > 2^63 */
    assert_int_equal(tandem_dag_simulator_run(simulator, duration_ns, NULL, NULL, &length_ns, &error),
                     TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "2^63"));
    tandem_dag_simulator_close(simulator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_waits_for_both_ends),
        cmocka_unit_test(dependencies_cross_streams),
        cmocka_unit_test(nothing_takes_no_time),
        cmocka_unit_test(graphs_that_lead_nowhere_are_refused),
        cmocka_unit_test(a_missing_partner_is_named),
        cmocka_unit_test(circles_are_named),
        cmocka_unit_test(long_circles_are_cut),
        cmocka_unit_test(durations_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
