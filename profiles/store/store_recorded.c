/* store_recorded.c: files the costs of a graph that another framework recorded (record.h) under the keys
 * that a replay of it looks up. */
#include "tandem/record_costs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "tandem/advanced/store.h"

/* One key of one task: its time is share · time_ns[r] in repetition r. */
typedef struct recorded_key {
    char text[TANDEM_COST_KEY_TEXT];
    tandem_cost_key key;
    const int64_t *time_ns; /* [n]; NULL = 0 */
    int64_t n;
    double share;
} recorded_key;

typedef struct recorded_keys {
    const tandem_step *step;
    const tandem_recorded_costs *costs;
    /* [n_op × TANDEM_N_PRECISION] index of its cost, or −1 */
    int *cost_of;
    recorded_key *list;
    int n, capacity;
} recorded_keys;

/* --- What is given --------------------------------------------------------------------------------------
 * */

static tandem_status check_times(const char *what, const int64_t *time_ns, int64_t n, tandem_error *error)
{
    for (int64_t r = 0; r < n; r++)
        if (time_ns[r] < 0 || time_ns[r] > INT64_C(1) << 50)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "repetition %" PRId64 " of '%s' took %" PRId64 " ns; allowed 0 … 2^50", r,
                                    what, time_ns[r]);
    return TANDEM_OK;
}

static tandem_status check_recorded_cost(const tandem_graph *graph, const tandem_recorded_cost *cost,
                                         tandem_error *error)
{
    if (cost->op < 0 || cost->op >= graph->n_op)
        return tandem_error_set(error, TANDEM_USAGE, "a cost is of operator %d; %s has 0 to %d", cost->op,
                                graph->model, graph->n_op - 1);
    const tandem_op *op = &graph->op[cost->op];
    const int is_known = (unsigned)cost->precision < TANDEM_N_PRECISION &&
                         (cost->precision == TANDEM_PRECISION_FP32 ||
                          tandem_op_row_get(op->kind)->precisions >> cost->precision & 1);
    if (!is_known || cost->n < 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "the cost of operator '%s' has precision %d and %" PRId64
                                " repetitions; expected one of its precisions, and 1 or more",
                                op->name, (int)cost->precision, cost->n);
    const tandem_status status = check_times(op->name, cost->forward_ns, cost->n, error);
    return status == TANDEM_OK ? check_times(op->name, cost->backward_ns, cost->n, error) : status;
}

static tandem_status index_costs(recorded_keys *keys, tandem_error *error)
{
    const tandem_graph *graph = keys->step->graph;
    const size_t n = (size_t)graph->n_op * TANDEM_N_PRECISION;
    tandem_status status = check_times("update", keys->costs->update_ns, keys->costs->n_update, error);
    keys->cost_of = malloc(n * sizeof *keys->cost_of);
    if (!keys->cost_of) return tandem_no_memory(error, "for the costs of %d operators", graph->n_op);
    for (size_t i = 0; i < n; i++) keys->cost_of[i] = -1;
    for (int i = 0; i < keys->costs->n_cost && status == TANDEM_OK; i++) {
        const tandem_recorded_cost *cost = &keys->costs->cost[i];
        status = check_recorded_cost(graph, cost, error);
        if (status == TANDEM_OK) keys->cost_of[cost->op * TANDEM_N_PRECISION + (int)cost->precision] = i;
    }
    return status;
}

/* --- The key of every task ------------------------------------------------------------------------------
 * */

/* The times of a pass of an operator; 0: nothing was recorded. The backward time counts once, at the weight
 * gradient where there is one. */
static int set_operator_times(recorded_keys *keys, const tandem_task *task, recorded_key *times_key)
{
    const tandem_op *op = &keys->step->graph->op[task->op];
    const tandem_recorded_costs *costs = keys->costs;
    tandem_precision precision = TANDEM_PRECISION_FP32;
    if (tandem_op_is_adjustable(op) && tandem_precision_find(&precision, times_key->key.precision, NULL))
        return 0;
    const int index = keys->cost_of[task->op * TANDEM_N_PRECISION + (int)precision];
    const int is_silent =
        op->kind == TANDEM_OP_IMAGES || op->kind == TANDEM_OP_LABELS || op->kind == TANDEM_OP_CROSS_ENTROPY;
    if (index < 0) return is_silent;
    const int has_wgrad = tandem_step_op_tasks(keys->step, task->op).wgrad >= 0;
    times_key->n = costs->cost[index].n;
    if (task->kind == TANDEM_TASK_FORWARD) times_key->time_ns = costs->cost[index].forward_ns;
    if (task->kind == TANDEM_TASK_WGRAD || (task->kind == TANDEM_TASK_DGRAD && !has_wgrad))
        times_key->time_ns = costs->cost[index].backward_ns;
    return 1;
}

static int set_times(recorded_keys *keys, const tandem_task *task, recorded_key *times_key)
{
    const tandem_step *step = keys->step;
    switch (task->kind) {
    case TANDEM_TASK_FORWARD:
    case TANDEM_TASK_DGRAD:
    case TANDEM_TASK_WGRAD: return set_operator_times(keys, task, times_key);
    case TANDEM_TASK_REDUCE:
    case TANDEM_TASK_SCATTER:
    case TANDEM_TASK_GATHER: return 0;
    case TANDEM_TASK_UPDATE:
        times_key->time_ns = keys->costs->update_ns;
        times_key->n = keys->costs->n_update;
        times_key->share = (double)step->bucket[task->bucket].elements / (double)step->n_flat;
        return times_key->n > 0;
    default: return 1; /* part of the call that causes it */
    }
}

static tandem_status append_key(recorded_keys *keys, int task, int variant, tandem_error *error)
{
    recorded_key times_key = {.share = 1};
    if (!tandem_step_cost_key(keys->step, task, variant, &times_key.key) ||
        !set_times(keys, &keys->step->task[task], &times_key))
        return TANDEM_OK;
    tandem_cost_key_print(times_key.text, sizeof times_key.text, &times_key.key);
    recorded_key *const more = tandem_grow(keys->list, &keys->capacity, keys->n, sizeof *more, INT32_MAX / 2);
    if (!more) return tandem_no_memory(error, "for the costs of %d tasks", keys->step->n_task);
    keys->list = more;
    more[keys->n++] = times_key;
    return TANDEM_OK;
}

static tandem_status collect_keys(recorded_keys *keys, unsigned precisions, tandem_error *error)
{
    tandem_status status = index_costs(keys, error);
    for (int t = 0; t < keys->step->n_task && status == TANDEM_OK; t++) {
        const uint64_t variants = tandem_step_variants(keys->step, t, precisions);
        for (int v = 0; v < TANDEM_MAX_VARIANT && status == TANDEM_OK; v++)
            if (variants >> v & 1) status = append_key(keys, t, v, error);
    }
    return status;
}

static int by_key_text(const void *left, const void *right)
{
    return strcmp(((const recorded_key *)left)->text, ((const recorded_key *)right)->text);
}

/* --- Into the store -------------------------------------------------------------------------------------
 * */

/* The mean over n keys of one text, repetition by repetition, so that their sum stays what was measured. */
static tandem_status put_mean(tandem_store *store, const char *device, const recorded_key *key, int n,
                              tandem_error *error)
{
    int64_t repetitions = INT64_MAX;
    for (int i = 0; i < n; i++)
        if (key[i].time_ns && key[i].n < repetitions) repetitions = key[i].n;
    if (repetitions == INT64_MAX) repetitions = 1; /* all are 0 */
    int64_t *sample_ns = calloc((size_t)repetitions, sizeof *sample_ns);
    if (!sample_ns) return tandem_no_memory(error, "for %" PRId64 " repetitions", repetitions);
    for (int64_t r = 0; r < repetitions; r++) {
        double sum_ns = 0;
        for (int i = 0; i < n; i++) sum_ns += key[i].time_ns ? key[i].share * (double)key[i].time_ns[r] : 0;
        sample_ns[r] = (int64_t)(sum_ns / n + 0.5);
    }
    tandem_cost cost;
    tandem_cost_from_samples(&cost, sample_ns, repetitions, 0);
    free(sample_ns);
    return tandem_store_put_cost(store, device, "", &key->key, &cost, error);
}

static tandem_status put_keys(const char *path, recorded_keys *keys, tandem_error *error)
{
    tandem_store *store = NULL;
    const tandem_recorded_costs *costs = keys->costs;
    if (keys->n) qsort(keys->list, (size_t)keys->n, sizeof *keys->list, by_key_text);
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, error);
    if (status != TANDEM_OK) return status;
    status =
        tandem_store_set_environment(store, costs->libraries ? costs->libraries : "", costs->n_thread, error);
    if (status == TANDEM_OK) status = tandem_store_begin(store, error);
    for (int first = 0, end; first < keys->n && status == TANDEM_OK; first = end) {
        end = first + 1;
        while (end < keys->n && strcmp(keys->list[end].text, keys->list[first].text) == 0) end++;
        status = put_mean(store, costs->device, &keys->list[first], end - first, error);
    }
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    if (status != TANDEM_OK) tandem_store_rollback(store);
    tandem_store_close(store);
    return status;
}

tandem_status tandem_record_costs(const char *path, const tandem_graph *graph,
                                  const tandem_recorded_costs *costs, tandem_error *error)
{
    tandem_device device;
    tandem_step *step = NULL;
    /* with every task that options add */
    const tandem_step_options options = {.n_micro = 2, .with_norm = 1, .ddp_buckets = 1};
    if (!tandem_device_is_recorded(costs->device))
        return tandem_error_set(error, TANDEM_USAGE,
                                "recorded costs are of device '%.60s'; allowed is torch:NAME, where NAME has "
                                "a-z, 0-9 and ._-, and %d characters at most",
                                costs->device ? costs->device : "", TANDEM_DEVICE_NAME - 7);
    tandem_status status = tandem_device_find(&device, costs->device, error);
    if (status == TANDEM_OK)
        status = tandem_device_open_step(&step, &device, graph, costs->bucket_bytes, &options, error);
    if (status != TANDEM_OK) return status;
    recorded_keys keys = {.step = step, .costs = costs};
    status = collect_keys(&keys, device.precisions, error);
    if (status == TANDEM_OK) status = put_keys(path, &keys, error);
    free(keys.list);
    free(keys.cost_of);
    tandem_step_close(step);
    return status;
}

static tandem_status put_slowdowns(tandem_store *store, const tandem_cluster *cluster, const char *group,
                                   uint64_t bytes, double slowdown, int64_t n, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++)
        status = tandem_store_put_interference(store, cluster->classes[c].device.name, group,
                                               "compute_under_comm", bytes, slowdown, n, error);
    return status;
}

static tandem_status put_curve_point(tandem_store *store, const char *group, uint64_t bytes, int loaded,
                                     const int64_t *time_ns, int64_t n, tandem_error *error)
{
    tandem_collective_point point = {.bytes = bytes};
    tandem_status status = check_times("all-reduce", time_ns, n, error);
    if (status != TANDEM_OK) return status;
    int64_t *const sample_ns = malloc((size_t)n * sizeof *sample_ns);
    if (!sample_ns) return tandem_no_memory(error, "for %" PRId64 " repetitions", n);
    memcpy(sample_ns, time_ns, (size_t)n * sizeof *sample_ns);
    tandem_cost_from_samples(&point.cost, sample_ns, n, 0);
    free(sample_ns);
    return tandem_store_put_collective(store, group, "all-reduce", loaded, &point, error);
}

tandem_status tandem_record_all_reduce(const char *path, const tandem_cluster *cluster, uint64_t bytes,
                                       const int64_t *alone_ns, const int64_t *loaded_ns, int64_t n,
                                       double slowdown, tandem_error *error)
{
    char group[TANDEM_GROUP_KEY_TEXT];
    tandem_store *store = NULL;
    if (n < 1 || !(slowdown >= 1))
        return tandem_error_set(error, TANDEM_USAGE,
                                "an all-reduce of %" PRIu64 " bytes has %" PRId64 " repetitions and slows "
                                "compute down %g times; both must be 1 or more",
                                bytes, n, slowdown);
    tandem_cluster_group_key(group, sizeof group, cluster);
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, error);
    if (status != TANDEM_OK) return status;
    status = tandem_store_begin(store, error);
    if (status == TANDEM_OK) status = put_curve_point(store, group, bytes, 0, alone_ns, n, error);
    if (status == TANDEM_OK) status = put_curve_point(store, group, bytes, 1, loaded_ns, n, error);
    if (status == TANDEM_OK) status = put_slowdowns(store, cluster, group, bytes, slowdown, n, error);
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    if (status != TANDEM_OK) tandem_store_rollback(store);
    tandem_store_close(store);
    return status;
}
