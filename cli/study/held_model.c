/* held_model.c: a model whose weights stay while gradients are taken. */
#include <string.h>

#include "cli/sensing.h"
#include "cli/study/study_gradient.h"

tandem_status held_model_open(held_model *model, const cli_options *given, const char *precision,
                              tandem_error *error)
{
    cli_options options = *given;
    const cli_rank alone = {.rank = 0, .n_rank = 1, .store = NULL, .cpu = -1};
    options.hold_weights = 1;
    options.uniform = precision;
    options.emulate = strcmp(precision, "fp32") == 0 ? NULL : "";
    options.step.separate_partial_grads = 1;
    *model = (held_model){0};
    tandem_status status = cli_workload_open(&model->workload, &options, error);
    if (status == TANDEM_OK)
        status = training_rank_open(&model->rank, &model->workload, &options, &alone, error);
    if (status != TANDEM_OK) {
        held_model_close(model);
        return status;
    }
    const tandem_graph *graph = model->rank.step->graph;
    for (int i = 0; i < graph->n_op && model->n_op < STUDY_MAX_OPERATORS; i++)
        if (graph->op[i].kind == TANDEM_OP_LINEAR) model->op[model->n_op++] = i;
    model->n_weight = tandem_graph_n_weight(graph);
    return TANDEM_OK;
}

void held_model_close(held_model *model)
{
    training_rank_close(&model->rank);
    cli_workload_close(&model->workload);
}

int held_model_same_input(const held_model *model, int k, int other)
{
    const tandem_graph *graph = model->rank.step->graph;
    return graph->view[graph->op[model->op[k]].input[0]] == graph->view[graph->op[model->op[other]].input[0]];
}

tandem_status held_model_gradient(held_model *model, int64_t index, float *gradient, tandem_error *error)
{
    const tandem_backend_api *backend = model->rank.backend;
    const tandem_graph *graph = model->rank.step->graph;
    double loss = 0;
    const tandem_status status = backend->executor_step(model->rank.executor, index, &loss, error);
    if (status != TANDEM_OK) return status;
    return sensing_copy_gradient(gradient, backend, model->rank.executor, graph, error);
}
