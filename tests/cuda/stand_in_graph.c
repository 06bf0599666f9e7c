#include "tests/cuda/stand_in_graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ILLEGAL_STATE = 401 };

typedef struct graph_node {
    void (*run)(void *what), (*drop)(void *what);
    void *what;
    int after[2]; /* nodes before it; −1: none */
    tandem_cuda_event recorded;
    int is_done;
} graph_node;

struct CUgraphExec_st {
    graph_node *node;
    int n, has_host_call;
    tandem_cuda_stream on;           /* where it runs; NULL = nowhere */
    struct CUgraphExec_st *next_run; /* what runs there next */
};

/* Of one at a time. */
static struct {
    int number, is_under_way, is_valid;
    pthread_t thread;
    tandem_cuda_stream origin;
    struct CUgraphExec_st *graph;
} capture;

int stand_in_graph_runs, stand_in_graph_nodes;

/* --- Capture -------------------------------------------------------------------------------------------- */

int graph_is_captured(const capture_position *position)
{
    return capture.is_under_way && position->capture == capture.number;
}

int graph_invalidate(int error)
{
    capture.is_valid = 0;
    return error;
}

int graph_forbidden_call(void)
{
    if (!capture.is_under_way || !pthread_equal(capture.thread, pthread_self())) return 0;
    return graph_invalidate(CAPTURE_UNSUPPORTED);
}

int graph_begin(tandem_cuda_stream stream)
{
    if (capture.is_under_way) return ILLEGAL_STATE;
    capture.number++;
    capture.is_under_way = capture.is_valid = 1;
    capture.thread = pthread_self();
    capture.origin = stream;
    capture.graph = calloc(1, sizeof *capture.graph);
    if (!capture.graph) abort();
    stream->position = (capture_position){capture.number, -1};
    return 0;
}

static int append_node(void (*run)(void *what), void (*drop)(void *what), void *what,
                       tandem_cuda_event recorded, int first, int second)
{
    struct CUgraphExec_st *graph = capture.graph;
    graph->node = realloc(graph->node, (size_t)(graph->n + 1) * sizeof *graph->node);
    if (!graph->node) abort();
    graph->node[graph->n] = (graph_node){run, drop, what, {first, second}, recorded, 0};
    return graph->n++;
}

int graph_append(tandem_cuda_stream stream, void (*run)(void *what), void (*drop)(void *what), void *what,
                 tandem_cuda_event recorded)
{
    if (!capture.is_valid) {
        if (drop) drop(what);
        return CAPTURE_INVALIDATED;
    }
    stream->position.node = append_node(run, drop, what, recorded, stream->position.node, -1);
    return 0;
}

int graph_join(tandem_cuda_stream stream, const struct CUevent_st *event)
{
    const int is_ours = graph_is_captured(&stream->position), is_its = graph_is_captured(&event->position);
    if (!is_ours && !is_its) return CAPTURED_EVENT; /* of a capture that is over */
    if (!capture.is_valid) return CAPTURE_INVALIDATED;
    if (!is_its) return graph_invalidate(CAPTURE_ISOLATION);
    if (!is_ours)
        stream->position = event->position;
    else
        stream->position.node =
            append_node(NULL, NULL, NULL, NULL, stream->position.node, event->position.node);
    return 0;
}

void graph_has_host_call(void) { capture.graph->has_host_call = 1; }

/* Whether all of it comes before the origin's last node. */
static int is_capture_joined(const struct CUgraphExec_st *graph, int last)
{
    char *is_before = calloc((size_t)graph->n + 1, 1);
    int n = 0;
    if (!is_before) abort();
    if (last >= 0) is_before[last] = 1;
    for (int k = graph->n - 1; k >= 0; k--) {
        if (!is_before[k]) continue;
        n++;
        for (int d = 0; d < 2; d++)
            if (graph->node[k].after[d] >= 0) is_before[graph->node[k].after[d]] = 1;
    }
    free(is_before);
    return n == graph->n;
}

int graph_end(tandem_cuda_graph *graph, tandem_cuda_stream stream)
{
    if (!capture.is_under_way || capture.origin != stream || !pthread_equal(capture.thread, pthread_self()))
        return CAPTURE_UNMATCHED;
    capture.is_under_way = 0;
    const int failed = !capture.is_valid                                          ? CAPTURE_INVALIDATED
                       : !is_capture_joined(capture.graph, stream->position.node) ? CAPTURE_UNJOINED
                                                                                  : 0;
    if (failed)
        graph_drop(capture.graph);
    else
        *graph = capture.graph;
    if (!failed && !capture.graph->has_host_call) stand_in_graph_nodes += capture.graph->n;
    return failed;
}

void graph_drop(tandem_cuda_graph graph)
{
    for (int k = 0; k < graph->n; k++)
        if (graph->node[k].drop) graph->node[k].drop(graph->node[k].what);
    free(graph->node);
    free(graph);
}

/* --- Runs ----------------------------------------------------------------------------------------------- */

/* A card that is lost in a graph stays lost, and does no more of it. */
static void run_node(graph_node *one)
{
    if (one->run && stand_in_next_error()) {
        stand_in_fail_once = 0;
        stand_in_calls_to_failure = 0;
    } else if (one->run && stand_in_calls_to_failure != 0) {
        one->run(one->what);
    }
    if (one->recorded) one->recorded->within = NULL;
    one->is_done = 1;
}

static int is_ready(const struct CUgraphExec_st *graph, const graph_node *one)
{
    return !one->is_done && (one->after[0] < 0 || graph->node[one->after[0]].is_done) &&
           (one->after[1] < 0 || graph->node[one->after[1]].is_done);
}

/* One of the nodes that can be done; which, changes with the run. Returns whether there was one. */
static int run_ready_node(struct CUgraphExec_st *graph, unsigned draw)
{
    int n = 0, chosen = -1;
    for (int k = 0; k < graph->n; k++) n += is_ready(graph, &graph->node[k]);
    if (n == 0) return 0;
    int left = (int)(draw % (unsigned)n);
    for (int k = 0; chosen < 0; k++)
        if (is_ready(graph, &graph->node[k]) && left-- == 0) chosen = k;
    run_node(&graph->node[chosen]);
    return 1;
}

static void finish_first(tandem_cuda_stream stream)
{
    struct CUgraphExec_st *graph = stream->runs;
    for (unsigned k = 0; run_ready_node(graph, (unsigned)stand_in_graph_runs * 7 + k * 5); k++) continue;
    stream->runs = graph->next_run;
    graph->on = NULL;
    graph->next_run = NULL;
}

void graph_finish(tandem_cuda_stream stream)
{
    while (stream->runs) finish_first(stream);
}

void graph_run_until(tandem_cuda_graph graph, int last)
{
    char *is_needed = calloc((size_t)graph->n, 1);
    if (!is_needed) abort();
    while (graph->on && graph->on->runs != graph) finish_first(graph->on);
    is_needed[last] = 1;
    for (int k = last; k >= 0; k--)
        for (int d = 0; d < 2 && is_needed[k]; d++)
            if (graph->node[k].after[d] >= 0) is_needed[graph->node[k].after[d]] = 1;
    for (int k = 0; k <= last; k++)
        if (is_needed[k] && !graph->node[k].is_done) run_node(&graph->node[k]);
    free(is_needed);
}

void graph_finish_runs(tandem_cuda_graph graph)
{
    while (graph->on) finish_first(graph->on);
}

void graph_start(tandem_cuda_graph graph, tandem_cuda_stream stream)
{
    struct CUgraphExec_st **end = &stream->runs;
    graph_finish_runs(graph);
    while (*end) end = &(*end)->next_run;
    *end = graph;
    graph->on = stream;
    for (int k = 0; k < graph->n; k++) {
        graph->node[k].is_done = 0;
        const tandem_cuda_event event = graph->node[k].recorded;
        if (!event) continue;
        event->within = graph;
        event->node = k;
        event->on = NULL;
        event->position = (capture_position){0, -1};
    }
    if (!graph->has_host_call && stand_in_graph_runs++ % 3 == 0) graph_finish(stream);
}
