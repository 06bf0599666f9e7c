/* executor_tensors.c: an executor's weights and running statistics from and to files of safetensors: rank 0
 * reads or writes. */
#include <stdlib.h>
#include <string.h>

#include "backend/executor.h"
#include "backend/safetensors.h"

/* Every tensor a file has: the parameters in the graph's order, then the statistics. */
typedef struct tensor_list {
    tandem_tensor *tensor;
    int n;
} tensor_list;

static tandem_status list_open(tensor_list *list, const tandem_graph *graph, tandem_error *error)
{
    *list =
        (tensor_list){.tensor = calloc((size_t)(graph->n_parameter + 2 * graph->n_op), sizeof *list->tensor)};
    if (list->tensor) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the list of the tensors of model '%s'",
                            graph->model);
}

static void add_statistic(tensor_list *list, const tandem_op *op, const char *part, float *value)
{
    tandem_tensor *t = &list->tensor[list->n++];
    (void)snprintf(t->name, sizeof t->name, "%s.%s", op->name, part);
    t->shape = (tandem_shape){1, {tandem_shape_last(&op->shape)}};
    t->value = value;
}

/* weight: flat, laid out by `step`; both NULL where only names and shapes count, and `running` too. */
static void list_fill(tensor_list *list, const tandem_graph *graph, const tandem_step *step, float *weight,
                      const tandem_running *statistics, float *running)
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
        float *mean = running ? running + statistics->start[i] : NULL;
        add_statistic(list, op, "running_mean", mean);
        add_statistic(list, op, "running_var", mean ? mean + tandem_shape_last(&op->shape) : NULL);
    }
}

tandem_status tandem_tensors_inspect(const char *path, const tandem_graph *graph, tandem_error *error)
{
    tensor_list list;
    tandem_status status = list_open(&list, graph, error);
    if (status != TANDEM_OK) return status;
    list_fill(&list, graph, NULL, NULL, NULL, NULL);
    status = tandem_safetensors_read(list.tensor, list.n, path, 0, error);
    free(list.tensor);
    return status;
}

static uint64_t weight_bytes(const tandem_executor *executor)
{
    return (uint64_t)executor->step->n_flat * sizeof(float);
}

static tandem_status read_tensors(const tandem_executor *executor, float *weight, float *running,
                                  const char *path, tandem_error *error)
{
    tensor_list list = {0};
    tandem_status status = list_open(&list, executor->graph, error);
    if (status != TANDEM_OK) return status;
    list_fill(&list, executor->graph, executor->step, weight, &executor->statistics, running);
    status = tandem_safetensors_read(list.tensor, list.n, path, 1, error);
    free(list.tensor);
    return status;
}

static tandem_status import_into(tandem_executor *executor, float *weight, float *running, const char *path,
                                 tandem_error *error)
{
    tandem_worker *worker = executor->worker;
    const size_t running_bytes = (size_t)executor->statistics.n * sizeof(float);
    tandem_error own = {0};
    tandem_status status =
        worker->rank == 0 ? read_tensors(executor, weight, running, path, &own) : TANDEM_OK;
    status = tandem_executor_agree_with_0(executor, status, &own, error);
    if (status == TANDEM_OK)
        status = tandem_worker_broadcast(worker, weight, weight_bytes(executor), 0, error);
    if (status == TANDEM_OK && running_bytes)
        status = tandem_worker_broadcast(worker, running, running_bytes, 0, error);
    if (status == TANDEM_OK) status = tandem_running_set(&executor->statistics, running, worker, error);
    return status;
}

tandem_status tandem_executor_import(tandem_executor *executor, const char *path, tandem_error *error)
{
    tandem_worker *worker = executor->worker;
    void *weight = NULL;
    tandem_status status =
        tandem_worker_view(&weight, worker, executor->weight, weight_bytes(executor), 1, error);
    if (status != TANDEM_OK) return status;
    float *running = calloc((size_t)executor->statistics.n + 1, sizeof *running);
    if (running)
        status = import_into(executor, weight, running, path, error);
    else
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", path);
    free(running);
    const int read = status == TANDEM_OK;
    const tandem_status ended = tandem_worker_end_view(worker, weight, executor->weight,
                                                       weight_bytes(executor), read, read ? error : NULL);
    return read ? ended : status;
}

static tandem_status write_list(tensor_list *list, const tandem_executor *executor, float *running,
                                const char *path, tandem_error *error)
{
    void *weight = NULL;
    tandem_status status =
        tandem_worker_view(&weight, executor->worker, executor->weight, weight_bytes(executor), 1, error);
    if (status != TANDEM_OK) return status;
    list_fill(list, executor->graph, executor->step, weight, &executor->statistics, running);
    status = tandem_safetensors_write(list->tensor, list->n, executor->graph->model, path, error);
    (void)tandem_worker_end_view(executor->worker, weight, executor->weight, weight_bytes(executor), 0, NULL);
    return status;
}

static tandem_status write_tensors(const tandem_executor *executor, const float *copies, const char *path,
                                   tandem_error *error)
{
    const tandem_running *statistics = &executor->statistics;
    tensor_list list;
    tandem_status status = list_open(&list, executor->graph, error);
    if (status != TANDEM_OK) return status;
    float *running = calloc((size_t)statistics->n + 1, sizeof *running);
    if (running) {
        tandem_running_mean(running, copies, executor->worker->n_rank, statistics->n);
        status = write_list(&list, executor, running, path, error);
    } else {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to write '%.200s'", path);
    }
    free(running);
    free(list.tensor);
    return status;
}

tandem_status tandem_executor_export(tandem_executor *executor, const char *path, tandem_error *error)
{
    float *copies = NULL;
    tandem_error own = {0};
    tandem_status status = tandem_running_gather(&copies, &executor->statistics, executor->worker, error);
    if (status != TANDEM_OK) return status;
    if (executor->worker->rank == 0) status = write_tensors(executor, copies, path, &own);
    free(copies);
    return tandem_executor_agree_with_0(executor, status, &own, error);
}
