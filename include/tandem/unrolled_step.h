/* unrolled_step.h: a replayed step once more, rank by rank, in the general engine: a second opinion on the
 * replayer, and a way to put the step into hands that know only operators, streams and groups.
 *
 * The replayer runs each class once and knows what a step is made of; the engine (engine.h) knows neither.
 * Where nobody slows anybody they say the same, to the nanosecond: `tandem replay --check`. */
#ifndef TANDEM_UNROLLED_STEP_H
#define TANDEM_UNROLLED_STEP_H

#include "tandem/dag_simulator.h"
#include "tandem/replayer.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum {
    TANDEM_TICKS_PER_NS = 1024, /* all-reduces take whole ticks, so that nothing is rounded */
    TANDEM_UNROLLED_MAX_OPS = 1 << 25
};

/* Every task of every rank is an operator on the rank's compute stream, every all-reduce of a rank one on its
 * communication stream, in a group with those of all others; n_iteration steps one behind the other. A rank's
 * list goes round as the replayer's does: the update of the last bucket stands first, and waits for the lap
 * before; where there is a norm of all gradients, it and all updates do. */
typedef struct tandem_unrolled_step {
    tandem_dag graph;
    int64_t *duration_ticks; /* [graph.n_op] */
    int *task; /* [graph.n_op] in the class's step program; −1: the rank is still in the step before */
    int n_rank, n_iteration, n_bucket, n_class;
    /* of a class: its first operator, its tasks a lap; the place in the lap behind the wait for each bucket,
     * [n_class × n_bucket], of the last bucket the end of the lap. tandem_unrolled_op finds an operator. */
    int first[TANDEM_MAX_CLASS], list_length[TANDEM_MAX_CLASS];
    int *wait_position;
} tandem_unrolled_step;

/* Operator number k of rank `rank` of class c in a lap: tasks, from 0 to list_length[c]; then all-reduces,
 * bucket by bucket. */
static inline int tandem_unrolled_op(const tandem_unrolled_step *e, int c, int rank, int iteration, int k)
{
    const int per_iteration = e->list_length[c] + e->n_bucket;
    return e->first[c] + rank * (1 + e->n_iteration * per_iteration) + 1 + iteration * per_iteration + k;
}

/* tandem_replayer_unroll: the step of the last run of `replayer`, which must have been run, n_iteration ≥ 1
 * times. TANDEM_USAGE where times depend on who else is busy (tandem_replayer_has_contention), or where there
 * would be more than TANDEM_UNROLLED_MAX_OPS operators; TANDEM_NO_MEMORY. *expansion unchanged on error.
 * Cost: O(operators), time and memory. */
tandem_status tandem_replayer_unroll(tandem_unrolled_step **unrolled, tandem_replayer *replayer,
                                     int n_iteration, tandem_error *error);
void tandem_unrolled_step_close(tandem_unrolled_step *unrolled); /* NULL is fine */

/* tandem_replayer_run_unrolled: what tandem_replayer_run says, but peak_bytes, found by the engine from every
 * rank: laps until one is like the one before. TANDEM_BUG where two ranks of a class differ or laps do not
 * settle; errors of tandem_replayer_unroll. n_op [out]: operators that were run; may be NULL. Outputs
 * unchanged on error. */
tandem_status tandem_replayer_run_unrolled(tandem_replayer *replayer, tandem_replay *replay, int64_t *n_op,
                                           tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
