/* profile.c: `tandem profile`: measures the costs of a model on the devices of a cluster. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/command/profile_import.h"
#include "cli/profile_json.h"

/* --- Text ----------------------------------------------------------------------------------------------- */

static void print_clocks(const tandem_clock_range *clocks)
{
    if (clocks->max.compute_mhz == 0) return;
    printf("  %-18s %d to %d MHz, memory %d to %d MHz\n", "", clocks->min.compute_mhz,
           clocks->max.compute_mhz, clocks->min.memory_mhz, clocks->max.memory_mhz);
}

static void print_steadiness(const tandem_profile_report *rank)
{
    char interval[TANDEM_QUANTITY_TEXT], delay[TANDEM_QUANTITY_TEXT];
    if (!isfinite(rank->interval_share)) return;
    printf("  %-18s sure to %s of a step", "",
           tandem_quantity_print_ratio(interval, sizeof interval, rank->interval_share));
    if (isfinite(rank->delay_share))
        printf("; others took %s of the time",
               tandem_quantity_print_ratio(delay, sizeof delay, rank->delay_share));
    putchar('\n');
}

static void print_device(const tandem_profile_report *rank)
{
    char text[TANDEM_QUANTITY_TEXT];
    printf("  %-18s alone %4lld (%lld)   contended %4lld (%lld)\n", rank->device,
           (long long)rank->alone.measured, (long long)rank->alone.known, (long long)rank->contended.measured,
           (long long)rank->contended.known);
    print_clocks(&rank->clocks);
    print_steadiness(rank);
    if (rank->event_ns >= 0)
        printf("  %-18s without %s that timing a task takes\n", "",
               tandem_quantity_print_ns(text, sizeof text, rank->event_ns));
}

static int print_profile(const tandem_profile_result *result, const cli_options *options)
{
    char time[TANDEM_QUANTITY_TEXT];
    printf("%s into %s in %s; costs measured (already stored)\n", result->model, options->db,
           tandem_quantity_print_ns(time, sizeof time, result->ns));
    for (int r = 0; r < result->n_rank && !options->allreduce_only; r++) print_device(&result->rank[r]);
    if (result->n_rank > 1)
        printf("  all-reduce         %lld sizes (%lld)\n", (long long)result->allreduce.measured,
               (long long)result->allreduce.known);
    return 0;
}

static int print_sweep(const tandem_profile_result *result, const cli_options *options)
{
    char time[TANDEM_QUANTITY_TEXT];
    assert(result->rank);
    printf("a sweep of %s into %s in %s: %lld costs of %d networks\n", result->rank[0].device, options->db,
           tandem_quantity_print_ns(time, sizeof time, result->ns), (long long)result->rank[0].alone.measured,
           result->n_network);
    print_clocks(&result->rank[0].clocks);
    return 0;
}

static int print_profile_result(const tandem_profile_result *result, const cli_options *options)
{
    const int is_sweep = options->sweep_ns != 0;
    if (options->json)
        return cli_print_json(is_sweep ? cli_sweep_json(result, options->db)
                                       : cli_profile_json(result, options->db));
    cli_progress_end();
    return is_sweep ? print_sweep(result, options) : print_profile(result, options);
}

/* --- The command ---------------------------------------------------------------------------------------- */

/* The options of an import, which measures nothing. */
static int run_import(const cli_options *options)
{
    static const int allowed[] = {OPTION_IMPORT, OPTION_FORCE, OPTION_DEVICE, OPTION_DB,
                                  OPTION_QUIET,  OPTION_JSON,  OPTION_END};
    const char *const other = cli_option_not_allowed(options, allowed);
    if (other) return cli_fail_with(TANDEM_USAGE, "--import files what was measured; --%s measures", other);
    return profile_import(options);
}

/* A sweep's networks have batches and precisions of their own. */
static tandem_status check_sweep_options(const cli_options *options, tandem_error *error)
{
    static const int allowed[] = {OPTION_SWEEP, OPTION_DEVICE, OPTION_DB,      OPTION_REMEASURE,
                                  OPTION_QUIET, OPTION_JSON,   OPTION_THREADS, OPTION_END};
    const char *const other = options->sweep_ns ? cli_option_not_allowed(options, allowed) : NULL;
    if (!other) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "--sweep measures networks of its own, and takes no --%s; leave it out", other);
}

static tandem_status make_profile_request(tandem_profile_request *request, const cli_options *options,
                                          tandem_error *error)
{
    *request = (tandem_profile_request){.listener = cli_listener(options),
                                        .store = options->db,
                                        .data = options->data,
                                        .bucket_bytes = options->bucket_bytes,
                                        .repetitions = options->repetitions > 0 ? options->repetitions : 0,
                                        .remeasure = options->remeasure,
                                        .allreduce_only = options->allreduce_only,
                                        .zero = options->zero,
                                        .sweep_ns = options->sweep_ns};
    tandem_status status = check_sweep_options(options, error);
    if (status == TANDEM_OK) status = cli_workload_request(&request->workload, options, error);
    if (status == TANDEM_OK && rank_place_from_environment(&request->place, error) < 0)
        status = error->status;
    return status;
}

static int run_profile(const cli_options *options)
{
    tandem_error error = {0};
    tandem_profile_request request;
    tandem_profile_result result = {.n_rank = 0};
    if (options->import) return run_import(options);
    if (options->force) return cli_fail_with(TANDEM_USAGE, "--force needs --import");
    tandem_status status = make_profile_request(&request, options, &error);
    if (status == TANDEM_OK) status = tandem_profile(&result, &request, &error);
    const int rank = request.place.n_rank ? request.place.rank : 0;
    int code = status == TANDEM_OK ? 0 : cli_fail_on_rank(rank, &error);
    if (code == 0 && rank == 0) code = print_profile_result(&result, options);
    tandem_profile_result_free(&result);
    return code;
}

static const int options[] = {
    OPTION_MODEL,          OPTION_SET,    OPTION_LOSS,   OPTION_DEVICE,      OPTION_CLUSTER,
    OPTION_BATCH,          OPTION_DATA,   OPTION_BUCKET, OPTION_REPETITIONS, OPTION_REMEASURE,
    OPTION_ALLREDUCE_ONLY, OPTION_ZERO,   OPTION_PLAN,   OPTION_UNIFORM,     OPTION_SEED,
    OPTION_ACCUMULATE,     OPTION_AMAX,   OPTION_CLIP,   OPTION_LOSS_SCALE,  OPTION_SWEEP,
    OPTION_WIRE,           OPTION_IMPORT, OPTION_FORCE,  OPTION_DB,          OPTION_QUIET,
    OPTION_THREADS,        OPTION_END};
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
