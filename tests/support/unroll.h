/* unroll.h: a replayed step as a graph of operators, every rank by itself: a second opinion on the replayer.
 *
 * The replayer runs each class once and knows what a step is made of. The DAG simulator (dag_simulator.h)
 * knows neither. Without contention both find the same times, to the nanosecond. */
#ifndef TANDEM_TESTS_UNROLL_H
#define TANDEM_TESTS_UNROLL_H

#include "tandem/advanced/dag_simulator.h"
#include "tandem/advanced/replayer.h"

enum { TICKS_PER_NS = 1024 }; /* all-reduces take whole ticks, so that nothing is rounded */

/* Every task of every rank is an operator on the rank's compute stream. Every all-reduce of a rank is one on
 * its communication stream, in a group with those of all other ranks. A rank's list begins as the replayer's
 * does: with the update of the last bucket, or with the norm of all gradients and all updates. */
typedef struct unrolled_step {
    tandem_dag graph;
    int64_t *duration_ticks; /* [graph.n_op] */
    int *task; /* [graph.n_op] in the class's step program; −1: the rank is still in the previous step */
    int n_rank, n_iteration, n_bucket, n_class;
    int first[TANDEM_MAX_CLASS];       /* the first operator of a class */
    int list_length[TANDEM_MAX_CLASS]; /* tasks of one rank in one iteration */
    int *wait_position; /* [n_class × n_bucket] position after the wait for a bucket; of the last, the end */
} unrolled_step;

/* Operator k of rank `rank` of class c in an iteration: tasks from 0 to list_length[c], then the all-reduces.
 * */
static inline int unrolled_op(const unrolled_step *u, int c, int rank, int iteration, int k)
{
    const int per_iteration = u->list_length[c] + u->n_bucket;
    return u->first[c] + rank * (1 + u->n_iteration * per_iteration) + 1 + iteration * per_iteration + k;
}

/* unroll_step: n_iteration ≥ 1 steps as of the last run of `replayer`, which must have no contention. */
void unroll_step(unrolled_step *unrolled, tandem_replayer *replayer, int n_iteration);
void unrolled_step_close(unrolled_step *unrolled);

/* unroll_replay: what tandem_replayer_run says, but peak_bytes, found by the DAG simulator from every rank.
 * */
tandem_replay unroll_replay(tandem_replayer *replayer);

#endif
