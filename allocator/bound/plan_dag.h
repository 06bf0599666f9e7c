/* plan_dag.h: all plans of one class as the paths through a layered graph; private to allocator/.
 *
 * Layer l chooses the precision of one adjustable operator, in graph order. A state holds what later
 * operators need to know of the choices so far: the type of each tensor that is still to be read, and the
 * casts of it and of its gradient that exist (state_space.h). A path from the state of layer 0 to the state
 * after the last layer is a plan. The task variants of its arcs are exactly the compute tasks of its step
 * program (step.h), each once. So anything that is a sum over tasks (sensitivity, time under given
 * contention) is a path length, and shortest paths bound what any plan can reach.
 *
 * Many arcs share a task set. The time of a task variant depends on contention, which the plan DAG does not
 * know: solvers take one time per task set (solve.h). */
#pragma once

#include "tandem/advanced/replayer.h"
#include "tandem/advanced/state_space.h"

typedef struct tandem_arc {
    int to;       /* a state; states are numbered through all layers */
    int task_set; /* what it adds */
    int choice;   /* a precision, or the choice of a knapsack item */
    double sensitivity;
} tandem_arc;

typedef struct tandem_plan_dag {
    int n_layer;
    int *op; /* [n_layer] the operator chosen there, or the knapsack item */
    /* [n_layer + 2] states of layer l are state_start[l] … state_start[l + 1] − 1; layers 0 and n_layer have
     * one state each */
    int *state_start;
    int *arc_start; /* [number of states + 1] arcs that leave a state, ascending in choice */
    tandem_arc *arc;
    int n_task_set;      /* task set 0 is part of every plan: no arc has it, solvers add it once */
    int *task_set_start; /* [n_task_set + 1] */
    tandem_task_variant *task_variant; /* ascending in task, except in task set 0 */
    /* [n_task_set] summed over a plan: the arena's bytes, without workspaces, while the loss is computed and
     * all saved tensors exist; a lower bound of tandem_memory.arena_live */
    uint64_t *bytes;
} tandem_plan_dag;

/* tandem_plan_dag_open: the plan DAG of class c of `replayer`, for all current precisions.
 *   allowed      [n_op] bit p: the operator may have precision p; 0 for operators that are not adjustable,
 *                and only for those (TANDEM_USAGE)
 *   sensitivity  [n_op × TANDEM_N_PRECISION]
 * Paths that need an unmeasured time, contended where the replayer needs that, are left out. TANDEM_MISSING:
 * no path is left; names a cost. TANDEM_NO_MEMORY: also for more than 2²² arcs, in models whose operators
 * leave dozens of tensors in use at once. *plan_dag (new, the caller closes it) is unchanged on error and
 * borrows nothing. Cost: O(arcs + task sets × task variants); under a millisecond for a hundred adjustable
 * operators. */
tandem_status tandem_plan_dag_open(tandem_plan_dag **plan_dag, const tandem_replayer *replayer, int c,
                                   const unsigned *allowed, const int64_t *sensitivity, tandem_error *error);
void tandem_plan_dag_close(tandem_plan_dag *plan_dag); /* NULL is fine */
