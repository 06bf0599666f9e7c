/* folder: replayer */
/* Laws of collectives on random clusters: lower bounds, better links, order of classes, sums of parts. */
#include "base/philox.h"
#include "replayer/collective.h"
#include "tests/support/tandem_test.h"

static const uint64_t seed = 20251;
enum { CASES = 600, MAX_CLASSES = 5, MAX_RANKS = 24 };
static const double rounding = 1e-9; /* relative */

typedef struct chance {
    uint32_t series, drawn;
} chance;

static uint32_t draw_collective(chance *c, uint32_t below)
{
    const uint32_t counter[4] = {c->drawn++, c->series, 0, 80};
    return tandem_philox(counter, seed).word[0] % below;
}

static tandem_link draw_link_collective(chance *c)
{
    return (tandem_link){1e6 * (double)(1 + draw_collective(c, 100000)), draw_collective(c, 20000)};
}

static tandem_cluster draw_cluster(chance *c)
{
    tandem_cluster cluster = {.n_class = 1 + (int)draw_collective(c, MAX_CLASSES)};
    for (int k = 0; k < cluster.n_class; k++) {
        tandem_cluster_class *const class = &cluster.classes[k];
        (void)snprintf(class->device.name, sizeof class->device.name, "card%d", k);
        class->n_rank = 1 + (int)draw_collective(c, MAX_RANKS);
        class->per_node = (int)draw_collective(c, (uint32_t) class->n_rank + 1);
        if (draw_collective(c, 2)) class->link = draw_link_collective(c);
    }
    if (draw_collective(c, 2)) cluster.node = draw_link_collective(c);
    const tandem_link net = draw_link_collective(c);
    cluster.link_bytes_per_s = net.bytes_per_s;
    cluster.link_latency_ns = net.latency_ns;
    return cluster;
}

static uint64_t draw_bytes(chance *c) { return draw_collective(c, 1u << (1 + draw_collective(c, 30))); }

typedef struct times {
    double ns[TANDEM_N_COLLECTIVE_ALGORITHM + 1][TANDEM_N_COLLECTIVE];
} times;

static times times_of(const tandem_cluster *cluster, uint64_t bytes)
{
    times t;
    for (int a = 0; a <= TANDEM_N_COLLECTIVE_ALGORITHM; a++) {
        tandem_topology *topology = NULL;
        tandem_error error = {0};
        require_ok(tandem_topology_open(&topology, cluster, (tandem_collective_algorithm)a, &error), &error);
        for (int k = 0; k < TANDEM_N_COLLECTIVE; k++) {
            t.ns[a][k] = tandem_collective_ns(topology, (tandem_collective)k, bytes, NULL);
            assert_true(isfinite(t.ns[a][k]) && t.ns[a][k] >= 0);
        }
        tandem_topology_close(topology);
    }
    return t;
}

static int at_most(double a, double b) { return a <= b * (1 + rounding) + rounding; }
static int equal(double a, double b) { return at_most(a, b) && at_most(b, a); }

/* Whether every time of `a` is at most `factor` times that of `b`, or just that. */
static void compare_collective(const times *a, const times *b, double factor, int (*holds)(double, double),
                               uint32_t series)
{
    for (int k = 0; k <= TANDEM_N_COLLECTIVE_ALGORITHM; k++)
        for (int c = 0; c < TANDEM_N_COLLECTIVE; c++)
            if (!holds(a->ns[k][c], factor * b->ns[k][c]))
                fail_msg("series %u, %s, collective %d: %.17g and %.17g ns", series,
                         tandem_collective_algorithm_name((tandem_collective_algorithm)k), c, a->ns[k][c],
                         factor * b->ns[k][c]);
}

static void one_rank_exchanges_nothing(void **state)
{
    const tandem_cluster cluster = {.n_class = 1, .classes[0] = {.n_rank = 1}}; /* nor needs a link */
    const times t = times_of(&cluster, 12345), nothing = {0};
    compare_collective(&t, &nothing, 1, equal, 0);
}

static int n_node_of(const tandem_cluster *cluster)
{
    int n = 0, shared = 0;
    for (int c = 0; c < cluster->n_class; c++) {
        const tandem_cluster_class *const class = &cluster->classes[c];
        shared |= class->per_node == 0;
        if (class->per_node) n += (class->n_rank + class->per_node - 1) / class->per_node;
    }
    return n + shared;
}

static double fastest_of(const tandem_cluster *cluster)
{
    double most = fmax(cluster->link_bytes_per_s, cluster->node.bytes_per_s);
    for (int c = 0; c < cluster->n_class; c++) most = fmax(most, cluster->classes[c].link.bytes_per_s);
    return most;
}

/* Each of n that reduce M bytes and have the sum in the end sends 2(n−1)/n·M at least on an average, in parts
 * half of that (Patarasuk, Yuan 2009); so does each rank over its links, and each node over its connection.
 * */
static void nobody_beats_bytes_over_bandwidth(void **state)
{
    for (uint32_t series = 0; series < CASES; series++) {
        chance c = {.series = series};
        const tandem_cluster cluster = draw_cluster(&c);
        const double bytes = (double)draw_bytes(&c), n = tandem_cluster_n_rank(&cluster),
                     m = n_node_of(&cluster);
        const times t = times_of(&cluster, (uint64_t)bytes);
        const double rank_ns = (n - 1) / n * bytes / fastest_of(&cluster) * 1e9;
        const double node_ns = (m - 1) / m * bytes / cluster.link_bytes_per_s * 1e9;
        for (int a = 0; a <= TANDEM_N_COLLECTIVE_ALGORITHM; a++)
            for (int k = 0; k < TANDEM_N_COLLECTIVE; k++) {
                const double passes = k == TANDEM_ALL_REDUCE ? 2 : 1;
                assert_true(at_most(passes * fmax(rank_ns, node_ns), t.ns[a][k]));
            }
    }
}

static void better_links_never_hurt_collective(void **state)
{
    for (uint32_t series = 0; series < CASES; series++) {
        chance c = {.series = series};
        tandem_cluster cluster = draw_cluster(&c);
        const uint64_t bytes = draw_bytes(&c);
        const times before = times_of(&cluster, bytes);
        const double factor = 1 + draw_collective(&c, 100) / 20.0;
        if (draw_collective(&c, 2)) cluster.link_bytes_per_s *= factor;
        if (draw_collective(&c, 2)) cluster.link_latency_ns /= 2;
        if (draw_collective(&c, 2)) cluster.node.bytes_per_s *= factor;
        if (draw_collective(&c, 2)) cluster.node.latency_ns /= 3;
        for (int k = 0; k < cluster.n_class; k++)
            if (draw_collective(&c, 2)) cluster.classes[k].link.bytes_per_s *= factor;
        const times after = times_of(&cluster, bytes);
        compare_collective(&after, &before, 1, at_most, series);
    }
}

static void fewer_bytes_take_no_longer(void **state)
{
    for (uint32_t series = 0; series < CASES; series++) {
        chance c = {.series = series};
        const tandem_cluster cluster = draw_cluster(&c);
        const uint64_t bytes = draw_bytes(&c);
        const times more = times_of(&cluster, bytes), fewer = times_of(&cluster, bytes - bytes / 3);
        compare_collective(&fewer, &more, 1, at_most, series);
    }
}

static void links_k_times_as_slow_take_k_times_as_long(void **state)
{
    for (uint32_t series = 0; series < CASES; series++) {
        chance c = {.series = series};
        tandem_cluster cluster = draw_cluster(&c);
        const uint64_t bytes = draw_bytes(&c);
        const int k = 2 + (int)draw_collective(&c, 9);
        const times before = times_of(&cluster, bytes);
        cluster.link_bytes_per_s /= k;
        cluster.link_latency_ns *= k;
        cluster.node = (tandem_link){cluster.node.bytes_per_s / k, cluster.node.latency_ns * k};
        for (int m = 0; m < cluster.n_class; m++)
            cluster.classes[m].link = (tandem_link){cluster.classes[m].link.bytes_per_s / k,
                                                    cluster.classes[m].link.latency_ns * k};
        const times after = times_of(&cluster, bytes);
        compare_collective(&after, &before, k, equal, series);
    }
}

static void the_order_of_classes_changes_nothing_collective(void **state)
{
    for (uint32_t series = 0; series < CASES; series++) {
        chance c = {.series = series};
        tandem_cluster cluster = draw_cluster(&c), turned = cluster;
        const uint64_t bytes = draw_bytes(&c);
        for (int k = 0; k < cluster.n_class; k++)
            turned.classes[k] = cluster.classes[cluster.n_class - 1 - k];
        const times a = times_of(&cluster, bytes), b = times_of(&turned, bytes);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

static void a_class_is_as_many_classes_as_it_has_ranks_collective(void **state)
{
    for (uint32_t series = 0; series < CASES; series++) {
        chance c = {.series = series};
        tandem_cluster cluster = draw_cluster(&c), apart = {0};
        const uint64_t bytes = draw_bytes(&c);
        int n = 0;
        for (int k = 0; k < cluster.n_class; k++) {
            tandem_cluster_class *const class = &cluster.classes[k];
            class->n_rank = 1 + (class->n_rank - 1) % (TANDEM_MAX_CLASS / MAX_CLASSES);
            class->per_node = class->per_node > 0;
            class->link = (tandem_link){0};
            for (int r = 0; r < class->n_rank; r++) {
                apart.classes[n] = *class;
                apart.classes[n++].n_rank = 1;
            }
        }
        apart.n_class = n;
        apart.node = cluster.node;
        apart.link_bytes_per_s = cluster.link_bytes_per_s;
        apart.link_latency_ns = cluster.link_latency_ns;
        const times a = times_of(&cluster, bytes), b = times_of(&apart, bytes);
        compare_collective(&a, &b, 1, equal, series);
    }
}

static void parts_make_the_whole(void **state)
{
    for (uint32_t series = 0; series < CASES; series++) {
        chance c = {.series = series};
        const tandem_cluster cluster = draw_cluster(&c);
        const times t = times_of(&cluster, draw_bytes(&c));
        for (int k = 0; k < TANDEM_N_COLLECTIVE; k++) {
            double least = INFINITY;
            for (int a = 0; a < TANDEM_N_COLLECTIVE_ALGORITHM; a++) {
                least = fmin(least, t.ns[a][k]);
                assert_true(at_most(t.ns[a][TANDEM_ALL_REDUCE],
                                    t.ns[a][TANDEM_REDUCE_SCATTER] + t.ns[a][TANDEM_ALL_GATHER]));
            }
            assert_true(t.ns[TANDEM_AUTO][k] == least);
        }
        assert_true(equal(t.ns[TANDEM_RING][TANDEM_ALL_REDUCE], 2 * t.ns[TANDEM_RING][TANDEM_ALL_GATHER]));
    }
}

/* Where there are no nodes to speak of. */
static void a_hierarchy_of_one_level_is_a_ring(void **state)
{
    for (uint32_t series = 0; series < CASES; series++) {
        chance c = {.series = series};
        tandem_cluster cluster = draw_cluster(&c);
        const int per_node = (int)draw_collective(&c, 2);
        for (int k = 0; k < cluster.n_class; k++) cluster.classes[k].per_node = per_node;
        const times t = times_of(&cluster, draw_bytes(&c));
        for (int k = 0; k < TANDEM_N_COLLECTIVE; k++)
            assert_true(equal(t.ns[TANDEM_HIERARCHICAL][k], t.ns[TANDEM_RING][k]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_exchanges_nothing),
        cmocka_unit_test(nobody_beats_bytes_over_bandwidth),
        cmocka_unit_test(better_links_never_hurt_collective),
        cmocka_unit_test(fewer_bytes_take_no_longer),
        cmocka_unit_test(links_k_times_as_slow_take_k_times_as_long),
        cmocka_unit_test(the_order_of_classes_changes_nothing_collective),
        cmocka_unit_test(a_class_is_as_many_classes_as_it_has_ranks_collective),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(a_hierarchy_of_one_level_is_a_ring),
    };
    print_message("seed %llu, series 0 … %d\n", (unsigned long long)seed, CASES - 1);
    return cmocka_run_group_tests_name("laws of collectives", tests, NULL, NULL);
}
