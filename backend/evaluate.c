/* evaluate.c: how many test samples the trained weights get right, by forward passes in fp32. Batch
 * normalisation uses the running statistics of all ranks, and dropout drops nothing. */
#include <stdlib.h>

#include "backend/batch.h"

/* Correct predictions among the first `filled` samples of the batch. Rows labelled −1 are not predicted. */
static int64_t count_correct(const tandem_executor *forward, const float *probability, int64_t filled)
{
    const tandem_graph *graph = forward->graph;
    const int64_t rows =
        tandem_shape_elements(&graph->op[graph->op[graph->loss].input[0]].shape) / graph->n_class;
    const int only_labelled = rows < graph->batch * graph->length;
    int64_t correct = 0;
    for (int64_t row = 0; row < filled * graph->length; row++) {
        const float *p = probability;
        if (forward->label[row] >= 0 || !only_labelled) probability += graph->n_class;
        if (forward->label[row] < 0) continue;
        int64_t best = 0;
        for (int64_t c = 1; c < graph->n_class; c++)
            if (p[c] > p[best]) best = c;
        correct += best == forward->label[row];
    }
    return correct;
}

/* From the probabilities that the loss operator keeps. */
static tandem_status add_correct(int64_t *correct, const tandem_executor *forward, int64_t filled,
                                 tandem_error *error)
{
    const tandem_graph *graph = forward->graph;
    unsigned char *kept = forward->arena + forward->offset[tandem_value_aux(forward->step, graph->loss)];
    const uint64_t bytes = (uint64_t)(filled * graph->length * graph->n_class) * sizeof(float);
    void *view = NULL;
    const tandem_status status = tandem_worker_view(&view, forward->worker, kept, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    *correct += count_correct(forward, view, filled);
    return tandem_worker_end_view(forward->worker, view, kept, bytes, 0, error);
}

/* Place b of batch number k of this rank; ranks take samples in turn. */
static int64_t sample_at(const tandem_executor *forward, int64_t k, int64_t b)
{
    return forward->worker->rank + (k * forward->graph->batch + b) * forward->worker->n_rank;
}

static tandem_status run_batch(tandem_executor *forward, int64_t k, int64_t n, tandem_error *error)
{
    const tandem_graph *graph = forward->graph;
    for (int a = 0; a < forward->n_active; a++) {
        const int t = forward->active[a], op = forward->step->task[t].op;
        if (op == graph->input) {
            tandem_status status = tandem_batch_await(forward, error);
            if (status != TANDEM_OK) return status;
            /* the last batch is filled up, and that is not counted */
            for (int64_t b = 0; b < graph->batch; b++) {
                const int64_t sample = sample_at(forward, k, b);
                tandem_batch_put(forward, 1, b, sample < n ? sample : forward->worker->rank);
            }
            status = tandem_batch_bring(forward, error);
            if (status != TANDEM_OK) return status;
            continue;
        }
        const tandem_status status = tandem_executor_run_task(forward, t, 0, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

static tandem_status evaluate(tandem_executor *forward, int64_t n, int64_t *correct, int64_t *total,
                              tandem_error *error)
{
    const int64_t batch = forward->graph->batch;
    int64_t right = 0, seen = 0;
    for (int64_t k = 0; sample_at(forward, k, 0) < n; k++) {
        int64_t filled = 0;
        while (filled < batch && sample_at(forward, k, filled) < n) filled++;
        tandem_status status = run_batch(forward, k, n, error);
        if (status == TANDEM_OK) status = add_correct(&right, forward, filled, error);
        if (status != TANDEM_OK) return status;
        seen += filled * tandem_graph_n_prediction(forward->graph);
    }
    *correct = right;
    *total = seen;
    return TANDEM_OK;
}

/* The mean over the ranks. */
static tandem_status take_statistics(tandem_executor *forward, const tandem_executor *trained,
                                     tandem_error *error)
{
    float *copies = NULL;
    const int64_t n = trained->statistics.n;
    tandem_status status = tandem_running_gather(&copies, &trained->statistics, trained->worker, error);
    if (status == TANDEM_OK && n) {
        tandem_running_mean(copies, copies, trained->worker->n_rank, n); /* over the first of them */
        status = tandem_running_set(&forward->statistics, copies, trained->worker, error);
    }
    free(copies);
    return status;
}

tandem_status tandem_executor_evaluate(tandem_executor *executor, const tandem_data *data, int64_t n,
                                       int64_t *correct, int64_t *total, tandem_error *error)
{
    tandem_executor *forward = executor->forward;
    if (!forward)
        return tandem_error_set(error, TANDEM_USAGE,
                                "this executor was opened without `evaluates`: it has no kernels "
                                "and no memory for an evaluation");
    const tandem_status status = take_statistics(forward, executor, error);
    forward->options.data = data;
    return status == TANDEM_OK
               ? evaluate(forward, data && n > data->n_test ? data->n_test : n, correct, total, error)
               : status;
}
