/* workload.c: opens a workload: a model at the batch of every class of a cluster, and a plan for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "cli/cli.h"

enum { LIST_TEXT = 512 };

static tandem_status read_workload_cluster(tandem_cluster *cluster, const cli_options *options,
                                           tandem_error *error)
{
    if (options->cluster && options->device)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--cluster and --device both name the ranks. Give one of them");
    if (options->cluster) return tandem_cluster_parse(cluster, options->cluster, error);
    if (!options->device)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "no devices given. Use e.g. --cluster \"cpu:avx2 + cpu:sse41\" (tandem list devices)");
    char text[LIST_TEXT] = "";
    for (const char *c = options->device; *c && strlen(text) + 4 < sizeof text; c++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), *c == ',' ? " + " : "%c", *c);
    return tandem_cluster_parse(cluster, text, error);
}

static tandem_status set_class_uniform(cli_workload *workload, int c, const char *word, uint64_t seed,
                                       tandem_error *error)
{
    tandem_precision precision;
    if (strcmp(word, "random") == 0)
        return tandem_plan_random(workload->plan, workload->graph[c], c,
                                  workload->cluster.classes[c].device.precisions, seed, error);
    const tandem_status status = tandem_precision_find(&precision, word, error);
    return status == TANDEM_OK ? tandem_plan_uniform(workload->plan, workload->graph[c], c, precision, error)
                               : status;
}

static tandem_status set_uniform_plan(cli_workload *workload, const char *uniform, uint64_t seed,
                                      tandem_error *error)
{
    for (int c = 0; c < workload->cluster.n_class; c++) {
        char word[64];
        if (!tandem_list_word(word, sizeof word, uniform, c, workload->cluster.n_class))
            return tandem_error_set(
                error, TANDEM_USAGE,
                "--uniform '%s' does not match %d classes. Give one precision, or one per class", uniform,
                workload->cluster.n_class);
        const tandem_status status = set_class_uniform(workload, c, word, seed, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

static tandem_status open_plan_workload(cli_workload *workload, const cli_options *options,
                                        tandem_error *error)
{
    tandem_graph *read = NULL;
    const char *second = options->cluster                          ? "--cluster"
                         : options->device                         ? "--device"
                         : options->uniform                        ? "--uniform"
                         : cli_option_given(options, OPTION_BATCH) ? "--batch"
                                                                   : NULL;
    if (second)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--plan and %s contradict each other: a plan has its own ranks, batches and "
                                "precisions",
                                second);
    tandem_status status = tandem_plan_read(&workload->plan, &read, options->plan, error);
    tandem_graph_close(read);
    if (status != TANDEM_OK) return status;
    workload->cluster = workload->plan->cluster;
    status = tandem_cluster_fill_defaults(&workload->cluster, 0, options->memory, error);
    /* a plan names its model; --model must agree */
    const char *model = options->model ? options->model : workload->plan->model;
    if (status == TANDEM_OK)
        status = tandem_cluster_open_graphs(workload->graph, &workload->cluster, model, error);
    return status == TANDEM_OK ? tandem_plan_check(workload->plan, workload->graph[0], error) : status;
}

static tandem_status open_model_workload(cli_workload *workload, const cli_options *options,
                                         tandem_error *error)
{
    if (!options->model)
        return tandem_error_set(error, TANDEM_USAGE,
                                "no model given. Use e.g. --model vit_tiny (tandem list models), or "
                                "--plan FILE, where the command has it");
    tandem_status status = read_workload_cluster(&workload->cluster, options, error);
    if (status == TANDEM_OK)
        status = tandem_cluster_fill_defaults(&workload->cluster, options->batch, options->memory, error);
    for (int c = 0; c < workload->cluster.n_class && options->emulate; c++)
        workload->cluster.classes[c].device.precisions = (1u << TANDEM_N_PRECISION) - 1;
    if (status == TANDEM_OK)
        status = tandem_cluster_open_graphs(workload->graph, &workload->cluster, options->model, error);
    if (status == TANDEM_OK && workload->graph[0]->is_recorded && options->memory)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--memory is for models that tandem runs: what PyTorch allocates for '%s' is "
                                "not known",
                                options->model);
    char name[sizeof workload->plan->name];
    (void)snprintf(name, sizeof name, "uniform %s", options->uniform ? options->uniform : "fp32");
    if (status == TANDEM_OK)
        status = tandem_plan_open(&workload->plan, workload->graph[0], &workload->cluster, name, error);
    if (status == TANDEM_OK && options->uniform)
        status = set_uniform_plan(workload, options->uniform, options->seed, error);
    return status;
}

tandem_status cli_choose_transport(int *over_network, tandem_error *error)
{
    const char *exchange = getenv("TANDEM_ALLREDUCE");
    const int is_network = exchange && strcmp(exchange, "network") == 0;
    if (exchange && *exchange && !is_network)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "invalid TANDEM_ALLREDUCE '%s'. Unset it to exchange gradients in shared memory, or "
            "set it to 'network'",
            exchange);
    *over_network = is_network;
    return TANDEM_OK;
}

/* A plan's file may ask for more segments; they are cut to the possible number. */
static tandem_status check_recompute_segments(int n_recompute_segment, const tandem_graph *graph,
                                              tandem_error *error)
{
    tandem_step *step = NULL;
    tandem_status status =
        n_recompute_segment > 1 ? tandem_step_open(&step, graph, TANDEM_F32, 0, error) : TANDEM_OK;
    const int max = step ? tandem_step_max_segments(step) : n_recompute_segment;
    if (n_recompute_segment > max)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "--recompute %d: model %s has at most %d segments. Use 1 to %d, or sqrt",
                                  n_recompute_segment, graph->model, max, max);
    tandem_step_close(step);
    return status;
}

tandem_status cli_workload_open(cli_workload *workload, const cli_options *options, tandem_error *error)
{
    cli_workload made = {0};
    int over_network = 0;
    tandem_status status = cli_choose_transport(&over_network, error);
    if (status == TANDEM_OK)
        status = options->plan ? open_plan_workload(&made, options, error)
                               : open_model_workload(&made, options, error);
    if (status == TANDEM_OK)
        status = check_recompute_segments(options->step.n_recompute_segment, made.graph[0], error);
    if (status != TANDEM_OK) {
        cli_workload_close(&made);
        return status;
    }
    made.cluster.over_network = over_network;
    if (cli_option_given(options, OPTION_WIRE)) made.plan->cluster.wire = options->wire;
    made.cluster.wire = made.plan->cluster.wire;
    if (options->step.n_micro) made.plan->step.n_micro = options->step.n_micro;
    if (options->step.n_recompute_segment)
        made.plan->step.n_recompute_segment = options->step.n_recompute_segment;
    if (options->step.scaling.window) made.plan->step.scaling = options->step.scaling;
    made.plan->step.emulated = options->emulate != NULL;
    made.plan->step.separate_partial_grads = options->step.separate_partial_grads;
    made.loss_scale = options->loss_scale != 0 ? options->loss_scale : made.plan->loss_scale;
    if (made.loss_scale == 0 && !options->zero && tandem_plan_needs_loss_scale(made.plan, made.graph[0]))
        made.loss_scale = -1;
    made.plan->step.with_norm = options->clip > 0 || made.loss_scale != 0;
    made.scale_is_by_need =
        options->loss_scale == 0 && options->clip == 0 && !options->zero &&
        made.plan->step.with_norm == tandem_plan_needs_loss_scale(made.plan, made.graph[0]);
    *workload = made;
    return TANDEM_OK;
}

int cli_count_f16_gradients(const tandem_plan *plan, const tandem_graph *graph, char *where, size_t size)
{
    int max = 0;
    where[0] = '\0';
    for (int c = 0; c < plan->cluster.n_class; c++) {
        const int n = tandem_plan_count_f16_gradients(plan, graph, c);
        if (n > 0)
            (void)cli_append(where, size, "%s%s", *where ? ", " : "", plan->cluster.classes[c].device.name);
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

void cli_workload_close(cli_workload *workload)
{
    tandem_plan_close(workload->plan);
    for (int c = TANDEM_MAX_CLASS - 1; c >= 0; c--) tandem_graph_close(workload->graph[c]);
    *workload = (cli_workload){0};
}
