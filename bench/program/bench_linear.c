/* bench_linear.c: time of a linear layer in a training step in each precision: its products and all casts for
 * it, run by the executor. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program/bench.h"

enum { WARM_UP = 2 };
static const int64_t timeout_ns = 60000000000;

/* Only this layer is not in fp32, so that every cast is for it. */
static int64_t linear_layer_ns(const tandem_step *step, const tandem_step_times *times, int layer)
{
    int64_t sum_ns = 0;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        const int is_cast = task->kind == TANDEM_TASK_CAST || task->kind == TANDEM_TASK_GRADIENT_CAST ||
                            task->kind == TANDEM_TASK_WEIGHT_CAST || task->kind == TANDEM_TASK_SAVED_CAST;
        if (task->active && times->end_ns[t] >= 0 && (is_cast || task->op == layer))
            sum_ns += times->end_ns[t] - times->start_ns[t];
    }
    return sum_ns;
}

static tandem_status measure_linear_precision(bench_result *result, const tandem_backend_api *backend,
                                              tandem_worker *worker, const tandem_step *step, int layer,
                                              int64_t n, tandem_error *error)
{
    const tandem_executor_options options = {
        .step = step, .global_batch = step->graph->batch, .without_all_reduce = 1, .with_task_times = 1};
    tandem_executor *executor = NULL;
    int64_t *sample_ns = calloc((size_t)n, sizeof *sample_ns);
    char name[96];
    tandem_status status = sample_ns ? backend->executor_open(&executor, worker, &options, error)
                                     : tandem_no_memory(error, "for %" PRId64 " samples", n);
    for (int64_t i = -WARM_UP; i < n && status == TANDEM_OK; i++) {
        double loss = 0;
        status = backend->executor_step(executor, i + WARM_UP, &loss, error);
        if (status == TANDEM_OK && i >= 0)
            sample_ns[i] = linear_layer_ns(step, backend->executor_times(executor), layer);
    }
    if (executor) backend->executor_close(executor);
    (void)snprintf(name, sizeof name, "linear %d x %d x %d %s, three products and casts", BENCH_LINEAR_ROWS,
                   BENCH_LINEAR_WIDTH, BENCH_LINEAR_WIDTH,
                   tandem_precision_get(step->precision[layer])->name);
    if (status == TANDEM_OK) {
        bench_add_case(result, name, sample_ns, n);
        bench_case *one = &result->one[result->n_case - 1];
        one->ops_per_s = 3 * step->graph->op[layer].flops * 1e9 / (double)one->median_ns;
    }
    free(sample_ns);
    return status;
}

static int find_bench_layer(const tandem_graph *graph)
{
    int i = 0;
    while (strcmp(graph->op[i].name, "fc2") != 0) i++;
    return i;
}

tandem_status bench_linear(bench_result *result, const cli_options *given, int64_t n, tandem_error *error)
{
    char model[64];
    cli_options options = *given;
    tandem_workload workload = {0};
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    (void)snprintf(model, sizeof model, "mlp:width=%d,depth=2", BENCH_LINEAR_WIDTH);
    options.model = model;
    options.batch = BENCH_LINEAR_ROWS;
    const tandem_listener listener = cli_listener(given);
    const tandem_backend_api *backend = runtime_backend(error);
    if (!backend) return error->status;
    tandem_status status = cli_workload_open(&workload, &options, error);
    rank_cores cores = {0};
    if (status == TANDEM_OK)
        status = rank_cores_take(&cores, workload.cluster.classes[0].device.name,
                                 &(tandem_rank_place){.n_rank = 1}, &listener, error);
    const tandem_worker_options here = {.device = workload.cluster.classes[0].device.name,
                                        .n_rank = 1,
                                        .cpu = cores.n > 0 ? cores.core[0] : -1,
                                        .timeout_ns = timeout_ns,
                                        .core = cores.core,
                                        .n_core = cores.n};
    if (status == TANDEM_OK) status = backend->worker_open(&worker, &here, error);
    if (status == TANDEM_OK)
        status = tandem_device_open_step(&step, &workload.cluster.classes[0].device, workload.graph[0], 0,
                                         NULL, error);
    const int layer = status == TANDEM_OK ? find_bench_layer(workload.graph[0]) : 0;
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        if (!(workload.cluster.classes[0].device.precisions >> p & 1)) continue;
        tandem_step_set(step, layer, (tandem_precision)p);
        tandem_step_resolve(step);
        status = measure_linear_precision(result, backend, worker, step, layer, n, error);
    }
    tandem_step_close(step);
    if (worker) backend->worker_close(worker);
    tandem_workload_close(&workload);
    return status;
}
