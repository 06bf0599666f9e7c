/* workload.c: opens a workload: a model at the batch of every class of a cluster, and a plan for it. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/opening.h"
#include "base/append.h"
#include "base/list.h"
#include "tandem/advanced/recipe.h"
#include "tandem/advanced/step.h"
#include "tandem/workload.h"

/* Says how many products have another precision than the one that their class was given. */
static void count_lacking(tandem_workload *workload, int c, tandem_precision asked)
{
    const tandem_graph *graph = workload->graph[c];
    const tandem_assignment *assignment = &workload->plan->assignment;
    assert(assignment->precision);
    const tandem_precision *has = assignment->precision[c];
    int n = 0, n_lacking = 0;
    tandem_precision instead = asked;
    for (int i = 0; i < graph->n_op; i++) {
        if (!tandem_op_is_adjustable(&graph->op[i]) || graph->op[i].kind == TANDEM_OP_EMBEDDING) continue;
        n++;
        if (has[i] == asked) continue;
        n_lacking++;
        instead = has[i];
    }
    if (n_lacking)
        (void)tandem_append(
            workload->lacking, sizeof workload->lacking, "%s%d of %d products of %.40s lack %s, and have %s",
            *workload->lacking ? "; " : "", n_lacking, n, workload->cluster.classes[c].device.name,
            tandem_precision_get(asked)->name, tandem_precision_get(instead)->name);
}

static tandem_status set_class_uniform(tandem_workload *workload, int c, const char *word, uint64_t seed,
                                       tandem_error *error)
{
    tandem_precision precision;
    if (strcmp(word, "random") == 0)
        return tandem_plan_random(workload->plan, workload->graph[c], c,
                                  workload->cluster.classes[c].device.precisions, seed, error);
    tandem_status status = tandem_precision_find(&precision, word, error);
    if (status == TANDEM_OK)
        status = tandem_plan_uniform(workload->plan, workload->graph[c], c, precision, error);
    if (status == TANDEM_OK) count_lacking(workload, c, precision);
    return status;
}

static tandem_status set_uniform_plan(tandem_workload *workload, const char *uniform, uint64_t seed,
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

/* Devices that are described become the strongest of this machine, and every device has every precision. What
 * a precision computes in stays that of the described device. */
static tandem_status emulate_devices(tandem_cluster *cluster, tandem_error *error)
{
    for (int c = 0; c < cluster->n_class; c++) {
        tandem_device *device = &cluster->classes[c].device, here = *device;
        const tandem_status status =
            tandem_device_is_described(device) ? tandem_device_resolve(&here, "strongest", error) : TANDEM_OK;
        if (status != TANDEM_OK) return status;
        here.amp_dtype = device->amp_dtype;
        here.precisions = (1u << TANDEM_N_PRECISION) - 1;
        *device = here;
    }
    return TANDEM_OK;
}

static tandem_status open_plan_workload(tandem_workload *workload, const tandem_workload_request *request,
                                        tandem_error *error)
{
    tandem_graph *read = NULL;
    const char *second = request->cluster   ? "--cluster"
                         : request->uniform ? "--uniform"
                         : request->batch   ? "--batch"
                                            : NULL;
    if (second)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--plan and %s contradict each other: a plan has its own ranks, batches and "
                                "precisions",
                                second);
    int over_network = 0;
    tandem_status status = tandem_workload_transport(&over_network, error);
    if (status == TANDEM_OK)
        status = (request->emulate ? tandem_plan_read_emulated : tandem_plan_read)(&workload->plan, &read,
                                                                                   request->plan, error);
    tandem_graph_close(read);
    if (status == TANDEM_OK && request->emulate) status = emulate_devices(&workload->plan->cluster, error);
    if (status != TANDEM_OK) return status;
    workload->cluster = workload->plan->cluster;
    workload->cluster.over_network = over_network;
    status = tandem_cluster_fill_defaults(&workload->cluster, 0, request->memory, error);
    const char *model = request->model ? request->model : workload->plan->model;
    if (status == TANDEM_OK)
        status = tandem_cluster_open_graphs(workload->graph, &workload->cluster, model, error);
    return status == TANDEM_OK ? tandem_plan_check(workload->plan, workload->graph[0], error) : status;
}

tandem_status tandem_open_cluster(tandem_cluster *out, const char *model, const char *text, int64_t batch,
                                  const char *memory, int is_emulated, tandem_error *error)
{
    tandem_cluster cluster;
    int over_network = 0;
    if (!model)
        return tandem_error_set(error, TANDEM_USAGE,
                                "no model given. Use e.g. --model vit_tiny (tandem list models), or "
                                "--plan FILE, where the command has it");
    if (!text)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "no devices given. Use e.g. --cluster \"cpu:avx2 + cpu:sse41\" (tandem list devices)");
    tandem_status status = tandem_workload_transport(&over_network, error);
    if (status == TANDEM_OK) status = tandem_cluster_parse(&cluster, text, error);
    if (status == TANDEM_OK && is_emulated) status = emulate_devices(&cluster, error);
    if (status == TANDEM_OK)
        status = tandem_cluster_fill_defaults(&cluster, batch ? batch : TANDEM_DEFAULT_BATCH, memory, error);
    if (status != TANDEM_OK) return status;
    cluster.over_network = over_network;
    *out = cluster;
    return TANDEM_OK;
}

static tandem_status open_model_workload(tandem_workload *workload, const tandem_workload_request *request,
                                         tandem_error *error)
{
    tandem_status status =
        tandem_open_cluster(&workload->cluster, request->model, request->cluster, request->batch,
                            request->memory, request->emulate != NULL, error);
    if (status == TANDEM_OK)
        status = tandem_cluster_open_graphs(workload->graph, &workload->cluster, request->model, error);
    char name[sizeof workload->plan->name];
    (void)snprintf(name, sizeof name, "uniform %s", request->uniform ? request->uniform : "fp32");
    if (status == TANDEM_OK)
        status = tandem_plan_open(&workload->plan, workload->graph[0], &workload->cluster, name, error);
    if (status == TANDEM_OK && request->uniform)
        status = set_uniform_plan(workload, request->uniform, request->seed, error);
    return status;
}

tandem_status tandem_workload_transport(int *over_network, tandem_error *error)
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

tandem_status tandem_check_model(const tandem_graph *graph, const char *memory, int n_recompute_segment,
                                 tandem_error *error)
{
    assert(graph);
    if (graph->is_recorded && memory && !graph->memory)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--memory is for models whose memory is known: what PyTorch allocates for '%s' "
            "is not. tandem.capture(module, inputs) records it, and print(graph) says why "
            "it did not",
            graph->model);
    if (graph->is_recorded && n_recompute_segment != 0 && n_recompute_segment != 1)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--recompute is for models that tandem runs. Wrap parts of the module in "
            "torch.utils.checkpoint, and capture it again: its graph then has them twice");
    return check_recompute_segments(n_recompute_segment, graph, error);
}

/* What the request asks of the plan's steps. */
static void set_plan_step(tandem_plan *plan, const tandem_workload_request *request)
{
    const tandem_step_options *asked = &request->step;
    if (asked->n_micro) plan->step.n_micro = asked->n_micro;
    if (asked->n_recompute_segment) plan->step.n_recompute_segment = asked->n_recompute_segment;
    if (asked->scaling.window) plan->step.scaling = asked->scaling;
    plan->step.emulated = request->emulate != NULL;
    plan->step.separate_partial_grads = asked->separate_partial_grads;
}

/* A recipe's products need memory, so their step is laid out for it. */
static tandem_status set_plan_recipe(tandem_plan *plan, const tandem_workload_request *request,
                                     tandem_error *error)
{
    tandem_emulation emulation = tandem_emulation_make(0);
    const tandem_status status =
        request->emulate ? tandem_emulation_replace(&emulation, request->emulate, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    if (emulation.recipe != TANDEM_RECIPE_NONE && plan->step.scaling.window > 0)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--emulate=%s and --amax delayed contradict each other: a recipe's scales are "
            "those of the tensor that is rounded",
            tandem_recipe_get(emulation.recipe)->name);
    plan->step.recipe = (int)emulation.recipe;
    return TANDEM_OK;
}

static void set_loss_scale(tandem_workload *workload, const tandem_workload_request *request)
{
    tandem_plan *plan = workload->plan;
    const int is_needed = tandem_plan_needs_loss_scale(plan, workload->graph[0]);
    workload->loss_scale = request->loss_scale != 0 ? request->loss_scale : plan->loss_scale;
    if (workload->loss_scale == 0 && is_needed) workload->loss_scale = -1;
    plan->step.with_norm = request->clip > 0 || workload->loss_scale != 0;
    workload->scale_is_by_need = request->loss_scale == 0 && request->clip == 0 &&
                                 plan->scale_rule != TANDEM_SCALE_OF_ALL && plan->step.with_norm == is_needed;
}

tandem_status tandem_workload_open(tandem_workload *workload, const tandem_workload_request *request,
                                   tandem_error *error)
{
    tandem_workload opened = {0};
    tandem_status status = request->plan ? open_plan_workload(&opened, request, error)
                                         : open_model_workload(&opened, request, error);
    if (status == TANDEM_OK)
        status = tandem_check_model(opened.graph[0], request->plan ? NULL : request->memory,
                                    request->step.n_recompute_segment, error);
    if (status != TANDEM_OK) {
        tandem_workload_close(&opened);
        return status;
    }
    if (request->wire_is_given) opened.plan->cluster.wire = request->wire;
    opened.cluster.wire = opened.plan->cluster.wire;
    set_plan_step(opened.plan, request);
    status = set_plan_recipe(opened.plan, request, error);
    if (status != TANDEM_OK) {
        tandem_workload_close(&opened);
        return status;
    }
    set_loss_scale(&opened, request);
    *workload = opened;
    return TANDEM_OK;
}

void tandem_workload_close(tandem_workload *workload)
{
    tandem_plan_close(workload->plan);
    for (int c = TANDEM_MAX_CLASS - 1; c >= 0; c--) tandem_graph_close(workload->graph[c]);
    *workload = (tandem_workload){0};
}
