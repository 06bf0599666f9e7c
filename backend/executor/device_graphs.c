/* device_graphs.c: captures micro-steps as device graphs and launches them. */
#include "backend/executor/device_graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/executor/batch.h"
#include "backend/executor/transfer.h"

tandem_status tandem_device_graphs_open(tandem_executor *executor, tandem_error *error)
{
    const char *given = getenv("TANDEM_GRAPHS");
    tandem_device_graphs *graphs = &executor->graphs;
    graphs->is_enabled =
        executor->worker->backend->graph_begin_capture && !(given && strcmp(given, "0") == 0);
    if (!graphs->is_enabled) return TANDEM_OK;
    graphs->captured = calloc((size_t)executor->step->options.n_micro, sizeof *graphs->captured);
    return graphs->captured ? TANDEM_OK : tandem_no_memory(error, "for a step's graphs");
}

void tandem_device_graphs_close(tandem_executor *executor)
{
    const tandem_device_graphs *graphs = &executor->graphs;
    for (int m = 0; graphs->captured && m < executor->step->options.n_micro; m++)
        executor->worker->backend->graph_destroy(executor->worker->device, graphs->captured[m]);
    free(graphs->captured);
}

static int is_last_micro_step(const tandem_executor *executor, int64_t micro_index)
{
    return micro_index % executor->step->options.n_micro == executor->step->options.n_micro - 1;
}

/* The end of the tasks that the graph of a micro-step holds. The last micro-step's graph includes the
 * updates, unless gradients go through the host. */
static int end_of_graph(const tandem_executor *executor, int64_t micro_index)
{
    return is_last_micro_step(executor, micro_index) && !executor->host_gradient ? executor->n_active
                                                                                 : executor->n_backward;
}

static tandem_status capture_micro_step(tandem_executor *executor, void **graph, int64_t micro_index,
                                        int64_t origin, tandem_error *error)
{
    const tandem_device_backend *backend = executor->worker->backend;
    void *device = executor->worker->device;
    tandem_status status = backend->graph_begin_capture(device, error);
    if (status != TANDEM_OK) return status;
    executor->graphs.is_capturing = 1;
    status = tandem_executor_run_tasks(executor, 0, end_of_graph(executor, micro_index), micro_index, origin,
                                       error);
    if (status == TANDEM_OK && is_last_micro_step(executor, micro_index) && executor->host_gradient)
        status = tandem_transfer_record_wait(executor, 0, error); /* before the streams join */
    executor->graphs.is_capturing = 0;
    const tandem_status ended = backend->graph_end_capture(device, graph, status == TANDEM_OK ? error : NULL);
    return status == TANDEM_OK ? ended : status;
}

tandem_status tandem_device_graphs_run(tandem_executor *executor, int *done, int64_t micro_index,
                                       int64_t origin, tandem_error *error)
{
    const tandem_device_backend *backend = executor->worker->backend;
    tandem_device_graphs *graphs = &executor->graphs;
    tandem_error why = {0};
    graphs->was_launched = 0;
    if (!graphs->is_enabled || graphs->n_step == 0 || executor->observer) return TANDEM_OK;
    tandem_status status = tandem_batch_make_ready(executor, micro_index, error);
    if (status != TANDEM_OK) return status;
    void **graph = &graphs->captured[micro_index % executor->step->options.n_micro];
    if (!*graph) status = capture_micro_step(executor, graph, micro_index, origin, &why);
    if (status == TANDEM_OK) status = backend->graph_launch(executor->worker->device, *graph, &why);
    if (status != TANDEM_OK) {
        graphs->is_enabled = 0;
        (void)snprintf(graphs->note, sizeof graphs->note,
                       "steps are launched kernel by kernel, since no graph can be made of them: %.400s",
                       why.text);
        return TANDEM_OK;
    }
    graphs->was_launched = 1;
    *done = end_of_graph(executor, micro_index);
    for (int b = 0;
         executor->reducer && is_last_micro_step(executor, micro_index) && b < executor->step->n_bucket; b++)
        tandem_reducer_ready(executor->reducer, b);
    return TANDEM_OK;
}
