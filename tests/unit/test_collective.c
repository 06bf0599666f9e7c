/* folder: replayer */
/* Times of collectives, by hand. */
#include "replayer/collective.h"
#include "tests/support/tandem_test.h"

static tandem_cluster parse_collective(const char *text)
{
    tandem_cluster cluster;
    tandem_error error = {0};
    require_ok(tandem_cluster_parse(&cluster, text, &error), &error);
    return cluster;
}

static double time_of(const char *text, tandem_collective_algorithm algorithm, tandem_collective collective,
                      uint64_t bytes)
{
    const tandem_cluster cluster = parse_collective(text);
    tandem_topology *topology = NULL;
    tandem_error error = {0};
    require_ok(tandem_topology_open(&topology, &cluster, algorithm, &error), &error);
    const double ns = tandem_collective_ns(topology, collective, bytes, NULL);
    tandem_topology_close(topology);
    return ns;
}

typedef struct example {
    const char *cluster;
    tandem_collective collective;
    uint64_t bytes;
    double ns;
} example;

static void check_collective(tandem_collective_algorithm algorithm, const example *one, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double ns = time_of(one[i].cluster, algorithm, one[i].collective, one[i].bytes);
        if (fabs(ns - one[i].ns) > 1e-6)
            fail_msg("example %zu of %s: %.9g ns, not %.9g", i, tandem_collective_algorithm_name(algorithm),
                     ns, one[i].ns);
    }
}
#define CHECK(algorithm, examples)                                                                           \
    check_collective(algorithm, examples, sizeof(examples) / sizeof *(examples))

/* net: 1 ns a byte and 50 ns; node: a tenth of a ns and 20 ns; link: a hundredth and 10 ns. */
#define NET " net=1GB/s,50ns"
#define NODE " node=10GB/s,20ns"
#define LINK " link=100GB/s,10ns"

static void rings_go_at_the_rate_of_their_slowest_link(void **state)
{
    static const example examples[] = {
        {"2*t4@1" NET, TANDEM_ALL_REDUCE, 1000, 2 * (50 + 500)},
        {"4*t4@1" NET, TANDEM_ALL_REDUCE, 1000, 6 * (50 + 250)},
        {"3*t4@1" NET, TANDEM_ALL_REDUCE, 900, 4 * (50 + 300)},
        {"4*t4@1" NET, TANDEM_REDUCE_SCATTER, 1000, 3 * (50 + 250)},
        {"4*t4@1" NET, TANDEM_ALL_GATHER, 1000, 3 * (50 + 250)},
        {"4*t4@1" NET, TANDEM_BROADCAST, 1000, 6 * (50 + 250)},
        {"4*t4@2" NODE NET, TANDEM_ALL_REDUCE, 1000, 6 * (50 + 250)}, /* one message out of each node */
        {"4*t4" NODE NET, TANDEM_ALL_REDUCE, 1000, 6 * (20 + 25)},    /* one node */
        {"4*t4" NODE, TANDEM_ALL_REDUCE, 1000, 6 * (20 + 25)},
        {"4*t4" LINK NODE, TANDEM_ALL_REDUCE, 1000, 6 * (10 + 2.5)},
        {"2*t4" LINK " + 2*v100" NODE, TANDEM_ALL_REDUCE, 1000, 6 * (20 + 25)}, /* from class to class */
        {"4*t4" NET, TANDEM_ALL_REDUCE, 1000, 6 * (50 + 250)},      /* everything when no other is given */
        {"2*t4 node=1kB/s,0ns" NET, TANDEM_ALL_REDUCE, 2, 2 * 1e6}, /* a node may be slower than the net */
        /* a straggler stays on its node */
        {"4*t4@4 slow=1.5@rank2" LINK NET, TANDEM_ALL_REDUCE, 1000, 6 * (10 + 2.5)},
        {"t4", TANDEM_ALL_REDUCE, 1000, 0},
    };
    CHECK(TANDEM_RING, examples);
}

static void halving_sends_the_largest_part_to_the_neighbour(void **state)
{
    static const example examples[] = {
        {"2*t4@1" NET, TANDEM_ALL_REDUCE, 1000, 2 * (50 + 500)},
        {"4*t4@1" NET, TANDEM_ALL_REDUCE, 1000, 2 * (50 + 500 + 50 + 250)},
        {"4*t4@1" NET, TANDEM_REDUCE_SCATTER, 1000, 50 + 500 + 50 + 250},
        {"4*t4@1" NET, TANDEM_BROADCAST, 1000, 2 * (50 + 500 + 50 + 250)},
        /* 3 ranks: one gives its bytes away and gets the sum back; or its third */
        {"3*t4@1" NET, TANDEM_ALL_REDUCE, 900, 2 * (50 + 900) + 2 * (50 + 450)},
        {"3*t4@1" NET, TANDEM_REDUCE_SCATTER, 900, (50 + 900) + (50 + 450) + (50 + 300)},
        {"3*t4@1" NET, TANDEM_ALL_GATHER, 900, (50 + 900) + (50 + 450) + (50 + 300)},
        {"3*t4@1" NET, TANDEM_BROADCAST, 900, (50 + 450) + (50 + 450) + (50 + 900)},
        /* halves within nodes; quarters between nodes, of both ranks over the one connection */
        {"4*t4@2" NODE NET, TANDEM_ALL_REDUCE, 1000, 2 * (20 + 50) + 2 * (50 + 2 * 250)},
        {"8*t4@4" LINK NODE NET, TANDEM_ALL_REDUCE, 1000, 2 * (10 + 5) + 2 * (10 + 2.5) + 2 * (50 + 4 * 125)},
        {"t4", TANDEM_BROADCAST, 1000, 0},
    };
    CHECK(TANDEM_HALVING_DOUBLING, examples);
}

/* The best number of blocks is found by trying all. */
static double trees(int n_pass, int height, double latency_ns, double ns_per_byte, double bytes)
{
    double best = INFINITY;
    for (int k = 1; k <= bytes / 2; k++)
        best = fmin(best, n_pass * 2.0 * (height + k - 1) * (latency_ns + ns_per_byte * bytes / 2 / k));
    return best;
}

/* On nodes of their own no rank sends or receives two blocks in a step, or the connection would be shared. */
static void two_trees_keep_every_rank_at_one_message_a_step(void **state)
{
    char cluster[64];
    int height = 0;
    for (int n = 2; n < 130; n++) {
        while (1 << height < n) height++;
        (void)snprintf(cluster, sizeof cluster, "%d*t4@1" NET, n);
        for (uint64_t bytes = 8; bytes < 100000; bytes = bytes * 9 + 1) {
            const example examples[] = {
                {cluster, TANDEM_BROADCAST, bytes, trees(1, height, 50, 1, (double)bytes)},
                {cluster, TANDEM_ALL_REDUCE, bytes, trees(2, height, 50, 1, (double)bytes)}};
            CHECK(TANDEM_TREE, examples);
        }
    }
    static const example parts[] = {
        /* both halves to rank 0, one back */
        {"2*t4@1" NET, TANDEM_REDUCE_SCATTER, 8, 2 * (50 + 4) + (50 + 4)},
        {"2*t4@1" NET, TANDEM_ALL_GATHER, 8, 2 * (50 + 4) + (50 + 4)},
        {"2*t4" NODE NET, TANDEM_BROADCAST, 40, 2 * (20 + 2)},
        {"t4", TANDEM_ALL_REDUCE, 8, 0},
    };
    CHECK(TANDEM_TREE, parts);
}

static void hierarchies_cross_between_nodes_once(void **state)
{
    static const example examples[] = {
        /* in the node, twice between two nodes, in the node */
        {"4*t4@2" NODE NET, TANDEM_ALL_REDUCE, 1000, 2 * (20 + 50) + 2 * (50 + 500)},
        {"4*t4@2" NODE NET, TANDEM_REDUCE_SCATTER, 1000, (20 + 50) + (50 + 500)},
        {"4*t4@2" NODE NET, TANDEM_ALL_GATHER, 1000, (20 + 50) + (50 + 500)},
        {"4*t4@2" NODE NET, TANDEM_BROADCAST, 1000, 2 * (20 + 50) + 2 * (50 + 500)},
        {"8*t4@4" LINK NODE NET, TANDEM_ALL_REDUCE, 1000, 2 * 3 * (10 + 2.5) + 2 * (50 + 500)},
        /* nodes of 2 and of 1: the larger one decides; three nodes */
        {"3*t4@2 + v100@1" NODE NET, TANDEM_ALL_REDUCE, 900, 2 * (20 + 45) + 4 * (50 + 300)},
        /* the slower of two nodes decides */
        {"2*t4@2" LINK " + 2*v100@2" NODE NET, TANDEM_ALL_REDUCE, 1000, 2 * (20 + 50) + 2 * (50 + 500)},
        {"4*t4@1" NET, TANDEM_ALL_REDUCE, 1000, 6 * (50 + 250)},
        {"4*t4" NODE, TANDEM_ALL_REDUCE, 1000, 6 * (20 + 25)},
        {"t4", TANDEM_ALL_REDUCE, 1000, 0},
    };
    CHECK(TANDEM_HIERARCHICAL, examples);
}

static void auto_names_the_fastest(void **state)
{
    static const struct {
        const char *cluster;
        uint64_t bytes;
        tandem_collective_algorithm fastest;
    } cases[] = {
        {"16*t4@1" NET, 16, TANDEM_HALVING_DOUBLING}, /* latency counts: 8 messages, not 30 */
        /* bytes count, and a rank too many costs halving all of them twice */
        {"17*t4@1" NET, 1 << 24, TANDEM_RING},
        {"24*t4@8" LINK NET, 1 << 24, TANDEM_HIERARCHICAL},
        {"513*t4@1" NET, 5000, TANDEM_TREE},
        {"t4", 1000, TANDEM_RING},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tandem_cluster cluster = parse_collective(cases[i].cluster);
        tandem_topology *topology = NULL;
        tandem_collective_algorithm used = TANDEM_AUTO;
        assert_int_equal(tandem_topology_open(&topology, &cluster, TANDEM_AUTO, NULL), TANDEM_OK);
        const double ns = tandem_collective_ns(topology, TANDEM_ALL_REDUCE, cases[i].bytes, &used);
        tandem_topology_close(topology);
        if (used != cases[i].fastest) fail_msg("case %zu: %s", i, tandem_collective_algorithm_name(used));
        assert_true(ns == time_of(cases[i].cluster, used, TANDEM_ALL_REDUCE, cases[i].bytes));
    }
}

static void a_link_that_lacks_is_named(void **state)
{
    static const struct {
        const char *cluster, *says;
    } cases[] = {
        {"2*t4@1", "'2*t4@1' names no link between its nodes; add net="},
        {"4*t4@2" NODE, "between its nodes"},
        {"4*t4@2" LINK, "between its nodes"},
        {"2*t4", "within a node; add node="},
        {"t4 + v100", "within a node"},
        {"2*t4" LINK " + v100", "within a node"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tandem_cluster cluster = parse_collective(cases[i].cluster);
        tandem_topology *topology = NULL;
        tandem_error error = {0};
        assert_int_equal(tandem_topology_open(&topology, &cluster, TANDEM_RING, &error), TANDEM_MISSING);
        assert_null(topology);
        if (!strstr(error.text, cases[i].says)) fail_msg("'%s'", error.text);
    }
}

static void algorithms_are_found_by_name(void **state)
{
    tandem_collective_algorithm algorithm = TANDEM_TREE;
    tandem_error error = {0};
    for (int k = 0; k <= TANDEM_AUTO; k++) {
        const char *const name = tandem_collective_algorithm_name((tandem_collective_algorithm)k);
        assert_int_equal(tandem_collective_algorithm_find(&algorithm, name, NULL), TANDEM_OK);
        assert_int_equal(algorithm, k);
    }
    assert_int_equal(tandem_collective_algorithm_find(&algorithm, "rign", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'ring'?"));
    assert_int_equal(tandem_collective_algorithm_find(&algorithm, NULL, &error), TANDEM_UNKNOWN_NAME);
    assert_int_equal(algorithm, TANDEM_AUTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_go_at_the_rate_of_their_slowest_link),
        cmocka_unit_test(halving_sends_the_largest_part_to_the_neighbour),
        cmocka_unit_test(two_trees_keep_every_rank_at_one_message_a_step),
        cmocka_unit_test(hierarchies_cross_between_nodes_once),
        cmocka_unit_test(auto_names_the_fastest),
        cmocka_unit_test(a_link_that_lacks_is_named),
        cmocka_unit_test(algorithms_are_found_by_name),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
