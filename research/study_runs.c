#include "research/study_runs.h"

static const tandem_data *opened_data;

const tandem_data *study_data(void) { return opened_data; }
void study_data_set(const tandem_data *data) { opened_data = data; }

tandem_status study_rank_open(training_rank *rank, const tandem_workload *workload,
                              const cli_options *options, tandem_error *error)
{
    static const tandem_rank_place alone = {.n_rank = 1};
    const tandem_train_request training = cli_training(options);
    rank->extra.data = opened_data;
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
