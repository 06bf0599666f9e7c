#include "cli/prediction.h"

#include <stdlib.h>
#include <string.h>

tandem_status cli_replayer_open(tandem_replayer **out, const cli_options *options, const cli_subject *subject,
                                tandem_error *error)
{
    const tandem_graph *graph[TANDEM_MAX_CLASS] = {0};
    tandem_store *store = NULL;
    tandem_replayer *replayer = NULL;
    for (int c = 0; c < subject->cluster.n_class; c++) graph[c] = subject->graph[c];
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_READ, error);
    if (status == TANDEM_OK)
        status = tandem_replayer_open(&replayer, &subject->cluster, graph, store, options->bucket_bytes, error);
    tandem_store_close(store);
    if (status != TANDEM_OK) return status;
    tandem_replayer_set_plan(replayer, subject->plan);
    *out = replayer;
    return TANDEM_OK;
}

const char *cli_harm_method(const cli_options *options)
{
    return options->method ? options->method : "fisher";
}

static tandem_status load(double *harm[TANDEM_MAX_CLASS], tandem_store *store, const cli_options *options,
                          const cli_subject *subject, tandem_error *error)
{
    for (int c = 0; c < subject->cluster.n_class; c++) {
        const tandem_graph *graph = subject->graph[c];
        harm[c] = calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof **harm);
        if (!harm[c]) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for sensitivities");
        const tandem_status status = tandem_sensitivity_load(harm[c], store, graph, cli_harm_method(options),
                                                             subject->cluster.member[c].device.wider, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

tandem_status cli_harm_load(double *harm[TANDEM_MAX_CLASS], const cli_options *options,
                            const cli_subject *subject, tandem_error *error)
{
    const tandem_sensitivity_method *known;
    double *loaded[TANDEM_MAX_CLASS] = {0};
    tandem_store *store = NULL;
    tandem_status status = tandem_sensitivity_find(&known, cli_harm_method(options), error);
    if (status == TANDEM_OK) status = tandem_store_open(&store, options->db, TANDEM_STORE_READ, error);
    if (status == TANDEM_OK) status = load(loaded, store, options, subject, error);
    tandem_store_close(store);
    if (status == TANDEM_OK)
        memcpy(harm, loaded, sizeof loaded);
    else
        cli_harm_free(loaded);
    return status;
}

void cli_harm_free(double *harm[TANDEM_MAX_CLASS])
{
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) {
        free(harm[c]);
        harm[c] = NULL;
    }
}

uint64_t cli_memory_limit(const cli_subject *subject, int c)
{
    const tandem_cluster_class *member = &subject->cluster.member[c];
    return member->memory_bytes ? member->memory_bytes : member->device.memory_bytes;
}
