/* remedies.c: changes that save memory. Each is planned and replayed, not estimated. */
#include "allocator/problem.h"
#include "tandem/advanced/allocator.h"
#include "tandem/advanced/zero.h"
#include "tandem/record.h"

#include <stdio.h>

/* What a remedy changes in the workload. */
typedef struct variation {
    tandem_step_options step;
    int64_t batch[TANDEM_MAX_CLASS];
    uint64_t bucket_bytes;
    int precision; /* of every operator of the class that has it; −1 = as planned */
} variation;

typedef struct remedy_search {
    const tandem_request *request;
    const tandem_workload *workload;
    const tandem_sharding *sharding; /* NULL = none */
    int c;
    uint64_t peak_bytes, limit_bytes;
    tandem_remedy *remedy;
    int n;
} remedy_search;

enum { MAX_SEGMENTS = 8, SMALL_BUCKET = 1 << 20 };

/* --- One variation ---------------------------------------------------------------------------- */

static variation current_variation(const remedy_search *s)
{
    variation v = {
        .step = s->workload->plan->step, .bucket_bytes = s->request->bucket_bytes, .precision = -1};
    for (int c = 0; c < s->workload->cluster.n_class; c++) v.batch[c] = s->workload->graph[c]->batch;
    return v;
}

static tandem_status open_variation(tandem_workload *made, const remedy_search *s, const variation *v,
                                    tandem_error *error)
{
    const tandem_plan *plan = s->workload->plan;
    tandem_plan *varied = NULL;
    made->cluster = s->workload->cluster;
    for (int c = 0; c < made->cluster.n_class; c++) made->cluster.classes[c].batch = v->batch[c];
    tandem_status status =
        tandem_cluster_open_graphs(made->graph, &made->cluster, s->workload->graph[0]->model, error);
    if (status == TANDEM_OK)
        status = tandem_plan_open(&varied, made->graph[0], &made->cluster, plan->name, error);
    made->plan = varied;
    if (!varied) return status;
    tandem_assignment_copy(&varied->assignment, &plan->assignment);
    varied->step = v->step;
    if (v->precision < 0) return TANDEM_OK;
    return tandem_plan_uniform(varied, made->graph[s->c], s->c, (tandem_precision)v->precision, error);
}

/* Memory, and the step time if all costs are known, else −1. With --zero, shards are counted, which takes
 * times: without them it is no remedy. */
static tandem_status evaluate_variation(tandem_memory *memory, int64_t *step_ns, tandem_replayer *replayer,
                                        const remedy_search *s, tandem_error *error)
{
    tandem_replay replay;
    if (s->sharding) {
        tandem_zero zero;
        tandem_error why = {0};
        const tandem_status status = tandem_replayer_zero(&zero, replayer, s->sharding, &why);
        if (status == TANDEM_MISSING) memory->peak = UINT64_MAX;
        if (status != TANDEM_OK)
            return status == TANDEM_MISSING ? TANDEM_OK : tandem_error_forward(status, &why, error);
        *memory = zero.memory[s->c];
        *step_ns = zero.replay.step_ns;
        return TANDEM_OK;
    }
    const tandem_status status = tandem_replayer_plan_memory(replayer, s->c, memory, error);
    if (status == TANDEM_OK && tandem_replayer_run(replayer, &replay, 0, NULL) == TANDEM_OK)
        *step_ns = replay.step_ns;
    return status;
}

/* Memory and time of one variation. */
static tandem_status measure_variation(tandem_remedy *out, const remedy_search *s, const variation *v,
                                       tandem_error *error)
{
    tandem_workload made = {0};
    tandem_request request = *s->request;
    tandem_planner *planner = NULL;
    tandem_memory memory = {0};
    out->step_ns = -1;
    request.bucket_bytes = v->bucket_bytes;
    request.times_only = 1;
    tandem_status status = open_variation(&made, s, v, error);
    if (status == TANDEM_OK) status = tandem_planner_open_workload(&planner, &request, &made, error);
    if (status == TANDEM_OK)
        status =
            evaluate_variation(&memory, &out->step_ns, tandem_planner_problem(planner)->replayer, s, error);
    out->peak_bytes = memory.peak;
    out->fits = memory.peak <= s->limit_bytes;
    tandem_planner_close(planner);
    tandem_workload_close(&made);
    return status;
}

/* Whether a is better: one that fits, then the faster, then the smaller one. */
static int is_better_remedy(const tandem_remedy *a, const tandem_remedy *b)
{
    if (a->fits != b->fits) return a->fits;
    if (a->fits && a->step_ns >= 0 && b->step_ns >= 0) return a->step_ns < b->step_ns;
    return a->peak_bytes < b->peak_bytes;
}

static void add_remedy(remedy_search *s, const tandem_remedy *found)
{
    if (found->peak_bytes < s->peak_bytes && s->n < TANDEM_MAX_REMEDIES) s->remedy[s->n++] = *found;
}

/* --- The ways --------------------------------------------------------------------------------- */

static tandem_status try_recompute(remedy_search *s, tandem_error *error)
{
    tandem_remedy best = {.peak_bytes = UINT64_MAX};
    tandem_status status = TANDEM_OK;
    if (s->workload->graph[0]->is_recorded) return TANDEM_OK; /* PyTorch's checkpoints are in its calls */
    for (int n = 1; n <= MAX_SEGMENTS && status == TANDEM_OK; n++) {
        tandem_remedy found = {0};
        char word[TANDEM_RECOMPUTE_TEXT];
        variation v = current_variation(s);
        v.step.n_recompute_segment = n == 1 ? TANDEM_RECOMPUTE_SQRT : n;
        status = measure_variation(&found, s, &v, error);
        (void)snprintf(found.what, sizeof found.what, "--recompute %s",
                       tandem_recompute_print(word, v.step.n_recompute_segment));
        if (status == TANDEM_OK && is_better_remedy(&found, &best)) best = found;
    }
    if (status == TANDEM_OK) add_remedy(s, &best);
    return status;
}

/* The next divisor of every class's batch, from `min` on; 0 = none. */
static int next_batch_divisor(const remedy_search *s, int min)
{
    for (int n = min; n <= s->workload->graph[s->c]->batch; n++) {
        int divides = 1;
        for (int c = 0; c < s->workload->cluster.n_class; c++)
            divides &= s->workload->graph[c]->batch % n == 0;
        if (divides) return n;
    }
    return 0;
}

/* The fewest micro-steps that fit; the samples per step stay the same. */
static tandem_status try_micro_steps(remedy_search *s, int n_recompute_segment, tandem_error *error)
{
    tandem_remedy found = {0};
    const variation now = current_variation(s);
    for (int n = next_batch_divisor(s, 2); n > 0 && !found.fits; n = next_batch_divisor(s, n + 1)) {
        variation v = now;
        v.step.n_micro = n * (now.step.n_micro > 1 ? now.step.n_micro : 1);
        if (v.step.n_micro > TANDEM_MAX_MICRO) break;
        if (n_recompute_segment) v.step.n_recompute_segment = n_recompute_segment;
        for (int c = 0; c < s->workload->cluster.n_class; c++) v.batch[c] /= n;
        const tandem_status status = measure_variation(&found, s, &v, error);
        if (status != TANDEM_OK) return status;
        (void)snprintf(found.what, sizeof found.what, "--accumulate %d at batch %lld%s", v.step.n_micro,
                       (long long)v.batch[s->c], n_recompute_segment ? ", --recompute sqrt" : "");
    }
    if (found.what[0]) add_remedy(s, &found);
    return TANDEM_OK;
}

static tandem_status try_precisions(remedy_search *s, tandem_error *error)
{
    const unsigned has = s->workload->cluster.classes[s->c].device.precisions;
    tandem_status status = TANDEM_OK;
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        tandem_remedy found = {0};
        variation v = current_variation(s);
        if (!(has & 1u << p)) continue;
        v.precision = p;
        status = measure_variation(&found, s, &v, error);
        (void)snprintf(found.what, sizeof found.what, "%s for every operator that has it",
                       tandem_precision_get((tandem_precision)p)->name);
        if (status == TANDEM_OK) add_remedy(s, &found);
    }
    return status;
}

static tandem_status try_smaller_buckets(remedy_search *s, tandem_error *error)
{
    tandem_remedy found = {.what = "--bucket 1MiB"};
    variation v = current_variation(s);
    v.bucket_bytes = SMALL_BUCKET;
    const tandem_status status = measure_variation(&found, s, &v, error);
    if (status == TANDEM_OK) add_remedy(s, &found);
    return status;
}

static tandem_status try_smaller_batch(remedy_search *s, tandem_error *error)
{
    tandem_remedy best = {0};
    int64_t fits = 0, too_large = s->workload->graph[s->c]->batch;
    while (too_large - fits > 1) {
        tandem_remedy found = {0};
        variation v = current_variation(s);
        v.batch[s->c] = fits + (too_large - fits) / 2;
        const tandem_status status = measure_variation(&found, s, &v, error);
        if (status != TANDEM_OK) return status;
        *(found.fits ? &fits : &too_large) = v.batch[s->c];
        (void)snprintf(found.what, sizeof found.what, "--batch %lld", (long long)v.batch[s->c]);
        if (found.fits) best = found;
    }
    if (best.fits) add_remedy(s, &best);
    return TANDEM_OK;
}

tandem_status tandem_remedies_find(tandem_remedy remedy[TANDEM_MAX_REMEDIES], int *n,
                                   const tandem_request *request, const tandem_workload *workload,
                                   const tandem_sharding *sharding, int c, uint64_t peak_bytes,
                                   tandem_error *error)
{
    remedy_search s = {.request = request,
                       .workload = workload,
                       .sharding = sharding,
                       .c = c,
                       .peak_bytes = peak_bytes,
                       .limit_bytes = tandem_cluster_memory_limit(&workload->cluster, c),
                       .remedy = remedy};
    const tandem_graph *graph = workload->graph[0];
    const int has_batches = !graph->is_recorded || (graph->memory && graph->memory->has_growth);
    int fits = 0;
    tandem_status status = try_recompute(&s, error);
    if (status == TANDEM_OK && !sharding && has_batches)
        status = try_micro_steps(&s, 0, error); /* --zero has one batch per step */
    for (int k = 0; k < s.n; k++) fits |= remedy[k].fits;
    if (status == TANDEM_OK && !fits && !sharding && !graph->is_recorded)
        status = try_micro_steps(&s, TANDEM_RECOMPUTE_SQRT, error);
    if (status == TANDEM_OK) status = try_precisions(&s, error);
    if (status == TANDEM_OK) status = try_smaller_buckets(&s, error);
    if (status == TANDEM_OK && has_batches) status = try_smaller_batch(&s, error);
    *n = status == TANDEM_OK ? s.n : 0;
    return status;
}
