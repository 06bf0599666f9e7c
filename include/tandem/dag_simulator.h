/* engine.h: when operators run that wait for one another: the longest path through a graph of operators on
 * streams.
 *
 * An operator is ready when the operator before it on its stream and everything it depends on have ended.
 * Alone, it starts then. Operators of a group (the two ends of a message, the members of a collective) start
 * to transfer together, when the last of them is ready, and each ends its own duration later. Everything that
 * waits for nothing starts at 0.
 *
 * The graph is checked and put in order once; after that any number of durations can be tried, each in one
 * pass.
 *
 * Example: rank 0 computes 5 ns and sends, rank 1 receives and computes 7 ns:
 *
 *     const int stream[] = {0, 1, 2, 3}, group[] = {-1, 0, 0, -1};
 *     const tandem_dag_edge edge[] = {{0, 1}, {2, 3}};
 *     const tandem_dag graph = {
 *         .n_op = 4, .n_stream = 4, .n_group = 1, .n_edge = 2, .stream = stream, .group = group, .edge =
 *         edge};
 *     const int64_t duration_ns[] = {5, 1, 1, 7};
 *     tandem_dag_simulator_open(&engine, &graph, &error);
 *     tandem_dag_simulator_run(engine, duration_ns, NULL, NULL, &length_ns, &error);      // length_ns = 5 +
 *     1 + 7
 */
#ifndef TANDEM_DAG_SIMULATOR_H
#define TANDEM_DAG_SIMULATOR_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_dag_edge {
    int before, after; /* operators: `after` is not ready before `before` has ended */
} tandem_dag_edge;

typedef struct tandem_dag {
    int n_op, n_stream, n_group, n_edge;
    const int *stream;     /* [n_op] 0 … n_stream−1, in whose order the arrays stand; −1: on none */
    const int *group;      /* [n_op] 0 … n_group−1; −1: alone */
    const int *group_size; /* [n_group] members that it must have; NULL: any number */
    const tandem_dag_edge *edge; /* [n_edge] in any order; NULL where there are none */
    /* What an error calls an operator: writes into text[size]. NULL: "operator 7". */
    void (*name)(char *text, size_t size, const void *context, int op);
    const void *context;
} tandem_dag;

typedef struct tandem_dag_simulator tandem_dag_simulator;

/* tandem_dag_simulator_open: check a graph and put it in order. Keeps nothing of it but name and context.
 * TANDEM_MALFORMED, naming the operators: a stream, group or edge that leads nowhere, a group without a
 * member it must have, operators that wait for one another in a circle. TANDEM_NO_MEMORY. *engine unchanged
 * on error. Cost: O(operators + edges), time and memory. */
tandem_status tandem_dag_simulator_open(tandem_dag_simulator **simulator, const tandem_dag *graph,
                                        tandem_error *error);
void tandem_dag_simulator_close(tandem_dag_simulator *simulator); /* NULL is fine */

/* tandem_dag_simulator_run: when everything happens.
 *   duration_ns [in]   [n_op] of a member of a group: from when the last member is ready
 *   ready_ns    [out]  [n_op] when an operator is ready: starts, or begins to wait for its group; NULL: not
 *               wanted
 *   end_ns      [out]  [n_op]; NULL: not wanted
 *   length_ns   [out]  when the last one ends; 0 without operators
 * TANDEM_MALFORMED, naming the operator: a duration that is negative or over TANDEM_DAG_MAX_NS, or durations
 * that together exceed what 64 bits hold. Outputs unchanged on error.
 * Cost: O(operators + edges); allocates nothing. Distinct engines may run on distinct threads. */
#define TANDEM_DAG_MAX_NS (INT64_C(1) << 53) /* 104 days */
tandem_status tandem_dag_simulator_run(tandem_dag_simulator *simulator, const int64_t *duration_ns,
                                       int64_t *ready_ns, int64_t *end_ns, int64_t *length_ns,
                                       tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
