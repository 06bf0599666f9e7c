/* relaxation.h: what every plan within a step target must satisfy, class by class, as limits on sums over
 * tasks; private to allocator/.
 *
 * Given the target, classes meet only at the buckets' barriers, so each has limits of its own:
 *
 * 1. Between two laps of the step (replayer.h) class c runs the update of its last bucket, its forward and
 *    its backward pass, work W, without a pause, and then the last bucket is reduced. While an earlier bucket
 *    b is on the wire beside this work, the work is slower by s: a bucket that takes loaded_b costs it (1 −
 *    1/s)·loaded_b; what of it is reduced later delays the last bucket by min(idle_b, loaded_b) at the least.
 *    So
 *        step ≥ W + Σ_{b < last} min((1 − 1/s)·loaded_b, w_b) + w_last,   w_b = min(idle_b, loaded_b),
 *    and likewise for every earlier bucket k: work until k is handed over, plus w_b for all b ≥ k.
 *
 * 2. W depends on the company. Where c shares its node, it computes beside another class for the first G ns
 *    at least: that class, too, runs without a pause until its backward pass is through, which takes its own
 *    work beside a neighbour (of a held class a constant, of another the least of all its plans). After that
 *    c may be alone. Let the *switch* be the task in which c's time reaches G. With b_i a task's time beside
 *    and m_i = min(alone, beside), for tasks κ1 ≤ κ2 (ids ascend in time) and any plan whose switch lies in
 *    [κ1, κ2):
 *        W ≥ Σ_{i < κ1} b_i + Σ_{i ≥ κ1} m_i        and        W ≥ G + Σ_{i ≥ κ2} m_i.
 *    Both are sums, so shortest paths through the network bound the sensitivity of such plans; the least over
 *    a partition of the tasks into such intervals bounds that of all. The interval with the least bound is
 *    halved until it is one operator.
 *
 *    Where the norm of all gradients comes before any update, it and all updates come first.
 *    With n micro-steps, W is n passes one after the other, and only the last of them hands buckets over. So
 *    a task counts n times, and a moment of the step is micro-step · number of tasks + task.
 *
 * 3. All tasks of c's step, the updates of all buckets too, take no longer than the step, at their best.
 *
 * 4. Memory: what lives when the backward pass begins fits beside weights, gradients and optimizer. */
#ifndef TANDEM_ALLOCATOR_RELAXATION_H
#define TANDEM_ALLOCATOR_RELAXATION_H

#include "allocator/bound/solve.h"
#include "tandem/allocator.h"

typedef struct tandem_relaxation {
    const tandem_allocation_problem *problem;
    int c;
    tandem_plan_dag *plan_dag;
    int64_t *contended_ns, *min_ns; /* [n_task_variant] b_i and m_i */
    /* [n_task_variant] the task; −1 for what runs first, n_micro · n_task for what is not in W */
    int64_t *first_moment;
    int64_t min_contended_ns; /* G */
    uint64_t fixed_bytes;     /* weights, gradients, optimizer: memory must have been replayed before */
    /* [n_cut] first backward task of each operator, ascending: where intervals may end, in every micro-step
     * */
    int *cut_task;
    int n_cut;
    int64_t *time_ns; /* [n_task_set] of the interval that is being solved */
    uint64_t *after_ns;
    uint64_t limit_bytes; /* of the class; 0 = none */
} tandem_relaxation;

/* allowed[n_op]: bit p: operator may have p. Where the class shares its node, set `min_contended_ns` before
 * the first bound (bound.c does). TANDEM_MISSING, TANDEM_NO_MEMORY; *relaxation is unchanged on error. */
tandem_status tandem_relaxation_open(tandem_relaxation *relaxation, const tandem_allocation_problem *problem,
                                     int c, const unsigned *allowed, tandem_error *error);
void tandem_relaxation_close(tandem_relaxation *relaxation);

/* The least time, beside others, in which the class can reach the end of its backward pass: its share of
 * another class's min_contended_ns. */
tandem_status tandem_relaxation_contended_ns(int64_t *ns, const tandem_relaxation *relaxation,
                                             tandem_error *error);

/* tandem_relaxation_bound: no plan of the class within target_ns has less sensitivity than
 * solution->lower_bound, up to a share `tolerance` of it. solution->choice, where something was found: a plan
 * within the limits of the interval with the least bound, which a replay may still find too slow. Stops after
 * time_limit_s with what is proven by then. Cost: some tens of tandem_solve_lagrange, some
 * tandem_solve_exact. */
tandem_status tandem_relaxation_bound(tandem_solution *solution, tandem_relaxation *relaxation,
                                      int64_t target_ns, uint64_t byte_limit, double tolerance,
                                      double time_limit_s, tandem_error *error);

/* tandem_relaxation_limits: the limits of the whole range of tasks as one interval: for enumeration. They
 * point into the relaxation until it is used again. */
tandem_limits tandem_relaxation_limits(tandem_relaxation *relaxation, int64_t target_ns);

/* Bytes that plans may have alive in the arena under the class's limit; UINT64_MAX = no limit. */
uint64_t tandem_relaxation_arena_limit(const tandem_relaxation *relaxation);

#endif
