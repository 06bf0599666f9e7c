/* bench_step.c: training steps on noise, as `tandem train` runs them. */
#include <math.h>
#include <stdio.h>

#include "bench/program/bench.h"

enum { STEPS = 30, WARM_UP = 2 };

/* Trains once and adds its case. Returns the exit code. */
static int bench_train_run(bench_result *result, const cli_options *options, const tandem_workload *workload,
                           const char *uniform)
{
    cli_options of_run = *options;
    tandem_error error = {0};
    tandem_train_result run = {.n_rank = 0};
    of_run.uniform = uniform;
    of_run.steps = (options->repetitions > 0 ? options->repetitions : STEPS) + WARM_UP;
    of_run.evaluate = 0;
    const tandem_train_request request = cli_training(&of_run);
    if (tandem_train(&run, &request, &error) != TANDEM_OK) return cli_fail(&error);
    bench_case *one = &result->one[result->n_case++];
    *one = (bench_case){.median_ns = run.rank[0].period_ns,
                        .p10_ns = run.rank[0].p10_ns,
                        .p90_ns = run.rank[0].p90_ns,
                        .bytes_per_s = NAN,
                        .flops_per_s = NAN,
                        .ops_per_s = NAN,
                        .events_per_s = NAN,
                        .of_copy = NAN};
    (void)snprintf(one->name, sizeof one->name, "step %s", uniform);
    double flops = 0;
    for (int c = 0; c < workload->cluster.n_class; c++)
        flops += tandem_graph_flops(workload->graph[c]) * workload->cluster.classes[c].n_rank;
    if (one->median_ns > 0) one->flops_per_s = flops * 1e9 / (double)one->median_ns;
    tandem_train_result_free(&run);
    return 0;
}

/* Precisions that every device of the cluster has. */
static unsigned common_precisions(const tandem_cluster *cluster)
{
    unsigned precisions = ~0u;
    for (int c = 0; c < cluster->n_class; c++) precisions &= cluster->classes[c].device.precisions;
    return precisions;
}

int bench_step(bench_result *result, const cli_options *given)
{
    cli_options options = *given;
    if (!options.model) options.model = "resnet20";
    if (!options.device && !options.cluster) cli_set_device(&options, "strongest");
    tandem_error error = {0};
    tandem_workload workload = {0};
    if (cli_workload_open(&workload, &options, &error) != TANDEM_OK) return cli_fail(&error);
    (void)snprintf(result->model, sizeof result->model, "%s", workload.graph[0]->model);
    tandem_cluster_print(result->cluster, sizeof result->cluster, &workload.cluster);
    int code = 0;
    if (options.uniform) code = bench_train_run(result, &options, &workload, options.uniform);
    for (int p = 0; p < TANDEM_N_PRECISION && !options.uniform && code == 0; p++)
        if (common_precisions(&workload.cluster) >> p & 1)
            code =
                bench_train_run(result, &options, &workload, tandem_precision_get((tandem_precision)p)->name);
    tandem_workload_close(&workload);
    return code;
}
