/* profile_sweep.c: `tandem profile --sweep`: measures operators of all kinds and sizes on one device, so that
 * --predict knows models that were never measured there. The networks of a sweep (graph/zoo/zoo.h) run as a
 * model's profile does: the same step programs, kernels, timing and rows in the store. Every plan of every
 * network is one transaction, so that a sweep that is killed leaves what it has measured; the next one goes
 * on. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "cli/command/profile.h"
#include "cli/training_rank.h"
#include "graph/zoo/zoo.h"

enum { MAX_NETWORKS = 4096 };
static const int64_t longest_ns = INT64_C(120000000000);

typedef struct sweep_result {
    profile_count count;
    int n_network;
    int64_t ns;
} sweep_result;

/* The options of a sweep: its networks have batches and precisions of their own. */
static int check_sweep_options(const cli_options *options)
{
    static const int allowed[] = {OPTION_SWEEP, OPTION_DEVICE, OPTION_DB, OPTION_REMEASURE,
                                  OPTION_QUIET, OPTION_JSON,   OPTION_END};
    const char *const other = cli_option_not_allowed(options, allowed);
    char got[TANDEM_QUANTITY_TEXT];
    if (other)
        return cli_fail_with(TANDEM_USAGE,
                             "--sweep measures networks of its own, and takes no --%s; leave it out", other);
    if (options->sweep_ns > longest_ns)
        return cli_fail_with(TANDEM_USAGE,
                             "--sweep=%s is too long; a sweep takes at most 120s. Another one goes on where "
                             "it ended",
                             tandem_quantity_print_ns(got, sizeof got, options->sweep_ns));
    if (!options->device)
        return cli_fail_with(TANDEM_USAGE, "--sweep needs a device. Use e.g. --device strongest (tandem list "
                                           "devices)");
    return 0;
}

static int fail_several(const cli_options *options)
{
    return cli_fail_with(TANDEM_USAGE,
                         "--sweep measures one device at a time, got --device %s. Run it for each of them",
                         options->device);
}

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
static tandem_status measure_networks(profile_rank *rank, tandem_workload *workload, sweep_result *result,
                                      tandem_error *error)
{
    int n = 0;
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < MAX_NETWORKS && status == TANDEM_OK; i++) {
        if (rank->has_swept && tandem_now_ns() >= rank->sweep_end_ns) break;
        const int64_t before = result->count.measured;
        status = open_network(workload, i, error);
        if (status == TANDEM_OK) status = profile_costs(rank, "", &result->count, error);
        result->n_network += result->count.measured > before;
    }
    const tandem_algorithm *tuned = rank->backend->worker_tuned_algorithms(rank->worker, &n);
    return status == TANDEM_OK ? tandem_store_put_algorithms(rank->store, tuned, n, error) : status;
}

static int print_sweep(const profile_rank *rank, const sweep_result *result)
{
    char time[TANDEM_QUANTITY_TEXT];
    if (rank->options->json) {
        json_t *const object = cli_json_new("profile"), *const sweep = json_object();
        json_object_set_new(sweep, "device", json_string(rank->device));
        json_object_set_new(sweep, "networks", json_integer(result->n_network));
        json_object_set_new(sweep, "measured", json_integer((json_int_t)result->count.measured));
        json_object_set_new(sweep, "clocks", profile_clocks_json(&rank->clocks));
        json_object_set_new(sweep, "steadiness", profile_steadiness_json(&rank->steadiness));
        json_object_set_new(object, "store", json_string(rank->options->db));
        json_object_set_new(object, "sweep", sweep);
        json_object_set_new(object, "seconds", json_real((double)result->ns * 1e-9));
        return cli_print_json(object);
    }
    cli_progress_end();
    printf("a sweep of %s into %s in %s: %lld costs of %d networks\n", rank->device, rank->options->db,
           tandem_quantity_print_ns(time, sizeof time, result->ns), (long long)result->count.measured,
           result->n_network);
    profile_print_clocks(&rank->clocks);
    return 0;
}

static int run_sweep_rank(const cli_options *options, tandem_workload *workload, const cli_rank *self)
{
    tandem_error error = {0};
    const int64_t begin = tandem_now_ns();
    profile_rank rank = {.options = options,
                         .workload = workload,
                         .self = *self,
                         .steadiness = {0, 0, NAN, NAN, NAN, NAN, NAN},
                         .event_ns = -1,
                         .sweep_end_ns = begin + options->sweep_ns};
    sweep_result result = {.n_network = 0};
    tandem_status status = profile_rank_open(&rank, &error);
    if (status == TANDEM_OK)
        status = training_rank_load_algorithms(rank.backend, rank.worker,
                                               options->remeasure ? NULL : rank.store, 1, &error);
    if (status == TANDEM_OK) status = measure_networks(&rank, workload, &result, &error);
    result.ns = tandem_now_ns() - begin;
    const int code = status == TANDEM_OK ? print_sweep(&rank, &result) : cli_fail_on_rank(self->rank, &error);
    profile_rank_close(&rank);
    return code;
}

/* Creates the store, and tells what cannot be before a rank starts. */
static tandem_status check_sweep(const cli_options *options, const char *device, tandem_error *error)
{
    tandem_store *store = NULL;
    char time[TANDEM_QUANTITY_TEXT];
    tandem_status status = cli_device_require(device, error);
    if (status == TANDEM_OK && !cli_backend(error)) status = TANDEM_MISSING;
    if (status == TANDEM_OK) status = tandem_store_open(&store, options->db, TANDEM_STORE_WRITE, error);
    tandem_store_close(store);
    if (status == TANDEM_OK)
        cli_note(options, "a sweep of %s takes %s; one that is stopped keeps what it has measured", device,
                 tandem_quantity_print_ns(time, sizeof time, options->sweep_ns));
    return status == TANDEM_OK ? profile_warn_of_unsteady_machine(options, error) : status;
}

int profile_sweep(const cli_options *options)
{
    tandem_error error = {0};
    cli_rank self;
    tandem_workload workload = {0};
    const int code = check_sweep_options(options);
    if (code) return code;
    const int joined = cli_rank_from_environment(&self, &error);
    if (joined < 0) return cli_fail(&error);
    if (strchr(options->device, ',')) return fail_several(options);
    tandem_status status = tandem_cluster_parse(&workload.cluster, options->device, &error);
    if (status != TANDEM_OK) return cli_fail(&error);
    if (tandem_cluster_n_rank(&workload.cluster) != 1) return fail_several(options);
    if (!joined) {
        status = check_sweep(options, workload.cluster.classes[0].device.name, &error);
        return status == TANDEM_OK ? cli_ranks_start(1, options) : cli_fail(&error);
    }
    const int result = run_sweep_rank(options, &workload, &self);
    tandem_workload_close(&workload);
    return result;
}
