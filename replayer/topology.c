/* topology.c: which links the messages of a collective use, and the time that takes. collective.h has the
 * formulas. */
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "replayer/collective.h"

/* A link as the messages of one round see it. */
typedef struct link_cost {
    double latency_ns, ns_per_byte;
} link_cost;

/* Rounds of messages of one size. The slowest link of a round decides. */
typedef struct phase {
    double n_round;
    double share; /* of the collective's bytes, in a message */
    /* of two trees through which blocks are pipelined, n_round times; 0 = none */
    int height;
    int is_concurrent; /* at the same time as the phase before */
    int first, n;      /* link costs */
} phase;

typedef struct phase_range {
    int first, end; /* phases */
} phase_range;

/* Ranks of a class. Groups are sorted, so that the order of classes does not matter. */
typedef struct rank_group {
    int n_rank, per_node; /* per_node 0: on the node that all such groups share */
    tandem_link link;
} rank_group;

struct tandem_topology {
    int n_rank, n_node, n_group;
    rank_group group[TANDEM_MAX_CLASS];
    tandem_link node, net;
    tandem_collective_algorithm algorithm;
    phase *phase;
    link_cost *link_cost;
    int n_phase, n_link_cost, max_phase, max_link_cost;
    phase_range schedule[TANDEM_N_COLLECTIVE][TANDEM_N_COLLECTIVE_ALGORITHM];
};

/* Needed only until the schedules are built. */
typedef struct schedule_builder {
    tandem_topology *topology;
    int *node_of, *group_of; /* [n_rank] by position */
    int *out, *in;           /* [n_node] messages of this round over its connection */
    int is_group_used[TANDEM_MAX_CLASS], is_node_used;
    int n_folded; /* positions 0 … 2·n_folded−1 form pairs, of which the second takes part */
    int no_memory;
} schedule_builder;

/* --- Phases and their links ----------------------------------------------------------------------------- */

static void *grow_topology_array(void *array, int *max, int n, size_t size)
{
    if (n < *max) return array;
    const int wanted = *max ? 2 * *max : 64;
    void *const larger = realloc(array, (size_t)wanted * size);
    if (larger) *max = wanted;
    return larger;
}

static void add_phase(schedule_builder *b, double n_round, double share)
{
    tandem_topology *const t = b->topology;
    phase *const array = grow_topology_array(t->phase, &t->max_phase, t->n_phase, sizeof *array);
    if (!array) {
        b->no_memory = 1;
        return;
    }
    t->phase = array;
    t->phase[t->n_phase++] = (phase){.n_round = n_round, .share = share, .first = t->n_link_cost};
}

/* Adds a link to the last phase; n_message messages share it. */
static void add_link(schedule_builder *b, tandem_link link, int n_message)
{
    tandem_topology *const t = b->topology;
    if (b->no_memory) return;
    const link_cost added = {(double)link.latency_ns, 1e9 / link.bytes_per_s * n_message};
    phase *const last = &t->phase[t->n_phase - 1];
    for (int k = last->first; k < t->n_link_cost; k++)
        if (t->link_cost[k].latency_ns >= added.latency_ns &&
            t->link_cost[k].ns_per_byte >= added.ns_per_byte)
            return;
    link_cost *const array =
        grow_topology_array(t->link_cost, &t->max_link_cost, t->n_link_cost, sizeof *array);
    if (!array) {
        b->no_memory = 1;
        return;
    }
    t->link_cost = array;
    t->link_cost[t->n_link_cost++] = added;
    last->n++;
}

/* --- Messages ------------------------------------------------------------------------------------------- */

static void add_message(schedule_builder *b, int from, int to)
{
    if (b->node_of[from] != b->node_of[to]) {
        b->out[b->node_of[from]]++;
        b->in[b->node_of[to]]++;
    } else if (b->group_of[from] == b->group_of[to])
        b->is_group_used[b->group_of[from]] = 1;
    else
        b->is_node_used = 1;
}

/* Makes a phase of the messages so far. Of those between nodes, one in `turns` is under way at a time. */
static void end_round(schedule_builder *b, double n_round, double share, int turns)
{
    tandem_topology *const t = b->topology;
    int max = 0;
    for (int k = 0; k < t->n_node; k++) {
        if (b->out[k] > max) max = b->out[k];
        if (b->in[k] > max) max = b->in[k];
        b->out[k] = b->in[k] = 0;
    }
    add_phase(b, n_round, share);
    if (max > 0) add_link(b, t->net, (max + turns - 1) / turns);
    if (b->is_node_used) add_link(b, t->node, 1);
    for (int g = 0; g < t->n_group; g++) {
        if (b->is_group_used[g]) add_link(b, t->group[g].link, 1);
        b->is_group_used[g] = 0;
    }
    b->is_node_used = 0;
}

/* The position of participant i where some ranks are folded. */
static int participant_position(const schedule_builder *b, int i)
{
    return i < b->n_folded ? 2 * i + 1 : i + b->n_folded;
}

/* --- Rings ---------------------------------------------------------------------------------------------- */

static int count_shared_groups(const tandem_topology *t)
{
    int n = 0;
    for (int g = 0; g < t->n_group; g++) n += t->group[g].per_node == 0;
    return n;
}

static int ranks_per_node(const rank_group *g)
{
    return g->per_node == 0 || g->per_node > g->n_rank ? g->n_rank : g->per_node;
}

/* A ring of all ranks, node by node: each node sends and receives one message at a time. */
static void add_ring(schedule_builder *b, int n_traversal)
{
    const tandem_topology *const t = b->topology;
    add_phase(b, (double)n_traversal * (t->n_rank - 1), 1.0 / t->n_rank);
    if (t->n_node > 1) add_link(b, t->net, 1);
    if (count_shared_groups(t) > 1) add_link(b, t->node, 1);
    for (int g = 0; g < t->n_group; g++)
        if (ranks_per_node(&t->group[g]) > 1) add_link(b, t->group[g].link, 1);
}

/* A ring of n ranks in a node, concurrent with those of other nodes. is_first: none was added yet. */
static int add_node_ring(schedule_builder *b, int n, int is_first)
{
    if (n < 2) return is_first;
    add_phase(b, n - 1, 1.0 / n);
    if (!b->no_memory) b->topology->phase[b->topology->n_phase - 1].is_concurrent = !is_first;
    return 0;
}

static void add_node_rings(schedule_builder *b)
{
    const tandem_topology *const t = b->topology;
    int n_shared = 0, is_first = 1;
    for (int g = 0; g < t->n_group; g++)
        if (t->group[g].per_node == 0) n_shared += t->group[g].n_rank;
    if (n_shared > 1) {
        is_first = add_node_ring(b, n_shared, is_first);
        if (count_shared_groups(t) > 1) add_link(b, t->node, 1);
        for (int g = 0; g < t->n_group; g++)
            if (t->group[g].per_node == 0 && t->group[g].n_rank > 1) add_link(b, t->group[g].link, 1);
    }
    for (int g = 0; g < t->n_group; g++) {
        const rank_group *const own = &t->group[g];
        if (own->per_node == 0) continue;
        const int full = ranks_per_node(own), rest = own->n_rank % full;
        for (int k = 0; k < 2; k++) {
            const int n = k ? rest : full;
            is_first = add_node_ring(b, n, is_first);
            if (n > 1) add_link(b, own->link, 1);
        }
    }
}

/* A ring of the m nodes. Each sends an mth part per round, of which its ranks have shares. */
static void add_net_ring(schedule_builder *b, int n_traversal)
{
    const tandem_topology *const t = b->topology;
    if (t->n_node < 2) return;
    add_phase(b, (double)n_traversal * (t->n_node - 1), 1.0 / t->n_node);
    add_link(b, t->net, 1);
}

/* --- Halving, doubling, binomial trees ------------------------------------------------------------------ */

static int power_of_two_below(int n)
{
    int power = 1;
    while (power <= n / 2) power *= 2;
    return power;
}

/* Between the excess ranks and those that take their place: n_round times all bytes, or a share of them. */
static void add_fold(schedule_builder *b, double n_round, double share)
{
    if (b->n_folded == 0) return;
    for (int i = 0; i < b->n_folded; i++) add_message(b, 2 * i, 2 * i + 1);
    end_round(b, n_round, share, 1);
}

static void add_halving(schedule_builder *b, int n_traversal)
{
    const int n = b->topology->n_rank - b->n_folded;
    double share = 0.5;
    for (int distance = 1; distance < n; distance *= 2, share /= 2) {
        for (int i = 0; i < n; i++)
            add_message(b, participant_position(b, i), participant_position(b, i ^ distance));
        end_round(b, n_traversal, share, 1);
    }
}

/* A binomial tree: a rank with the parts of 2·distance ranks sends half of them. */
static void add_scatter(schedule_builder *b)
{
    const int n = b->topology->n_rank - b->n_folded;
    for (int distance = power_of_two_below(n - 1); distance > 0; distance /= 2) {
        for (int i = 0; i + distance < n; i += 2 * distance)
            add_message(b, participant_position(b, i), participant_position(b, i + distance));
        end_round(b, 1, (double)(distance < n - distance ? distance : n - distance) / n, 1);
    }
}

/* --- Two trees ------------------------------------------------------------------------------------------ */

/* The rank at position 1 … m of the second tree. Inner positions of one tree are leaves of the other. */
static int second_tree_rank(int position, int m) { return m % 2 == 0 ? m + 1 - position : position % m + 1; }

static void add_tree_edges(schedule_builder *b, int parent, int child, int m)
{
    add_message(b, parent, child);
    add_message(b, parent ? second_tree_rank(parent, m) : 0, second_tree_rank(child, m));
}

/* Rank 0 feeds two in-order binary trees of the m others, with position i on the level of its lowest bit.
 * Half of a rank's edges are used in one round, half in the next. */
static void add_trees(schedule_builder *b, int n_traversal)
{
    const int m = b->topology->n_rank - 1, top = power_of_two_below(m);
    int height = 1;
    for (int n = 2; n < b->topology->n_rank; n *= 2) height++;
    add_tree_edges(b, 0, top, m);
    for (int i = 1; i <= m; i++) {
        int half = (i & -i) / 2;
        if (half > 0) add_tree_edges(b, i, i - half, m);
        while (half > 0 && i + half > m) half /= 2;
        if (half > 0) add_tree_edges(b, i, i + half, m);
    }
    end_round(b, n_traversal, 1, 2);
    if (!b->no_memory) b->topology->phase[b->topology->n_phase - 1].height = height;
}

/* --- Algorithms ----------------------------------------------------------------------------------------- */

/* Some collectives send all parts twice: an all-reduce its sums and the results, a broadcast along a ring its
 * parts one after the other. */
static int traversals_of(tandem_collective collective)
{
    return collective == TANDEM_ALL_REDUCE || collective == TANDEM_BROADCAST ? 2 : 1;
}

static void build_ring(schedule_builder *b, tandem_collective collective)
{
    add_ring(b, traversals_of(collective));
}

static void build_tree(schedule_builder *b, tandem_collective collective)
{
    add_trees(b, collective == TANDEM_ALL_REDUCE ? 2 : 1);
    if (collective == TANDEM_REDUCE_SCATTER || collective == TANDEM_ALL_GATHER) add_scatter(b);
}

static void build_halving_doubling(schedule_builder *b, tandem_collective collective)
{
    const int n_rank = b->topology->n_rank;
    b->n_folded = n_rank - power_of_two_below(n_rank);
    if (collective == TANDEM_BROADCAST) add_scatter(b);
    add_fold(b, collective == TANDEM_ALL_REDUCE ? 2 : 1, 1);
    add_halving(b, collective == TANDEM_ALL_REDUCE ? 2 : 1);
    if (collective == TANDEM_REDUCE_SCATTER || collective == TANDEM_ALL_GATHER) add_fold(b, 1, 1.0 / n_rank);
    b->n_folded = 0;
}

static void build_hierarchical(schedule_builder *b, tandem_collective collective)
{
    add_node_rings(b); /* a broadcast sends the parts one by one from the root */
    add_net_ring(b, traversals_of(collective));
    if (traversals_of(collective) == 2) add_node_rings(b);
}

static void (*const build_schedule[TANDEM_N_COLLECTIVE_ALGORITHM])(schedule_builder *, tandem_collective) = {
    [TANDEM_RING] = build_ring,
    [TANDEM_TREE] = build_tree,
    [TANDEM_HALVING_DOUBLING] = build_halving_doubling,
    [TANDEM_HIERARCHICAL] = build_hierarchical};

/* --- The order of ranks --------------------------------------------------------------------------------- */

/* The shared node first, then by the properties that matter to the network. */
static int compare_rank_groups(const void *left, const void *right)
{
    const rank_group *const a = left, *const b = right;
    if ((a->per_node == 0) != (b->per_node == 0)) return a->per_node == 0 ? -1 : 1;
    if (ranks_per_node(a) != ranks_per_node(b)) return ranks_per_node(a) > ranks_per_node(b) ? -1 : 1;
    if (a->n_rank != b->n_rank) return a->n_rank > b->n_rank ? -1 : 1;
    if (a->link.bytes_per_s != b->link.bytes_per_s) return a->link.bytes_per_s > b->link.bytes_per_s ? -1 : 1;
    return a->link.latency_ns < b->link.latency_ns ? -1 : a->link.latency_ns > b->link.latency_ns;
}

/* Whether class a differs from b by its slowdown only: its ranks are on the nodes of b. */
static int is_straggler_of(const tandem_cluster_class *a, const tandem_cluster_class *b)
{
    return a->slowdown_ppm != b->slowdown_ppm && a->per_node == b->per_node && a->batch == b->batch &&
           a->memory_bytes == b->memory_bytes && a->link.bytes_per_s == b->link.bytes_per_s &&
           a->link.latency_ns == b->link.latency_ns && strcmp(a->device.name, b->device.name) == 0;
}

static void collect_rank_groups(tandem_topology *t, const tandem_cluster *cluster)
{
    int n_shared = 0;
    t->net = (tandem_link){cluster->link_bytes_per_s, cluster->link_latency_ns};
    t->node = cluster->node.bytes_per_s > 0 ? cluster->node : t->net;
    for (int c = 0; c < cluster->n_class; c++) {
        const tandem_cluster_class *const class = &cluster->classes[c];
        if (c == 0 || !is_straggler_of(class, &cluster->classes[c - 1]))
            t->group[t->n_group++] =
                (rank_group){0, class->per_node, class->link.bytes_per_s > 0 ? class->link : t->node};
        t->group[t->n_group - 1].n_rank += class->n_rank;
        t->n_rank += class->n_rank;
    }
    for (int g = 0; g < t->n_group; g++) {
        const rank_group *const own = &t->group[g];
        if (own->per_node == 0)
            n_shared++;
        else
            t->n_node += (own->n_rank + own->per_node - 1) / own->per_node;
    }
    t->n_node += n_shared > 0;
    qsort(t->group, (size_t)t->n_group, sizeof *t->group, compare_rank_groups);
}

static tandem_status check_links(const tandem_topology *t, const tandem_cluster *cluster, tandem_error *error)
{
    const char *missing_link = t->n_node > 1 && !(t->net.bytes_per_s > 0)
                                   ? "between its nodes; add net=BANDWIDTH,LATENCY, as in net=10Gbit/s,20us"
                                   : NULL;
    for (int g = 0; g < t->n_group && !missing_link; g++)
        if ((ranks_per_node(&t->group[g]) > 1 && !(t->group[g].link.bytes_per_s > 0)) ||
            (count_shared_groups(t) > 1 && !(t->node.bytes_per_s > 0)))
            missing_link = "within a node; add node=BANDWIDTH,LATENCY, as in node=300Gbit/s,2us, or net= for "
                           "all";
    if (!missing_link) return TANDEM_OK;
    char text[512];
    tandem_cluster_print(text, sizeof text, cluster);
    return tandem_error_set(error, TANDEM_MISSING, "the cluster '%s' names no link %s", text, missing_link);
}

static int number_ranks(schedule_builder *b)
{
    const tandem_topology *const t = b->topology;
    const size_t n_rank = (size_t)t->n_rank, n_node = (size_t)t->n_node;
    b->node_of = malloc(n_rank * sizeof *b->node_of);
    b->group_of = malloc(n_rank * sizeof *b->group_of);
    b->out = calloc(n_node, sizeof *b->out);
    b->in = calloc(n_node, sizeof *b->in);
    if (!b->node_of || !b->group_of || !b->out || !b->in) return 0;
    int node = count_shared_groups(t) > 0; /* the next node */
    for (int g = 0, i = 0; g < t->n_group; g++) {
        const rank_group *const own = &t->group[g];
        for (int k = 0; k < own->n_rank; k++, i++) {
            b->group_of[i] = g;
            b->node_of[i] = own->per_node ? node + k / own->per_node : 0;
        }
        if (own->per_node) node += (own->n_rank + own->per_node - 1) / own->per_node;
    }
    return 1;
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static int is_algorithm_wanted(const tandem_topology *t, int algorithm)
{
    return t->algorithm == TANDEM_AUTO || (int)t->algorithm == algorithm;
}

static int build_schedules(schedule_builder *b)
{
    tandem_topology *const t = b->topology;
    const int needs_positions =
        is_algorithm_wanted(t, TANDEM_TREE) || is_algorithm_wanted(t, TANDEM_HALVING_DOUBLING);
    if (t->n_rank < 2) return 1;
    if (needs_positions && !number_ranks(b)) return 0;
    for (int algorithm = 0; algorithm < TANDEM_N_COLLECTIVE_ALGORITHM; algorithm++)
        for (int c = 0; c < TANDEM_N_COLLECTIVE && is_algorithm_wanted(t, algorithm); c++) {
            t->schedule[c][algorithm].first = t->n_phase;
            build_schedule[algorithm](b, (tandem_collective)c);
            t->schedule[c][algorithm].end = t->n_phase;
        }
    return !b->no_memory;
}

tandem_status tandem_topology_open(tandem_topology **topology, const tandem_cluster *cluster,
                                   tandem_collective_algorithm algorithm, tandem_error *error)
{
    schedule_builder b = {.topology = calloc(1, sizeof *b.topology)};
    tandem_status status = TANDEM_OK;
    if (!b.topology) return tandem_no_memory(error, "for the links of a cluster");
    b.topology->algorithm = algorithm;
    collect_rank_groups(b.topology, cluster);
    status = check_links(b.topology, cluster, error);
    if (status == TANDEM_OK && !build_schedules(&b))
        status = tandem_no_memory(error, "for the messages among %d ranks", b.topology->n_rank);
    free(b.in);
    free(b.out);
    free(b.group_of);
    free(b.node_of);
    if (status == TANDEM_OK)
        *topology = b.topology;
    else
        tandem_topology_close(b.topology);
    return status;
}

void tandem_topology_close(tandem_topology *topology)
{
    if (!topology) return;
    free(topology->link_cost);
    free(topology->phase);
    free(topology);
}

/* --- Times ---------------------------------------------------------------------------------------------- */

static double slowest_message_ns(const tandem_topology *t, const phase *s, double bytes)
{
    double max = 0;
    for (int k = s->first; k < s->first + s->n; k++) {
        const double ns = t->link_cost[k].latency_ns + t->link_cost[k].ns_per_byte * bytes;
        if (ns > max) max = ns;
    }
    return max;
}

/* Half of the bytes goes through each tree, in k blocks. */
static double trees_ns(const tandem_topology *t, const phase *s, double bytes, int64_t k)
{
    return s->n_round * 2 * (double)(s->height + k - 1) *
           slowest_message_ns(t, s, s->share * bytes / 2 / (double)k);
}

/* With the best number of blocks k ≥ 1, of at least a byte: the time is convex in k. */
static double best_trees_ns(const tandem_topology *t, const phase *s, uint64_t bytes)
{
    int64_t low = 1, high = bytes < 4 ? 1 : (int64_t)(bytes / 2 < INT32_MAX ? bytes / 2 : INT32_MAX);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (trees_ns(t, s, (double)bytes, middle) <= trees_ns(t, s, (double)bytes, middle + 1))
            high = middle;
        else
            low = middle + 1;
    }
    return trees_ns(t, s, (double)bytes, low);
}

static double schedule_ns(const tandem_topology *t, phase_range phases, uint64_t bytes)
{
    double sum = 0, concurrent_ns = 0;
    for (int k = phases.first; k < phases.end; k++) {
        const phase *const s = &t->phase[k];
        const double ns = s->height ? best_trees_ns(t, s, bytes)
                                    : s->n_round * slowest_message_ns(t, s, s->share * (double)bytes);
        if (!s->is_concurrent) {
            sum += concurrent_ns;
            concurrent_ns = 0;
        }
        if (ns > concurrent_ns) concurrent_ns = ns;
    }
    return sum + concurrent_ns;
}

double tandem_collective_ns(const tandem_topology *topology, tandem_collective collective, uint64_t bytes,
                            tandem_collective_algorithm *used)
{
    tandem_collective_algorithm best = topology->algorithm;
    double best_ns = 0;
    for (int algorithm = 0; algorithm < TANDEM_N_COLLECTIVE_ALGORITHM; algorithm++) {
        if (!is_algorithm_wanted(topology, algorithm)) continue;
        const double ns = schedule_ns(topology, topology->schedule[collective][algorithm], bytes);
        if (best != TANDEM_AUTO && best != (tandem_collective_algorithm)algorithm && ns >= best_ns) continue;
        best = (tandem_collective_algorithm)algorithm;
        best_ns = ns;
    }
    if (used) *used = best;
    return best_ns;
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static const char *const algorithm_names[] = {[TANDEM_RING] = "ring",
                                              [TANDEM_TREE] = "tree",
                                              [TANDEM_HALVING_DOUBLING] = "halving-doubling",
                                              [TANDEM_HIERARCHICAL] = "hierarchical",
                                              [TANDEM_AUTO] = "auto"};
enum { N_ALGORITHM_NAME = sizeof algorithm_names / sizeof *algorithm_names };

const char *tandem_collective_algorithm_name(tandem_collective_algorithm algorithm)
{
    return algorithm_names[algorithm];
}

tandem_status tandem_collective_algorithm_find(tandem_collective_algorithm *algorithm, const char *name,
                                               tandem_error *error)
{
    tandem_hint hint;
    const int k = tandem_name_find(name, algorithm_names, N_ALGORITHM_NAME, sizeof *algorithm_names, &hint);
    if (k < 0)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "no algorithm of collectives is called '%s'.%s There are auto, ring, tree, "
                                "halving-doubling and hierarchical",
                                name ? name : "", hint.text);
    *algorithm = (tandem_collective_algorithm)k;
    return TANDEM_OK;
}
