/* baselines.c: the plans of one precision that a plan is compared with. */
#include "allocator/problem.h"

#include <stdio.h>

/* Bit c: class c differs from base. If none does: the class that the others wait for in base. */
static tandem_status find_lowered_classes(unsigned *lowered, const tandem_allocation_problem *problem,
                                          const tandem_plan *plan, tandem_error *error)
{
    tandem_plan *base = NULL;
    tandem_replay replay;
    *lowered = 0;
    for (int c = 0; c < plan->cluster.n_class; c++)
        if (!tandem_plan_is_uniform(plan, problem->graph, c, problem->base_precision)) *lowered |= 1u << c;
    if (*lowered) return TANDEM_OK;
    const tandem_status status = tandem_allocation_replay_base(&base, &replay, problem, error);
    tandem_plan_close(base);
    if (status == TANDEM_OK) *lowered = 1u << replay.slowest;
    return status;
}

tandem_status tandem_baseline_assign(tandem_plan *plan, const tandem_graph *graph,
                                     tandem_precision base_precision, const tandem_baseline *baseline,
                                     tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < plan->cluster.n_class && status == TANDEM_OK; c++)
        status = tandem_plan_uniform(
            plan, graph, c, baseline->lowered >> c & 1 ? baseline->precision : base_precision, error);
    return status;
}

/* Overwrites `plan`. *found = 0: a device lacks the precision, or a cost is missing. */
static tandem_status replay_uniform_baseline(tandem_baseline *out, int *found,
                                             const tandem_allocation_problem *problem, tandem_plan *plan,
                                             unsigned lowered, tandem_precision precision,
                                             tandem_error *error)
{
    tandem_replay replay;
    tandem_error why = {0};
    const tandem_baseline tried = {.precision = precision, .lowered = lowered};
    tandem_status status =
        tandem_baseline_assign(plan, problem->graph, problem->base_precision, &tried, &why);
    *found = 0;
    if (status == TANDEM_OK) {
        tandem_replayer_load(problem->replayer, &plan->assignment);
        status = tandem_replayer_run(problem->replayer, &replay, TANDEM_REPLAY_MEMORY, &why);
    }
    if (status == TANDEM_NO_KERNEL || status == TANDEM_MISSING) return TANDEM_OK;
    if (status != TANDEM_OK) return tandem_error_forward(status, &why, error);
    *found = 1;
    *out = (tandem_baseline){.precision = precision,
                             .step_ns = replay.step_ns,
                             .sensitivity_bound = tandem_allocation_sensitivity(problem),
                             .fits = 1,
                             .lowered = lowered};
    for (int c = 0; c < replay.n_class; c++) {
        out->peak_bytes[c] = replay.classes[c].peak_bytes;
        if (tandem_allocation_excess_bytes(problem, c, out->peak_bytes[c])) out->fits = 0;
    }
    (void)snprintf(out->name, sizeof out->name, "%s %s",
                   precision == problem->base_precision ? "all" : "uniform",
                   tandem_precision_get(precision)->name);
    return TANDEM_OK;
}

/* The base comes first, the others by their step. */
static void insert_baseline(tandem_baseline *baseline, int *n, const tandem_baseline *added)
{
    int at = (*n)++;
    for (; at > 1 && baseline[at - 1].step_ns > added->step_ns; at--) baseline[at] = baseline[at - 1];
    baseline[at] = *added;
}

/* Marks the two baselines next to the plan's step. */
static void mark_adjacent_baselines(tandem_baseline *baseline, int n, int64_t step_ns)
{
    int faster = -1, slower = -1;
    for (int k = 1; k < n; k++) {
        if (baseline[k].step_ns <= step_ns) faster = k;
        if (baseline[k].step_ns > step_ns && slower < 0) slower = k;
    }
    if (n > 0) baseline[0].relation = TANDEM_BASELINE_BASE;
    if (faster >= 0) baseline[faster].relation = TANDEM_BASELINE_FASTER;
    if (slower >= 0) baseline[slower].relation = TANDEM_BASELINE_SLOWER;
}

tandem_status tandem_baselines_find(tandem_baseline baseline[TANDEM_N_PRECISION], int *n_baseline,
                                    const tandem_allocation_problem *problem, const tandem_plan *plan,
                                    tandem_error *error)
{
    tandem_baseline found[TANDEM_N_PRECISION] = {{.name = ""}};
    tandem_plan *uniform = NULL;
    unsigned lowered;
    int n = 0;
    tandem_status status = find_lowered_classes(&lowered, problem, plan, error);
    if (status == TANDEM_OK) status = tandem_plan_open(&uniform, problem->graph, &plan->cluster, "", error);
    for (int k = -1; k < TANDEM_N_PRECISION && status == TANDEM_OK; k++) {
        const tandem_precision precision = k < 0 ? problem->base_precision : (tandem_precision)k;
        tandem_baseline tried;
        int is_there = 0;
        if (k == (int)problem->base_precision) continue;
        status = replay_uniform_baseline(&tried, &is_there, problem, uniform, lowered, precision, error);
        if (is_there) insert_baseline(found, &n, &tried);
    }
    tandem_plan_close(uniform);
    tandem_replayer_load(problem->replayer, &plan->assignment);
    if (status != TANDEM_OK) return status;
    mark_adjacent_baselines(found, n, plan->step_ns);
    for (int k = 0; k < n; k++) baseline[k] = found[k];
    *n_baseline = n;
    return TANDEM_OK;
}
