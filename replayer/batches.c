/* batches.c: times at a batch at which nothing was measured, from batches at which something was.
 *
 * Task ids and forms of a model are the same at every batch, so a missing time is looked up under the key
 * that its task has at the other batches. Kernels take a fixed time and a time a sample, both of which differ
 * from kernel to kernel: hence a straight line for each form by itself. A key that is the same at every batch
 * (a weight's cast, the optimizer) is either measured or missing. */
#include <math.h>
#include <stdlib.h>

#include "replayer/stages.h"

enum {
    NEAR = 4,
    MOST_SAMPLES = 2 * NEAR
}; /* batches looked at on each side: the nearest two with the key count */

/* The model at another batch, and what was measured there. */
typedef struct sample {
    int64_t batch;
    tandem_graph *graph;
    tandem_step *step;
    tandem_cost_table *table;
} sample;

static void close_sample(sample *s)
{
    tandem_cost_table_free(s->table);
    tandem_step_close(s->step);
    tandem_graph_close(s->graph);
}

/* *found 0 where the name does not lead to the same model at that batch. */
static tandem_status open_sample(sample *s, int *found, const tandem_step *step, const char *neighbour,
                                 const tandem_cost_source *source, tandem_error *error)
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
        tandem_step_open_with(&s->step, s->graph, step->wider, step->bucket_bytes, &step->options, error);
    if (status == TANDEM_OK)
        status = tandem_store_load_costs(&s->table, source->store, source->device->name, neighbour, s->step,
                                         error);
    *found = status == TANDEM_OK && s->step->n_task == step->n_task;
    return status;
}

static const tandem_cost *cost_at(const sample *s, int t, int variant)
{
    tandem_cost_key key;
    return tandem_step_key(s->step, t, variant, &key) ? tandem_cost_table_find(s->table, &key) : NULL;
}

/* --- Lines -------------------------------------------------------------------------------------- */

typedef struct point {
    int64_t batch;
    double value;
} point;

/* The value at `batch` on the line through a and b, a.batch < b.batch. Beyond b the line does not fall;
 * before a its fixed part is not below 0, or else a small batch would take no time. */
static double on_line(point a, point b, int64_t batch)
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
static int choose(int pair[2], const sample *s, int n, int t, int variant, int64_t batch)
{
    int below[2] = {-1, -1}, above[2] = {-1, -1}; /* nearest first */
    for (int i = 0; i < n; i++) {
        if (!cost_at(&s[i], t, variant)) continue;
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

static const double most = 1e18; /* beyond it a number is no time and no size, and may not fit its type */

static void fill_form(tandem_costs *costs, const tandem_step *step, int t, int variant, int company,
                      const sample *s, int n)
{
    int pair[2];
    const int64_t batch = step->graph->batch;
    const size_t place = (size_t)t * TANDEM_MAX_VARIANT + (size_t)variant;
    if (costs->form[place].ns[company] >= 0 || !choose(pair, s, n, t, variant, batch)) return;
    const sample *a = &s[pair[0]], *b = &s[pair[1]];
    const tandem_cost *cost_a = cost_at(a, t, variant), *cost_b = cost_at(b, t, variant);
    const double ns = on_line((point){a->batch, (double)tandem_cost_mean_ns(cost_a)},
                              (point){b->batch, (double)tandem_cost_mean_ns(cost_b)}, batch);
    double bytes = fmax((double)cost_a->workspace_bytes, (double)cost_b->workspace_bytes);
    if (batch > b->batch)
        bytes = fmax(bytes, ceil(on_line((point){a->batch, (double)cost_a->workspace_bytes},
                                         (point){b->batch, (double)cost_b->workspace_bytes}, batch)));
    if (ns > most || bytes > most) return;
    costs->form[place].ns[company] = (int64_t)(ns + 0.5);
    costs->origin[place][company] =
        batch > a->batch && batch < b->batch ? TANDEM_ORIGIN_INTERPOLATED : TANDEM_ORIGIN_EXTRAPOLATED;
    if ((uint64_t)bytes > costs->form[place].workspace_bytes)
        costs->form[place].workspace_bytes = (uint64_t)bytes;
}

/* --- One company -------------------------------------------------------------------------------- */

/* Where the nearest batches begin in an ascending list, and how many they are. */
static int nearest(const int64_t *batch, int n, int64_t to, int *count)
{
    int first = 0, last = n;
    for (int i = 0; i < n; i++)
        if (batch[i] < to && first < i + 1 - NEAR) first = i + 1 - NEAR;
    for (int i = n - 1; i >= 0; i--)
        if (batch[i] > to && last > i + NEAR) last = i + NEAR;
    *count = last - first;
    return first;
}

tandem_status tandem_costs_fill_batches(tandem_costs *costs, const tandem_step *step, int company,
                                        const tandem_cost_source *source, tandem_error *error)
{
    const char *neighbour = company == TANDEM_BESIDE ? source->neighbour : "";
    sample s[MOST_SAMPLES + 1] = {{0}};
    int64_t *batch = NULL;
    int n_batch = 0, n = 0, count = 0;
    if (!source->store || !tandem_costs_lack(costs, step, company, source->device)) return TANDEM_OK;
    tandem_status status = tandem_store_load_batches(&batch, &n_batch, source->store, source->device->name,
                                                     neighbour, step->graph, error);
    const int first = status == TANDEM_OK ? nearest(batch, n_batch, step->graph->batch, &count) : 0;
    for (int i = first; i < first + count && status == TANDEM_OK; i++) {
        int found = 0;
        if (batch[i] == step->graph->batch) continue;
        s[n].batch = batch[i];
        status = open_sample(&s[n], &found, step, neighbour, source, error);
        if (status == TANDEM_OK && found) {
            n++;
        } else {
            close_sample(&s[n]);
            s[n] = (sample){0};
        }
    }
    for (int t = 0; t < step->n_task && status == TANDEM_OK && n > 1; t++)
        for (unsigned forms = tandem_step_forms(step, t, source->device->precisions); forms;
             forms &= forms - 1)
            fill_form(costs, step, t, __builtin_ctz(forms), company, s, n);
    for (int i = 0; i < n; i++) close_sample(&s[i]);
    free(batch);
    return status;
}
