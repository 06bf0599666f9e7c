/* tensors.c: reads and writes an executor's weights and running statistics as safetensors, on rank 0. */
#include <stdlib.h>

#include "backend/executor/executor.h"
#include "backend/published.h"
#include "backend/safetensors.h"

/* Every tensor of a file: the parameters in the graph's order, then the statistics. */
typedef struct tensor_list {
    tandem_tensor *tensor;
    int n;
} tensor_list;

static void add_stats_tensor(tensor_list *list, const tandem_op *op, const char *part, float *value)
{
    tandem_tensor *t = &list->tensor[list->n++];
    (void)snprintf(t->name, sizeof t->name, "%s.%s", op->name, part);
    t->shape = (tandem_shape){1, {tandem_shape_last(&op->shape)}};
    t->value = value;
}

/* weight: flat, in the layout of executor->step; running: as batchnorm_stats. Without an executor, the list
 * has names and shapes only. The caller frees list->tensor. */
static tandem_status open_tensor_list(tensor_list *list, const tandem_graph *graph,
                                      const tandem_executor *executor, float *weight, float *running,
                                      tandem_error *error)
{
    list->n = 0;
    list->tensor = calloc((size_t)(graph->n_parameter + 2 * graph->n_op), sizeof *list->tensor);
    if (!list->tensor) return tandem_no_memory(error, "for the tensors of model '%s'", graph->model);
    for (int p = 0; p < graph->n_parameter; p++) {
        tandem_tensor *t = &list->tensor[list->n++];
        tandem_parameter_name(t->name, graph, p);
        t->shape = graph->parameter[p].shape;
        t->value = executor ? weight + executor->step->parameter_start[p] : NULL;
    }
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op *op = &graph->op[i];
        if (!tandem_op_is_batchnorm(op)) continue;
        float *mean = executor ? running + executor->batchnorm_stats.start[i] : NULL;
        add_stats_tensor(list, op, "running_mean", mean);
        add_stats_tensor(list, op, "running_var", mean ? mean + tandem_shape_last(&op->shape) : NULL);
    }
    return TANDEM_OK;
}

/* By the model's own names, or by published ones; said: what does not fit. */
static tandem_status read_tensors(char said[TANDEM_TENSORS_SAID], const tensor_list *list, const char *model,
                                  const char *path, int fill, tandem_error *error)
{
    int is_published = 0;
    const tandem_status status =
        tandem_published_read(&is_published, said, list->tensor, list->n, model, path, fill, error);
    return status == TANDEM_OK && !is_published
               ? tandem_safetensors_read(list->tensor, list->n, path, fill, error)
               : status;
}

tandem_status tandem_tensors_inspect(char said[TANDEM_TENSORS_SAID], const char *path,
                                     const tandem_graph *graph, tandem_error *error)
{
    tensor_list list;
    tandem_status status = open_tensor_list(&list, graph, NULL, NULL, NULL, error);
    if (status == TANDEM_OK) status = read_tensors(said, &list, graph->model, path, 0, error);
    free(list.tensor);
    return status;
}

/* Reads or writes the file of `path`, from and to the host's arrays. */
static tandem_status transfer_tensors(const tandem_executor *executor, float *weight, float *running,
                                      int is_write, const char *path, tandem_error *error)
{
    const char *model = executor->graph->model;
    char said[TANDEM_TENSORS_SAID]; /* who inspected the file has it */
    tensor_list list;
    tandem_status status = open_tensor_list(&list, executor->graph, executor, weight, running, error);
    if (status == TANDEM_OK)
        status = is_write ? tandem_safetensors_write(list.tensor, list.n, model, path, error)
                          : read_tensors(said, &list, model, path, 1, error);
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
        worker->rank == 0 ? transfer_tensors(executor, weight, running, 0, path, &own) : TANDEM_OK;
    status = tandem_executor_share_status(executor, status, &own, error);
    if (status == TANDEM_OK)
        status = tandem_worker_broadcast(worker, weight, tandem_executor_flat_bytes(executor), 0, error);
    if (status == TANDEM_OK && running_bytes)
        status = tandem_worker_broadcast(worker, running, running_bytes, 0, error);
    return status == TANDEM_OK
               ? tandem_batchnorm_stats_set(&executor->batchnorm_stats, running, worker, error)
               : status;
}

/* Calls import_tensors, or writes the file, with the host's view of the weights; *running: of the caller. */
static tandem_status with_weight_view(tandem_executor *executor, float *running, int is_write,
                                      const char *path, tandem_error *error)
{
    const uint64_t bytes = tandem_executor_flat_bytes(executor);
    tandem_worker *worker = executor->worker;
    void *weight = NULL;
    tandem_status status = tandem_worker_view(&weight, worker, executor->weight, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    status = is_write ? transfer_tensors(executor, weight, running, 1, path, error)
                      : import_tensors(executor, weight, running, path, error);
    const int is_read = status == TANDEM_OK && !is_write;
    const tandem_status ended =
        tandem_worker_end_view(worker, weight, executor->weight, bytes, is_read, is_read ? error : NULL);
    return is_read ? ended : status;
}

tandem_status tandem_executor_import(tandem_executor *executor, const char *path, tandem_error *error)
{
    float *running = calloc((size_t)executor->batchnorm_stats.n + 1, sizeof *running);
    const tandem_status status = running ? with_weight_view(executor, running, 0, path, error)
                                         : tandem_no_memory(error, "to read '%.200s'", path);
    free(running);
    return status;
}

tandem_status tandem_executor_export(tandem_executor *executor, const char *path, tandem_error *error)
{
    const tandem_batchnorm_stats *stats = &executor->batchnorm_stats;
    float *copies = NULL;
    tandem_error own = {0};
    tandem_status status = tandem_batchnorm_stats_gather(&copies, stats, executor->worker, error);
    if (status != TANDEM_OK) return status;
    if (executor->worker->rank == 0) {
        tandem_batchnorm_stats_mean(copies, copies, executor->worker->n_rank, stats->n); /* in place */
        status = with_weight_view(executor, copies, 1, path, &own);
    }
    free(copies);
    return tandem_executor_share_status(executor, status, &own, error);
}
