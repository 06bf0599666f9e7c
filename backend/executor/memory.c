/* memory.c: the memory that an executor owns on its device and on the host. */
#include <assert.h>

#include "backend/executor/executor.h"

tandem_status tandem_executor_no_memory(const tandem_executor *executor, tandem_error *error)
{
    return tandem_no_memory(error, "to run model '%s' at batch %lld", executor->graph->model,
                            (long long)executor->graph->batch);
}

void *tandem_executor_alloc(tandem_executor *executor, tandem_memory_location location, uint64_t bytes,
                            tandem_status *status, tandem_error *error)
{
    void *memory = NULL;
    assert(executor->n_owned < (int)(sizeof executor->owned / sizeof executor->owned[0]));
    if (*status == TANDEM_OK)
        *status = tandem_worker_alloc(&memory, executor->worker, location, bytes, error);
    if (*status != TANDEM_OK) return NULL;
    executor->owned[executor->n_owned].location = location;
    executor->owned[executor->n_owned++].memory = memory;
    return memory;
}

float *tandem_executor_alloc_shared(tandem_executor *executor, tandem_status *status, tandem_error *error)
{
    const uint64_t bytes = tandem_executor_flat_bytes(executor);
    void *memory = NULL;
    if (*status != TANDEM_OK) return NULL;
    *status = tandem_executor_has_all_reduce(executor)
                  ? tandem_worker_alloc_shared(&memory, executor->worker, bytes, error)
                  : tandem_worker_alloc(&memory, executor->worker, TANDEM_STAGING_MEMORY, bytes, error);
    return memory;
}
