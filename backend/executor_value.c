/* executor_value.c: what observers see of a step. */
#include <stdlib.h>

#include "backend/executor.h"

/* A value as it lies, and its place in a mirror of all that has values: the arena, weights, gradients. */
typedef struct seen {
    const unsigned char *at;
    uint64_t place, bytes;
} seen;

static seen look(const tandem_executor *executor, int id, int gradient)
{
    if (id >= 0)
        return (seen){executor->arena + executor->offset[id], (uint64_t)executor->offset[id],
                      executor->step->value[id].bytes};
    const uint64_t flat = (uint64_t)executor->step->n_flat * sizeof(float);
    const int p = TANDEM_PARAMETER(id);
    const uint64_t start = (uint64_t)executor->step->parameter_start[p] * sizeof(float);
    const float *array = gradient ? executor->gradient : executor->weight;
    return (seen){(const unsigned char *)array + start,
                  executor->memory.arena + (gradient ? flat : 0) + start,
                  (uint64_t)executor->graph->parameter[p].elements * sizeof(float)};
}

static const void *copy_of(tandem_executor *executor, const seen *what)
{
    tandem_worker *worker = executor->worker;
    const uint64_t flat = (uint64_t)executor->step->n_flat * sizeof(float);
    if (!executor->mirror) executor->mirror = malloc(executor->memory.arena + 2 * flat);
    if (!executor->mirror) return NULL;
    unsigned char *to = executor->mirror + what->place;
    return worker->backend->copy(worker->device, to, what->at, what->bytes, NULL) == TANDEM_OK ? to : NULL;
}

const void *tandem_executor_value(tandem_executor *executor, int id, int gradient, float *scale)
{
    tandem_worker *worker = executor->worker;
    if (id == -1) return NULL;
    const seen what = look(executor, id, gradient);
    if (!tandem_worker_is_apart(worker)) {
        if (id >= 0 && scale) *scale = executor->scale[id];
        return what.at;
    }
    if (id >= 0 && scale &&
        worker->backend->copy(worker->device, scale, &executor->scale[id], sizeof *scale, NULL) != TANDEM_OK)
        return NULL;
    return copy_of(executor, &what);
}
