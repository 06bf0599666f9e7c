/* stand_in_graph.h: streams, events and graphs of stand_in.h. While a stream is captured, what it is given
 * becomes a node with its arguments as they are then, after the nodes it must wait for. A run does them in
 * another order each time, of those that their dependencies allow; and two of three runs do nothing before
 * somebody waits for them, and then no more than must be done: several may are after one another.
 *
 * What may not be done to a capture, and what then becomes of it, is as documented: CUDA Runtime API 13.0
 * (cudaStreamBeginCapture, cudaThreadExchangeStreamCaptureMode, cudaError_t); CUDA C++ Programming Guide,
 * "Creating a Graph Using Stream Capture". */
#ifndef TANDEM_TESTS_CUDA_STAND_IN_GRAPH_H
#define TANDEM_TESTS_CUDA_STAND_IN_GRAPH_H

#include "tests/cuda/stand_in.h"

#pragma GCC visibility push(hidden)

enum {
    CAPTURE_UNSUPPORTED = 900, /* cudaErrorStreamCaptureUnsupported, and so on */
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907
};

/* Where in a capture a stream or an event is. */
typedef struct capture_position {
    int capture; /* its number; 0: of none */
    int node;    /* after this one; −1: at the begin */
} capture_position;

typedef struct queued queued;
struct CUstream_st {
    int is_first;
    queued *first, **end;
    capture_position position;
    tandem_cuda_graph runs; /* the first that has not been done as a whole; NULL = none */
};

struct CUevent_st {
    int64_t at_ns;
    tandem_cuda_stream on;     /* that has still to come to it; NULL = none */
    int64_t late_copies;       /* that were on their way when it was recorded, and before */
    capture_position position; /* where it was last recorded in a capture */
    tandem_cuda_graph within;  /* that has still to come to it, at `node`; NULL = none */
    int node;
};

/* All of these are called by who holds the stand-in's lock. */
int graph_is_captured(const capture_position *position);
int graph_begin(tandem_cuda_stream stream);
int graph_end(tandem_cuda_graph *graph, tandem_cuda_stream stream);
void graph_drop(tandem_cuda_graph graph);
/* A node after what the captured stream was given; recorded: an event outside, or NULL. `what` is the
 * graph's then, whatever is returned. */
int graph_append(tandem_cuda_stream stream, void (*run)(void *what), void (*drop)(void *what), void *what,
                 tandem_cuda_event recorded);
/* The graph under way calls the host: its runs are not counted, and none is done before somebody waits. */
void graph_has_host_call(void);
/* The stream waits for an event, where one of the two is captured. */
int graph_join(tandem_cuda_stream stream, const struct CUevent_st *event);
/* A call that this thread may not make while it captures. */
int graph_forbidden_call(void);
/* Ends the capture's use, and returns `error`. */
int graph_invalidate(int error);
void graph_finish_runs(tandem_cuda_graph graph);
void graph_start(tandem_cuda_graph graph, tandem_cuda_stream stream);
void graph_finish(tandem_cuda_stream stream);            /* what runs on it */
void graph_run_until(tandem_cuda_graph graph, int node); /* and to what that needs */

#pragma GCC visibility pop
#endif
