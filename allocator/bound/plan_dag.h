/* plan_dag.h: all plans of one class, as the paths through a layered graph; private to allocator/.
 *
 * Layer l chooses the precision of one adjustable operator, in graph order. A state is what the operators
 * chosen so far leave open for later ones: the type of each tensor that is still to be read, the types in
 * which it and its gradient are already wanted. A path from the one state of layer 0 to the one state behind
 * the last layer is a plan; the terms of its arcs are exactly the compute tasks of its step program (step.h),
 * each in the form it takes, each once. So anything that is a sum over tasks (sensitivity, time in a given
 * company) is a length, and shortest paths bound what any plan can reach.
 *
 * Arcs share task sets: a task set is a set of terms; many arcs have the same. What a term costs depends on
 * who computes beside it, which the network does not know: solvers take one time a task set (solve.h). */
#ifndef TANDEM_ALLOCATOR_PLAN_DAG_H
#define TANDEM_ALLOCATOR_PLAN_DAG_H

#include "tandem/replayer.h"
#include "tandem/state_space.h"

typedef struct tandem_arc {
    int to;       /* a state, numbered through all layers */
    int task_set; /* what it adds */
    int choice;   /* precision; of a bare instance: the number of the choice */
    double sensitivity;
} tandem_arc;

typedef struct tandem_plan_dag {
    int n_layer;
    int *op; /* [n_layer] the operator chosen there; of a bare instance: the number of the item */
    /* [n_layer + 2]: states of layer l are state_start[l] … state_start[l + 1] − 1; there is one state
     * in layer 0 and one in layer n_layer */
    int *state_start;
    int *arc_start; /* [number of states + 1]: arcs that leave a state; ascending in choice */
    tandem_arc *arc;
    int n_task_set;      /* task set 0 is what every plan has: no arc has it, solvers add it once */
    int *task_set_start; /* [n_task_set + 1] */
    tandem_task_variant *task_variant; /* ascending in task, but for task set 0's */
    /* [n_task_set] summed over a plan: what the arena holds while the loss is computed, when all is there
     * that is saved for the backward pass (workspaces aside): tandem_memory.arena_live is never
     * less; of a bare instance: exactly what was given */
    uint64_t *bytes;
} tandem_plan_dag;

/* tandem_plan_dag_open: the network of class c of `replayer`, whose current precisions do not matter.
 * allowed[n_op]: bit p = operator may have precision p (0 for operators that are not adjustable, only for
 * those: else TANDEM_USAGE); sensitivity[n_op × TANDEM_N_PRECISION]. A path that needs a time that was not
 * measured (in the company in which the replayer would need it) is left out. TANDEM_MISSING where no path is
 * left, names a cost; TANDEM_NO_MEMORY, also where there would be more than 2²² arcs: models whose operators
 * leave dozens of tensors open at once (states take as many bits as they need; what grows is their number).
 * *network unchanged on error. Borrows nothing. Cost: O(arcs + task sets × terms); a hundred adjustable
 * operators open in under a millisecond. */
tandem_status tandem_plan_dag_open(tandem_plan_dag **plan_dag, const tandem_replayer *replayer, int c,
                                   const unsigned *allowed, const double *sensitivity, tandem_error *error);
void tandem_plan_dag_close(tandem_plan_dag *plan_dag); /* NULL is fine */

#endif
