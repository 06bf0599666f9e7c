/* profile_sweep.c: a sweep: measures operators of all kinds and sizes on one device, so that
 * --predict knows models that were never measured there. The networks of a sweep (graph/zoo/zoo.h) run as a
 * model's profile does: the same step programs, kernels, timing and rows in the store. Every plan of every
 * network is one transaction, so that a sweep that is killed leaves what it has measured; the next one goes
 * on. */
#include "base/clock.h"
#include "runtime/profile/profile.h"
#include "runtime/train/training_rank.h"
#include "graph/zoo/zoo.h"

enum { MAX_NETWORKS = 4096 };

/* Points the workload to network `index`, in fp32, at the network's batch. */
static tandem_status open_network(tandem_workload *workload, int index, tandem_error *error)
{
    tandem_graph_close(workload->graph[0]);
    tandem_plan_close(workload->plan);
    workload->graph[0] = NULL;
    workload->plan = NULL;
    tandem_status status = tandem_sweep_open(&workload->graph[0], index, error);
    if (status != TANDEM_OK) return status;
    workload->cluster.classes[0].batch = workload->graph[0]->batch;
    return tandem_plan_open(&workload->plan, workload->graph[0], &workload->cluster, "sweep", error);
}

/* Until the time is over; a network whose costs are all known costs next to nothing. */
tandem_status profile_sweep(profile_rank *rank, tandem_workload *workload, tandem_profile_result *result,
                            tandem_error *error)
{
    int n = 0;
    tandem_profile_count *count = &result->rank[0].alone;
    tandem_status status = training_rank_load_algorithms(
        rank->backend, rank->worker, rank->request->remeasure ? NULL : rank->store, 1, error);
    for (int i = 0; i < MAX_NETWORKS && status == TANDEM_OK; i++) {
        if (rank->has_swept && tandem_now_ns() >= rank->sweep_end_ns) break;
        const int64_t before = count->measured;
        status = open_network(workload, i, error);
        if (status == TANDEM_OK) status = profile_costs(rank, "", count, error);
        result->n_network += count->measured > before;
    }
    const tandem_algorithm *tuned = rank->backend->worker_tuned_algorithms(rank->worker, &n);
    return status == TANDEM_OK ? tandem_store_put_algorithms(rank->store, tuned, n, error) : status;
}
