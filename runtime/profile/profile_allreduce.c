/* profile_allreduce.c: measures the all-reduce curve of a group of ranks, and those of its halves. Rank 0
 * stores the curves, each rank the slowdown of its computation. */
#include <stdlib.h>

#include "runtime/profile/profile.h"

enum {
    MAX_BUCKETS = 64,
    MAX_POINTS = MAX_BUCKETS + 32, /* there are fewer powers of four */
    REPETITIONS = 12,
    MIN_BYTES = 4096
};

tandem_status profile_check_sharing(const profile_rank *rank, tandem_error *error)
{
    if (!tandem_cluster_shares_memory(&rank->workload->cluster) ||
        rank->backend->worker_shares_memory(rank->worker))
        return TANDEM_OK;
    (void)tandem_error_set(
        error, TANDEM_USAGE,
        "ranks of one machine cannot share memory: %s. Write DEVICE@1 in --cluster for ranks "
        "on separate machines, or set TANDEM_ALLREDUCE=network",
        rank->backend->worker_shared_memory_error(rank->worker));
    error->rank = 0; /* equal on all ranks */
    return TANDEM_USAGE;
}

static int compare_bytes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sizes of the curve, ascending without repeats: every bucket of the model, and powers of four up to the
 * largest bucket. For one plan, only its buckets. */
static tandem_status choose_allreduce_sizes(profile_rank *rank, uint64_t *bytes, int *n, tandem_error *error)
{
    tandem_step *step = NULL;
    const tandem_status status =
        tandem_step_open(&step, rank->workload->graph[0], TANDEM_F32, rank->request->bucket_bytes, error);
    if (status != TANDEM_OK) return status;
    int all = 0;
    uint64_t largest = 0;
    for (int b = 0; b < step->n_bucket && all < MAX_BUCKETS; b++) {
        bytes[all] = (uint64_t)step->bucket[b].elements * sizeof(float);
        if (bytes[all] > largest) largest = bytes[all];
        all++;
    }
    tandem_step_close(step);
    for (uint64_t size = MIN_BYTES; size < 4 * largest && !profile_of_plan(rank->request); size *= 4)
        bytes[all++] = size;
    qsort(bytes, (size_t)all, sizeof *bytes, compare_bytes);
    *n = 0;
    for (int k = 0; k < all; k++)
        if (*n == 0 || bytes[*n - 1] != bytes[k]) bytes[(*n)++] = bytes[k];
    return TANDEM_OK;
}

/* Rank 0 reads the store, so that all ranks agree on what to measure. */
static tandem_status choose_missing_sizes(profile_rank *rank, tandem_task_kind kind, const char *group,
                                          int loaded, const uint64_t *bytes, int n, int32_t *wanted,
                                          tandem_error *error)
{
    tandem_collective_point *point = NULL;
    int n_point = 0;
    tandem_status status = TANDEM_OK;
    if (rank->self.rank == 0 && !rank->request->remeasure)
        status = tandem_store_load_collective(&point, &n_point, rank->store, group,
                                              tandem_task_kind_name(kind), loaded, error);
    for (int k = 0; k < n; k++) {
        wanted[k] = 1;
        for (int p = 0; p < n_point; p++)
            if (point[p].bytes == bytes[k]) wanted[k] = 0;
    }
    free(point);
    if (status != TANDEM_OK) return status;
    return rank->backend->worker_broadcast(rank->worker, wanted, (size_t)n * sizeof *wanted, 0, error);
}

static tandem_status measure_allreduce_point(profile_rank *rank, tandem_task_kind kind, const char *group,
                                             int loaded, uint64_t bytes, tandem_error *error)
{
    int64_t sample[REPETITIONS];
    double slowdown = 1;
    tandem_status status = rank->backend->measure_collective(rank->worker, kind, bytes, loaded, sample,
                                                             REPETITIONS, &slowdown, error);
    if (status == TANDEM_OK) status = profile_check_sharing(rank, error);
    if (status == TANDEM_OK && loaded)
        status = tandem_store_put_interference(rank->store, rank->device, group, "compute_under_comm", bytes,
                                               slowdown, REPETITIONS, error);
    if (status != TANDEM_OK || rank->self.rank != 0) return status;
    tandem_collective_point point = {.bytes = bytes};
    tandem_cost_from_samples(&point.cost, sample, REPETITIONS, 0);
    return tandem_store_put_collective(rank->store, group, tandem_task_kind_name(kind), loaded, &point,
                                       error);
}

static tandem_status profile_allreduce_curve(profile_rank *rank, tandem_task_kind kind, const char *group,
                                             int loaded, const uint64_t *bytes, int n,
                                             tandem_profile_count *count, tandem_error *error)
{
    int32_t wanted[MAX_POINTS];
    tandem_status status = choose_missing_sizes(rank, kind, group, loaded, bytes, n, wanted, error);
    for (int k = 0; k < n && status == TANDEM_OK; k++) {
        if (!wanted[k]) {
            count->known++;
            continue;
        }
        status = measure_allreduce_point(rank, kind, group, loaded, bytes[k], error);
        count->measured++;
    }
    return status;
}

tandem_status profile_allreduce(profile_rank *rank, tandem_profile_count *count, tandem_error *error)
{
    uint64_t bytes[MAX_POINTS];
    char group[TANDEM_GROUP_KEY_TEXT];
    int n = 0;
    tandem_cluster_group_key(group, sizeof group, &rank->workload->cluster);
    tandem_status status = choose_allreduce_sizes(rank, bytes, &n, error);
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK; loaded++) {
        if (rank->self.rank == 0)
            runtime_progress(&rank->request->listener, -1, "profile all-reduce of %s%s: %d sizes", group,
                             loaded ? " under load" : "", n);
        status = profile_allreduce_curve(rank, TANDEM_TASK_REDUCE, group, loaded, bytes, n, count, error);
    }
    for (int k = 0; k < 2 && status == TANDEM_OK && rank->request->zero; k++) {
        const tandem_task_kind half = k == 0 ? TANDEM_TASK_SCATTER : TANDEM_TASK_GATHER;
        if (rank->self.rank == 0)
            runtime_progress(&rank->request->listener, -1, "profile %s of %s: %d sizes",
                             tandem_task_kind_name(half), group, n);
        status = profile_allreduce_curve(rank, half, group, 0, bytes, n, count, error);
    }
    return status;
}
