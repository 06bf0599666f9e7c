/* explain.c: why an operator has its precision: what every other one would change. */
#include "allocator/problem.h"

/* Time of the operator's own tasks in the last replay. Casts of its output belong to their readers. */
static int64_t op_self_ns(const tandem_replayer *replayer, int c, int op)
{
    const tandem_step *step = tandem_replayer_step(replayer, c);
    int64_t sum_ns = 0;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active || task->op != op) continue;
        if (task->kind != TANDEM_TASK_WEIGHT_CAST && task->kind != TANDEM_TASK_FORWARD &&
            task->kind != TANDEM_TASK_SAVED_CAST && task->kind != TANDEM_TASK_WGRAD &&
            task->kind != TANDEM_TASK_DGRAD)
            continue;
        const int64_t contended_ns = tandem_replayer_task_ns(replayer, c, t, 1);
        sum_ns += tandem_step_runs_per_step(step, task) *
                  (contended_ns >= 0 ? contended_ns : tandem_replayer_task_ns(replayer, c, t, 0));
    }
    return sum_ns;
}

/* Fills in the differences that a replay with this choice shows. */
static tandem_status explain_choice(tandem_choice *choice, const tandem_allocation_problem *problem,
                                    const tandem_replay *now, int64_t target_ns, int c, int op,
                                    tandem_error *error)
{
    tandem_replay replay;
    tandem_error why = {0};
    tandem_replayer_set(problem->replayer, c, op, choice->precision);
    const tandem_status status = tandem_replayer_run(problem->replayer, &replay, TANDEM_REPLAY_MEMORY, &why);
    if (status == TANDEM_MISSING) return TANDEM_OK;
    if (status != TANDEM_OK) return tandem_error_forward(status, &why, error);
    const uint64_t peak_bytes = replay.classes[c].peak_bytes;
    choice->is_measured = 1;
    choice->self_ns = op_self_ns(problem->replayer, c, op);
    choice->step_delta_ns = replay.step_ns - now->step_ns;
    choice->peak_delta_bytes = (int64_t)peak_bytes - (int64_t)now->classes[c].peak_bytes;
    if (target_ns && replay.step_ns > target_ns) choice->excess_ns = replay.step_ns - target_ns;
    choice->excess_bytes = tandem_allocation_excess_bytes(problem, c, peak_bytes);
    return TANDEM_OK;
}

tandem_status tandem_choices_explain(tandem_choice choice[TANDEM_N_PRECISION], int *n_choice,
                                     const tandem_allocation_problem *problem, int64_t target_ns, int c,
                                     int op, tandem_error *error)
{
    const tandem_op *explained = &problem->graph->op[op];
    const tandem_op_row *row = tandem_op_row_get(explained->kind);
    const unsigned precisions = tandem_op_precisions(problem, c, op);
    if (row->op_class != TANDEM_ADJUSTABLE)
        return tandem_error_set(
            error, TANDEM_USAGE, "'%s' is a %s, which carries no precision: it %s", explained->name,
            row->name, row->op_class == TANDEM_DEPENDENT ? "follows its inputs" : "computes in fp32");
    tandem_choice found[TANDEM_N_PRECISION];
    tandem_replay now;
    int n = 0;
    const tandem_precision chosen = tandem_replayer_get(problem->replayer, c, op);
    const int64_t *sensitivity = &problem->sensitivity[c][op * TANDEM_N_PRECISION];
    tandem_status status = tandem_replayer_run(problem->replayer, &now, TANDEM_REPLAY_MEMORY, error);
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        if (!(precisions & 1u << p)) continue;
        found[n] = (tandem_choice){
            .precision = (tandem_precision)p, .is_chosen = p == (int)chosen, .sensitivity = sensitivity[p]};
        status = explain_choice(&found[n++], problem, &now, target_ns, c, op, error);
    }
    tandem_replayer_set(problem->replayer, c, op, chosen);
    if (status != TANDEM_OK) return status;
    for (int k = 0; k < n; k++) choice[k] = found[k];
    *n_choice = n;
    return TANDEM_OK;
}
