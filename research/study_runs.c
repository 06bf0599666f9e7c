#include "research/study_runs.h"

#include <string.h>

enum { MAX_DATA = 2 };
static struct {
    const char *name;
    tandem_data data;
} opened[MAX_DATA];
static int n_opened;

const tandem_data *study_data(const char *name)
{
    for (int i = 0; i < n_opened; i++)
        if (strcmp(opened[i].name, name) == 0) return &opened[i].data;
    return NULL;
}

tandem_status study_data_open(const char *name, int length, tandem_error *error)
{
    const tandem_backend_api *backend = runtime_backend(error);
    if (!backend) return TANDEM_MISSING;
    if (study_data(name)) return TANDEM_OK;
    if (n_opened == MAX_DATA)
        return tandem_error_set(error, TANDEM_LIMIT_EXCEEDED, "the study has room for %d data sets",
                                MAX_DATA);
    const tandem_status status = backend->data_open(&opened[n_opened].data, name, length, error);
    if (status == TANDEM_OK) opened[n_opened++].name = name;
    return status;
}

void study_data_close(void)
{
    while (n_opened > 0) runtime_backend(NULL)->data_close(&opened[--n_opened].data);
}

tandem_status study_rank_open(training_rank *rank, const tandem_workload *workload,
                              const cli_options *options, tandem_error *error)
{
    static const tandem_rank_place alone = {.n_rank = 1};
    const tandem_train_request training = cli_training(options);
    rank->extra.data = study_data(options->data);
    return training_rank_open(rank, workload, &training, &alone, error);
}

tandem_status estimate_by_options(tandem_estimate *estimate, const tandem_workload *workload,
                                  const cli_options *options, const estimate_request *request,
                                  tandem_error *error)
{
    const tandem_train_request training = cli_training(options);
    training_rank rank = {.extra = {0}};
    tandem_status status = study_rank_open(&rank, workload, options, error);
    if (status != TANDEM_OK) return status;
    status = estimate_of_rank(estimate, &rank, workload, &training, request, error);
    training_rank_close(&rank);
    return status;
}
