#include "runtime/train/train_sharding.h"

#include <string.h>

static tandem_status check_sharded_training(const tandem_train_request *request,
                                            const tandem_cluster *cluster, tandem_error *error)
{
    if (request->zero != 1)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "training shards the optimizer's state: --zero 1, got %d. `tandem replay` simulates "
            "stages 2 and 3, too",
            request->zero);
    if (request->reestimate)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--zero and --reestimate do not go together: sensitivities need the whole state of "
            "the optimizer. Leave out one of them");
    for (int c = 0; c < cluster->n_class; c++)
        if (strncmp(cluster->classes[c].device.name, "cpu:", 4) != 0)
            return tandem_error_set(
                error, TANDEM_USAGE,
                "--zero trains on CPUs only so far, and rank class '%s' is none. `tandem replay "
                "--zero` simulates it",
                cluster->classes[c].device.name);
    return TANDEM_OK;
}

tandem_status train_sharding_make(tandem_sharding *sharding, const tandem_train_request *request,
                                  const tandem_cluster *cluster, int rank, tandem_error *error)
{
    tandem_sharding made;
    tandem_status status =
        tandem_cluster_shard(&made, cluster, request->zero, request->shards, error);
    if (status == TANDEM_OK && request->zero) status = check_sharded_training(request, cluster, error);
    if (status != TANDEM_OK) return status;
    made.rank = rank;
    *sharding = request->zero && made.n_rank > 1 ? made : (tandem_sharding){0};
    return TANDEM_OK;
}
