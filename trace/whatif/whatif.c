/* whatif.c: the step, the ideal step, and how much each part of the job contributes to the difference. */
#include "tandem/advanced/whatif.h"

#include <stdio.h>
#include <stdlib.h>

#include "trace/reader/pipeline_trace.h"
#include "trace/whatif/whatif_model.h"

/* --- Simulations ---------------------------------------------------------------------------------------- */

enum { ANY = -1 };

/* All operators take their actual or their ideal durations. Those that match take the other one. */
typedef struct whatif_scenario {
    int is_ideal;
    /* both must match; ANY matches all; {ANY, ANY} matches none */
    int dimension[2], label[2];
} whatif_scenario;

typedef struct whatif_analysis {
    const whatif_model *model;
    tandem_whatif *result;
    int64_t *duration_ns; /* [largest step] */
    int64_t *length_ns;   /* [n_step] of the last simulation */
    tandem_error *error;
} whatif_analysis;

static int scenario_matches(const whatif_model *model, const whatif_scenario *s, int op)
{
    int any = 1;
    for (int k = 0; k < 2; k++) {
        if (s->dimension[k] == ANY) continue;
        if (model->by[s->dimension[k]].of[op] != s->label[k]) return 0;
        any = 0;
    }
    return !any;
}

static tandem_status simulate_scenario(const whatif_analysis *a, const whatif_scenario *s, int64_t *mean_ns)
{
    const whatif_model *const model = a->model;
    const int64_t *const usual = s->is_ideal ? model->ideal_ns : model->actual_ns;
    const int64_t *const other = s->is_ideal ? model->actual_ns : model->ideal_ns;
    for (int k = 0; k < model->n_step; k++) {
        const int first = model->first[k], end = model->first[k + 1];
        for (int i = first; i < end; i++)
            a->duration_ns[i - first] = (scenario_matches(model, s, i) ? other : usual)[i];
        const tandem_status status = tandem_dag_simulator_run(model->simulator[k], a->duration_ns, NULL, NULL,
                                                              &a->length_ns[k], a->error);
        if (status != TANDEM_OK) return status;
    }
    *mean_ns = whatif_mean(a->length_ns, model->n_step);
    return TANDEM_OK;
}

/* --- Whole steps ---------------------------------------------------------------------------------------- */

static tandem_status simulate_steps(const whatif_analysis *a)
{
    const whatif_model *const model = a->model;
    tandem_whatif *const result = a->result;
    for (int is_ideal = 0; is_ideal < 2; is_ideal++) {
        const whatif_scenario s = {is_ideal, {ANY, ANY}, {0, 0}};
        const tandem_status status =
            simulate_scenario(a, &s, is_ideal ? &result->ideal_ns : &result->step_ns);
        if (status != TANDEM_OK) return status;
        for (int k = 0; k < model->n_step; k++)
            *(is_ideal ? &result->step[k].ideal_ns : &result->step[k].step_ns) = a->length_ns[k];
    }
    for (int k = 0; k < model->n_step; k++) {
        result->step[k].number = model->number[k];
        result->step[k].recorded_ns = model->recorded_ns[k];
    }
    result->recorded_ns = whatif_mean(model->recorded_ns, model->n_step);
    return TANDEM_OK;
}

/* --- Parts ---------------------------------------------------------------------------------------------- */

static int by_falling_with(const void *left, const void *right)
{
    const tandem_whatif_part *const a = left, *const b = right;
    return (a->with_ns < b->with_ns) - (a->with_ns > b->with_ns);
}

/* A stable sort, which qsort is not. */
static void sort_parts(tandem_whatif_parts *parts)
{
    for (int i = 1; i < parts->n; i++) {
        const tandem_whatif_part moving = parts->part[i];
        int at = i;
        for (; at > 0 && by_falling_with(&parts->part[at - 1], &moving) > 0; at--)
            parts->part[at] = parts->part[at - 1];
        parts->part[at] = moving;
    }
}

static tandem_status simulate_parts(const whatif_analysis *a, int dimension, tandem_whatif_parts *parts)
{
    const whatif_dimension *const by = &a->model->by[dimension];
    if (by->n == 0) return TANDEM_OK;
    parts->part = calloc((size_t)by->n, sizeof *parts->part);
    if (!parts->part) return tandem_no_memory(a->error, "for the analysis");
    parts->n = by->n;
    for (int k = 0; k < by->n; k++) {
        const whatif_scenario with = {1, {dimension, ANY}, {k, 0}}, without = {0, {dimension, ANY}, {k, 0}};
        (void)snprintf(parts->part[k].name, sizeof parts->part[k].name, "%s", by->name[k].text);
        tandem_status status = simulate_scenario(a, &with, &parts->part[k].with_ns);
        if (status == TANDEM_OK) status = simulate_scenario(a, &without, &parts->part[k].without_ns);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

/* --- The cause ------------------------------------------------------------------------------------------ */

/* The part whose removal shortens the step most. */
static int best_part(const tandem_whatif_parts *parts)
{
    int best = 0;
    for (int k = 1; k < parts->n; k++)
        if (parts->part[k].without_ns < parts->part[best].without_ns) best = k;
    return best;
}

/* From narrow to wide: the first part whose removal gains at least half of what is possible. The parts are
 * still in the order of their labels. Returns the dimension, or ANY. */
static int find_culprit(const whatif_analysis *a, tandem_whatif_parts *const parts[N_WHATIF_DIMENSION],
                        int *who)
{
    static const int narrow_first[] = {WHATIF_WORKER, WHATIF_STAGE, WHATIF_DP_RANK};
    const int64_t step_ns = a->result->step_ns;
    int64_t threshold_ns = step_ns - (step_ns - a->result->ideal_ns) / 2;
    int found = ANY;
    for (size_t k = 0; k < sizeof narrow_first / sizeof *narrow_first && found != WHATIF_WORKER; k++) {
        const tandem_whatif_parts *const those = parts[narrow_first[k]];
        const int best = best_part(those);
        if (those->n == 0 || those->part[best].without_ns >= threshold_ns) continue;
        found = narrow_first[k];
        *who = best;
        threshold_ns = those->part[best].without_ns; /* of stage and rank, the one that gains more */
    }
    return found;
}

static tandem_status find_cause(const whatif_analysis *a,
                                tandem_whatif_parts *const parts[N_WHATIF_DIMENSION])
{
    const tandem_whatif *const result = a->result;
    const whatif_dimension *const types = &a->model->by[WHATIF_OPERATOR];
    tandem_whatif_cause *const cause = &a->result->cause;
    const int is_slow = result->step_ns > result->ideal_ns;
    int who = 0;
    const int dimension = is_slow ? find_culprit(a, parts, &who) : ANY;
    cause->without_ns = is_slow ? result->ideal_ns : result->step_ns;
    if (dimension != ANY) {
        cause->without_ns = parts[dimension]->part[who].without_ns;
        (void)snprintf(cause->who, sizeof cause->who, "%s", parts[dimension]->part[who].name);
    }
    cause->without_what_ns = cause->without_ns;
    int64_t threshold_ns = result->step_ns - (result->step_ns - cause->without_ns) / 2;
    for (int type = 0; type < types->n && is_slow; type++) {
        const whatif_scenario s = {0, {WHATIF_OPERATOR, dimension}, {type, who}};
        int64_t without_ns = 0;
        const tandem_status status = simulate_scenario(a, &s, &without_ns);
        if (status != TANDEM_OK) return status;
        if (without_ns >= threshold_ns) continue;
        threshold_ns = cause->without_what_ns = without_ns;
        (void)snprintf(cause->what, sizeof cause->what, "%s", types->name[type].text);
    }
    return TANDEM_OK;
}

/* --- The analysis --------------------------------------------------------------------------------------- */

static tandem_status open_whatif_analysis(whatif_analysis *a, const whatif_model *model)
{
    int max = 1;
    for (int k = 0; k < model->n_step; k++)
        if (model->first[k + 1] - model->first[k] > max) max = model->first[k + 1] - model->first[k];
    a->result = calloc(1, sizeof *a->result);
    if (a->result) a->result->step = calloc((size_t)model->n_step, sizeof *a->result->step);
    a->duration_ns = malloc((size_t)max * sizeof *a->duration_ns);
    a->length_ns = malloc((size_t)model->n_step * sizeof *a->length_ns);
    if (!a->result || !a->result->step || !a->duration_ns || !a->length_ns)
        return tandem_no_memory(a->error, "for the analysis");
    a->result->n_step = model->n_step;
    a->result->n_op = model->n_op;
    a->result->n_worker = model->n_worker;
    return TANDEM_OK;
}

tandem_status whatif_analyse(tandem_whatif **whatif, const whatif_model *model, const char *trace_path,
                             tandem_error *error)
{
    whatif_analysis a = {.model = model, .error = error};
    tandem_status status = open_whatif_analysis(&a, model);
    if (status != TANDEM_OK) goto out;
    tandem_whatif_parts *const parts[N_WHATIF_DIMENSION] = {
        [WHATIF_OPERATOR] = &a.result->by_operator,
        [WHATIF_STAGE] = &a.result->by_stage,
        [WHATIF_DP_RANK] = &a.result->by_dp_rank,
        [WHATIF_WORKER] = &a.result->by_worker,
    };
    status = simulate_steps(&a);
    for (int d = 0; d < N_WHATIF_DIMENSION && status == TANDEM_OK; d++)
        status = simulate_parts(&a, d, parts[d]);
    if (status == TANDEM_OK) status = find_cause(&a, parts);
    if (status == TANDEM_OK && trace_path) status = whatif_write_timeline(trace_path, model, error);
    if (status != TANDEM_OK) goto out;
    for (int d = 0; d < N_WHATIF_DIMENSION; d++) sort_parts(parts[d]);
    *whatif = a.result;
    a.result = NULL;
out:
    tandem_whatif_close(a.result);
    free(a.duration_ns);
    free(a.length_ns);
    return status;
}

tandem_status tandem_whatif_pipeline(tandem_whatif **whatif, const tandem_pipeline_trace *pipeline,
                                     const char *trace_path, tandem_error *error)
{
    whatif_model model = {0};
    tandem_status status = whatif_model_of_pipeline(&model, pipeline, error);
    if (status == TANDEM_OK) status = whatif_analyse(whatif, &model, trace_path, error);
    if (status == TANDEM_OK) (*whatif)->n_negative = pipeline->n_negative;
    whatif_model_close(&model);
    return status;
}

void tandem_whatif_close(tandem_whatif *whatif)
{
    if (!whatif) return;
    free(whatif->critical_path);
    free(whatif->rank);
    free(whatif->by_worker.part);
    free(whatif->by_dp_rank.part);
    free(whatif->by_stage.part);
    free(whatif->by_operator.part);
    free(whatif->step);
    free(whatif);
}
