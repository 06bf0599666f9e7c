/* costs.c: the cost mapper: looks up every form of every task in the profile store, once a replayer; what is
 * not there at this batch is filled from other batches, and what is not there at all is predicted where that
 * was asked for. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "replayer/stages.h"

const char *tandem_origin_name(tandem_origin origin)
{
    static const char *const name[TANDEM_N_ORIGIN] = {"measured", "interpolated", "extrapolated",
                                                      "predicted"};
    assert((unsigned)origin < TANDEM_N_ORIGIN);
    return name[origin];
}

static tandem_status no_costs(const tandem_step *step, const tandem_cost_source *source, tandem_error *error)
{
    if (tandem_device_is_described(source->device))
        return tandem_error_set(error, TANDEM_MISSING,
                                "nothing of model %s has been measured on %s, which is a description to plan "
                                "with; --predict "
                                "takes the times from that",
                                step->graph->model, source->device->name);
    return tandem_error_set(
        error, TANDEM_MISSING,
        "nothing of model %s has been measured on %s; `tandem profile --model %s --batch %lld --device %s` "
        "does it",
        step->graph->model, source->device->name, step->graph->model, (long long)step->graph->batch,
        source->device->name);
}

/* --- What was measured -------------------------------------------------------------------------- */

/* Of a lognormal time between whose 10th and 90th percentile lie two times 1.2816 standard deviations of its
 * logarithm. */
static float sigma_of(const tandem_cost *cost)
{
    return cost->p10_ns > 0 && cost->p90_ns > cost->p10_ns
               ? (float)(log((double)cost->p90_ns / (double)cost->p10_ns) / (2 * 1.2815515655446004))
               : 0;
}

static void map_form(tandem_costs *costs, const tandem_step *step, int t, int variant, int company,
                     const tandem_cost_table *table)
{
    tandem_cost_key key;
    const size_t place = (size_t)t * TANDEM_MAX_VARIANT + (size_t)variant;
    if (step->task[t].kind == TANDEM_TASK_REDUCE || !tandem_step_key(step, t, variant, &key)) return;
    const tandem_cost *cost = tandem_cost_table_find(table, &key);
    if (!cost) return;
    costs->form[place].ns[company] = tandem_cost_mean_ns(cost);
    costs->sigma[place][company] = sigma_of(cost);
    if (cost->workspace_bytes > costs->form[place].workspace_bytes)
        costs->form[place].workspace_bytes = cost->workspace_bytes;
}

static tandem_status map_measured(tandem_costs *costs, const tandem_step *step, int company,
                                  const tandem_cost_source *source, tandem_error *error)
{
    tandem_cost_table *table = NULL;
    if (!source->store) return TANDEM_OK;
    const tandem_status status =
        tandem_store_load_costs(&table, source->store, source->device->name,
                                company == TANDEM_BESIDE ? source->neighbour : "", step, error);
    for (int t = 0; t < step->n_task && status == TANDEM_OK; t++)
        for (unsigned forms = tandem_step_forms(step, t, source->device->precisions); forms;
             forms &= forms - 1)
            map_form(costs, step, t, __builtin_ctz(forms), company, table);
    tandem_cost_table_free(table);
    return status;
}

/* --- What is predicted -------------------------------------------------------------------------- */

int tandem_costs_lack(const tandem_costs *costs, const tandem_step *step, int company,
                      const tandem_device *device)
{
    tandem_cost_key key;
    for (int t = 0; t < step->n_task; t++)
        for (unsigned forms = tandem_step_forms(step, t, device->precisions);
             forms && step->task[t].kind != TANDEM_TASK_REDUCE; forms &= forms - 1) {
            const int variant = __builtin_ctz(forms);
            if (costs->form[(size_t)t * TANDEM_MAX_VARIANT + (size_t)variant].ns[company] < 0 &&
                tandem_step_key(step, t, variant, &key))
                return 1;
        }
    return 0;
}

static void predict_form(tandem_costs *costs, const tandem_step *step, int t, int variant, int company,
                         const tandem_latency *latency)
{
    tandem_cost_key key;
    const size_t place = (size_t)t * TANDEM_MAX_VARIANT + (size_t)variant;
    if (costs->form[place].ns[company] >= 0 || step->task[t].kind == TANDEM_TASK_REDUCE ||
        !tandem_step_key(step, t, variant, &key))
        return;
    double spread = NAN;
    const int64_t ns = tandem_latency_ns(latency, &key, &spread);
    if (ns < 0) return;
    costs->spread[place][company] = (float)spread;
    costs->form[place].ns[company] = ns;
    costs->origin[place][company] = TANDEM_ORIGIN_PREDICTED;
}

static tandem_status fill_predicted(tandem_costs *costs, const tandem_step *step, int company,
                                    const tandem_cost_source *source, tandem_error *error)
{
    tandem_latency *latency = NULL;
    tandem_error why = {0};
    if (!source->predict || !tandem_costs_lack(costs, step, company, source->device)) return TANDEM_OK;
    if (!costs->spread)
        costs->spread = calloc((size_t)step->n_task * TANDEM_MAX_VARIANT, sizeof *costs->spread);
    if (!costs->spread)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to predict the times of %d tasks",
                                step->n_task);
    const tandem_status status = tandem_latency_open(
        &latency, source->device, company == TANDEM_BESIDE ? source->neighbour : "", source->store, &why);
    if (status == TANDEM_MISSING)
        return TANDEM_OK; /* the times stay missing; the plan that needs one says so */
    if (status != TANDEM_OK) {
        if (error) *error = why;
        return status;
    }
    for (int t = 0; t < step->n_task; t++)
        for (unsigned forms = tandem_step_forms(step, t, source->device->precisions); forms;
             forms &= forms - 1)
            predict_form(costs, step, t, __builtin_ctz(forms), company, latency);
    costs->n_fitted[company] = tandem_latency_fitted(latency);
    tandem_latency_close(latency);
    return TANDEM_OK;
}

/* --- All sources -------------------------------------------------------------------------------- */

static int has_any(const tandem_costs *costs, size_t n_form)
{
    for (size_t i = 0; i < n_form; i++)
        if (costs->form[i].ns[TANDEM_ALONE] >= 0 || costs->form[i].ns[TANDEM_BESIDE] >= 0) return 1;
    return 0;
}

static void slow_down(tandem_costs *costs, size_t n_form, int64_t slow_millionths)
{
    for (size_t i = 0; i < n_form; i++)
        for (int company = 0; company < TANDEM_N_COMPANY; company++) {
            int64_t *const ns = &costs->form[i].ns[company];
            if (*ns > 0) *ns = tandem_whole_ns((double)*ns * ((double)slow_millionths / 1e6));
        }
}

tandem_status tandem_costs_map(tandem_costs *out, const tandem_step *step, const tandem_cost_source *source,
                               tandem_error *error)
{
    const size_t n_form = (size_t)step->n_task * TANDEM_MAX_VARIANT;
    tandem_costs costs = {.form = malloc(n_form * sizeof *costs.form),
                          .origin = calloc(n_form, sizeof *costs.origin),
                          .sigma = calloc(n_form, sizeof *costs.sigma)};
    tandem_status status = TANDEM_OK;
    if (!costs.form || !costs.origin || !costs.sigma)
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the costs of %d tasks on %s",
                                  step->n_task, source->device->name);
    for (size_t i = 0; i < n_form && status == TANDEM_OK; i++) costs.form[i] = (tandem_form){.ns = {-1, -1}};
    for (int company = 0; company < TANDEM_N_COMPANY && status == TANDEM_OK; company++) {
        if (company == TANDEM_BESIDE && !source->neighbour[0]) continue;
        status = map_measured(&costs, step, company, source, error);
        if (status == TANDEM_OK) status = tandem_costs_fill_batches(&costs, step, company, source, error);
        if (status == TANDEM_OK) status = fill_predicted(&costs, step, company, source, error);
    }
    if (status == TANDEM_OK && !has_any(&costs, n_form)) status = no_costs(step, source, error);
    if (status == TANDEM_OK && source->slow_millionths > 0)
        slow_down(&costs, n_form, source->slow_millionths);
    if (status == TANDEM_OK)
        *out = costs;
    else
        tandem_costs_free(&costs);
    return status;
}

void tandem_costs_free(tandem_costs *costs)
{
    free(costs->spread);
    free(costs->sigma);
    free(costs->origin);
    free(costs->form);
}

tandem_status tandem_costs_missing(const tandem_step *step, int t, int variant, const char *device,
                                   const char *beside, const char *neighbour, const char *more,
                                   tandem_error *error)
{
    const tandem_task *task = &step->task[t];
    const char *op = task->op >= 0 ? step->graph->op[task->op].name : "the buckets";
    char key_text[TANDEM_COST_KEY_TEXT] = "", micro[32] = "", scaling[TANDEM_CAST_SCALING_TEXT] = "";
    tandem_cost_key key;
    if (tandem_step_key(step, t, variant, &key)) tandem_cost_key_print(key_text, sizeof key_text, &key);
    if (step->options.n_micro > 1)
        (void)snprintf(micro, sizeof micro, " --accumulate %d", step->options.n_micro);
    const int is_delayed = step->options.scaling.window > 0;
    if (is_delayed) (void)tandem_cast_scaling_print(scaling, step->options.scaling);
    return tandem_error_set(
        error, TANDEM_MISSING,
        "the time of '%s' (%s of %s) on %s%s%s has not been measured%s; "
        "`tandem profile --model %s --batch %lld --device %s%s%s%s%s%s%s` does it",
        key_text, tandem_task_kind_name(task->kind), op, device, beside[0] ? " beside a busy " : "", beside,
        more, step->graph->model, (long long)step->graph->batch, device, neighbour[0] ? "," : "", neighbour,
        micro, is_delayed ? " --scaling " : "", scaling, task->kind == TANDEM_TASK_NORM ? " --clip 1" : "");
}

/* --- Where they came from ----------------------------------------------------------------------- */

const tandem_exchange *tandem_replayer_exchange(const tandem_replayer *replayer)
{
    return &replayer->exchange;
}

/* The least certain origin of the times that a form has. */
static int origin_of(const tandem_costs *costs, size_t place)
{
    int seen = TANDEM_ORIGIN_MEASURED;
    for (int company = 0; company < TANDEM_N_COMPANY; company++)
        if (costs->form[place].ns[company] >= 0 && costs->origin[place][company] > seen)
            seen = costs->origin[place][company];
    return seen;
}

void tandem_replayer_provenance(const tandem_replayer *replayer, int c, tandem_provenance *out)
{
    const tandem_replay_member *member = &replayer->member[c];
    const int company = member->neighbour[0] ? TANDEM_BESIDE : TANDEM_ALONE;
    tandem_provenance provenance = {.n_fitted = member->costs.n_fitted[company]};
    double spread = 0;
    for (int t = 0; t < member->step->n_task; t++) {
        const tandem_task *task = &member->step->task[t];
        const size_t place = (size_t)t * TANDEM_MAX_VARIANT + (size_t)task->variant;
        if (!task->active || task->stream != TANDEM_STREAM_COMPUTE) continue;
        const int origin = origin_of(&member->costs, place);
        const int64_t ns = tandem_step_repeats(member->step, task) * member->costs.form[place].ns[company];
        provenance.n_task[origin]++;
        provenance.ns[origin] += ns;
        if (origin == TANDEM_ORIGIN_PREDICTED)
            spread += (double)ns * (double)member->costs.spread[place][company];
    }
    const int64_t predicted_ns = provenance.ns[TANDEM_ORIGIN_PREDICTED];
    provenance.spread = predicted_ns > 0 ? spread / (double)predicted_ns : NAN;
    *out = provenance;
}
