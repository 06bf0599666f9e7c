/* tensors.c: reads and writes an executor's weights and running statistics as safetensors, on rank 0. */
#include <stdlib.h>
#include <string.h>

#include "backend/executor/executor.h"
#include "backend/safetensors.h"

/* Every tensor of a file: the parameters in the graph's order, then the statistics. */
typedef struct tensor_list {
    tandem_tensor *tensor;
    int n;
} tensor_list;

static tandem_status open_tensor_list(tensor_list *list, const tandem_graph *graph, tandem_error *error)
{
    *list =
        (tensor_list){.tensor = calloc((size_t)(graph->n_parameter + 2 * graph->n_op), sizeof *list->tensor)};
    if (list->tensor) return TANDEM_OK;
    return tandem_no_memory(error, "for the list of the tensors of model '%s'", graph->model);
}

static void add_stats_tensor(tensor_list *list, const tandem_op *op, const char *part, float *value)
{
    tandem_tensor *t = &list->tensor[list->n++];
    (void)snprintf(t->name, sizeof t->name, "%s.%s", op->name, part);
    t->shape = (tandem_shape){1, {tandem_shape_last(&op->shape)}};
    t->value = value;
}

/* weight: flat, in the step's layout. Without `step`, and with NULLs, the list has names and shapes only. */
static void fill_tensor_list(tensor_list *list, const tandem_graph *graph, const tandem_step *step,
                             float *weight, const tandem_batchnorm_stats *stats, float *running)
{
    list->n = 0;
    for (int p = 0; p < graph->n_parameter; p++) {
        tandem_tensor *t = &list->tensor[list->n++];
        tandem_parameter_name(t->name, graph, p);
        t->shape = graph->parameter[p].shape;
        t->value = weight ? weight + step->parameter_start[p] : NULL;
    }
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op *op = &graph->op[i];
        if (!tandem_op_is_batchnorm(op)) continue;
        float *mean = running ? running + stats->start[i] : NULL;
        add_stats_tensor(list, op, "running_mean", mean);
        add_stats_tensor(list, op, "running_var", mean ? mean + tandem_shape_last(&op->shape) : NULL);
    }
}

tandem_status tandem_tensors_inspect(const char *path, const tandem_graph *graph, tandem_error *error)
{
    tensor_list list;
    tandem_status status = open_tensor_list(&list, graph, error);
    if (status != TANDEM_OK) return status;
    fill_tensor_list(&list, graph, NULL, NULL, NULL, NULL);
    status = tandem_safetensors_read(list.tensor, list.n, path, 0, error);
    free(list.tensor);
    return status;
}

static uint64_t flat_weight_bytes(const tandem_executor *executor)
{
    return (uint64_t)executor->step->n_flat * sizeof(float);
}

static tandem_status read_tensor_file(const tandem_executor *executor, float *weight, float *running,
                                      const char *path, tandem_error *error)
{
    tensor_list list = {0};
    tandem_status status = open_tensor_list(&list, executor->graph, error);
    if (status != TANDEM_OK) return status;
    fill_tensor_list(&list, executor->graph, executor->step, weight, &executor->batchnorm_stats, running);
    status = tandem_safetensors_read(list.tensor, list.n, path, 1, error);
    free(list.tensor);
    return status;
}

static tandem_status import_tensors(tandem_executor *executor, float *weight, float *running,
                                    const char *path, tandem_error *error)
{
    tandem_worker *worker = executor->worker;
    const size_t running_bytes = (size_t)executor->batchnorm_stats.n * sizeof(float);
    tandem_error own = {0};
    tandem_status status =
        worker->rank == 0 ? read_tensor_file(executor, weight, running, path, &own) : TANDEM_OK;
    status = tandem_executor_share_status(executor, status, &own, error);
    if (status == TANDEM_OK)
        status = tandem_worker_broadcast(worker, weight, flat_weight_bytes(executor), 0, error);
    if (status == TANDEM_OK && running_bytes)
        status = tandem_worker_broadcast(worker, running, running_bytes, 0, error);
    if (status == TANDEM_OK)
        status = tandem_batchnorm_stats_set(&executor->batchnorm_stats, running, worker, error);
    return status;
}

tandem_status tandem_executor_import(tandem_executor *executor, const char *path, tandem_error *error)
{
    tandem_worker *worker = executor->worker;
    void *weight = NULL;
    tandem_status status =
        tandem_worker_view(&weight, worker, executor->weight, flat_weight_bytes(executor), 1, error);
    if (status != TANDEM_OK) return status;
    float *running = calloc((size_t)executor->batchnorm_stats.n + 1, sizeof *running);
    if (running)
        status = import_tensors(executor, weight, running, path, error);
    else
        status = tandem_no_memory(error, "to read '%.200s'", path);
    free(running);
    const int read = status == TANDEM_OK;
    const tandem_status ended = tandem_worker_end_view(
        worker, weight, executor->weight, flat_weight_bytes(executor), read, read ? error : NULL);
    return read ? ended : status;
}

static tandem_status write_tensor_list(tensor_list *list, const tandem_executor *executor, float *running,
                                       const char *path, tandem_error *error)
{
    void *weight = NULL;
    tandem_status status = tandem_worker_view(&weight, executor->worker, executor->weight,
                                              flat_weight_bytes(executor), 1, error);
    if (status != TANDEM_OK) return status;
    fill_tensor_list(list, executor->graph, executor->step, weight, &executor->batchnorm_stats, running);
    status = tandem_safetensors_write(list->tensor, list->n, executor->graph->model, path, error);
    (void)tandem_worker_end_view(executor->worker, weight, executor->weight, flat_weight_bytes(executor), 0,
                                 NULL);
    return status;
}

static tandem_status write_tensor_file(const tandem_executor *executor, const float *copies, const char *path,
                                       tandem_error *error)
{
    const tandem_batchnorm_stats *stats = &executor->batchnorm_stats;
    tensor_list list;
    tandem_status status = open_tensor_list(&list, executor->graph, error);
    if (status != TANDEM_OK) return status;
    float *running = calloc((size_t)stats->n + 1, sizeof *running);
    if (running) {
        tandem_batchnorm_stats_mean(running, copies, executor->worker->n_rank, stats->n);
        status = write_tensor_list(&list, executor, running, path, error);
    } else {
        status = tandem_no_memory(error, "to write '%.200s'", path);
    }
    free(running);
    free(list.tensor);
    return status;
}

tandem_status tandem_executor_export(tandem_executor *executor, const char *path, tandem_error *error)
{
    float *copies = NULL;
    tandem_error own = {0};
    tandem_status status =
        tandem_batchnorm_stats_gather(&copies, &executor->batchnorm_stats, executor->worker, error);
    if (status != TANDEM_OK) return status;
    if (executor->worker->rank == 0) status = write_tensor_file(executor, copies, path, &own);
    free(copies);
    return tandem_executor_share_status(executor, status, &own, error);
}
