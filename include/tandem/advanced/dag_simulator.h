/* dag_simulator.h: simulates a graph of operators on streams: the longest path.
 *
 * An operator is ready when its predecessors, and the previous operator on its stream, have ended. A single
 * operator then starts. The members of a group (both ends of a message, all parts of a collective) start
 * together when the last of them is ready; each ends after its own duration. Operators without predecessors
 * are ready at 0.
 *
 * Opening checks and orders the graph once. Each run with other durations is then one pass.
 *
 * Example: rank 0 computes 5 ns and sends; rank 1 receives and computes 7 ns:
 *
 *     const int stream[] = {0, 1, 2, 3}, group[] = {-1, 0, 0, -1};
 *     const tandem_dag_edge edge[] = {{0, 1}, {2, 3}};
 *     const tandem_dag graph = {.n_op = 4, .n_stream = 4, .n_group = 1, .n_edge = 2,
 *                               .stream = stream, .group = group, .edge =
 *                               edge};
 *     const int64_t duration_ns[] = {5, 1, 1, 7};
 *     tandem_dag_simulator_open(&simulator, &graph, &error);
 *     tandem_dag_simulator_run(simulator, duration_ns, NULL, NULL, &length_ns, &error); // 5 + 1 + 7 */
#ifndef TANDEM_DAG_SIMULATOR_H
#define TANDEM_DAG_SIMULATOR_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_dag_edge {
    int before, after; /* operators: `after` is not ready before `before` has ended */
} tandem_dag_edge;

typedef struct tandem_dag {
    int n_op, n_stream, n_group, n_edge;
    const int *stream;     /* [n_op] 0 … n_stream−1; operators run in array order; −1 = no stream */
    const int *group;      /* [n_op] 0 … n_group−1; −1 = single */
    const int *group_size; /* [n_group] required number of members; NULL = any */
    const tandem_dag_edge *edge; /* [n_edge] in any order; NULL if there are none */
    /* Writes an operator's name for errors into text[size]. NULL: "operator 7". */
    void (*name)(char *text, size_t size, const void *context, int op);
    const void *context;
} tandem_dag;

typedef struct tandem_dag_simulator tandem_dag_simulator;

/* tandem_dag_simulator_open: checks and orders a graph. Keeps only name and context of it.
 * TANDEM_MALFORMED, naming the operators: an invalid stream, group or edge; a group that lacks a member; a
 * dependency cycle. TANDEM_NO_MEMORY. *simulator unchanged on error. Cost: O(operators + edges), time and
 * memory. */
tandem_status tandem_dag_simulator_open(tandem_dag_simulator **simulator, const tandem_dag *graph,
                                        tandem_error *error);
void tandem_dag_simulator_close(tandem_dag_simulator *simulator); /* NULL is fine */

/* tandem_dag_simulator_run: computes all times.
 *   duration_ns [in]   [n_op] for a member of a group: after the last member is ready
 *   ready_ns    [out]  [n_op] when an operator starts, or begins to wait for its group; NULL = not wanted
 *   end_ns      [out]  [n_op]; NULL = not wanted
 *   length_ns   [out]  end of the last operator; 0 without operators
 * TANDEM_MALFORMED, naming the operator: a duration below 0 or above TANDEM_DAG_MAX_NS, or a sum beyond 64
 * bits. Outputs unchanged on error. Cost: O(operators + edges), without allocation. Different simulators
 * may run on different threads. */
#define TANDEM_DAG_MAX_NS (INT64_C(1) << 53) /* 104 days */
tandem_status tandem_dag_simulator_run(tandem_dag_simulator *simulator, const int64_t *duration_ns,
                                       int64_t *ready_ns, int64_t *end_ns, int64_t *length_ns,
                                       tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
