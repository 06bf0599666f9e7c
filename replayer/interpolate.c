/* interpolate.c: which costs are missing, and times at a batch from times measured at other batches.
 *
 * Task ids and variants of a model are the same at every batch. A missing time is therefore looked up at
 * another batch under the key that its task has there. A kernel takes a fixed time and a time per sample,
 * which differ from kernel to kernel: each variant has a straight line of its own. A key that does not depend
 * on the batch (the cast of a weight, the optimizer) is either measured or missing. */
#include <math.h>
#include <stdlib.h>

#include "replayer/internal.h"

/* Batches looked at on each side: of these, the nearest two with the key count. */
enum { NEAREST_PER_SIDE = 4, MAX_BATCH_SAMPLES = 2 * NEAREST_PER_SIDE };

int tandem_costs_next_missing(tandem_missing_cost *at, const tandem_costs *costs, const tandem_step *step,
                              int contention, const tandem_device *device)
{
    for (;;) {
        while (!at->rest) {
            if (++at->task >= step->n_task) return 0;
            if (!tandem_task_is_collective(step->task[at->task].kind))
                at->rest = tandem_step_variants(step, at->task, device->precisions);
        }
        at->variant = __builtin_ctzll(at->rest);
        at->rest &= at->rest - 1;
        at->slot = tandem_cost_slot(costs, at->task, at->variant);
        if (costs->variant_cost[at->slot].ns[contention] < 0 &&
            tandem_step_cost_key(step, at->task, at->variant, &at->key))
            return 1;
    }
}

/* The model at another batch, and what was measured there. */
typedef struct batch_sample {
    int64_t batch;
    tandem_graph *graph;
    tandem_step *step;
    tandem_cost_table *table;
} batch_sample;

static void close_batch_sample(batch_sample *s)
{
    tandem_cost_table_free(s->table);
    tandem_step_close(s->step);
    tandem_graph_close(s->graph);
}

/* *found: 0 where the name leads to no such model at that batch. */
static tandem_status open_batch_sample(batch_sample *s, int *found, const tandem_step *step,
                                       const char *co_runner, const tandem_cost_source *source,
                                       tandem_error *error)
{
    tandem_error opening = {0};
    tandem_status status = tandem_graph_open(&s->graph, step->graph->model, s->batch, &opening);
    *found = status == TANDEM_OK && s->graph->hash == step->graph->hash;
    if (status == TANDEM_NO_MEMORY) {
        if (error) *error = opening;
        return status;
    }
    if (!*found) return TANDEM_OK;
    status =
        tandem_step_open_with(&s->step, s->graph, step->amp_dtype, step->bucket_bytes, &step->options, error);
    if (status == TANDEM_OK)
        status = tandem_store_load_costs(&s->table, source->store, source->device->name, co_runner, s->step,
                                         error);
    *found = status == TANDEM_OK && s->step->n_task == step->n_task;
    return status;
}

static const tandem_cost *cost_in_sample(const batch_sample *s, int t, int variant)
{
    tandem_cost_key key;
    return tandem_step_cost_key(s->step, t, variant, &key) ? tandem_cost_table_find(s->table, &key) : NULL;
}

/* --- Lines -------------------------------------------------------------------------------------- */

typedef struct batch_point {
    int64_t batch;
    double value;
} batch_point;

/* The value at `batch` on the line through a and b, a.batch < b.batch. Beyond b the line does not fall;
 * before a its fixed part is not below 0, or else a small batch would take no time. */
static double value_on_line(batch_point a, batch_point b, int64_t batch)
{
    double slope = (b.value - a.value) / (double)(b.batch - a.batch);
    if (batch >= a.batch && batch <= b.batch) return a.value + slope * (double)(batch - a.batch);
    if (slope < 0) slope = 0;
    if (batch > b.batch) return b.value + slope * (double)(batch - b.batch);
    const double fixed = a.value - slope * (double)a.batch;
    return fixed >= 0 ? fixed + slope * (double)batch : a.value * (double)batch / (double)a.batch;
}

/* The two samples that a variant's line at `batch` goes through: around it, else the nearest two on one side.
 * Returns 0 where there are none. */
static int choose_sample_pair(int pair[2], const batch_sample *s, int n, int t, int variant, int64_t batch)
{
    int with_cost[MAX_BATCH_SAMPLES], n_with_cost = 0, n_below = 0; /* ascending in batch */
    for (int i = 0; i < n; i++) {
        if (!cost_in_sample(&s[i], t, variant)) continue;
        n_below += s[i].batch < batch;
        with_cost[n_with_cost++] = i;
    }
    if (n_with_cost < 2) return 0;
    const int first = n_below == 0 ? 0 : n_below < n_with_cost ? n_below - 1 : n_with_cost - 2;
    pair[0] = with_cost[first];
    pair[1] = with_cost[first + 1];
    return 1;
}

static const double max_value = 1e18; /* a larger number is no time and no size, and may not fit its type */

static void fill_variant_cost(tandem_costs *costs, const tandem_missing_cost *at, int64_t batch,
                              int contention, const batch_sample *s, int n)
{
    int pair[2];
    tandem_variant_cost *const variant_cost = &costs->variant_cost[at->slot];
    if (!choose_sample_pair(pair, s, n, at->task, at->variant, batch)) return;
    const batch_sample *a = &s[pair[0]], *b = &s[pair[1]];
    const tandem_cost *cost_a = cost_in_sample(a, at->task, at->variant),
                      *cost_b = cost_in_sample(b, at->task, at->variant);
    const double ns = value_on_line((batch_point){a->batch, (double)tandem_cost_mean_ns(cost_a)},
                                    (batch_point){b->batch, (double)tandem_cost_mean_ns(cost_b)}, batch);
    double bytes = fmax((double)cost_a->workspace_bytes, (double)cost_b->workspace_bytes);
    if (batch > b->batch)
        bytes =
            fmax(bytes, ceil(value_on_line((batch_point){a->batch, (double)cost_a->workspace_bytes},
                                           (batch_point){b->batch, (double)cost_b->workspace_bytes}, batch)));
    if (ns > max_value || bytes > max_value) return;
    variant_cost->ns[contention] = (int64_t)(ns + 0.5);
    costs->origin[at->slot][contention] =
        batch > a->batch && batch < b->batch ? TANDEM_ORIGIN_INTERPOLATED : TANDEM_ORIGIN_EXTRAPOLATED;
    if ((uint64_t)bytes > variant_cost->workspace_bytes) variant_cost->workspace_bytes = (uint64_t)bytes;
}

/* --- Batches ------------------------------------------------------------------------------------ */

/* The first of the nearest batches in an ascending list, and their number. */
static int find_nearest_batches(const int64_t *batch, int n, int64_t to, int *count)
{
    int first = 0, last = n;
    for (int i = 0; i < n; i++)
        if (batch[i] < to && first < i + 1 - NEAREST_PER_SIDE) first = i + 1 - NEAREST_PER_SIDE;
    for (int i = n - 1; i >= 0; i--)
        if (batch[i] > to && last > i + NEAREST_PER_SIDE) last = i + NEAREST_PER_SIDE;
    *count = last - first;
    return first;
}

tandem_status tandem_costs_interpolate(tandem_costs *costs, const tandem_step *step, int contention,
                                       const tandem_cost_source *source, tandem_error *error)
{
    const char *co_runner = contention == TANDEM_CONTENDED ? source->co_runner : "";
    batch_sample s[MAX_BATCH_SAMPLES + 1] = {{0}};
    int64_t *batch = NULL;
    int n_batch = 0, n = 0, count = 0;
    tandem_missing_cost at = {.task = -1};
    if (!source->store || !tandem_costs_next_missing(&at, costs, step, contention, source->device))
        return TANDEM_OK;
    tandem_status status = tandem_store_load_batches(&batch, &n_batch, source->store, source->device->name,
                                                     co_runner, step->graph, error);
    const int first =
        status == TANDEM_OK ? find_nearest_batches(batch, n_batch, step->graph->batch, &count) : 0;
    for (int i = first; i < first + count && status == TANDEM_OK; i++) {
        int found = 0;
        if (batch[i] == step->graph->batch) continue;
        s[n].batch = batch[i];
        status = open_batch_sample(&s[n], &found, step, co_runner, source, error);
        if (status == TANDEM_OK && found) {
            n++;
        } else {
            close_batch_sample(&s[n]);
            s[n] = (batch_sample){0};
        }
    }
    if (status == TANDEM_OK && n > 1) do
            fill_variant_cost(costs, &at, step->graph->batch, contention, s, n);
        while (tandem_costs_next_missing(&at, costs, step, contention, source->device));
    for (int i = 0; i < n; i++) close_batch_sample(&s[i]);
    free(batch);
    return status;
}
