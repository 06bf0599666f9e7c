/* profile_rank.c: what a profile and a sweep share: a rank with its backend, store and worker, and what they
 * report of a device. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/plain_text.h"

#include "runtime/profile/profile.h"
#include "runtime/machine_check.h"
#include "runtime/train/run_agreement.h"

/* Stores what measures: backend libraries; of a GPU its name, driver and libraries. */
static tandem_status store_environment(const profile_rank *rank, tandem_error *error)
{
    char libraries[128], device[384] = "", text[sizeof libraries + sizeof device];
    const tandem_status status = rank->backend->device_describe(device, sizeof device, rank->device, error);
    if (status != TANDEM_OK) return status;
    (void)snprintf(text, sizeof text, "%s%s%s", rank->backend->libraries(libraries, sizeof libraries),
                   device[0] ? "; " : "", device);
    return tandem_store_set_environment(rank->store, text, 1, error);
}

/* What decides which costs the ranks measure together. Each host has its own store. */
static tandem_status make_profile_agreement(char **agreement, const profile_rank *rank, tandem_error *error)
{
    const tandem_profile_request *request = rank->request;
    const tandem_step_options *step = &rank->workload->plan->step;
    char lines[4096], ranks[1024], scaling[TANDEM_CAST_SCALING_TEXT];
    tandem_cluster_print(ranks, sizeof ranks, &rank->workload->cluster);
    char *plan =
        profile_of_plan(request) ? tandem_plan_text(rank->workload->plan, rank->workload->graph[0]) : NULL;
    (void)tandem_plain_print(
        lines, sizeof lines,
        "model: %.600s, operators %016" PRIx64 "\nranks: %s\nplan: %016" PRIx64 "\nsamples: %s\n"
        "buckets: %" PRIu64 " bytes\nrepetitions: %" PRId64 "\nmeasured: %s%s\nmicro-steps: %d\n"
        "scaling: %s\nnorm: %d\nclip: %.9g\nseed: %" PRIu64 "\n",
        rank->workload->graph[0]->model, rank->workload->graph[0]->hash, ranks,
        plan ? tandem_hash_text(TANDEM_HASH_START, plan) : 0, request->data ? "of a data set" : "noise",
        request->bucket_bytes, request->repetitions, request->allreduce_only ? "all-reduces" : "all costs",
        request->remeasure ? ", again" : "", step->n_micro, tandem_cast_scaling_print(scaling, step->scaling),
        step->with_norm, request->workload.clip, request->workload.seed);
    free(plan);
    return run_agreement_make_of(agreement, lines, error);
}

tandem_status profile_rank_open(profile_rank *rank, tandem_error *error)
{
    const tandem_profile_request *request = rank->request;
    rank->class_index = tandem_cluster_class_of(&rank->workload->cluster, rank->self.rank);
    rank->device = rank->workload->cluster.classes[rank->class_index].device.name;
    rank->backend = runtime_backend(error);
    if (!rank->backend) return TANDEM_MISSING;
    tandem_status status = tandem_device_require(rank->device, error);
    if (status == TANDEM_OK && request->data)
        status = training_rank_open_samples(&rank->data, rank->backend,
                                            rank->workload->graph[rank->class_index], request->data, error);
    if (status == TANDEM_OK && request->data && rank->self.rank == 0)
        training_rank_note_data(&rank->data, rank->backend, rank->workload->graph[rank->class_index],
                                &request->listener);
    if (status == TANDEM_OK)
        status = tandem_store_open(&rank->store, request->store, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = store_environment(rank, error);
    /* a rank's turn may take minutes; a dead rank is noticed at once */
    const int64_t patience_ns = INT64_C(1800000000000);
    char *agreement = NULL;
    rank_cores cores;
    if (status == TANDEM_OK)
        status = rank_cores_take(&cores, rank->device, &rank->self, &request->listener, error);
    if (status == TANDEM_OK && rank->self.n_rank > 1)
        status = make_profile_agreement(&agreement, rank, error);
    if (status == TANDEM_OK)
        status = rank->backend->worker_open(
            &rank->worker,
            &(tandem_worker_options){.device = rank->device,
                                     .rank = rank->self.rank,
                                     .n_rank = rank->self.n_rank,
                                     .store = rank->self.folder,
                                     .cpu = cores.core[0],
                                     .timeout_ns = patience_ns,
                                     .over_network = !tandem_cluster_shares_memory(&rank->workload->cluster),
                                     .wire = rank->workload->cluster.wire,
                                     .agreement = agreement,
                                     .core = cores.core,
                                     .n_core = cores.n},
            error);
    free(agreement);
    if (status == TANDEM_OK) rank_start_joined();
    return status == TANDEM_OK ? profile_check_sharing(rank, error) : status;
}

void profile_rank_close(profile_rank *rank)
{
    if (rank->worker) rank->backend->worker_close(rank->worker);
    tandem_store_close(rank->store);
    if (rank->backend) rank->backend->data_close(&rank->data);
}

tandem_status profile_warn_of_unsteady_machine(const tandem_profile_request *request, tandem_error *error)
{
    const int64_t moment_ns = INT64_C(300000000);
    tandem_steadiness found;
    tandem_machine_counts counts;
    char text[512];
    if (!request->listener.note) return TANDEM_OK;
    const tandem_status status = machine_check(&found, &counts, moment_ns, error);
    if (status == TANDEM_OK && machine_is_unsteady(&found, &counts))
        runtime_note(&request->listener,
                     "this machine is not steady: %s; `tandem doctor` says what can be done",
                     machine_check_print(text, sizeof text, &found, &counts));
    return status;
}
