/* costs.c: the cost mapper: looks up every form of every task in the profile store, once a replayer. */
#include <stdio.h>
#include <stdlib.h>

#include "replayer/stages.h"

static tandem_status no_costs(const tandem_step *step, const char *device, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MISSING,
                            "nothing has been measured on %s; `tandem profile --model %s --batch %lld --device %s` does it",
                            device, step->graph->model, (long long)step->graph->batch, device);
}

static void map_form(tandem_costs *costs, const tandem_step *step, int t, int variant,
                     const tandem_cost_table *const table[TANDEM_N_COMPANY])
{
    tandem_cost_key key;
    const size_t place = (size_t)t * TANDEM_MAX_VARIANT + (size_t)variant;
    costs->form[place] = (tandem_form){{-1, -1}};
    if (step->task[t].kind == TANDEM_TASK_REDUCE || !tandem_step_key(step, t, variant, &key)) return;
    for (int company = 0; company < TANDEM_N_COMPANY; company++) {
        const tandem_cost *cost = table[company] ? tandem_cost_table_find(table[company], &key) : NULL;
        if (!cost) continue;
        costs->form[place].ns[company] = tandem_cost_mean_ns(cost);
        if (cost->workspace_bytes > costs->workspace_bytes[place])
            costs->workspace_bytes[place] = cost->workspace_bytes;
    }
}

tandem_status tandem_costs_map(tandem_costs *out, const tandem_step *step, tandem_store *store,
                               const char *device, const char *neighbour, tandem_error *error)
{
    const size_t n_form = (size_t)step->n_task * TANDEM_MAX_VARIANT;
    tandem_cost_table *alone = NULL, *beside = NULL;
    tandem_costs costs = {.form = malloc(n_form * sizeof *costs.form),
                          .workspace_bytes = calloc(n_form, sizeof *costs.workspace_bytes)};
    tandem_status status = TANDEM_OK;
    if (!costs.form || !costs.workspace_bytes) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the costs of %d tasks on %s",
                                  step->n_task, device);
        goto out;
    }
    status = tandem_store_load_costs(&alone, store, device, "", step, error);
    if (status == TANDEM_OK && neighbour[0])
        status = tandem_store_load_costs(&beside, store, device, neighbour, step, error);
    if (status != TANDEM_OK) goto out;
    if (tandem_cost_table_count(alone) == 0 && tandem_cost_table_count(beside) == 0) {
        status = no_costs(step, device, error);
        goto out;
    }
    const tandem_cost_table *const table[TANDEM_N_COMPANY] = {alone, beside};
    for (int t = 0; t < step->n_task; t++)
        for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++)
            map_form(&costs, step, t, variant, table);
    *out = costs;
    costs = (tandem_costs){NULL, NULL};
out:
    tandem_cost_table_free(beside);
    tandem_cost_table_free(alone);
    tandem_costs_free(&costs);
    return status;
}

void tandem_costs_free(tandem_costs *costs)
{
    free(costs->workspace_bytes);
    free(costs->form);
}

tandem_status tandem_costs_missing(const tandem_step *step, int t, const char *device, const char *neighbour,
                                   int n_more, tandem_error *error)
{
    const tandem_task *task = &step->task[t];
    const char *op = task->op >= 0 ? step->graph->op[task->op].name : "the buckets";
    char key_text[TANDEM_MAX_SIGNATURE + 96] = "", more[64] = "";
    tandem_cost_key key;
    if (tandem_step_key(step, t, task->variant, &key)) tandem_cost_key_print(key_text, sizeof key_text, &key);
    if (n_more > 0) (void)snprintf(more, sizeof more, ", nor have %d more tasks of this plan", n_more);
    return tandem_error_set(error, TANDEM_MISSING,
                            "the time of '%s' (%s of %s) on %s%s%s has not been measured%s; "
                            "`tandem profile --model %s --batch %lld --device %s%s%s` does it",
                            key_text, tandem_task_kind_name(task->kind), op, device,
                            neighbour[0] ? " beside a busy " : "", neighbour, more, step->graph->model,
                            (long long)step->graph->batch, device, neighbour[0] ? "," : "", neighbour);
}
