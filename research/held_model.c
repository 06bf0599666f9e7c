/* held_model.c: a model whose weights stay while gradients are taken. */
#include <stdlib.h>

#include "research/held_model.h"
#include "research/study_runs.h"
#include "runtime/estimate/estimate.h"

tandem_status held_model_open(held_model *model, const cli_options *given, tandem_error *error)
{
    cli_options options = *given;
    options.uniform = "fp32";
    options.emulate = NULL;
    options.step.separate_partial_grads = 1;
    *model = (held_model){.rank.extra.hold_weights = 1};
    tandem_status status = cli_workload_open(&model->workload, &options, error);
    if (status == TANDEM_OK) status = study_rank_open(&model->rank, &model->workload, &options, error);
    if (status != TANDEM_OK) {
        held_model_close(model);
        return status;
    }
    const tandem_graph *graph = model->rank.step->graph;
    for (int i = 0; i < graph->n_op && model->n_op < STUDY_MAX_OPERATORS; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) model->op[model->n_op++] = i;
    model->n_weight = tandem_graph_n_weight(graph);
    return TANDEM_OK;
}

void held_model_close(held_model *model)
{
    training_rank_close(&model->rank);
    tandem_workload_close(&model->workload);
}

tandem_status held_model_gradient(held_model *model, int64_t index, float *gradient, tandem_error *error)
{
    const tandem_backend_api *backend = model->rank.backend;
    const tandem_graph *graph = model->rank.step->graph;
    double loss = 0;
    const tandem_status status = backend->executor_step(model->rank.executor, index, &loss, error);
    if (status != TANDEM_OK) return status;
    return estimate_copy_gradient(gradient, backend, model->rank.executor, graph, error);
}

/* --- A training that gives the weights -------------------------------------------------------------------
 * */

static tandem_status copy_held_weights(held_weights *to, const training_rank *rank, int64_t point,
                                       tandem_error *error)
{
    const int has_metric = rank->config.optimizer.kind == TANDEM_ADAMW && point > 0;
    to->weight = malloc((size_t)rank->step->n_flat * sizeof *to->weight);
    to->metric =
        has_metric ? malloc((size_t)tandem_graph_n_weight(rank->step->graph) * sizeof *to->metric) : NULL;
    if (!to->weight || (has_metric && !to->metric)) return tandem_no_memory(error, "for weights");
    tandem_status status = TANDEM_OK;
    if (has_metric) status = estimate_copy_metric(to->metric, to->weight, rank, point, error);
    return status == TANDEM_OK ? rank->backend->executor_get_weights(rank->executor, to->weight, error)
                               : status;
}

tandem_status held_weights_train(held_weights *at, const int64_t *point, int n_point,
                                 const cli_options *options, tandem_error *error)
{
    tandem_workload workload = {0};
    training_rank rank = {0};
    tandem_status status = cli_workload_open(&workload, options, error);
    if (status == TANDEM_OK) status = study_rank_open(&rank, &workload, options, error);
    int64_t step = 0;
    for (int a = 0; a < n_point && status == TANDEM_OK; a++) {
        for (; step < point[a] && status == TANDEM_OK; step++) {
            double loss = 0;
            status = rank.backend->executor_step(rank.executor, step, &loss, error);
        }
        if (status == TANDEM_OK) status = copy_held_weights(&at[a], &rank, point[a], error);
    }
    training_rank_close(&rank);
    tandem_workload_close(&workload);
    return status;
}

void held_weights_free(held_weights *at, int n_point)
{
    for (int a = 0; a < n_point; a++) {
        free(at[a].weight);
        free(at[a].metric);
    }
}
