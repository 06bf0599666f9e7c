/* requests.c: what the options ask of the libraries. */
#include <unistd.h>

#include "base/append.h"
#include "cli/prediction.h"

static tandem_status check_device_option(const cli_options *options, tandem_error *error)
{
    if (options->threads && !options->device)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--threads is of one --device. In --cluster each device has its cores in its name, as "
            "in \"2*cpu:avx2:8\", and so has it in a plan");
    return options->cluster && options->device
               ? tandem_error_set(error, TANDEM_USAGE,
                                  "--cluster and --device both name the ranks. Give one of them")
               : TANDEM_OK;
}

tandem_status cli_workload_request(tandem_workload_request *request, const cli_options *options,
                                   tandem_error *error)
{
    const int has_batch = !options->plan || cli_option_given(options, OPTION_BATCH);
    const tandem_status status = check_device_option(options, error);
    if (status != TANDEM_OK) return status;
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
                                  .loss_scale = options->loss_scale};
    return TANDEM_OK;
}

tandem_status cli_workload_open(tandem_workload *workload, const cli_options *options, tandem_error *error)
{
    tandem_workload_request request;
    const tandem_status status = cli_workload_request(&request, options, error);
    return status == TANDEM_OK ? tandem_workload_open(workload, &request, error) : status;
}

static void show_progress(void *context, int64_t left_ns, const char *text)
{
    cli_progress(context, left_ns, "%s", text);
}

static void show_note(void *context, const char *text) { cli_note(context, "%s", text); }

tandem_listener cli_listener(const cli_options *options)
{
    const int has_progress = !options->quiet && isatty(STDERR_FILENO);
    return (tandem_listener){.context = (void *)(uintptr_t)options,
                             .progress = has_progress ? show_progress : NULL,
                             .note = options->quiet ? NULL : show_note};
}

tandem_training_options cli_training_options(const cli_options *options)
{
    return (tandem_training_options){.rate = options->rate,
                                     .decay = options->decay,
                                     .momentum = options->momentum,
                                     .betas = options->betas,
                                     .no_decay = options->no_decay,
                                     .schedule = options->schedule,
                                     .warmup = options->warmup,
                                     .label_smoothing = options->label_smoothing};
}

tandem_status cli_train_request(tandem_train_request *request, const cli_options *options,
                                tandem_error *error)
{
    *request = tandem_train_request_default();
    const int64_t evaluate = options->evaluate < 0 ? request->evaluate : options->evaluate;
    const int64_t steps = options->steps < 0 ? request->steps : options->steps;
    *request = (tandem_train_request){.listener = cli_listener(options),
                                      .store = options->db,
                                      .data = options->data,
                                      .steps = steps,
                                      .evaluate = evaluate,
                                      .evaluate_every = options->evaluate_every,
                                      .checkpoint_every = options->checkpoint_every,
                                      .timeout_ns = options->timeout_ns,
                                      .bucket_bytes = options->bucket_bytes,
                                      .zero = options->zero,
                                      .shards = options->shards,
                                      .has_data_seed = cli_option_given(options, OPTION_DATA_SEED),
                                      .has_rounding_seed = cli_option_given(options, OPTION_ROUNDING_SEED),
                                      .data_seed = options->data_seed,
                                      .rounding_seed = options->rounding_seed,
                                      .error_scale = options->error_scale,
                                      .training = cli_training_options(options),
                                      .allow_nan = options->allow_nan,
                                      .reestimate = cli_option_given(options, OPTION_REESTIMATE),
                                      .reestimate_every = options->reestimate,
                                      .max_sensitivity = options->max_sensitivity,
                                      .per_task = options->per_operator,
                                      .trace = options->trace,
                                      .log = options->log,
                                      .checkpoint = options->checkpoint,
                                      .exported = options->export,
                                      .resume = options->resume,
                                      .init = options->init,
                                      .made = cli_made()};
    return cli_workload_request(&request->workload, options, error);
}

tandem_train_request cli_training(const cli_options *options)
{
    tandem_train_request request;
    (void)cli_train_request(&request, options, NULL);
    return request;
}

tandem_status cli_allocation_request(tandem_allocation_request *request, const cli_options *options,
                                     tandem_error *error)
{
    const tandem_status status = check_device_option(options, error);
    if (status != TANDEM_OK) return status;
    *request = (tandem_allocation_request){.of = cli_planner_request(options),
                                           .policy = options->policy,
                                           .uniform = options->uniform,
                                           .minimize = options->minimize,
                                           .slowdown_is_given = options->slowdown >= 0,
                                           .slowdown = options->slowdown,
                                           .max_step_ns = options->max_step_ns,
                                           .max_sensitivity_is_given = options->max_sensitivity >= 0,
                                           .max_sensitivity = options->max_sensitivity,
                                           .work_limit = options->proof_work,
                                           .global_batch = options->batch_auto ? options->global_batch : 0};
    request->of.model = options->model;
    request->of.cluster = options->device ? options->device_cluster : options->cluster;
    request->of.batch = options->batch;
    request->of.memory = options->memory;
    request->of.wire = options->wire;
    return TANDEM_OK;
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
            "the bound in '%s' counts as unproven: it is from before plans were costed with the loss scale "
            "that they need. `tandem allocate` proves a new one",
            options->plan);
}
