/* bench_step.c: training steps on noise, run by `tandem train`. */
#include <math.h>
#include <stdio.h>

#include "bench/program/bench.h"

enum { STEPS = 30, WARM_UP = 2, MAX_ARGUMENTS = 24, NUMBER_TEXT = 32 };

/* Runs `tandem train` once and adds its case. Returns the exit code. */
static int bench_train_run(bench_result *result, const cli_options *options, const tandem_workload *workload,
                           const char *uniform)
{
    char steps[NUMBER_TEXT], batch[NUMBER_TEXT], bucket[NUMBER_TEXT], scaling[TANDEM_CAST_SCALING_TEXT],
        name[96];
    const char *argument[MAX_ARGUMENTS] = {"train",  "--model", options->model, "--uniform", uniform,
                                           "--eval", "0"};
    int n = 7, code = 0;
    (void)snprintf(steps, sizeof steps, "%lld",
                   (long long)((options->repetitions > 0 ? options->repetitions : STEPS) + WARM_UP));
    (void)snprintf(batch, sizeof batch, "%lld", (long long)options->batch);
    (void)snprintf(bucket, sizeof bucket, "%lluB", (unsigned long long)options->bucket_bytes);
    (void)snprintf(name, sizeof name, "step %s", uniform);
    argument[n++] = options->cluster ? "--cluster" : "--device";
    argument[n++] = options->cluster ? options->cluster : options->device;
    argument[n++] = "--steps", argument[n++] = steps;
    argument[n++] = "--batch", argument[n++] = batch;
    if (options->step.scaling.window) {
        argument[n++] = "--amax";
        argument[n++] = tandem_cast_scaling_print(scaling, options->step.scaling);
    }
    if (options->bucket_bytes) argument[n++] = "--bucket", argument[n++] = bucket;
    json_t *run = cli_run_self(options, argument, &code);
    if (code == 0) {
        bench_case *one = &result->one[result->n_case++];
        *one = (bench_case){.median_ns = json_integer_value(json_object_get(run, "step_ns")),
                            .p10_ns = json_integer_value(json_object_get(run, "step_p10_ns")),
                            .p90_ns = json_integer_value(json_object_get(run, "step_p90_ns")),
                            .bytes_per_s = NAN,
                            .flops_per_s = NAN,
                            .ops_per_s = NAN,
                            .events_per_s = NAN,
                            .of_copy = NAN};
        (void)snprintf(one->name, sizeof one->name, "%s", name);
        double flops = 0;
        for (int c = 0; c < workload->cluster.n_class; c++)
            flops += tandem_graph_flops(workload->graph[c]) * workload->cluster.classes[c].n_rank;
        if (one->median_ns > 0) one->flops_per_s = flops * 1e9 / (double)one->median_ns;
    }
    json_decref(run);
    return code;
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
