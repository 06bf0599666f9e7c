/* open.c: a model by its name: of the zoo, or in a file. */
#include <stdlib.h>

#include "graph/model_file.h"
#include "graph/onnx/onnx.h"
#include "graph/recording/recording.h"
#include "graph/zoo/zoo.h"

tandem_status tandem_graph_open(tandem_graph **graph, const char *model, int64_t batch, tandem_error *error)
{
    if (model && tandem_model_file_length(model, ".onnx") > 0)
        return tandem_onnx_open_named(graph, model, batch, error);
    if (model && tandem_model_file_length(model, ".json") > 0)
        return tandem_recorded_open_named(graph, model, batch, error);
    return tandem_graph_open_zoo(graph, model, batch, error);
}

tandem_status tandem_graph_list_unsupported(tandem_unsupported *list, const char *model, int64_t batch,
                                            tandem_error *error)
{
    tandem_graph *graph = NULL;
    if (tandem_model_file_length(model, ".onnx") > 0)
        return tandem_onnx_list_named(list, model, batch, error);
    const tandem_status status = tandem_graph_open(&graph, model, batch, error);
    if (status == TANDEM_OK) *list = (tandem_unsupported){.n_node = graph->n_op};
    tandem_graph_close(graph);
    return status;
}

void tandem_unsupported_close(tandem_unsupported *list)
{
    free(list->line);
    *list = (tandem_unsupported){0};
}
