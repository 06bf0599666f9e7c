/* interpolate.c: times at a batch at which nothing was measured, from batches at which something was.
 *
 * Task ids and forms of a model are the same at every batch, so a missing time is looked up under the key
 * that its task has at the other batches. Kernels take a fixed time and a time a sample, both of which differ
 * from kernel to kernel: hence a straight line for each form by itself. A key that is the same at every batch
 * (a weight's cast, the optimizer) is either measured or missing. */
#include <math.h>
#include <stdlib.h>

#include "replayer/internal.h"

enum {
    NEAREST_PER_SIDE = 4,
    MAX_BATCH_SAMPLES = 2 * NEAREST_PER_SIDE
}; /* batches looked at on each side: the nearest two with the key count */

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

/* *found 0 where the name does not lead to the same model at that batch. */
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

/* The two samples that decide about a form at `batch`: around it, else the nearest two on one side. 0 = there
 * are none. */
static int choose_sample_pair(int pair[2], const batch_sample *s, int n, int t, int variant, int64_t batch)
{
    int below[2] = {-1, -1}, above[2] = {-1, -1}; /* nearest first */
    for (int i = 0; i < n; i++) {
        if (!cost_in_sample(&s[i], t, variant)) continue;
        if (s[i].batch < batch) {
            below[1] = below[0];
            below[0] = i;
        } else if (above[1] < 0) {
            above[above[0] >= 0] = i;
        }
    }
    pair[0] = below[0] >= 0 ? below[0] : above[0];
    pair[1] = below[0] >= 0 && above[0] >= 0 ? above[0] : above[1];
    if (below[0] >= 0 && above[0] < 0) {
        pair[0] = below[1];
        pair[1] = below[0];
    }
    return pair[0] >= 0 && pair[1] >= 0;
}

/* beyond it a number is no time and no size, and may not fit its type */
static const double max_value = 1e18;

static void fill_variant_cost(tandem_costs *costs, const tandem_step *step, int t, int variant,
                              int contention, const batch_sample *s, int n)
{
    int pair[2];
    const int64_t batch = step->graph->batch;
    const size_t slot = (size_t)t * TANDEM_MAX_VARIANT + (size_t)variant;
    if (costs->variant_cost[slot].ns[contention] >= 0 || !choose_sample_pair(pair, s, n, t, variant, batch))
        return;
    const batch_sample *a = &s[pair[0]], *b = &s[pair[1]];
    const tandem_cost *cost_a = cost_in_sample(a, t, variant), *cost_b = cost_in_sample(b, t, variant);
    const double ns = value_on_line((batch_point){a->batch, (double)tandem_cost_mean_ns(cost_a)},
                                    (batch_point){b->batch, (double)tandem_cost_mean_ns(cost_b)}, batch);
    double bytes = fmax((double)cost_a->workspace_bytes, (double)cost_b->workspace_bytes);
    if (batch > b->batch)
        bytes =
            fmax(bytes, ceil(value_on_line((batch_point){a->batch, (double)cost_a->workspace_bytes},
                                           (batch_point){b->batch, (double)cost_b->workspace_bytes}, batch)));
    if (ns > max_value || bytes > max_value) return;
    costs->variant_cost[slot].ns[contention] = (int64_t)(ns + 0.5);
    costs->origin[slot][contention] =
        batch > a->batch && batch < b->batch ? TANDEM_ORIGIN_INTERPOLATED : TANDEM_ORIGIN_EXTRAPOLATED;
    if ((uint64_t)bytes > costs->variant_cost[slot].workspace_bytes)
        costs->variant_cost[slot].workspace_bytes = (uint64_t)bytes;
}

/* --- One company -------------------------------------------------------------------------------- */

/* Where the nearest batches begin in an ascending list, and how many they are. */
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
    if (!source->store || !tandem_costs_any_missing(costs, step, contention, source->device))
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
    for (int t = 0; t < step->n_task && status == TANDEM_OK && n > 1; t++)
        for (unsigned variants = tandem_step_variants(step, t, source->device->precisions); variants;
             variants &= variants - 1)
            fill_variant_cost(costs, step, t, __builtin_ctz(variants), contention, s, n);
    for (int i = 0; i < n; i++) close_batch_sample(&s[i]);
    free(batch);
    return status;
}
