#include "backend/running.h"

#include <stdlib.h>

static int64_t channels_of(const tandem_graph *graph, int op)
{
    return tandem_op_is_batchnorm(&graph->op[op]) ? tandem_shape_last(&graph->op[op].shape) : 0;
}

int64_t tandem_running_count(const tandem_graph *graph)
{
    int64_t n = 0;
    for (int i = 0; i < graph->n_op; i++) n += 2 * channels_of(graph, i);
    return n;
}

tandem_status tandem_running_open(tandem_running *out, const tandem_graph *graph, tandem_error *error)
{
    tandem_running s = {.n = tandem_running_count(graph)};
    s.start = malloc((size_t)graph->n_op * sizeof *s.start);
    s.value = calloc((size_t)s.n + 1, sizeof *s.value);
    if (!s.start || !s.value) {
        tandem_running_close(&s);
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the running statistics of model '%s'",
                                graph->model);
    }
    int64_t end = 0;
    for (int i = 0; i < graph->n_op; i++) {
        const int64_t channels = channels_of(graph, i);
        s.start[i] = channels ? end : -1;
        for (int64_t c = 0; c < channels; c++) s.value[end + channels + c] = 1;
        end += 2 * channels;
    }
    *out = s;
    return TANDEM_OK;
}

void tandem_running_close(tandem_running *statistics)
{
    free(statistics->start);
    free(statistics->value);
    *statistics = (tandem_running){0};
}

void tandem_running_follow(tandem_running *statistics, const tandem_graph *graph, int op, const float *aux)
{
    const tandem_shape *shape = &graph->op[op].shape;
    const int64_t channels = tandem_shape_last(shape), n = tandem_shape_elements(shape) / channels;
    const float unbiased = n > 1 ? (float)n / (float)(n - 1) : 1.0f;
    float *mean = statistics->value + statistics->start[op], *variance = mean + channels;
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = 0.9f * mean[c] + 0.1f * aux[c];
        variance[c] = 0.9f * variance[c] + 0.1f * (unbiased * aux[channels + c]);
    }
}

void tandem_running_mean(float *mean, const float *copies, int n_copy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < n_copy; k++) sum += (double)copies[k * n + i];
        mean[i] = (float)(sum / n_copy);
    }
}

tandem_status tandem_running_gather(float **copies, const tandem_running *statistics, tandem_worker *worker,
                                    tandem_error *error)
{
    if (statistics->n == 0) {
        *copies = NULL;
        return TANDEM_OK;
    }
    const size_t bytes = (size_t)statistics->n * sizeof(float);
    float *all = malloc((size_t)worker->n_rank * bytes);
    if (!all)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the running statistics of %d ranks",
                                worker->n_rank);
    const tandem_status status = tandem_worker_gather(worker, statistics->value, all, bytes, error);
    if (status == TANDEM_OK)
        *copies = all;
    else
        free(all);
    return status;
}
