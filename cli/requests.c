/* requests.c: what the options ask of the libraries. */
#include "base/append.h"
#include "cli/cli.h"

tandem_status cli_workload_request(tandem_workload_request *request, const cli_options *options,
                                   tandem_error *error)
{
    const int has_batch = !options->plan || cli_option_given(options, OPTION_BATCH);
    if (options->cluster && options->device)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--cluster and --device both name the ranks. Give one of them");
    if (options->plan && options->device)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--plan and --device contradict each other: a plan has its own ranks, "
                                "batches and precisions");
    *request =
        (tandem_workload_request){.plan = options->plan,
                                  .model = options->model,
                                  .cluster = options->device ? options->device_cluster : options->cluster,
                                  .uniform = options->uniform,
                                  .memory = options->memory,
                                  .seed = options->seed,
                                  .batch = has_batch ? options->batch : 0,
                                  .emulate = options->emulate,
                                  .wire_is_given = cli_option_given(options, OPTION_WIRE),
                                  .wire = options->wire,
                                  .step = options->step,
                                  .clip = options->clip,
                                  .loss_scale = options->loss_scale,
                                  .without_norm = options->zero != 0};
    return TANDEM_OK;
}

tandem_status cli_workload_open(tandem_workload *workload, const cli_options *options, tandem_error *error)
{
    tandem_workload_request request;
    const tandem_status status = cli_workload_request(&request, options, error);
    return status == TANDEM_OK ? tandem_workload_open(workload, &request, error) : status;
}

int cli_count_f16_gradients(const tandem_plan *plan, const tandem_graph *graph, char *where, size_t size)
{
    int max = 0;
    where[0] = '\0';
    for (int c = 0; c < plan->cluster.n_class; c++) {
        const int n = tandem_plan_count_f16_gradients(plan, graph, c);
        if (n > 0)
            (void)tandem_append(where, size, "%s%s", *where ? ", " : "",
                                plan->cluster.classes[c].device.name);
        if (n > max) max = n;
    }
    return max;
}

void cli_note_unproven_bound(const cli_options *options, const tandem_plan *plan)
{
    if (plan->has_unproven_bound)
        cli_note(
            options,
            "the bound in '%s' counts as unproven: it is from before plans were priced by the loss scale "
            "that they need. `tandem allocate` proves a new one",
            options->plan);
}
