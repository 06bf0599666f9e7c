#include "backend/graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "backend/transfer.h"

tandem_status tandem_graphs_open(tandem_executor *executor, tandem_error *error)
{
    const char *given = getenv("TANDEM_GRAPHS");
    tandem_graphs *graphs = &executor->graphs;
    graphs->are_wanted = executor->worker->backend->record && !(given && strcmp(given, "0") == 0);
    if (!graphs->are_wanted) return TANDEM_OK;
    graphs->ready = calloc((size_t)executor->step->options.n_micro, sizeof *graphs->ready);
    return graphs->ready ? TANDEM_OK
                         : tandem_error_set(error, TANDEM_NO_MEMORY,
                                            "no memory for a step's "
                                            "graphs");
}

void tandem_graphs_close(tandem_executor *executor)
{
    const tandem_graphs *graphs = &executor->graphs;
    for (int m = 0; graphs->ready && m < executor->step->options.n_micro; m++)
        executor->worker->backend->forget(executor->worker->device, graphs->ready[m]);
    free(graphs->ready);
}

static int is_last(const tandem_executor *executor, int64_t pass)
{
    return pass % executor->step->options.n_micro == executor->step->options.n_micro - 1;
}

/* The place behind what a graph holds: of the last micro-step also updates, where the host has no part in
 * gradients. */
static int end_of(const tandem_executor *executor, int64_t pass)
{
    return is_last(executor, pass) && !executor->host_gradient ? executor->n_active
                                                               : tandem_executor_first_behind(executor);
}

static tandem_status record(tandem_executor *executor, void **graph, int64_t pass, int64_t origin,
                            tandem_error *error)
{
    const tandem_device_backend *backend = executor->worker->backend;
    void *device = executor->worker->device;
    tandem_status status = backend->record(device, error);
    if (status != TANDEM_OK) return status;
    executor->graphs.records = 1;
    status = tandem_executor_run_places(executor, 0, end_of(executor, pass), pass, origin, error);
    if (status == TANDEM_OK && is_last(executor, pass) && executor->host_gradient)
        status = tandem_transfer_begin_wait(executor, 0, error); /* before lanes are joined */
    executor->graphs.records = 0;
    const tandem_status ended = backend->recorded(device, graph, status == TANDEM_OK ? error : NULL);
    return status == TANDEM_OK ? ended : status;
}

tandem_status tandem_graphs_run(tandem_executor *executor, int *done, int64_t pass, int64_t origin,
                                tandem_error *error)
{
    const tandem_device_backend *backend = executor->worker->backend;
    tandem_graphs *graphs = &executor->graphs;
    tandem_error why = {0};
    graphs->replays = 0;
    if (!graphs->are_wanted || graphs->steps == 0 || executor->observer) return TANDEM_OK;
    tandem_status status = tandem_batch_load(executor, pass, error);
    if (status != TANDEM_OK) return status;
    void **graph = &graphs->ready[pass % executor->step->options.n_micro];
    if (!*graph) status = record(executor, graph, pass, origin, &why);
    if (status == TANDEM_OK) status = backend->replay(executor->worker->device, *graph, &why);
    if (status != TANDEM_OK) {
        graphs->are_wanted = 0;
        (void)snprintf(graphs->note, sizeof graphs->note,
                       "steps are launched kernel by kernel, since no graph can be made of them: %.400s",
                       why.text);
        return TANDEM_OK;
    }
    graphs->replays = 1;
    *done = end_of(executor, pass);
    for (int b = 0; executor->reducer && is_last(executor, pass) && b < executor->step->n_bucket; b++)
        tandem_reducer_ready(executor->reducer, b);
    return TANDEM_OK;
}
