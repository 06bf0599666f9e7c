/* costs.c: the cost mapper: looks up every form of every task in the profile store, once a replayer; what is not there at
 * this batch is filled from other batches. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "replayer/stages.h"

const char *tandem_origin_name(tandem_origin origin)
{
    static const char *const name[TANDEM_N_ORIGIN] = {"measured", "interpolated", "extrapolated"};
    assert((unsigned)origin < TANDEM_N_ORIGIN);
    return name[origin];
}

static tandem_status no_costs(const tandem_step *step, const tandem_cost_source *source, tandem_error *error)
{
    return tandem_error_set(
        error, TANDEM_MISSING,
        "nothing of model %s has been measured on %s; `tandem profile --model %s --batch %lld --device %s` does it",
        step->graph->model, source->device->name, step->graph->model, (long long)step->graph->batch,
        source->device->name);
}

/* --- What was measured -------------------------------------------------------------------------- */

static void map_form(tandem_costs *costs, const tandem_step *step, int t, int variant, int company,
                     const tandem_cost_table *table)
{
    tandem_cost_key key;
    const size_t place = (size_t)t * TANDEM_MAX_VARIANT + (size_t)variant;
    if (step->task[t].kind == TANDEM_TASK_REDUCE || !tandem_step_key(step, t, variant, &key)) return;
    const tandem_cost *cost = tandem_cost_table_find(table, &key);
    if (!cost) return;
    costs->form[place].ns[company] = tandem_cost_mean_ns(cost);
    if (cost->workspace_bytes > costs->workspace_bytes[place])
        costs->workspace_bytes[place] = cost->workspace_bytes;
}

static tandem_status map_measured(tandem_costs *costs, const tandem_step *step, int company,
                                  const tandem_cost_source *source, tandem_error *error)
{
    tandem_cost_table *table = NULL;
    const tandem_status status =
        tandem_store_load_costs(&table, source->store, source->device->name,
                                company == TANDEM_BESIDE ? source->neighbour : "", step, error);
    for (int t = 0; t < step->n_task && status == TANDEM_OK; t++)
        for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++)
            map_form(costs, step, t, variant, company, table);
    tandem_cost_table_free(table);
    return status;
}

/* --- All sources -------------------------------------------------------------------------------- */

static int has_any(const tandem_costs *costs, size_t n_form)
{
    for (size_t i = 0; i < n_form; i++)
        if (costs->form[i].ns[TANDEM_ALONE] >= 0 || costs->form[i].ns[TANDEM_BESIDE] >= 0) return 1;
    return 0;
}

tandem_status tandem_costs_map(tandem_costs *out, const tandem_step *step, const tandem_cost_source *source,
                               tandem_error *error)
{
    const size_t n_form = (size_t)step->n_task * TANDEM_MAX_VARIANT;
    tandem_costs costs = {.form = malloc(n_form * sizeof *costs.form),
                          .workspace_bytes = calloc(n_form, sizeof *costs.workspace_bytes),
                          .origin = calloc(n_form, sizeof *costs.origin)};
    tandem_status status = TANDEM_OK;
    if (!costs.form || !costs.workspace_bytes || !costs.origin)
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the costs of %d tasks on %s",
                                  step->n_task, source->device->name);
    for (size_t i = 0; i < n_form && status == TANDEM_OK; i++) costs.form[i] = (tandem_form){{-1, -1}};
    for (int company = 0; company < TANDEM_N_COMPANY && status == TANDEM_OK; company++) {
        if (company == TANDEM_BESIDE && !source->neighbour[0]) continue;
        status = map_measured(&costs, step, company, source, error);
        if (status == TANDEM_OK) status = tandem_costs_fill_batches(&costs, step, company, source, error);
    }
    if (status == TANDEM_OK && !has_any(&costs, n_form)) status = no_costs(step, source, error);
    if (status == TANDEM_OK)
        *out = costs;
    else
        tandem_costs_free(&costs);
    return status;
}

void tandem_costs_free(tandem_costs *costs)
{
    free(costs->origin);
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

/* --- Where they came from ----------------------------------------------------------------------- */

void tandem_replayer_provenance(const tandem_replayer *replayer, int c, tandem_provenance *provenance)
{
    const tandem_replay_member *member = &replayer->member[c];
    const tandem_step *step = member->step;
    const int with_neighbour = member->neighbour[0] != '\0';
    *provenance = (tandem_provenance){.n_task = {0}};
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active || task->stream != TANDEM_STREAM_COMPUTE) continue;
        const size_t place = (size_t)t * TANDEM_MAX_VARIANT + (size_t)task->variant;
        const unsigned char *origin = member->costs.origin[place];
        int seen = origin[with_neighbour];
        if (with_neighbour && !member->is_own_neighbour && origin[TANDEM_ALONE] > seen)
            seen = origin[TANDEM_ALONE];
        provenance->n_task[seen]++;
        provenance->ns[seen] += member->costs.form[place].ns[with_neighbour];
    }
}
