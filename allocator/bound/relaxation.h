/* relaxation.h: necessary conditions on the plans of one class within a step target, as limits on sums over
 * tasks; private to allocator/.
 *
 * Given the target, classes interact only through the all-reduces of the buckets. So each class has limits of
 * its own:
 *
 * 1. Work. In each iteration (replayer.h) class c runs the update of its last bucket, its forward and its
 *    backward pass: work W, without a pause. Then the last bucket is reduced. While an earlier bucket b is on
 *    the wire, the work is slower by s. A bucket on the wire for loaded_b costs the work (1 − 1/s)·loaded_b.
 *    The part of it that is reduced after the work delays the last bucket by at least min(idle_b, loaded_b).
 *    So
 *        step ≥ W + Σ_{b < last} min((1 − 1/s)·loaded_b, w_b) + w_last,   w_b = min(idle_b, loaded_b).
 *    The same holds for every earlier bucket k: work until k is ready, plus w_b for all b ≥ k.
 *
 * 2. Contention. Where c shares its node, it computes beside another class for at least the first G ns: that
 *    class, too, runs without a pause until its backward pass ends. G is the contended work of that class: a
 *    constant for a class that keeps the base precision, else the minimum over its plans. After G, c may be
 *    alone. The *switch* is the task in which c's time reaches G. Let b_i be the contended time of task i,
 *    and m_i = min(alone, contended). For tasks κ1 ≤ κ2 (ids ascend in time) and any plan whose switch lies
 *    in [κ1, κ2):
 *        W ≥ Σ_{i < κ1} b_i + Σ_{i ≥ κ1} m_i        and        W ≥ G + Σ_{i ≥ κ2} m_i.
 *    Both are sums. So shortest paths through the plan DAG bound the sensitivity of such plans, and the
 *    minimum over a partition of the tasks into intervals bounds that of all plans. The interval with the
 *    smallest bound is halved until it is one operator.
 *
 *    Where the norm of all gradients precedes the updates, it and all updates come first.
 *    With n micro-steps, W is n passes in sequence, and only the last one makes buckets ready. So a task
 *    counts n times, and a moment of the step is micro-step · number of tasks + task.
 *
 * 3. Total. All tasks of c's step, including the updates of all buckets, at their minimum times, fit in the
 *    step.
 *
 * 4. Memory. The values that live when the backward pass begins fit beside weights, gradients and optimizer
 *    state. */
#pragma once

#include "allocator/bound/solve.h"
#include "allocator/bound/effort.h"
#include "tandem/advanced/allocator.h"

typedef struct tandem_relaxation {
    const tandem_allocation_problem *problem;
    int c;
    tandem_plan_dag *plan_dag;
    int64_t *contended_ns, *min_ns; /* [n_task_variant] b_i and m_i */
    /* [n_task_variant] when it first runs: the task; −1 before all others; n_micro · n_task where not in W */
    int64_t *first_moment;
    int64_t min_contended_ns; /* G */
    uint64_t fixed_bytes;     /* weights, gradients, optimizer state; needs a replay with memory before */
    /* [n_cut] first backward task of each operator, ascending; intervals end there, in every micro-step */
    int *cut_task;
    int n_cut;
    int64_t *time_ns; /* [n_task_set] of the current interval */
    uint64_t *after_ns;
    uint64_t limit_bytes; /* of the class; 0 = none */
} tandem_relaxation;

/* allowed[n_op]: bit p: the operator may have precision p. Where the class shares its node, set
 * `min_contended_ns` before the first bound (bound.c does). TANDEM_MISSING, TANDEM_NO_MEMORY; *relaxation is
 * unchanged on error. */
tandem_status tandem_relaxation_open(tandem_relaxation *relaxation, const tandem_allocation_problem *problem,
                                     int c, const unsigned *allowed, tandem_error *error);
void tandem_relaxation_close(tandem_relaxation *relaxation);

/* The minimum contended time in which the class reaches the end of its backward pass: G of another class.
 * TANDEM_NO_MEMORY. */
tandem_status tandem_relaxation_contended_ns(int64_t *ns, const tandem_relaxation *relaxation,
                                             tandem_error *error);

/* tandem_relaxation_bound: solution->lower_bound: no plan of the class within target_ns has less sensitivity;
 * the bound is tight to the relative `tolerance`. solution->choice: a plan within the limits of the interval
 * with the smallest bound, where one was found; a replay may still find it too slow. Spends `work`; where
 * none is left, it ends with what is proven by then. Cost: some tens of tandem_solve_lagrange, some of
 * tandem_solve_exact. */
tandem_status tandem_relaxation_bound(tandem_solution *solution, tandem_relaxation *relaxation,
                                      int64_t target_ns, uint64_t byte_limit, double tolerance,
                                      tandem_effort *work, tandem_error *error);

/* tandem_relaxation_limits: the limits of all tasks as one interval, for enumeration. They point into the
 * relaxation and are valid until its next use. */
tandem_limits tandem_relaxation_limits(tandem_relaxation *relaxation, int64_t target_ns);

/* The arena's bytes under the class's memory limit; UINT64_MAX = no limit. */
uint64_t tandem_relaxation_arena_limit(const tandem_relaxation *relaxation);
