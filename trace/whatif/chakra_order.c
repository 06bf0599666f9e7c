/* chakra_order.c: which nodes of Chakra traces wait for which. Data dependencies hold. Control
 * dependencies of converted traces are the calls of the recorded program: a parent may itself wait for
 * what it called, so that both cannot hold. Cycles are found as strongly connected components (Tarjan,
 * 1972). Within one, nodes are ordered as in Kahn's sort (1962); where it is stuck, the node with the
 * lowest index that waits for control dependencies of its component alone comes next, and these are
 * dropped. */
#include "trace/whatif/chakra_order.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"

static int by_edge_after(const void *left, const void *right)
{
    const tandem_dag_edge *const a = left, *const b = right;
    const int order = TANDEM_ORDER(a->after, b->after);
    return order ? order : TANDEM_ORDER(a->before, b->before);
}

/* --- Messages ------------------------------------------------------------------------------------------- */

/* The first of sorted edges to `after` or a later node. */
static int first_edge_to(const chakra_array *edges, int n, int after)
{
    const tandem_dag_edge *const edge = edges->of;
    int low = 0, high = n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (edge[middle].after < after)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Lets the receive of each message wait for what its send waits for: it starts no earlier than the send, and
 * the send, which is buffered, does not wait for it. */
static tandem_status add_message_edges(chakra_trace *r, chakra_array *edges)
{
    const int n = edges->n;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < r->messages.n && status == TANDEM_OK; k++) {
        const tandem_dag_edge message = ((const tandem_dag_edge *)r->messages.of)[k];
        for (int e = first_edge_to(edges, n, message.before); e < n && status == TANDEM_OK; e++) {
            const tandem_dag_edge edge = ((const tandem_dag_edge *)edges->of)[e];
            if (edge.after != message.before) break;
            const tandem_dag_edge made = {edge.before, message.after};
            status = chakra_append(r, edges, &made, sizeof made);
        }
    }
    if (status == TANDEM_OK && edges->n > n)
        qsort(edges->of, (size_t)edges->n, sizeof(tandem_dag_edge), by_edge_after);
    return status;
}

/* --- Cycles --------------------------------------------------------------------------------------------- */

/* Nodes, with the parts of a collective as one, and the walk through them. */
typedef struct component_walk {
    const chakra_trace *r;
    int n;             /* of nodes and groups */
    int *first, *to;   /* successors of each: [n + 1] into [edges]; twice a node, plus 1 = may be dropped */
    int *found, *low;  /* [n] order in which they were found, from 1 on; 0 = not yet */
    int *component;    /* [n] −1 = not known yet */
    int *stack, *path; /* [n] those without a component; those being visited */
    int *next;         /* [n] successor to be visited next */
    int n_stack, n_path, n_found, n_component;
} component_walk;

/* A collective starts when its last part is ready: its parts are one. */
static int walk_node(const chakra_trace *r, int i) { return r->group[i] >= 0 ? r->nodes.n + r->group[i] : i; }

static void count_successors(component_walk *w, const chakra_array *edges)
{
    const tandem_dag_edge *const edge = edges->of;
    for (int e = 0; e < edges->n; e++) w->first[walk_node(w->r, edge[e].before) + 1]++;
}

static void add_successors(component_walk *w, const chakra_array *edges, int is_control)
{
    const tandem_dag_edge *const edge = edges->of;
    for (int e = 0; e < edges->n; e++) {
        const int before = walk_node(w->r, edge[e].before), after = walk_node(w->r, edge[e].after);
        const int may_drop = is_control && w->component[before] == w->component[after];
        w->to[w->next[before]++] = 2 * after + may_drop;
    }
}

/* Before the components are known all are equal. */
static void index_successors(component_walk *w)
{
    memset(w->first, 0, ((size_t)w->n + 1) * sizeof *w->first);
    count_successors(w, &w->r->edges);
    count_successors(w, &w->r->control);
    for (int k = 0; k < w->n; k++) w->first[k + 1] += w->first[k];
    memcpy(w->next, w->first, (size_t)w->n * sizeof *w->next);
    add_successors(w, &w->r->edges, 0);
    add_successors(w, &w->r->control, 1);
    memcpy(w->next, w->first, (size_t)w->n * sizeof *w->next);
}

static void enter_node(component_walk *w, int node)
{
    w->found[node] = w->low[node] = ++w->n_found;
    w->stack[w->n_stack++] = node;
    w->path[w->n_path++] = node;
}

static void leave_node(component_walk *w, int node)
{
    w->n_path--;
    if (w->n_path && w->low[node] < w->low[w->path[w->n_path - 1]])
        w->low[w->path[w->n_path - 1]] = w->low[node];
    if (w->low[node] < w->found[node]) return;
    int one;
    do {
        one = w->stack[--w->n_stack];
        w->component[one] = w->n_component;
    } while (one != node);
    w->n_component++;
}

static void find_components_from(component_walk *w, int root)
{
    enter_node(w, root);
    while (w->n_path) {
        const int node = w->path[w->n_path - 1];
        if (w->next[node] == w->first[node + 1]) {
            leave_node(w, node);
            continue;
        }
        const int to = w->to[w->next[node]++] / 2;
        if (!w->found[to])
            enter_node(w, to);
        else if (w->component[to] < 0 && w->found[to] < w->low[node])
            w->low[node] = w->found[to];
    }
}

static tandem_status find_components(component_walk *w)
{
    const chakra_trace *const r = w->r;
    const size_t n = (size_t)r->nodes.n + (size_t)r->n_group;
    w->n = (int)n;
    int *const all = calloc(7 * n + 2, sizeof *all);
    w->to = malloc(((size_t)r->all.n + 1) * sizeof *w->to);
    w->first = all;
    if (!all || !w->to) return chakra_no_memory(r);
    int **const array[] = {&w->found, &w->low, &w->component, &w->stack, &w->path, &w->next};
    for (size_t k = 0; k < sizeof array / sizeof *array; k++) *array[k] = all + n + 1 + k * n;
    for (int k = 0; k < w->n; k++) w->component[k] = -1;
    index_successors(w);
    for (int k = 0; k < w->n; k++)
        if (!w->found[k]) find_components_from(w, k);
    return TANDEM_OK;
}

/* The order in which nodes of one component come. Uses the arrays of the walk again. */
typedef struct node_order {
    component_walk *w;
    int *unmet, *soft; /* [n] predecessors that are not yet in order: those that hold, those that may not */
    int *heap, *queue; /* [n] nodes that wait for soft ones alone, the lowest on top; nodes that are ready */
    int *position;     /* [n] INT_MAX = not yet */
    int n_heap, n_queue;
} node_order;

static void push_heap(node_order *o, int node)
{
    int k = o->n_heap++;
    for (; k > 0 && o->heap[(k - 1) / 2] > node; k = (k - 1) / 2) o->heap[k] = o->heap[(k - 1) / 2];
    o->heap[k] = node;
}

static int pop_heap(node_order *o)
{
    const int top = o->heap[0], last = o->heap[--o->n_heap];
    int k = 0;
    for (int child = 1; child < o->n_heap; child = 2 * k + 1) {
        if (child + 1 < o->n_heap && o->heap[child + 1] < o->heap[child]) child++;
        if (o->heap[child] >= last) break;
        o->heap[k] = o->heap[child];
        k = child;
    }
    o->heap[k] = last;
    return top;
}

/* A node that waits for nothing that holds is ready, or waits for soft ones in the heap. */
static void release_node(node_order *o, int node)
{
    if (o->unmet[node]) return;
    if (o->soft[node] == 0)
        o->queue[o->n_queue++] = node;
    else
        push_heap(o, node);
}

/* A node that becomes ready while it is in the heap stays there, and is skipped when it is taken from it. */
static void release_successors(node_order *o, int node)
{
    const component_walk *const w = o->w;
    for (int e = w->first[node]; e < w->first[node + 1]; e++) {
        const int to = w->to[e] / 2, is_soft = w->to[e] % 2;
        if (o->position[to] != INT_MAX) continue; /* it came first: the dependency is dropped */
        if (is_soft && --o->soft[to] == 0 && o->unmet[to] == 0) o->queue[o->n_queue++] = to;
        if (!is_soft && --o->unmet[to] == 0) release_node(o, to);
    }
}

static void order_nodes(node_order *o)
{
    const int n = o->w->n;
    int n_done = 0, at = 0;
    for (int k = 0; k < n; k++) o->position[k] = INT_MAX;
    for (int k = 0; k < n; k++) release_node(o, k);
    while (n_done < n && (at < o->n_queue || o->n_heap)) {
        const int node = at < o->n_queue ? o->queue[at++] : pop_heap(o);
        if (o->position[node] != INT_MAX) continue;
        o->position[node] = n_done++;
        release_successors(o, node);
    }
}

static void find_node_order(node_order *o, component_walk *w)
{
    *o = (node_order){
        .w = w, .unmet = w->found, .soft = w->low, .heap = w->stack, .queue = w->path, .position = w->next};
    index_successors(w);
    memset(o->unmet, 0, (size_t)w->n * sizeof *o->unmet);
    memset(o->soft, 0, (size_t)w->n * sizeof *o->soft);
    for (int e = 0; e < w->first[w->n]; e++) (w->to[e] % 2 ? o->soft : o->unmet)[w->to[e] / 2]++;
    order_nodes(o);
}

tandem_status chakra_drop_control_cycles(chakra_trace *r)
{
    component_walk w = {.r = r};
    node_order order = {0};
    const tandem_status status = find_components(&w);
    tandem_dag_edge *const control = r->control.of;
    int n = 0;
    if (status == TANDEM_OK) find_node_order(&order, &w);
    for (int e = 0; e < r->control.n && status == TANDEM_OK; e++) {
        const int before = walk_node(r, control[e].before), after = walk_node(r, control[e].after);
        if (order.position[before] < order.position[after])
            control[n++] = control[e];
        else
            r->n_dropped_control++;
    }
    if (status == TANDEM_OK) r->control.n = n;
    free(w.to);
    free(w.first);
    return status == TANDEM_OK ? chakra_merge_edges(r) : status;
}

/* --- All edges ------------------------------------------------------------------------------------------ */

tandem_status chakra_merge_edges(chakra_trace *r)
{
    const tandem_dag_edge *const data = r->edges.of, *const control = r->control.of;
    tandem_status status = TANDEM_OK;
    r->all.n = 0;
    for (int d = 0, c = 0; (d < r->edges.n || c < r->control.n) && status == TANDEM_OK;) {
        const int is_data = c == r->control.n || (d < r->edges.n && data[d].after <= control[c].after);
        status = chakra_append(r, &r->all, is_data ? &data[d++] : &control[c++], sizeof *data);
    }
    return status;
}

tandem_status chakra_order_nodes(chakra_trace *r)
{
    tandem_status status = add_message_edges(r, &r->edges);
    if (status == TANDEM_OK) status = add_message_edges(r, &r->control);
    return status == TANDEM_OK ? chakra_merge_edges(r) : status;
}
