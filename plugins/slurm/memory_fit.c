/* memory_fit.c: a lower bound of the memory that a model needs under any plan, and a batch that fits.
 *
 * There are too many plans to try. But of each tensor at each moment of the step, every plan keeps at least
 * one version that some uniform plan keeps, too: mixing precisions only adds versions. So every plan keeps at
 * least the minimum over the uniform plans, summed over the tensors. tests/slurm/test_memory_fit.c checks it.
 * */
#include "plugins/slurm/memory_fit.h"

#include <stdlib.h>

#include "graph/zoo/zoo.h"
#include "tandem/plan.h"
#include "tandem/advanced/step.h"

/* --- Work ----------------------------------------------------------------------------------------------- */

static tandem_status refuse_over_budget(const char *model, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_LIMIT_EXCEEDED, "%s takes more work than there may be", model);
}

static unsigned count_device_precisions(const tandem_device *device)
{
    return (unsigned)__builtin_popcount(device->precisions);
}

static int spend_on_graph(tandem_work_budget *work, const tandem_graph *graph, unsigned units)
{
    return tandem_work_budget_spend(work, (uint64_t)graph->n_op * units);
}

tandem_status tandem_memory_fit_open(tandem_graph **graph, const char *model, int64_t batch,
                                     tandem_work_budget *work, tandem_error *error)
{
    const uint64_t left = (work->limit - work->spent) / TANDEM_MEMORY_FIT_BUILD;
    int n_op = left < TANDEM_MEMORY_FIT_MAX_OP ? (int)left : TANDEM_MEMORY_FIT_MAX_OP;
    const tandem_status status = tandem_graph_open_limited(graph, model, batch, &n_op, error);
    if (status == TANDEM_OK || status == TANDEM_LIMIT_EXCEEDED)
        work->spent += (uint64_t)n_op * TANDEM_MEMORY_FIT_BUILD;
    return status;
}

/* --- Uniform plans -------------------------------------------------------------------------------------- */

/* The step program of a graph on a device, for going through the uniform plans. */
typedef struct fit_trial {
    const tandem_graph *graph;
    const tandem_device *device;
    tandem_plan *plan;
    tandem_step *step;
} fit_trial;

static void close_fit_trial(fit_trial *t)
{
    tandem_step_close(t->step);
    tandem_plan_close(t->plan);
    *t = (fit_trial){0};
}

static tandem_status open_fit_trial(fit_trial *t, const tandem_graph *graph, const tandem_device *device,
                                    tandem_error *error)
{
    const tandem_cluster cluster = {.n_class = 1,
                                    .classes[0] = {.device = *device, .n_rank = 1, .batch = graph->batch}};
    *t = (fit_trial){.graph = graph, .device = device};
    tandem_status status = tandem_plan_open(&t->plan, graph, &cluster, "", error);
    if (status == TANDEM_OK) status = tandem_device_open_step(&t->step, device, graph, 0, NULL, error);
    if (status != TANDEM_OK) close_fit_trial(t);
    return status;
}

/* 0: the device lacks the precision. */
static int resolve_uniform(fit_trial *t, int precision)
{
    if (tandem_plan_uniform(t->plan, t->graph, 0, (tandem_precision)precision, NULL) != TANDEM_OK) return 0;
    tandem_step_load(t->step, t->plan->assignment.precision[0]);
    return 1;
}

/* --- The least of all plans ----------------------------------------------------------------------------- */

/* The moments at which tensors are compared: the memory peaks of the uniform plans. Any moments are valid;
 * these give a tight bound. */
typedef struct moments {
    int n, task[TANDEM_N_PRECISION];
} moments;

/* Whether task `now` accumulates into the value, so that both share their memory under every plan. */
static int is_accumulated_into(const tandem_step *step, int value, int now)
{
    const tandem_task *task = &step->task[now];
    return task->accumulate && task->read[task->n_read - 1] == value;
}

/* The task at which most bytes are alive. change: [n_task + 1]. */
static int find_peak_task(const tandem_step *step, int64_t *change)
{
    int64_t alive = 0, max = -1;
    int at = 0;
    for (int t = 0; t <= step->n_task; t++) change[t] = 0;
    for (int id = 0; id < step->n_value; id++) {
        const tandem_value *value = &step->value[id];
        if (!value->bytes) continue;
        change[value->first] += (int64_t)value->bytes;
        change[value->last + 1] -= (int64_t)value->bytes;
    }
    for (int t = 0; t < step->n_task; t++) {
        alive += change[t];
        if (alive <= max) continue;
        max = alive;
        at = t;
    }
    return at;
}

/* Bytes alive at each moment, per role of each operator, [n_op × TANDEM_N_VALUE_ROLE × N_PRECISION].
 * Copies of weights do not count: fp32 needs none. */
static void count_alive_bytes(uint64_t *alive, const tandem_step *step, const moments *m)
{
    const int n_op = step->graph->n_op;
    for (int k = 0; k < n_op * TANDEM_N_VALUE_ROLE * TANDEM_N_PRECISION; k++) alive[k] = 0;
    for (int id = 0; id < step->n_value; id++) {
        const tandem_value *value = &step->value[id];
        if (!value->bytes) continue;
        int op = 0;
        const int role = tandem_value_role(step, id, &op);
        if (role < 0) continue;
        uint64_t *own = &alive[(op * TANDEM_N_VALUE_ROLE + role) * TANDEM_N_PRECISION];
        for (int k = 0; k < m->n; k++)
            if (value->first <= m->task[k] && m->task[k] <= value->last &&
                !is_accumulated_into(step, id, m->task[k]))
                own[k] += value->bytes;
    }
}

/* The largest sum over the moments that every plan keeps. scratch: [2 × n_op × TANDEM_N_VALUE_ROLE ×
 * N_PRECISION]. */
static uint64_t min_alive_bytes(fit_trial *t, const moments *m, uint64_t *scratch)
{
    const int n = t->graph->n_op * TANDEM_N_VALUE_ROLE * TANDEM_N_PRECISION;
    uint64_t *min = scratch, *alive = scratch + n, sum[TANDEM_N_PRECISION] = {0}, max = 0;
    for (int k = 0; k < n; k++) min[k] = UINT64_MAX;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        if (!resolve_uniform(t, p)) continue;
        count_alive_bytes(alive, t->step, m);
        for (int k = 0; k < n; k++)
            if (alive[k] < min[k]) min[k] = alive[k];
    }
    for (int k = 0; k < n; k++) sum[k % TANDEM_N_PRECISION] += min[k];
    for (int k = 0; k < m->n; k++)
        if (sum[k] > max) max = sum[k];
    return max;
}

tandem_status tandem_memory_fit_min_bytes(uint64_t *bytes, const tandem_graph *graph,
                                          const tandem_device *device, tandem_work_budget *work,
                                          tandem_error *error)
{
    fit_trial t;
    moments m = {0};
    if (!spend_on_graph(work, graph,
                        TANDEM_MEMORY_FIT_LAY_OUT +
                            2 * TANDEM_MEMORY_FIT_RESOLVE * count_device_precisions(device)))
        return refuse_over_budget(graph->model, error);
    tandem_status status = open_fit_trial(&t, graph, device, error);
    if (status != TANDEM_OK) return status;
    uint64_t *scratch =
        calloc((size_t)graph->n_op * 2 * TANDEM_N_VALUE_ROLE * TANDEM_N_PRECISION, sizeof *scratch);
    int64_t *change = calloc((size_t)t.step->n_task + 1, sizeof *change);
    if (!scratch || !change) {
        status = tandem_no_memory(error, "to look at model %s", graph->model);
        goto out;
    }
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (resolve_uniform(&t, p)) m.task[m.n++] = find_peak_task(t.step, change);
    const uint64_t flat = (uint64_t)t.step->n_flat * sizeof(float);
    /* weights, gradients, … */
    const uint64_t n_array = 2 + (uint64_t)tandem_optimizer_n_state(graph->optimizer.kind);
    *bytes = flat * n_array + min_alive_bytes(&t, &m, scratch);
out:
    free(change);
    free(scratch);
    close_fit_trial(&t);
    return status;
}

int tandem_memory_fit_is_same(const tandem_device *one, const tandem_device *other)
{
    return one->precisions == other->precisions && one->amp_dtype == other->amp_dtype &&
           one->transposed_copy == other->transposed_copy;
}

/* --- A batch that fits ---------------------------------------------------------------------------------- */

/* Peak memory of the uniform plans at one batch; UINT64_MAX where not asked for or not possible. */
typedef struct batch_probe {
    int64_t batch;
    uint64_t bytes[TANDEM_N_PRECISION];
} batch_probe;

/* Sets the peaks of `precisions`. */
static tandem_status probe_batch(batch_probe *at, const char *model, const tandem_device *device,
                                 unsigned precisions, tandem_work_budget *work, tandem_error *error)
{
    tandem_graph *graph = NULL;
    fit_trial t = {0};
    const unsigned n = (unsigned)__builtin_popcount(precisions);
    tandem_status status = tandem_memory_fit_open(&graph, model, at->batch, work, error);
    if (status == TANDEM_OK &&
        !spend_on_graph(work, graph,
                        TANDEM_MEMORY_FIT_LAY_OUT +
                            (TANDEM_MEMORY_FIT_RESOLVE + TANDEM_MEMORY_FIT_ASSIGN) * n))
        status = refuse_over_budget(graph->model, error);
    if (status == TANDEM_OK) status = open_fit_trial(&t, graph, device, error);
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        tandem_memory memory;
        at->bytes[p] = UINT64_MAX;
        if (!(precisions >> p & 1) || !resolve_uniform(&t, p)) continue;
        status = tandem_memory_plan(&memory, t.step, NULL, NULL, NULL, error);
        if (status == TANDEM_OK) at->bytes[p] = memory.peak;
    }
    close_fit_trial(&t);
    tandem_graph_close(graph);
    return status;
}

/* The batch at which precision p reaches the limit if memory is linear in the batch, which it nearly is. */
static int64_t crossing_batch(const batch_probe *fits, const batch_probe *large, int p, uint64_t limit_bytes)
{
    const double share = (double)(limit_bytes - fits->bytes[p]) / (double)(large->bytes[p] - fits->bytes[p]);
    return fits->batch + (int64_t)(share * (double)(large->batch - fits->batch));
}

/* The precision that allows the largest batch, extrapolated from two batches; −1: none fits the smaller
 * one. */
static int pick_promising_precision(const batch_probe *fits, const batch_probe *large, uint64_t limit_bytes)
{
    int best = -1;
    int64_t max_batch_reached = -1;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        if (fits->bytes[p] > limit_bytes) continue;
        const int64_t batch_reached =
            large->bytes[p] <= limit_bytes ? INT64_MAX : crossing_batch(fits, large, p, limit_bytes);
        if (batch_reached <= max_batch_reached) continue;
        max_batch_reached = batch_reached;
        best = p;
    }
    return best;
}

/* Searches between a batch that fits in precision p and one that does not. */
static tandem_status narrow_batch(batch_probe *fits, batch_probe *large, int p, const char *model,
                                  const tandem_device *device, uint64_t limit_bytes, tandem_work_budget *work,
                                  tandem_error *error)
{
    for (int k = 2; k < TANDEM_MEMORY_FIT_TRIALS && fits->batch + 1 < large->batch; k++) {
        batch_probe next = {.batch = crossing_batch(fits, large, p, limit_bytes)};
        if (next.batch <= fits->batch) next.batch = fits->batch + 1;
        if (next.batch >= large->batch) next.batch = large->batch - 1;
        const tandem_status status = probe_batch(&next, model, device, 1u << p, work, error);
        if (status != TANDEM_OK) return status;
        *(next.bytes[p] <= limit_bytes ? fits : large) = next;
    }
    return TANDEM_OK;
}

tandem_status tandem_memory_fit_batch(int64_t *batch, tandem_precision *precision, const char *model,
                                      const tandem_device *device, uint64_t limit_bytes, int64_t max,
                                      tandem_work_budget *work, tandem_error *error)
{
    batch_probe fits = {.batch = 1}, large = {.batch = max};
    if (max < 1) {
        *batch = 0;
        return TANDEM_OK;
    }
    tandem_status status = probe_batch(&fits, model, device, device->precisions, work, error);
    if (status == TANDEM_OK && max > 1)
        status = probe_batch(&large, model, device, device->precisions, work, error);
    if (status != TANDEM_OK) return status;
    if (max == 1) large = fits;
    const int p = pick_promising_precision(&fits, &large, limit_bytes);
    if (p < 0) {
        *batch = 0;
        return TANDEM_OK;
    }
    if (large.bytes[p] <= limit_bytes)
        fits = large;
    else
        status = narrow_batch(&fits, &large, p, model, device, limit_bytes, work, error);
    if (status != TANDEM_OK && status != TANDEM_LIMIT_EXCEEDED)
        return status; /* where the budget ends, so does the search */
    *batch = fits.batch;
    *precision = (tandem_precision)p;
    return TANDEM_OK;
}
