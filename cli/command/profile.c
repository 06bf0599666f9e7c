/* profile.c: `tandem profile`: measures the costs of a model on the devices of a cluster. */
#include "cli/command/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "cli/training_rank.h"

/* What a rank reports. */
typedef struct stage_counts {
    profile_count alone, contended, allreduce;
    profile_clocks clocks;
    tandem_steadiness steadiness;
    int64_t event_ns;
} stage_counts;

/* The co-runner of this rank: the device of the first other rank. */
static const char *co_runner_of(const profile_rank *rank)
{
    const int other = rank->self.rank == 0 ? 1 : 0;
    return rank->workload->cluster.classes[tandem_cluster_class_of(&rank->workload->cluster, other)]
        .device.name;
}

/* Measures the device alone, with algorithms of earlier profiles or newly tuned ones. */
static tandem_status profile_own_costs(profile_rank *rank, profile_count *count, tandem_error *error)
{
    int n = 0;
    tandem_status status = training_rank_load_algorithms(
        rank->backend, rank->worker, rank->options->remeasure ? NULL : rank->store, 1, error);
    if (status == TANDEM_OK) status = profile_costs(rank, "", count, error);
    const tandem_algorithm *tuned = rank->backend->worker_tuned_algorithms(rank->worker, &n);
    return status == TANDEM_OK ? tandem_store_put_algorithms(rank->store, tuned, n, error) : status;
}

/* One rank at a time; the others wait in a barrier, which uses no core time. */
static tandem_status profile_alone(profile_rank *rank, profile_count *count, tandem_error *error)
{
    for (int turn = 0; turn < rank->self.n_rank; turn++) {
        tandem_status status = turn == rank->self.rank ? profile_own_costs(rank, count, error) : TANDEM_OK;
        if (status == TANDEM_OK) status = rank->backend->worker_barrier(rank->worker, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

static tandem_status profile_stages(profile_rank *rank, stage_counts *counts, tandem_error *error)
{
    const int measures_costs = !rank->options->allreduce_only, is_alone = rank->self.n_rank == 1;
    tandem_status status = measures_costs ? profile_alone(rank, &counts->alone, error) : TANDEM_OK;
    if (is_alone || status != TANDEM_OK) return status;
    if (measures_costs) status = profile_costs(rank, co_runner_of(rank), &counts->contended, error);
    if (status == TANDEM_OK) status = rank->backend->worker_barrier(rank->worker, error);
    if (status == TANDEM_OK && measures_costs)
        status = profile_updates(rank, co_runner_of(rank), &counts->contended, error);
    if (status == TANDEM_OK) status = profile_allreduce(rank, &counts->allreduce, error);
    return status;
}

/* --- Report --------------------------------------------------------------------------------------------- */

static json_t *profile_count_json(const profile_count *count)
{
    return json_pack("{s:I,s:I}", "measured", (json_int_t)count->measured, "known", (json_int_t)count->known);
}

static void print_steadiness(const tandem_steadiness *s)
{
    char interval[TANDEM_QUANTITY_TEXT], delay[TANDEM_QUANTITY_TEXT];
    if (!isfinite(s->interval_share)) return;
    printf("  %-18s sure to %s of a step", "",
           tandem_quantity_print_ratio(interval, sizeof interval, s->interval_share));
    if (isfinite(s->delay_share))
        printf("; others took %s of the time",
               tandem_quantity_print_ratio(delay, sizeof delay, s->delay_share));
    putchar('\n');
}

static void print_event(int64_t event_ns)
{
    char text[TANDEM_QUANTITY_TEXT];
    if (event_ns >= 0)
        printf("  %-18s without %s that timing a task takes\n", "",
               tandem_quantity_print_ns(text, sizeof text, event_ns));
}

static int print_profile_report(const profile_rank *rank, const stage_counts *all, int64_t ns)
{
    const tandem_cluster *cluster = &rank->workload->cluster;
    if (rank->options->json) {
        json_t *result = cli_json_new("profile"), *devices = json_array();
        for (int r = 0; r < rank->self.n_rank; r++)
            json_array_append_new(
                devices,
                json_pack("{s:s,s:o,s:o,s:o,s:o,s:o}", "name",
                          cluster->classes[tandem_cluster_class_of(cluster, r)].device.name, "alone",
                          profile_count_json(&all[r].alone), "contended",
                          profile_count_json(&all[r].contended), "clocks",
                          profile_clocks_json(&all[r].clocks), "steadiness",
                          profile_steadiness_json(&all[r].steadiness), "event_ns",
                          all[r].event_ns < 0 ? json_null() : json_integer((json_int_t)all[r].event_ns)));
        json_object_set_new(result, "model", json_string(rank->workload->graph[0]->model));
        json_object_set_new(result, "store", json_string(rank->options->db));
        json_object_set_new(result, "devices", devices);
        json_object_set_new(result, "allreduce", profile_count_json(&all[0].allreduce));
        json_object_set_new(result, "seconds", json_real((double)ns * 1e-9));
        return cli_print_json(result);
    }
    char time[TANDEM_QUANTITY_TEXT];
    cli_progress_end();
    printf("%s into %s in %s; costs measured (already stored)\n", rank->workload->graph[0]->model,
           rank->options->db, tandem_quantity_print_ns(time, sizeof time, ns));
    for (int r = 0; r < rank->self.n_rank && !rank->options->allreduce_only; r++) {
        printf("  %-18s alone %4lld (%lld)   contended %4lld (%lld)\n",
               cluster->classes[tandem_cluster_class_of(cluster, r)].device.name,
               (long long)all[r].alone.measured, (long long)all[r].alone.known,
               (long long)all[r].contended.measured, (long long)all[r].contended.known);
        profile_print_clocks(&all[r].clocks);
        print_steadiness(&all[r].steadiness);
        print_event(all[r].event_ns);
    }
    if (rank->self.n_rank > 1)
        printf("  all-reduce         %lld sizes (%lld)\n", (long long)all[0].allreduce.measured,
               (long long)all[0].allreduce.known);
    return 0;
}

static int run_profile_rank(const cli_options *options, const tandem_workload *workload, const cli_rank *self)
{
    tandem_error error = {0};
    profile_rank rank = {.options = options,
                         .workload = workload,
                         .self = *self,
                         .steadiness = {0, 0, NAN, NAN, NAN, NAN, NAN},
                         .event_ns = -1};
    stage_counts mine = {0}, all[PROFILE_MAX_RANKS];
    const int64_t begin = tandem_now_ns();
    tandem_status status = profile_rank_open(&rank, &error);
    if (status == TANDEM_OK) status = profile_stages(&rank, &mine, &error);
    mine.clocks = rank.clocks;
    mine.steadiness = rank.steadiness;
    mine.event_ns = rank.event_ns;
    if (status == TANDEM_OK)
        status = rank.backend->worker_gather(rank.worker, &mine, all, sizeof mine, &error);
    int code = 0;
    if (status != TANDEM_OK)
        code = cli_fail_on_rank(self->rank, &error);
    else if (self->rank == 0)
        code = print_profile_report(&rank, all, tandem_now_ns() - begin);
    profile_rank_close(&rank);
    return code;
}

/* self: NULL if this process starts the ranks. */
static tandem_status check_profile_ranks(const cli_options *options, const tandem_workload *workload,
                                         const cli_rank *self, tandem_error *error)
{
    const int n_rank = tandem_cluster_n_rank(&workload->cluster);
    if (n_rank > PROFILE_MAX_RANKS)
        return tandem_error_set(error, TANDEM_USAGE, "a profile has at most %d ranks, got %d",
                                (int)PROFILE_MAX_RANKS, n_rank);
    if (n_rank == 1 && options->allreduce_only)
        return tandem_error_set(error, TANDEM_USAGE, "--allreduce-only needs two ranks, got one");
    if (self && self->n_rank != n_rank)
        return tandem_error_set(error, TANDEM_USAGE, "WORLD_SIZE is %d, but the profile has %d ranks",
                                self->n_rank, n_rank);
    return TANDEM_OK;
}

/* Creates the store before ranks open it together, and checks it. */
static tandem_status check_profile(const cli_options *options, const tandem_workload *workload,
                                   tandem_error *error)
{
    for (int c = 0; c < workload->cluster.n_class; c++) {
        const tandem_status status = cli_device_require(workload->cluster.classes[c].device.name, error);
        if (status != TANDEM_OK) return status;
    }
    if (!cli_backend(error)) return TANDEM_MISSING;
    tandem_store *store = NULL;
    const tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_WRITE, error);
    tandem_store_close(store);
    return status;
}

/* The options of an import, which measures nothing. */
static int run_import(const cli_options *options)
{
    static const int allowed[] = {OPTION_IMPORT, OPTION_FORCE, OPTION_DEVICE, OPTION_DB,
                                  OPTION_QUIET,  OPTION_JSON,  OPTION_END};
    const char *const other = cli_option_not_allowed(options, allowed);
    if (other) return cli_fail_with(TANDEM_USAGE, "--import files what was measured; --%s measures", other);
    return profile_import(options);
}

static int run_profile(const cli_options *options)
{
    if (options->import) return run_import(options);
    if (options->force) return cli_fail_with(TANDEM_USAGE, "--force needs --import");
    if (options->sweep_ns) return profile_sweep(options);
    tandem_error error = {0};
    cli_rank self;
    tandem_workload workload = {0};
    const int joined = cli_rank_from_environment(&self, &error);
    if (joined < 0) return cli_fail(&error);
    if (cli_workload_open(&workload, options, &error) != TANDEM_OK) return cli_fail(&error);
    /* of plans that will need a loss scale, the norm is a part of the step */
    if (workload.loss_scale == 0 && tandem_cluster_may_need_loss_scale(&workload.cluster)) {
        workload.loss_scale = -1;
        workload.plan->step.with_norm = 1;
    }
    int code;
    tandem_status status = check_profile_ranks(options, &workload, joined ? &self : NULL, &error);
    if (status == TANDEM_OK && !joined) status = check_profile(options, &workload, &error);
    if (status == TANDEM_OK && !joined) status = profile_warn_of_unsteady_machine(options, &error);
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else if (joined)
        code = run_profile_rank(options, &workload, &self);
    else
        code = cli_ranks_start(tandem_cluster_n_rank(&workload.cluster), options);
    tandem_workload_close(&workload);
    return code;
}

static const int options[] = {
    OPTION_MODEL,          OPTION_SET,   OPTION_LOSS,       OPTION_DEVICE,      OPTION_CLUSTER,
    OPTION_BATCH,          OPTION_DATA,  OPTION_BUCKET,     OPTION_REPETITIONS, OPTION_REMEASURE,
    OPTION_ALLREDUCE_ONLY, OPTION_PLAN,  OPTION_UNIFORM,    OPTION_SEED,        OPTION_ACCUMULATE,
    OPTION_AMAX,           OPTION_CLIP,  OPTION_LOSS_SCALE, OPTION_SWEEP,       OPTION_WIRE,
    OPTION_IMPORT,         OPTION_FORCE, OPTION_DB,         OPTION_QUIET,       OPTION_END};
const cli_command command_profile = {
    .name = "profile",
    .words = "",
    .summary = "Measure operators, casts, optimizer, collectives and interference into the store",
    .option = options,
    .joins_run = 1,
    .description =
        "Examples:\n"
        "  tandem profile --model vit_tiny --batch 16 --device strongest,weakest\n"
        "  tandem profile --model resnet20 --cluster \"2*cpu:avx2\" --remeasure\n"
        "  tandem profile --model gpt_tiny --batch 4 --device cpu:avx2 --accumulate 4\n"
        "  tandem profile --model vit_tiny --device strongest --uniform int8 --amax delayed\n"
        "  tandem profile --model resnet20 --cluster \"strongest + weakest\" --allreduce-only "
        "--remeasure --db slow.db\n"
        "  tandem profile --sweep --device cpu:avx2\n"
        "  tandem profile --import products.csv,streams.csv --device t4\n"
        "Measures each device alone, then next to a busy co-runner, then the all-reduce of the ranks. "
        "One device\n"
        "has no co-runner and no all-reduce: name two. Stored costs are not measured again.\n"
        "With --plan or --uniform, only the costs of that plan are measured.\n"
        "--amax delayed measures casts with a delayed amax; the store keeps both kinds.\n"
        "--sweep measures operators of drawn sizes instead of a model's: for --predict of any model.\n"
        "--import files rows of timing tables, all or none; they sharpen predictions of their devices.\n"
        "--accumulate also measures gradient sums over micro-steps; --clip and --loss-scale also measure "
        "the norm\n"
        "of all gradients. Recomputation needs no costs of its own.\n"
        "Over a network, for each rank:\n"
        "  RANK=r WORLD_SIZE=n TANDEM_STORE=/shared/fresh/dir TANDEM_IFACE=eth0 tandem profile ...",
    .run = run_profile,
};
