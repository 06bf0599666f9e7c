/* evaluate.c: what the trained weights predict of test samples, by forward passes in fp32.
 * Batchnorms use the mean of all ranks' running statistics; dropout drops nothing. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "backend/executor/batch.h"

/* Adds the first `filled` samples of the batch. Rows labelled −1 are not predicted. */
static void add_evaluated_rows(tandem_evaluation *seen, const tandem_executor *evaluator,
                               const float *probability, int64_t filled)
{
    const tandem_graph *graph = evaluator->graph;
    const int64_t rows =
        tandem_shape_elements(&graph->op[graph->op[graph->loss].input[0]].shape) / graph->n_class;
    const int only_labelled = rows < graph->batch * graph->length;
    for (int64_t row = 0; row < filled * graph->length; row++) {
        const float *p = probability;
        if (evaluator->label[row] >= 0 || !only_labelled) probability += graph->n_class;
        if (evaluator->label[row] < 0) continue;
        int64_t best = 0;
        for (int64_t c = 1; c < graph->n_class; c++)
            if (p[c] > p[best]) best = c;
        const double loss = -log((double)fmaxf(p[evaluator->label[row]], FLT_MIN));
        seen->correct += best == evaluator->label[row];
        seen->loss += loss;
        seen->loss_square += loss * loss;
    }
}

/* Reads the probabilities that the loss operator stores. */
static tandem_status add_evaluated_batch(tandem_evaluation *seen, const tandem_executor *evaluator,
                                         int64_t filled, tandem_error *error)
{
    const tandem_graph *graph = evaluator->graph;
    unsigned char *kept =
        evaluator->arena + evaluator->offset[tandem_value_aux(evaluator->step, graph->loss)];
    const uint64_t bytes = (uint64_t)(filled * graph->length * graph->n_class) * sizeof(float);
    void *view = NULL;
    const tandem_status status = tandem_worker_view(&view, evaluator->worker, kept, bytes, 1, error);
    if (status != TANDEM_OK) return status;
    add_evaluated_rows(seen, evaluator, view, filled);
    return tandem_worker_end_view(evaluator->worker, view, kept, bytes, 0, error);
}

/* The test sample at index b of this rank's batch k; ranks take samples in turn. */
static int64_t test_sample_number(const tandem_executor *evaluator, int64_t k, int64_t b)
{
    return evaluator->worker->rank + (k * evaluator->graph->batch + b) * evaluator->worker->n_rank;
}

/* Padding samples of the last batch are not counted. */
static tandem_status fill_test_batch(tandem_executor *evaluator, int64_t k, int64_t n, tandem_error *error)
{
    const tandem_status status = tandem_batch_wait_copied(evaluator, error);
    if (status != TANDEM_OK) return status;
    for (int64_t b = 0; b < evaluator->graph->batch; b++) {
        const int64_t sample = test_sample_number(evaluator, k, b);
        tandem_batch_fill_sample(evaluator, 1, b, sample < n ? sample : evaluator->worker->rank);
    }
    return tandem_batch_copy_to_device(evaluator, error);
}

static tandem_status run_test_batch(tandem_executor *evaluator, int64_t k, int64_t n, tandem_error *error)
{
    for (int a = 0; a < evaluator->n_active; a++) {
        const int t = evaluator->active[a];
        const tandem_task *task = &evaluator->step->task[t];
        const tandem_status status = task->kind == TANDEM_TASK_FORWARD && task->op == evaluator->graph->input
                                         ? fill_test_batch(evaluator, k, n, error)
                                         : tandem_executor_run_task(evaluator, t, 0, error);
        if (status != TANDEM_OK) return status;
        if (evaluator->observer) evaluator->observer(evaluator->observer_context, evaluator, t);
    }
    return TANDEM_OK;
}

static tandem_status evaluate_samples(tandem_executor *evaluator, int64_t n, tandem_evaluation *out,
                                      tandem_error *error)
{
    const int64_t batch = evaluator->graph->batch;
    tandem_evaluation seen = {0};
    for (int64_t k = 0; test_sample_number(evaluator, k, 0) < n; k++) {
        int64_t filled = 0;
        while (filled < batch && test_sample_number(evaluator, k, filled) < n) filled++;
        tandem_status status = run_test_batch(evaluator, k, n, error);
        if (status == TANDEM_OK) status = add_evaluated_batch(&seen, evaluator, filled, error);
        if (status != TANDEM_OK) return status;
        seen.total += filled * tandem_graph_n_prediction(evaluator->graph);
    }
    *out = seen;
    return TANDEM_OK;
}

/* The mean over the ranks. */
static tandem_status average_batchnorm_stats(tandem_executor *evaluator, const tandem_executor *trained,
                                             tandem_error *error)
{
    float *copies = NULL;
    const int64_t n = trained->batchnorm_stats.n;
    tandem_status status =
        tandem_batchnorm_stats_gather(&copies, &trained->batchnorm_stats, trained->worker, error);
    if (status == TANDEM_OK && n) {
        tandem_batchnorm_stats_mean(copies, copies, trained->worker->n_rank,
                                    n); /* in place of the first copy */
        status = tandem_batchnorm_stats_set(&evaluator->batchnorm_stats, copies, trained->worker, error);
    }
    free(copies);
    return status;
}

tandem_status tandem_executor_evaluate(tandem_executor *executor, const tandem_data *data, int64_t n,
                                       tandem_evaluation *seen, tandem_error *error)
{
    tandem_executor *evaluator = executor->evaluator;
    if (!evaluator)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "this executor was opened without `with_evaluation`: it has no kernels and no memory for an "
            "evaluation");
    tandem_status status = tandem_executor_take_data(evaluator, data, error);
    if (status == TANDEM_OK) status = average_batchnorm_stats(evaluator, executor, error);
    return status == TANDEM_OK
               ? evaluate_samples(evaluator, data && n > data->n_test ? data->n_test : n, seen, error)
               : status;
}
