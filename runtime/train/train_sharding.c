#include "runtime/train/train_sharding.h"

#include <stdlib.h>

#include "base/append.h"

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
    if (!tandem_cluster_trains_sharded(cluster, request->zero))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--zero trains on CPUs only so far, and not all devices of the cluster are. "
                                "`tandem replay --zero` simulates it");
    return TANDEM_OK;
}

tandem_status train_sharding_make(tandem_sharding *sharding, const tandem_train_request *request,
                                  const tandem_cluster *cluster, int rank, tandem_error *error)
{
    tandem_sharding made;
    tandem_status status = tandem_cluster_shard(&made, cluster, request->zero, request->shards, error);
    if (status == TANDEM_OK && request->zero) status = check_sharded_training(request, cluster, error);
    if (status != TANDEM_OK) return status;
    made.rank = rank;
    *sharding = request->zero && made.n_rank > 1 ? made : (tandem_sharding){0};
    return TANDEM_OK;
}

/* --- By memory ------------------------------------------------------------------------------------------ */

static void note_shares(const tandem_sharding *s, const tandem_cluster *cluster,
                        const tandem_listener *listener)
{
    char said[512] = "";
    for (int c = 0; c < s->n_share; c++)
        (void)tandem_append(said, sizeof said, "%s%.3g%% for a rank of %s", c ? ", " : "",
                            100 * tandem_shard_share(s, c), cluster->classes[c].device.name);
    runtime_note(listener, "shards of the optimizer's state that fit: %s", s->n_share ? said : "equal ones");
}

tandem_status train_sharding_fit(training_rank *rank, const tandem_cluster *cluster,
                                 const tandem_memory *memory, const tandem_listener *listener,
                                 tandem_error *error)
{
    const int n_rank = rank->self.n_rank;
    const tandem_shard_room mine =
        tandem_step_shard_room(rank->step, memory, tandem_cluster_memory_limit(cluster, rank->class_index));
    tandem_shard_room room[TANDEM_MAX_CLASS], *all = malloc((size_t)n_rank * sizeof *all);
    if (!all) return tandem_no_memory(error, "for the room of %d ranks", n_rank);
    tandem_status status = rank->backend->worker_gather(rank->worker, &mine, all, sizeof mine, error);
    for (int c = 0; c < cluster->n_class; c++) room[c] = (tandem_shard_room){UINT64_MAX, 1};
    for (int r = 0; r < n_rank && status == TANDEM_OK; r++) {
        tandem_shard_room *of_class = &room[tandem_cluster_class_of(cluster, r)];
        if (all[r].bytes < of_class->bytes) of_class->bytes = all[r].bytes;
        of_class->fits_evenly &= all[r].fits_evenly;
    }
    free(all);
    if (status == TANDEM_OK)
        status = tandem_cluster_fit_shards(&rank->sharding, cluster, room,
                                           tandem_step_state_bytes(rank->step), error);
    if (status == TANDEM_INFEASIBLE && error) error->rank = 0;
    if (status == TANDEM_OK && rank->self.rank == 0) note_shares(&rank->sharding, cluster, listener);
    return status;
}
