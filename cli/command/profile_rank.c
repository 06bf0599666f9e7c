/* profile_rank.c: what a profile and a sweep share: a rank with its backend, store and worker, and what they
 * report of a device. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/command/profile.h"
#include "cli/machine_check.h"
#include "cli/run_agreement.h"

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

tandem_status profile_rank_open(profile_rank *rank, tandem_error *error)
{
    const cli_options *options = rank->options;
    rank->class_index = tandem_cluster_class_of(&rank->workload->cluster, rank->self.rank);
    rank->device = rank->workload->cluster.classes[rank->class_index].device.name;
    rank->backend = cli_backend(error);
    if (!rank->backend) return TANDEM_MISSING;
    tandem_status status = tandem_device_require(rank->device, error);
    if (status == TANDEM_OK && options->data)
        status = training_rank_open_samples(&rank->data, rank->backend,
                                            rank->workload->graph[rank->class_index], options->data, error);
    if (status == TANDEM_OK && options->data && rank->self.rank == 0)
        training_rank_note_data(&rank->data, rank->backend, rank->workload->graph[rank->class_index],
                                options);
    if (status == TANDEM_OK) status = tandem_store_open(&rank->store, options->db, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = store_environment(rank, error);
    /* a rank's turn may take minutes; a dead rank is noticed at once */
    const int64_t patience_ns = INT64_C(1800000000000);
    char *agreement = NULL;
    if (status == TANDEM_OK && rank->self.n_rank > 1)
        status = run_agreement_make_typed(&agreement, options, error);
    if (status == TANDEM_OK)
        status = rank->backend->worker_open(
            &rank->worker,
            &(tandem_worker_options){.device = rank->device,
                                     .rank = rank->self.rank,
                                     .n_rank = rank->self.n_rank,
                                     .store = rank->self.store,
                                     .cpu = cli_rank_core(&rank->self, options),
                                     .timeout_ns = patience_ns,
                                     .over_network = !tandem_cluster_shares_memory(&rank->workload->cluster),
                                     .wire = rank->workload->cluster.wire,
                                     .agreement = agreement},
            error);
    free(agreement);
    if (status == TANDEM_OK) cli_rank_joined();
    return status == TANDEM_OK ? profile_check_sharing(rank, error) : status;
}

void profile_rank_close(profile_rank *rank)
{
    if (rank->worker) rank->backend->worker_close(rank->worker);
    tandem_store_close(rank->store);
    if (rank->backend) rank->backend->data_close(&rank->data);
}

/* --- What is reported ----------------------------------------------------------------------------------- */

/* null if unknown. */
json_t *profile_clocks_json(const profile_clocks *clocks)
{
    if (clocks->max.compute_mhz == 0) return json_null();
    return json_pack("{s:[i,i],s:[i,i]}", "compute_mhz", clocks->min.compute_mhz, clocks->max.compute_mhz,
                     "memory_mhz", clocks->min.memory_mhz, clocks->max.memory_mhz);
}

/* null where it is not known. */
json_t *profile_steadiness_json(const tandem_steadiness *s)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "compute_spread", cli_json_number(s->compute_spread),
                     "memory_spread", cli_json_number(s->memory_spread), "delay_share",
                     cli_json_number(s->delay_share), "steal_share", cli_json_number(s->steal_share),
                     "interval", cli_json_number(s->interval_share));
}

void profile_print_clocks(const profile_clocks *clocks)
{
    if (clocks->max.compute_mhz == 0) return;
    printf("  %-18s %d to %d MHz, memory %d to %d MHz\n", "", clocks->min.compute_mhz,
           clocks->max.compute_mhz, clocks->min.memory_mhz, clocks->max.memory_mhz);
}

tandem_status profile_warn_of_unsteady_machine(const cli_options *options, tandem_error *error)
{
    const int64_t moment_ns = INT64_C(300000000);
    tandem_steadiness found;
    tandem_machine_counts counts;
    char text[512];
    if (options->quiet) return TANDEM_OK;
    const tandem_status status = machine_check(&found, &counts, moment_ns, error);
    if (status == TANDEM_OK && machine_is_unsteady(&found, &counts))
        cli_note(options, "this machine is not steady: %s; `tandem doctor` says what can be done",
                 machine_check_print(text, sizeof text, &found, &counts));
    return status;
}
