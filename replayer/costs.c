/* costs.c: the cost mapper: looks up every form of every task in the profile store, once a replayer; what is
 * not there at this batch is filled from other batches, and what is not there at all is predicted where that
 * was asked for. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "replayer/internal.h"

const char *tandem_origin_name(tandem_origin origin)
{
    static const char *const name[TANDEM_N_ORIGIN] = {"measured", "interpolated", "extrapolated",
                                                      "predicted"};
    assert((unsigned)origin < TANDEM_N_ORIGIN);
    return name[origin];
}

static tandem_status no_measured_costs(const tandem_step *step, const tandem_cost_source *source,
                                       tandem_error *error)
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
static float lognormal_sigma(const tandem_cost *cost)
{
    return cost->p10_ns > 0 && cost->p90_ns > cost->p10_ns
               ? (float)(log((double)cost->p90_ns / (double)cost->p10_ns) / (2 * 1.2815515655446004))
               : 0;
}

static void map_variant_cost(tandem_costs *costs, const tandem_step *step, int t, int variant, int contention,
                             const tandem_cost_table *table)
{
    tandem_cost_key key;
    const size_t slot = (size_t)t * TANDEM_MAX_VARIANT + (size_t)variant;
    if (step->task[t].kind == TANDEM_TASK_REDUCE || !tandem_step_cost_key(step, t, variant, &key)) return;
    const tandem_cost *cost = tandem_cost_table_find(table, &key);
    if (!cost) return;
    costs->variant_cost[slot].ns[contention] = tandem_cost_mean_ns(cost);
    costs->sigma[slot][contention] = lognormal_sigma(cost);
    if (cost->workspace_bytes > costs->variant_cost[slot].workspace_bytes)
        costs->variant_cost[slot].workspace_bytes = cost->workspace_bytes;
}

static tandem_status map_measured_costs(tandem_costs *costs, const tandem_step *step, int contention,
                                        const tandem_cost_source *source, tandem_error *error)
{
    tandem_cost_table *table = NULL;
    if (!source->store) return TANDEM_OK;
    const tandem_status status =
        tandem_store_load_costs(&table, source->store, source->device->name,
                                contention == TANDEM_CONTENDED ? source->co_runner : "", step, error);
    for (int t = 0; t < step->n_task && status == TANDEM_OK; t++)
        for (unsigned variants = tandem_step_variants(step, t, source->device->precisions); variants;
             variants &= variants - 1)
            map_variant_cost(costs, step, t, __builtin_ctz(variants), contention, table);
    tandem_cost_table_free(table);
    return status;
}

/* --- What is predicted -------------------------------------------------------------------------- */

int tandem_costs_any_missing(const tandem_costs *costs, const tandem_step *step, int contention,
                             const tandem_device *device)
{
    tandem_cost_key key;
    for (int t = 0; t < step->n_task; t++)
        for (unsigned variants = tandem_step_variants(step, t, device->precisions);
             variants && step->task[t].kind != TANDEM_TASK_REDUCE; variants &= variants - 1) {
            const int variant = __builtin_ctz(variants);
            if (costs->variant_cost[(size_t)t * TANDEM_MAX_VARIANT + (size_t)variant].ns[contention] < 0 &&
                tandem_step_cost_key(step, t, variant, &key))
                return 1;
        }
    return 0;
}

static void predict_variant_cost(tandem_costs *costs, const tandem_step *step, int t, int variant,
                                 int contention, const tandem_latency *latency)
{
    tandem_cost_key key;
    const size_t slot = (size_t)t * TANDEM_MAX_VARIANT + (size_t)variant;
    if (costs->variant_cost[slot].ns[contention] >= 0 || step->task[t].kind == TANDEM_TASK_REDUCE ||
        !tandem_step_cost_key(step, t, variant, &key))
        return;
    double spread = NAN;
    const int64_t ns = tandem_latency_ns(latency, &key, &spread);
    if (ns < 0) return;
    costs->spread[slot][contention] = (float)spread;
    costs->variant_cost[slot].ns[contention] = ns;
    costs->origin[slot][contention] = TANDEM_ORIGIN_PREDICTED;
}

static tandem_status fill_predicted_costs(tandem_costs *costs, const tandem_step *step, int contention,
                                          const tandem_cost_source *source, tandem_error *error)
{
    tandem_latency *latency = NULL;
    tandem_error refusal = {0};
    if (!source->predict || !tandem_costs_any_missing(costs, step, contention, source->device))
        return TANDEM_OK;
    if (!costs->spread)
        costs->spread = calloc((size_t)step->n_task * TANDEM_MAX_VARIANT, sizeof *costs->spread);
    if (!costs->spread) return tandem_no_memory(error, "to predict the times of %d tasks", step->n_task);
    const tandem_status status =
        tandem_latency_open(&latency, source->device, contention == TANDEM_CONTENDED ? source->co_runner : "",
                            source->store, &refusal);
    if (status == TANDEM_MISSING)
        return TANDEM_OK; /* the times stay missing; the plan that needs one says so */
    if (status != TANDEM_OK) {
        if (error) *error = refusal;
        return status;
    }
    for (int t = 0; t < step->n_task; t++)
        for (unsigned variants = tandem_step_variants(step, t, source->device->precisions); variants;
             variants &= variants - 1)
            predict_variant_cost(costs, step, t, __builtin_ctz(variants), contention, latency);
    costs->n_fitted[contention] = tandem_latency_fitted(latency);
    tandem_latency_close(latency);
    return TANDEM_OK;
}

/* --- All sources -------------------------------------------------------------------------------- */

static int has_any_cost(const tandem_costs *costs, size_t n_variant)
{
    for (size_t i = 0; i < n_variant; i++)
        if (costs->variant_cost[i].ns[TANDEM_ALONE] >= 0 || costs->variant_cost[i].ns[TANDEM_CONTENDED] >= 0)
            return 1;
    return 0;
}

static void apply_slowdown(tandem_costs *costs, size_t n_variant, int64_t slowdown_ppm)
{
    for (size_t i = 0; i < n_variant; i++)
        for (int contention = 0; contention < TANDEM_N_CONTENTION; contention++) {
            int64_t *const ns = &costs->variant_cost[i].ns[contention];
            if (*ns > 0) *ns = tandem_round_ns((double)*ns * ((double)slowdown_ppm / 1e6));
        }
}

tandem_status tandem_costs_map(tandem_costs *out, const tandem_step *step, const tandem_cost_source *source,
                               tandem_error *error)
{
    const size_t n_variant = (size_t)step->n_task * TANDEM_MAX_VARIANT;
    tandem_costs costs = {.variant_cost = malloc(n_variant * sizeof *costs.variant_cost),
                          .origin = calloc(n_variant, sizeof *costs.origin),
                          .sigma = calloc(n_variant, sizeof *costs.sigma)};
    tandem_status status = TANDEM_OK;
    if (!costs.variant_cost || !costs.origin || !costs.sigma)
        status =
            tandem_no_memory(error, "for the costs of %d tasks on %s", step->n_task, source->device->name);
    for (size_t i = 0; i < n_variant && status == TANDEM_OK; i++)
        costs.variant_cost[i] = (tandem_variant_cost){.ns = {-1, -1}};
    for (int contention = 0; contention < TANDEM_N_CONTENTION && status == TANDEM_OK; contention++) {
        if (contention == TANDEM_CONTENDED && !source->co_runner[0]) continue;
        status = map_measured_costs(&costs, step, contention, source, error);
        if (status == TANDEM_OK) status = tandem_costs_interpolate(&costs, step, contention, source, error);
        if (status == TANDEM_OK) status = fill_predicted_costs(&costs, step, contention, source, error);
    }
    if (status == TANDEM_OK && !has_any_cost(&costs, n_variant))
        status = no_measured_costs(step, source, error);
    if (status == TANDEM_OK && source->slowdown_ppm > 0)
        apply_slowdown(&costs, n_variant, source->slowdown_ppm);
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
    free(costs->variant_cost);
}

tandem_status tandem_costs_missing(const tandem_step *step, int t, int variant, const char *device,
                                   const char *busy_co_runner, const char *co_runner, const char *more,
                                   tandem_error *error)
{
    const tandem_task *task = &step->task[t];
    const char *op = task->op >= 0 ? step->graph->op[task->op].name : "the buckets";
    char key_text[TANDEM_COST_KEY_TEXT] = "", micro[32] = "", scaling[TANDEM_CAST_SCALING_TEXT] = "";
    tandem_cost_key key;
    if (tandem_step_cost_key(step, t, variant, &key)) tandem_cost_key_print(key_text, sizeof key_text, &key);
    if (step->options.n_micro > 1)
        (void)snprintf(micro, sizeof micro, " --accumulate %d", step->options.n_micro);
    const int is_delayed = step->options.scaling.window > 0;
    if (is_delayed) (void)tandem_cast_scaling_print(scaling, step->options.scaling);
    return tandem_error_set(error, TANDEM_MISSING,
                            "the time of '%s' (%s of %s) on %s%s%s has not been measured%s; "
                            "`tandem profile --model %s --batch %lld --device %s%s%s%s%s%s%s` does it",
                            key_text, tandem_task_kind_name(task->kind), op, device,
                            busy_co_runner[0] ? " beside a busy " : "", busy_co_runner, more,
                            step->graph->model, (long long)step->graph->batch, device,
                            co_runner[0] ? "," : "", co_runner, micro, is_delayed ? " --amax " : "", scaling,
                            task->kind == TANDEM_TASK_NORM ? " --clip 1" : "");
}

/* --- Where they came from ----------------------------------------------------------------------- */

const tandem_allreduce_source *tandem_replayer_allreduce_source(const tandem_replayer *replayer)
{
    return &replayer->allreduce_source;
}

/* The least certain origin of the times that a form has. */
static int least_certain_origin(const tandem_costs *costs, size_t slot)
{
    int seen = TANDEM_ORIGIN_MEASURED;
    for (int contention = 0; contention < TANDEM_N_CONTENTION; contention++)
        if (costs->variant_cost[slot].ns[contention] >= 0 && costs->origin[slot][contention] > seen)
            seen = costs->origin[slot][contention];
    return seen;
}

void tandem_replayer_provenance(const tandem_replayer *replayer, int c, tandem_provenance *out)
{
    const tandem_sim_class *class = &replayer->classes[c];
    const int contention = class->co_runner[0] ? TANDEM_CONTENDED : TANDEM_ALONE;
    tandem_provenance provenance = {.n_fitted = class->costs.n_fitted[contention]};
    double spread = 0;
    for (int t = 0; t < class->step->n_task; t++) {
        const tandem_task *task = &class->step->task[t];
        const size_t slot = (size_t)t * TANDEM_MAX_VARIANT + (size_t)task->variant;
        if (!task->active || task->stream != TANDEM_STREAM_COMPUTE) continue;
        const int origin = least_certain_origin(&class->costs, slot);
        const int64_t ns =
            tandem_step_runs_per_step(class->step, task) * class->costs.variant_cost[slot].ns[contention];
        provenance.n_task[origin]++;
        provenance.ns[origin] += ns;
        if (origin == TANDEM_ORIGIN_PREDICTED)
            spread += (double)ns * (double)class->costs.spread[slot][contention];
    }
    const int64_t predicted_ns = provenance.ns[TANDEM_ORIGIN_PREDICTED];
    provenance.spread = predicted_ns > 0 ? spread / (double)predicted_ns : NAN;
    *out = provenance;
}
