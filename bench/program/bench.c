/* bench.c: `tandem-bench`: speeds with median and percentiles. */
#include "bench/program/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sort.h"
#include "base/nearest.h"
#include "base/quantity.h"
#include "cli/table.h"

int64_t bench_median(int64_t *sample_ns, int64_t n)
{
    tandem_sort_int64(sample_ns, (size_t)n);
    return sample_ns[(n - 1) / 2];
}

void bench_add_case(bench_result *result, const char *name, int64_t *sample_ns, int64_t n)
{
    const int64_t median_ns = bench_median(sample_ns, n);
    bench_case *one = &result->one[result->n_case++];
    *one = (bench_case){.median_ns = median_ns,
                        .p10_ns = sample_ns[(n - 1) / 10],
                        .p90_ns = sample_ns[(n - 1) * 9 / 10],
                        .bytes_per_s = NAN,
                        .flops_per_s = NAN,
                        .ops_per_s = NAN,
                        .events_per_s = NAN,
                        .of_copy = NAN};
    (void)snprintf(one->name, sizeof one->name, "%s", name);
    if (result->options)
        cli_progress(result->options, -1, "bench: %d measured, the last %s", result->n_case, name);
}

void bench_set_name(bench_result *result, const tandem_workload *workload)
{
    (void)snprintf(result->model, sizeof result->model, "%s", workload->graph[0]->model);
    tandem_cluster_print(result->cluster, sizeof result->cluster, &workload->cluster);
}

void bench_default_pair(cli_options *options, char pair[BENCH_PAIR])
{
    const tandem_device *strong, *weak;
    tandem_device_demo_pair(&strong, &weak);
    if (!options->model) options->model = "resnet20";
    if (options->device || options->cluster || !strong) return;
    (void)snprintf(pair, BENCH_PAIR, "%s + %s", strong->name, weak->name);
    options->cluster = pair;
}

/* --- Result ----------------------------------------------------------------------------------- */

static double bench_runs_per_s(const bench_case *one)
{
    return one->median_ns > 0 ? 1e9 / (double)one->median_ns : NAN;
}
static int print_bench_json(const bench_result *result, const char *what)
{
    json_t *object = cli_json_new("bench"), *cases = json_array();
    for (int k = 0; k < result->n_case; k++) {
        const bench_case *one = &result->one[k];
        json_array_append_new(
            cases,
            json_pack("{s:s,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o}", "name", one->name, "median_ns",
                      (json_int_t)one->median_ns, "p10_ns", (json_int_t)one->p10_ns, "p90_ns",
                      (json_int_t)one->p90_ns, "per_s", cli_json_number(bench_runs_per_s(one)), "bytes_per_s",
                      cli_json_number(one->bytes_per_s), "flops_per_s", cli_json_number(one->flops_per_s),
                      "ops_per_s", cli_json_number(one->ops_per_s), "events_per_s",
                      cli_json_number(one->events_per_s), "of_copy", cli_json_number(one->of_copy)));
    }
    json_object_set_new(object, "what", json_string(what));
    json_object_set_new(object, "model", json_string(result->model));
    json_object_set_new(object, "cluster", json_string(result->cluster));
    if (result->costs[0]) json_object_set_new(object, "costs", json_string(result->costs));
    json_object_set_new(object, "cases", cases);
    return cli_print_json(object);
}

/* The rate of the case's unit, if it has one. */
static char *print_bench_rate(char *text, size_t size, const bench_case *one)
{
    *text = '\0';
    if (isfinite(one->flops_per_s))
        return tandem_quantity_print_per_second(text, size, one->flops_per_s, "FLOP");
    if (isfinite(one->ops_per_s)) return tandem_quantity_print_per_second(text, size, one->ops_per_s, "OP");
    if (isfinite(one->bytes_per_s)) return tandem_quantity_print_bps(text, size, one->bytes_per_s);
    if (isfinite(one->events_per_s))
        return tandem_quantity_print_per_second(text, size, one->events_per_s, "events");
    return text;
}

static int print_bench_text(const bench_result *result)
{
    char rate[TANDEM_QUANTITY_TEXT];

    cli_table table = {0};
    cli_progress_end();
    printf("%s%s%s%s%s\n", result->model, result->cluster[0] ? " on " : "", result->cluster,
           result->costs[0] ? "; costs: " : "", result->costs);
    const int has_copy_speed = isfinite(result->one[0].of_copy);
    cli_table_row(&table, "case\t>median\t>p10\t>p90\t>/s\t>rate%s", has_copy_speed ? "\t>of a copy" : "");
    for (int k = 0; k < result->n_case; k++) {
        const bench_case *one = &result->one[k];
        char share[32] = "";
        if (has_copy_speed && isfinite(one->of_copy))
            (void)snprintf(share, sizeof share, "%.0f%%", 100 * one->of_copy);
        cli_table_row(&table, "%s\t%s\t%s\t%s\t%s\t%s%s%s", one->name,
                      tandem_quantity_ns(one->median_ns).text, tandem_quantity_ns(one->p10_ns).text,
                      tandem_quantity_ns(one->p90_ns).text, tandem_quantity_count(bench_runs_per_s(one)).text,
                      print_bench_rate(rate, sizeof rate, one), has_copy_speed ? "\t" : "", share);
    }
    return cli_table_finish(&table);
}

int bench_print(const bench_result *result, const char *what, const cli_options *options)
{
    return options->json ? print_bench_json(result, what) : print_bench_text(result);
}

/* --- The command ------------------------------------------------------------------------------ */

/* The options of each benchmark. */
static const int of_step[] = {OPTION_MODEL,   OPTION_BATCH,  OPTION_DEVICE,      OPTION_CLUSTER,
                              OPTION_UNIFORM, OPTION_BUCKET, OPTION_REPETITIONS, OPTION_AMAX,
                              OPTION_JSON,    OPTION_QUIET,  OPTION_END};
static const int of_replay[] = {OPTION_MODEL,   OPTION_BATCH,  OPTION_DEVICE,      OPTION_CLUSTER,
                                OPTION_UNIFORM, OPTION_BUCKET, OPTION_REPETITIONS, OPTION_DB,
                                OPTION_JSON,    OPTION_QUIET,  OPTION_END};
static const int of_open[] = {OPTION_MODEL,   OPTION_BATCH,  OPTION_DEVICE,      OPTION_CLUSTER,
                              OPTION_UNIFORM, OPTION_BUCKET, OPTION_REPETITIONS, OPTION_PREDICT,
                              OPTION_JSON,    OPTION_QUIET,  OPTION_END};
static const int of_allocate[] = {OPTION_MODEL,   OPTION_BATCH,    OPTION_DEVICE,      OPTION_CLUSTER,
                                  OPTION_PREDICT, OPTION_SLOWDOWN, OPTION_REPETITIONS, OPTION_BUCKET,
                                  OPTION_DB,      OPTION_JSON,     OPTION_QUIET,       OPTION_END};
static const int of_trace[] = {OPTION_REPETITIONS, OPTION_JSON, OPTION_QUIET, OPTION_END};
static const int of_kernels[] = {OPTION_DEVICE, OPTION_REPETITIONS, OPTION_JSON, OPTION_QUIET, OPTION_END};
static const int of_products[] = {OPTION_MODEL,   OPTION_BATCH,  OPTION_DEVICE,      OPTION_CLUSTER,
                                  OPTION_UNIFORM, OPTION_BUCKET, OPTION_REPETITIONS, OPTION_AMAX,
                                  OPTION_JSON,    OPTION_QUIET,  OPTION_END};
static const int of_allreduce[] = {OPTION_DEVICE, OPTION_CLUSTER, OPTION_WIRE, OPTION_REPETITIONS,
                                   OPTION_JSON,   OPTION_QUIET,   OPTION_END};
static const int of_sensitivity[] = {OPTION_MODEL,       OPTION_BATCH, OPTION_DEVICE, OPTION_BUCKET,
                                     OPTION_REPETITIONS, OPTION_JSON,  OPTION_QUIET,  OPTION_END};

/* `bench` leaves its cases to be printed here; `run` prints them itself. */
static const struct {
    const char *name;
    const int *option;
    int (*bench)(bench_result *result, const cli_options *options);
    int (*run)(const cli_options *options);
} kinds[] = {{"step", of_step, bench_step, NULL},
             {"replay", of_replay, bench_replay, NULL},
             {"open", of_open, bench_open, NULL},
             {"allocate", of_allocate, bench_allocate, NULL},
             {"trace", of_trace, bench_trace, NULL},
             {"kernels", of_kernels, bench_kernels, NULL},
             {"products", of_products, NULL, bench_products},
             {"allreduce", of_allreduce, NULL, bench_allreduce},
             {"sensitivity", of_sensitivity, NULL, bench_sensitivity}};
enum { N_KIND = sizeof kinds / sizeof *kinds };

static int run_bench(const cli_options *options)
{
    tandem_hint hint;
    if (options->n_word != 1)
        return cli_fail_with(TANDEM_USAGE, "say what to measure: tandem-bench step, replay, open, allocate, "
                                           "trace, kernels, products, allreduce or sensitivity");
    const int kind = tandem_name_find(options->word[0], &kinds[0].name, N_KIND, sizeof *kinds, &hint);
    if (kind < 0)
        return cli_fail_with(TANDEM_UNKNOWN_NAME,
                             "no benchmark '%s'.%s Say step, replay, open, allocate, trace, kernels, "
                             "products, allreduce or sensitivity.",
                             options->word[0], hint.text);
    const char *other = cli_option_not_allowed(options, kinds[kind].option);
    if (other)
        return cli_fail_with(TANDEM_USAGE, "`tandem-bench %s` has no option --%s. See `tandem-bench --help`",
                             kinds[kind].name, other);
    if (kinds[kind].run) return kinds[kind].run(options);
    bench_result result = {.options = options};
    const int code = kinds[kind].bench(&result, options);
    return code ? code : bench_print(&result, kinds[kind].name, options);
}

static const int options[] = {OPTION_MODEL,    OPTION_BATCH,  OPTION_DEVICE,      OPTION_CLUSTER,
                              OPTION_UNIFORM,  OPTION_BUCKET, OPTION_REPETITIONS, OPTION_PREDICT,
                              OPTION_SLOWDOWN, OPTION_AMAX,   OPTION_DB,          OPTION_QUIET,
                              OPTION_WIRE,     OPTION_END};
const cli_command command_bench = {
    .name = "bench",
    .words = "step|replay|open|allocate|trace|kernels|products|allreduce|sensitivity",
    .summary = "Speed of a training step, the replayer, policies and trace readers",
    .option = options,
    .joins_run = 1,
    .description =
        "Examples:\n"
        "  tandem-bench step --model resnet20 --device cpu:avx2 --batch 16 --repetitions 30\n"
        "  tandem-bench step --model vit_tiny --uniform int8 --json\n"
        "  tandem-bench step --model bert_base --batch 4 --uniform int8_full --amax delayed\n"
        "  tandem-bench replay --model resnet20 --repetitions 200\n"
        "  tandem-bench trace\n"
        "  tandem-bench kernels --device strongest\n"
        "  tandem-bench products --model resnet50 --batch 8 --device strongest --uniform fp32\n"
        "  tandem-bench allreduce --cluster \"2*strongest\"\n"
        "  tandem-bench sensitivity --model resnet20 --batch 32\n"
        "Each benchmark prints the median and percentiles of N repetitions; [N] is the default.\n"
        "step: training steps on noise, in each precision of the device [the strongest one here] or one "
        "[30].\n"
        "replay: replays per second on two different devices of this machine, with one operator per class\n"
        "changed before each, with all changed, with memory, with one operator flipped, and with one cost\n"
        "changed. Then the last two for 1,000 operators and 160 buckets on 2 to 12,288 ranks. N batches "
        "[50].\n"
        "Missing costs are replaced by synthetic ones; the result says so.\n"
        "open: opening a replayer on the same devices from a store of its own costs, and from one with "
        "100,000\n"
        "more rows; and a whole `tandem replay --json` process on each, and without a store [30].\n"
        "allocate: an allocation by greedy, with and without its certificate, and by exact, with loaded "
        "costs\n"
        "and statistics, and with --slowdown and --predict as in `tandem allocate` [10].\n"
        "trace: the simulator of tandem whatif for 1,000 ranks; two steps of resnet50 with every rank\n"
        "simulated; reading PyTorch profiler output; writing a step as JSON [10].\n"
        "kernels: the kernel library (docs/kernels.md) on one device: rounding to int8 and casts of 64 KiB,\n"
        "1 MiB and 64 MiB, next to a copy of as many bytes; int8 products; a linear layer in every "
        "precision,\n"
        "with its three products and all casts, in training steps [10].\n"
        "products: every product (linear, matmul, conv2d; forward, dgrad, wgrad) inside a step on noise, "
        "alone,\n"
        "and by oneDNN's own kernel in layouts of its choice; the 20 largest and their sum [5].\n"
        "allreduce: an all-reduce of 4 KiB to 100 MiB among the ranks of a cluster [two of the strongest\n"
        "device], idle and while their cores compute, next to reading and writing as many bytes [20].\n"
        "sensitivity: what an estimate at a point costs beside N steps: in steps' time, and in memory [20].",
    .run = run_bench,
};
