/* value.c: shows observers the values of a step. */
#include <stdlib.h>

#include "backend/executor/executor.h"

/* A value's bytes, and their offset in host_copy, a copy of the arena, weights and gradients. */
typedef struct value_bytes {
    const unsigned char *at;
    uint64_t offset_in_copy, bytes;
} value_bytes;

static value_bytes find_value_bytes(const tandem_executor *executor, int id, int gradient)
{
    const uint64_t flat = (uint64_t)executor->step->n_flat * sizeof(float);
    if (id >= 0) {
        const int64_t offset = executor->offset[id];
        const uint64_t in_copy = offset >= 0
                                     ? (uint64_t)offset
                                     : executor->memory.arena + flat + (uint64_t)TANDEM_IN_GRADIENTS(offset);
        return (value_bytes){tandem_executor_place(executor, id), in_copy, executor->step->value[id].bytes};
    }
    const int p = TANDEM_PARAMETER(id);
    const uint64_t start = (uint64_t)executor->step->parameter_start[p] * sizeof(float);
    const float *array = gradient ? executor->gradient : executor->weight;
    return (value_bytes){(const unsigned char *)array + start,
                         executor->memory.arena + (gradient ? flat : 0) + start,
                         (uint64_t)executor->graph->parameter[p].elements * sizeof(float)};
}

static const void *copy_value_to_host(tandem_executor *executor, const value_bytes *what)
{
    tandem_worker *worker = executor->worker;
    const uint64_t flat = (uint64_t)executor->step->n_flat * sizeof(float);
    if (!executor->host_copy) executor->host_copy = malloc(executor->memory.arena + 2 * flat);
    if (!executor->host_copy) return NULL;
    unsigned char *to = executor->host_copy + what->offset_in_copy;
    return worker->backend->copy(worker->device, to, what->at, what->bytes, NULL) == TANDEM_OK ? to : NULL;
}

const void *tandem_executor_value(tandem_executor *executor, int id, int gradient, float *scale)
{
    tandem_worker *worker = executor->worker;
    if (id == -1) return NULL;
    const value_bytes what = find_value_bytes(executor, id, gradient);
    if (!tandem_worker_has_device_memory(worker)) {
        if (id >= 0 && scale) *scale = executor->scale[id];
        return what.at;
    }
    if (id >= 0 && scale &&
        worker->backend->copy(worker->device, scale, &executor->scale[id], sizeof *scale, NULL) != TANDEM_OK)
        return NULL;
    return copy_value_to_host(executor, &what);
}
