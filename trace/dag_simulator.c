/* dag_simulator.c: the longest path through a graph of operators. Opening sorts the nodes topologically
 * (Kahn, 1962); a run is then one pass over flat arrays. */
#include "tandem/advanced/dag_simulator.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { OP_NAME_BYTES = 120, MAX_SHOWN = 6 };

struct tandem_dag_simulator {
    tandem_arena arena;
    int n_op, n_node;
    int *op;         /* [n_op] operator at each position */
    int *node_end;   /* [n_node] end of each node's positions; a node is one operator or one group */
    int *before_end; /* [n_op] end of each position's predecessors in `before` */
    int *before;     /* positions of predecessors, in the order of their successors */
    int64_t *end_ns; /* [n_op] by position; end times of the current run */
    void (*name)(char *text, size_t size, const void *context, int op);
    const void *context;
};

/* Needed to open a simulator only. Edges include the order of the streams. */
typedef struct dag_ordering {
    const tandem_dag *graph;
    tandem_arena arena;
    int n_node;
    int *node_of;                     /* [n_op] */
    int *node_first, *node_op;        /* of each node, [n_node + 1] into [n_op]; ascending */
    int *stream_before;               /* [n_op] previous operator on the same stream; −1 = none */
    int *before_first, *before;       /* predecessors by edge.after: [n_op + 1] into [n_edge] */
    int *successor_first, *successor; /* successor nodes by edge.before, streams included: [n_op + 1] into
                                       * nodes */
    int *n_unmet;                     /* [n_node] predecessors that are not yet in order */
    int *order;                       /* [n_node] nodes in topological order */
} dag_ordering;

/* --- Names ---------------------------------------------------------------------------------------------- */

typedef struct dag_op_text {
    char text[OP_NAME_BYTES];
} dag_op_text;

static dag_op_text dag_op_name(void (*name)(char *, size_t, const void *, int), const void *context, int op)
{
    dag_op_text text;
    if (name)
        name(text.text, sizeof text.text, context, op);
    else
        (void)snprintf(text.text, sizeof text.text, "operator %d", op);
    return text;
}

static dag_op_text dag_op_name_in(const tandem_dag *graph, int op)
{
    return dag_op_name(graph->name, graph->context, op);
}

/* --- Checks --------------------------------------------------------------------------------------------- */

static tandem_status check_dag_ranges(const tandem_dag *graph, tandem_error *error)
{
    if ((int64_t)graph->n_op + graph->n_edge + graph->n_group + graph->n_stream >= INT_MAX)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%d operators, %d dependencies: together they must be fewer than 2^31",
                                graph->n_op, graph->n_edge);
    for (int i = 0; i < graph->n_op; i++) {
        if (graph->stream[i] < -1 || graph->stream[i] >= graph->n_stream)
            return tandem_error_set(error, TANDEM_MALFORMED, "%s is on stream %d; there are streams 0 to %d",
                                    dag_op_name_in(graph, i).text, graph->stream[i], graph->n_stream - 1);
        if (graph->group[i] < -1 || graph->group[i] >= graph->n_group)
            return tandem_error_set(error, TANDEM_MALFORMED, "%s is of group %d; there are groups 0 to %d",
                                    dag_op_name_in(graph, i).text, graph->group[i], graph->n_group - 1);
    }
    for (int k = 0; k < graph->n_edge; k++) {
        const int before = graph->edge[k].before, after = graph->edge[k].after;
        const int before_is = before >= 0 && before < graph->n_op,
                  after_is = after >= 0 && after < graph->n_op;
        if (before_is && after_is) continue;
        return tandem_error_set(
            error, TANDEM_MALFORMED, "dependency %d is invalid: %s waits for %s; there are operators 0 to %d",
            k, after_is ? dag_op_name_in(graph, after).text : "a missing operator",
            before_is ? dag_op_name_in(graph, before).text : "a missing operator", graph->n_op - 1);
    }
    return TANDEM_OK;
}

static tandem_status check_group_sizes(const dag_ordering *o, tandem_error *error)
{
    const tandem_dag *const graph = o->graph;
    for (int g = 0; graph->group_size && g < graph->n_group; g++) {
        const int n = o->node_first[g + 1] - o->node_first[g];
        if (n == graph->group_size[g]) continue;
        if (n == 0)
            return tandem_error_set(error, TANDEM_MALFORMED, "group %d must have %d members and has none", g,
                                    graph->group_size[g]);
        return tandem_error_set(error, TANDEM_MALFORMED, "%s: the group has %d of %d members: %s",
                                dag_op_name_in(graph, o->node_op[o->node_first[g]]).text, n,
                                graph->group_size[g],
                                n < graph->group_size[g] ? "its partner is missing" : "one too many");
    }
    return TANDEM_OK;
}

/* --- Who waits for whom --------------------------------------------------------------------------------- */

/* Turns the counts at [k + 1] into offsets at [k]. */
static void counts_to_offsets(int *first, int n)
{
    for (int k = 0; k < n; k++) first[k + 1] += first[k];
}

/* Filling moved every offset to the next one; this moves them back. */
static void shift_offsets_back(int *first, int n)
{
    memmove(first + 1, first, (size_t)n * sizeof *first);
    first[0] = 0;
}

/* Nodes 0 … n_group−1 are the groups; single operators follow in their order. */
static void group_ops_into_nodes(dag_ordering *o)
{
    const tandem_dag *const graph = o->graph;
    o->n_node = graph->n_group;
    for (int i = 0; i < graph->n_op; i++) {
        o->node_of[i] = graph->group[i] >= 0 ? graph->group[i] : o->n_node++;
        o->node_first[o->node_of[i] + 1]++;
    }
    counts_to_offsets(o->node_first, o->n_node);
    for (int i = 0; i < graph->n_op; i++) o->node_op[o->node_first[o->node_of[i]]++] = i;
    shift_offsets_back(o->node_first, o->n_node);
}

static void gather_dag_edges(dag_ordering *o, int *last_of_stream)
{
    const tandem_dag *const graph = o->graph;
    const int n = graph->n_op;
    for (int i = 0; i < n; i++) {
        const int stream = graph->stream[i];
        o->stream_before[i] = stream >= 0 ? last_of_stream[stream] - 1 : -1;
        if (stream >= 0) last_of_stream[stream] = i + 1;
        if (o->stream_before[i] >= 0) o->successor_first[o->stream_before[i] + 1]++;
    }
    for (int k = 0; k < graph->n_edge; k++) {
        o->before_first[graph->edge[k].after + 1]++;
        o->successor_first[graph->edge[k].before + 1]++;
    }
    counts_to_offsets(o->before_first, n);
    counts_to_offsets(o->successor_first, n);
    for (int k = 0; k < graph->n_edge; k++) {
        const tandem_dag_edge edge = graph->edge[k];
        o->before[o->before_first[edge.after]++] = edge.before;
        o->successor[o->successor_first[edge.before]++] = o->node_of[edge.after];
    }
    for (int i = 0; i < n; i++)
        if (o->stream_before[i] >= 0) o->successor[o->successor_first[o->stream_before[i]]++] = o->node_of[i];
    shift_offsets_back(o->before_first, n);
    shift_offsets_back(o->successor_first, n);
    for (int k = 0; k < o->successor_first[n]; k++) o->n_unmet[o->successor[k]]++;
}

/* --- The order (Kahn, 1962) ----------------------------------------------------------------------------- */

/* Returns how many nodes are in order: all of them unless there is a cycle. */
static int sort_topologically(dag_ordering *o)
{
    int n = 0;
    for (int node = 0; node < o->n_node; node++)
        if (o->n_unmet[node] == 0) o->order[n++] = node;
    for (int done = 0; done < n; done++) {
        const int node = o->order[done];
        for (int m = o->node_first[node]; m < o->node_first[node + 1]; m++) {
            const int op = o->node_op[m];
            for (int w = o->successor_first[op]; w < o->successor_first[op + 1]; w++)
                if (--o->n_unmet[o->successor[w]] == 0) o->order[n++] = o->successor[w];
        }
    }
    return n;
}

/* A predecessor of the node that is not yet in order. */
static int find_unmet_dependency(const dag_ordering *o, int node)
{
    for (int m = o->node_first[node]; m < o->node_first[node + 1]; m++) {
        const int op = o->node_op[m];
        if (o->stream_before[op] >= 0 && o->n_unmet[o->node_of[o->stream_before[op]]] > 0)
            return o->stream_before[op];
        for (int e = o->before_first[op]; e < o->before_first[op + 1]; e++)
            if (o->n_unmet[o->node_of[o->before[e]]] > 0) return o->before[e];
    }
    return -1;
}

/* A walk from any waiting node to its unmet dependencies ends in a cycle: n_node steps are enough. */
static tandem_status refuse_dag_cycle(const dag_ordering *o, tandem_error *error)
{
    char text[MAX_SHOWN * (OP_NAME_BYTES + 8)] = "";
    size_t used = 0;
    int node = 0;
    while (o->n_unmet[node] == 0) node++;
    for (int k = 0; k < o->n_node; k++) node = o->node_of[find_unmet_dependency(o, node)];
    const int begin = node;
    int length = 0;
    do {
        const int op = find_unmet_dependency(o, node);
        if (length < MAX_SHOWN && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                     length ? ", which waits for " : "", dag_op_name_in(o->graph, op).text);
        node = o->node_of[op];
        length++;
    } while (node != begin);
    return tandem_error_set(error, TANDEM_MALFORMED, "%d operators form a dependency cycle: %s%s", length,
                            text, length > MAX_SHOWN ? ", …" : ", and round again");
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static int allocate_dag_ordering(dag_ordering *o)
{
    const tandem_dag *const graph = o->graph;
    const size_t n = (size_t)graph->n_op, max_node = n + (size_t)graph->n_group,
                 n_edge = (size_t)graph->n_edge;
    tandem_arena *const arena = &o->arena;
    return (o->node_of = tandem_arena_array(arena, n, sizeof(int))) &&
           (o->node_first = tandem_arena_array(arena, max_node + 1, sizeof(int))) &&
           (o->node_op = tandem_arena_array(arena, n, sizeof(int))) &&
           (o->stream_before = tandem_arena_array(arena, n, sizeof(int))) &&
           (o->before_first = tandem_arena_array(arena, n + 1, sizeof(int))) &&
           (o->before = tandem_arena_array(arena, n_edge, sizeof(int))) &&
           (o->successor_first = tandem_arena_array(arena, n + 1, sizeof(int))) &&
           (o->successor = tandem_arena_array(arena, n_edge + n, sizeof(int))) &&
           (o->n_unmet = tandem_arena_array(arena, max_node, sizeof(int))) &&
           (o->order = tandem_arena_array(arena, max_node, sizeof(int)));
}

static int allocate_simulator(tandem_dag_simulator *simulator, const dag_ordering *o)
{
    const size_t n = (size_t)o->graph->n_op, max_before = n + (size_t)o->graph->n_edge;
    return (simulator->op = tandem_arena_array(&simulator->arena, n, sizeof(int))) &&
           (simulator->node_end = tandem_arena_array(&simulator->arena, (size_t)o->n_node, sizeof(int))) &&
           (simulator->before_end = tandem_arena_array(&simulator->arena, n, sizeof(int))) &&
           (simulator->before = tandem_arena_array(&simulator->arena, max_before, sizeof(int))) &&
           (simulator->end_ns = tandem_arena_array(&simulator->arena, n, sizeof(int64_t)));
}

/* Writes the nodes in order. position [n_op] receives the position of each operator. */
static void lay_out_nodes(tandem_dag_simulator *simulator, const dag_ordering *o, int *position)
{
    int n_before = 0;
    simulator->n_op = o->graph->n_op;
    for (int k = 0, p = 0; k < o->n_node; k++) {
        const int node = o->order[k];
        for (int m = o->node_first[node]; m < o->node_first[node + 1]; m++, p++) {
            const int op = o->node_op[m];
            simulator->op[p] = op;
            position[op] = p;
            if (o->stream_before[op] >= 0) simulator->before[n_before++] = position[o->stream_before[op]];
            for (int e = o->before_first[op]; e < o->before_first[op + 1]; e++)
                simulator->before[n_before++] = position[o->before[e]];
            simulator->before_end[p] = n_before;
        }
        if (p > (simulator->n_node ? simulator->node_end[simulator->n_node - 1] : 0))
            simulator->node_end[simulator->n_node++] = p;
    }
}

static tandem_status dag_no_memory(const tandem_dag *graph, tandem_error *error)
{
    return tandem_no_memory(error, "to order %d operators and %d dependencies", graph->n_op, graph->n_edge);
}

tandem_status tandem_dag_simulator_open(tandem_dag_simulator **simulator, const tandem_dag *graph,
                                        tandem_error *error)
{
    dag_ordering o = {.graph = graph};
    tandem_dag_simulator *built = NULL;
    tandem_status status = check_dag_ranges(graph, error);
    if (status != TANDEM_OK) return status;
    int *const last_of_stream = tandem_arena_array(&o.arena, (size_t)graph->n_stream, sizeof(int));
    built = calloc(1, sizeof *built);
    if (!last_of_stream || !built || !allocate_dag_ordering(&o)) {
        status = dag_no_memory(graph, error);
        goto out;
    }
    group_ops_into_nodes(&o);
    gather_dag_edges(&o, last_of_stream);
    status = check_group_sizes(&o, error);
    if (status != TANDEM_OK) goto out;
    if (sort_topologically(&o) < o.n_node) {
        status = refuse_dag_cycle(&o, error);
        goto out;
    }
    if (!allocate_simulator(built, &o)) {
        status = dag_no_memory(graph, error);
        goto out;
    }
    lay_out_nodes(built, &o, o.n_unmet); /* its counts are used up */
    built->name = graph->name;
    built->context = graph->context;
    *simulator = built;
    built = NULL;
out:
    tandem_dag_simulator_close(built);
    tandem_arena_free(&o.arena);
    return status;
}

void tandem_dag_simulator_close(tandem_dag_simulator *simulator)
{
    if (!simulator) return;
    tandem_arena_free(&simulator->arena);
    free(simulator);
}

/* --- Running -------------------------------------------------------------------------------------------- */

static tandem_status check_durations(const tandem_dag_simulator *simulator, const int64_t *duration_ns,
                                     tandem_error *error)
{
    int64_t sum_ns = 0;
    for (int i = 0; i < simulator->n_op; i++) {
        const int64_t ns = duration_ns[i];
        if (ns >= 0 && ns <= TANDEM_DAG_MAX_NS && !__builtin_add_overflow(sum_ns, ns, &sum_ns)) continue;
        const dag_op_text name = dag_op_name(simulator->name, simulator->context, i);
        if (ns >= 0 && ns <= TANDEM_DAG_MAX_NS)
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "durations up to that of %s add up to more than 2^63 ns", name.text);
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s takes %lld ns; a duration lies between 0 and %lld ns", name.text,
                                (long long)ns, (long long)TANDEM_DAG_MAX_NS);
    }
    return TANDEM_OK;
}

tandem_status tandem_dag_simulator_run(tandem_dag_simulator *simulator, const int64_t *duration_ns,
                                       int64_t *ready_ns, int64_t *end_ns, int64_t *length_ns,
                                       tandem_error *error)
{
    const tandem_status status = check_durations(simulator, duration_ns, error);
    if (status != TANDEM_OK) return status;
    const int *const op = simulator->op, *const before = simulator->before;
    int64_t *const end = simulator->end_ns;
    int64_t length = 0;
    for (int node = 0, p = 0, k = 0; node < simulator->n_node; node++) {
        const int first = p, past = simulator->node_end[node];
        int64_t begin = 0; /* start of the group's transfer */
        for (; p < past; p++) {
            int64_t ready = 0;
            for (const int last = simulator->before_end[p]; k < last; k++)
                if (end[before[k]] > ready) ready = end[before[k]];
            if (ready_ns) ready_ns[op[p]] = ready;
            if (ready > begin) begin = ready;
        }
        for (int q = first; q < past; q++) {
            end[q] = begin + duration_ns[op[q]];
            if (end_ns) end_ns[op[q]] = end[q];
            if (end[q] > length) length = end[q];
        }
    }
    *length_ns = length;
    return TANDEM_OK;
}
