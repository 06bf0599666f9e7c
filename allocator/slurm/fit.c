/* fit.c: how little memory a model can do with.
 *
 * A plan mixes precisions, and there are too many plans to try. But of one tensor at one moment of the step, every plan
 * keeps at least one version that one of the uniform plans keeps too: mixing only adds versions. So the least that any
 * uniform plan keeps of each tensor, summed over the tensors, is kept by every plan. tests/slurm/test_fit.c tries it. */
#include "allocator/slurm/fit.h"

#include <stdlib.h>

#include "graph/step_index.h"
#include "tandem/plan.h"

/* --- Uniform plans -------------------------------------------------------------------------------------------------------- */

/* The step program of a graph on a device, to go through the uniform plans with. */
typedef struct trial {
    const tandem_graph *graph;
    const tandem_device *device;
    tandem_plan *plan;
    tandem_step *step;
} trial;

static void close_trial(trial *t)
{
    tandem_step_close(t->step);
    tandem_plan_close(t->plan);
    *t = (trial){0};
}

static tandem_status open_trial(trial *t, const tandem_graph *graph, const tandem_device *device, tandem_error *error)
{
    const tandem_cluster cluster = {.n_class = 1,
                                    .member[0] = {.device = *device, .n_rank = 1, .batch = graph->batch}};
    *t = (trial){.graph = graph, .device = device};
    tandem_status status = tandem_plan_open(&t->plan, graph, &cluster, "", error);
    if (status == TANDEM_OK) status = tandem_device_open_step(&t->step, device, graph, 0, NULL, error);
    if (status != TANDEM_OK) close_trial(t);
    return status;
}

/* 0 where the device has no such precision. */
static int try_uniform(trial *t, int precision)
{
    if (tandem_plan_uniform(t->plan, t->graph, 0, (tandem_precision)precision, NULL) != TANDEM_OK) return 0;
    for (int i = 0; i < t->graph->n_op; i++)
        if (tandem_op_row_get(t->graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE)
            tandem_step_set(t->step, i, t->plan->precision[0][i]);
    tandem_step_resolve(t->step);
    return 1;
}

/* --- The least of all plans ------------------------------------------------------------------------------------------------ */

/* What an operator's output is kept as: its activation and its gradient, in whichever types, and the rest one by one. */
enum { N_ROLE = 2 + VALUES_AN_OP - VALUE_AUX };

static int role_of(int value)
{
    const int place = value % VALUES_AN_OP;
    if (place < VALUE_GRADIENT) return 0;
    return place < VALUE_AUX ? 1 : 2 + place - VALUE_AUX;
}

/* Bytes alive at task `now` of each operator's roles, [n_op × N_ROLE]. Copies of weights are left out: fp32 needs none. */
static void count_alive(uint64_t *alive, const tandem_step *step, int now)
{
    const int n_op = step->graph->n_op;
    for (int k = 0; k < n_op * N_ROLE; k++) alive[k] = 0;
    for (int id = 0; id < step->n_value; id++) {
        const tandem_value *value = &step->value[id];
        const int v = tandem_value_rowwise(step, id);
        if (v < n_op * VALUES_AN_OP && value->bytes && value->first <= now && now <= value->last)
            alive[v / VALUES_AN_OP * N_ROLE + role_of(v)] += value->bytes;
    }
}

/* What all plans keep at task `now`. room: [2 × n_op × N_ROLE]. */
static uint64_t least_alive(trial *t, int now, uint64_t *room)
{
    const int n = t->graph->n_op * N_ROLE;
    uint64_t *least = room, *alive = room + n, sum = 0;
    for (int k = 0; k < n; k++) least[k] = UINT64_MAX;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        if (!try_uniform(t, p)) continue;
        count_alive(alive, t->step, now);
        for (int k = 0; k < n; k++)
            if (alive[k] < least[k]) least[k] = alive[k];
    }
    for (int k = 0; k < n; k++) sum += least[k];
    return sum;
}

tandem_status tandem_fit_least(uint64_t *bytes, const tandem_graph *graph, const tandem_device *device,
                               tandem_error *error)
{
    trial t;
    uint64_t most = 0, flat = 0;
    uint64_t *room = NULL;
    tandem_status status = open_trial(&t, graph, device, error);
    if (status != TANDEM_OK) return status;
    if (!(room = calloc((size_t)graph->n_op * 2 * N_ROLE, sizeof *room)))
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to look at model %s", graph->model);
    /* Any moment will do; those at which the uniform plans are largest are the most telling ones. */
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        tandem_memory memory;
        if (!try_uniform(&t, p)) continue;
        status = tandem_memory_plan(&memory, t.step, NULL, NULL, NULL, error);
        if (status != TANDEM_OK) break;
        const uint64_t alive = least_alive(&t, memory.peak_task, room);
        flat = memory.weights + memory.gradients + memory.optimizer;
        if (alive > most) most = alive;
    }
    free(room);
    close_trial(&t);
    if (status == TANDEM_OK) *bytes = flat + most;
    return status;
}

/* --- A batch that fits ------------------------------------------------------------------------------------------------------ */

/* The smallest uniform plan at a batch. */
static tandem_status smallest(uint64_t *bytes, tandem_precision *precision, const char *model, int64_t batch,
                              const tandem_device *device, tandem_error *error)
{
    tandem_graph *graph = NULL;
    trial t = {0};
    uint64_t least = UINT64_MAX;
    tandem_status status = tandem_graph_open(&graph, model, batch, error);
    if (status == TANDEM_OK) status = open_trial(&t, graph, device, error);
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        tandem_memory memory;
        if (!try_uniform(&t, p)) continue;
        status = tandem_memory_plan(&memory, t.step, NULL, NULL, NULL, error);
        if (status != TANDEM_OK || memory.peak >= least) continue;
        least = memory.peak;
        *precision = (tandem_precision)p;
    }
    if (status == TANDEM_OK) *bytes = least;
    close_trial(&t);
    tandem_graph_close(graph);
    return status;
}

tandem_status tandem_fit_batch(int64_t *batch, tandem_precision *precision, const char *model,
                               const tandem_device *device, uint64_t limit_bytes, int64_t most, tandem_error *error)
{
    enum { TRIALS = 12 };
    int64_t fits = 0, next = 1, too_large = most + 1;
    uint64_t fits_bytes = 0, large_bytes = 0;
    tandem_precision found = TANDEM_PRECISION_FP32;
    for (int k = 0; k < TRIALS && fits + 1 < too_large; k++) {
        uint64_t bytes = 0;
        tandem_precision with = TANDEM_PRECISION_FP32;
        const tandem_status status = smallest(&bytes, &with, model, next, device, error);
        if (status != TANDEM_OK) return status;
        if (bytes <= limit_bytes) {
            fits = next;
            fits_bytes = bytes;
            found = with;
        } else {
            too_large = next;
            large_bytes = bytes;
        }
        /* Memory is nearly a straight line over the batch: look where it crosses the limit. */
        double share = 0.5;
        if (!large_bytes)
            next = most;
        else {
            if (fits) share = (double)(limit_bytes - fits_bytes) / (double)(large_bytes - fits_bytes);
            next = fits + (int64_t)(share * (double)(too_large - fits));
        }
        if (next <= fits) next = fits + 1;
        if (next >= too_large) next = too_large - 1;
    }
    *batch = fits;
    *precision = found;
    return TANDEM_OK;
}
