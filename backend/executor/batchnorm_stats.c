/* batchnorm_stats.c: updates, gathers and averages the running statistics of batchnorms. */
#include "backend/executor/batchnorm_stats.h"

#include <stdlib.h>
#include <string.h>

static uint64_t all_stats_bytes(const tandem_batchnorm_stats *statistics)
{
    return (uint64_t)statistics->n * sizeof(float);
}

/* Into value[n]: those of the file that the model came from; where it has none, 0 and 1. */
static tandem_status init_batchnorm_stats(const tandem_batchnorm_stats *s, const tandem_graph *graph,
                                          float *value, tandem_error *error)
{
    const tandem_weight_source *const source = graph->source;
    float **const place = calloc((size_t)graph->n_parameter + 1, sizeof *place);
    if (!place) return tandem_no_memory(error, "for the running statistics of model '%s'", graph->model);
    for (int i = 0; i < graph->n_op; i++) {
        const int64_t channels = tandem_batchnorm_channels(graph, i);
        if (!channels) continue;
        for (int k = 0; k < 2; k++) place[graph->op[i].parameter[k]] = value + s->start[i] + k * channels;
        for (int64_t c = 0; c < channels; c++)
            value[s->start[i] + c] = 0, value[s->start[i] + channels + c] = 1;
    }
    const tandem_status status =
        source && source->read_statistics ? source->read_statistics(source, place, error) : TANDEM_OK;
    free(place);
    return status;
}

static tandem_status alloc_batchnorm_stats(tandem_batchnorm_stats *s, const tandem_graph *graph,
                                           tandem_worker *worker, tandem_error *error)
{
    void *value = NULL, *view = NULL;
    tandem_status status =
        tandem_worker_alloc(&value, worker, TANDEM_DEVICE_MEMORY, all_stats_bytes(s), error);
    s->value = value;
    if (status == TANDEM_OK) status = tandem_worker_view(&view, worker, value, all_stats_bytes(s), 0, error);
    if (status != TANDEM_OK) return status;
    status = init_batchnorm_stats(s, graph, view, error);
    const tandem_status ended =
        tandem_worker_end_view(worker, view, value, all_stats_bytes(s), status == TANDEM_OK, error);
    return status == TANDEM_OK ? ended : status;
}

tandem_status tandem_batchnorm_stats_open(tandem_batchnorm_stats *out, const tandem_graph *graph,
                                          tandem_worker *worker, tandem_error *error)
{
    tandem_batchnorm_stats s = {.n = tandem_batchnorm_stats_count(graph)};
    s.start = malloc((size_t)graph->n_op * sizeof *s.start);
    if (!s.start) return tandem_no_memory(error, "for the running statistics of model '%s'", graph->model);
    int64_t end = 0;
    for (int i = 0; i < graph->n_op; i++) {
        const int64_t channels = tandem_batchnorm_channels(graph, i);
        s.start[i] = channels ? end : -1;
        end += 2 * channels;
    }
    const tandem_status status = s.n ? alloc_batchnorm_stats(&s, graph, worker, error) : TANDEM_OK;
    if (status == TANDEM_OK)
        *out = s;
    else
        tandem_batchnorm_stats_close(&s, worker);
    return status;
}

void tandem_batchnorm_stats_close(tandem_batchnorm_stats *statistics, tandem_worker *worker)
{
    free(statistics->start);
    if (statistics->value) tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, statistics->value);
    *statistics = (tandem_batchnorm_stats){0};
}

tandem_status tandem_batchnorm_stats_update(tandem_batchnorm_stats *statistics, const tandem_graph *graph,
                                            int op, const float *aux, tandem_worker *worker,
                                            tandem_error *error)
{
    const tandem_shape *shape = &graph->op[op].shape;
    const int64_t channels = tandem_shape_last(shape), n = tandem_shape_elements(shape) / channels;
    float *mean = statistics->value + statistics->start[op], *variance = mean + channels;
    const float momentum = graph->op[op].momentum, kept = 1.0f - momentum;
    if (tandem_worker_has_device_memory(worker))
        return worker->backend->batchnorm_update(worker->device, mean, aux, channels, n, momentum, error);
    const float unbiased = n > 1 ? (float)n / (float)(n - 1) : 1.0f;
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = kept * mean[c] + momentum * aux[c];
        variance[c] = kept * variance[c] + momentum * (unbiased * aux[channels + c]);
    }
    return TANDEM_OK;
}

tandem_status tandem_batchnorm_stats_set(tandem_batchnorm_stats *statistics, const float *value,
                                         tandem_worker *worker, tandem_error *error)
{
    void *view = NULL;
    if (statistics->n == 0) return TANDEM_OK;
    const tandem_status status =
        tandem_worker_view(&view, worker, statistics->value, all_stats_bytes(statistics), 0, error);
    if (status != TANDEM_OK) return status;
    memcpy(view, value, all_stats_bytes(statistics));
    return tandem_worker_end_view(worker, view, statistics->value, all_stats_bytes(statistics), 1, error);
}

void tandem_batchnorm_stats_mean(float *mean, const float *copies, int n_copy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < n_copy; k++) sum += (double)copies[k * n + i];
        mean[i] = (float)(sum / n_copy);
    }
}

tandem_status tandem_batchnorm_stats_gather(float **copies, const tandem_batchnorm_stats *statistics,
                                            tandem_worker *worker, tandem_error *error)
{
    if (statistics->n == 0) {
        *copies = NULL;
        return TANDEM_OK;
    }
    const size_t bytes = (size_t)statistics->n * sizeof(float);
    float *all = malloc((size_t)worker->n_rank * bytes);
    if (!all) return tandem_no_memory(error, "for the running statistics of %d ranks", worker->n_rank);
    void *own = NULL;
    tandem_status status = tandem_worker_view(&own, worker, statistics->value, bytes, 1, error);
    if (status == TANDEM_OK) {
        status = tandem_worker_gather(worker, own, all, bytes, error);
        (void)tandem_worker_end_view(worker, own, statistics->value, bytes, 0, NULL);
    }
    if (status == TANDEM_OK)
        *copies = all;
    else
        free(all);
    return status;
}
