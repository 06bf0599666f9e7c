#include "base/append.h"
#include "cli/candidate_cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/prediction.h"

tandem_cluster cli_cluster_without(const tandem_cluster *cluster, int c)
{
    tandem_cluster rest = *cluster;
    rest.n_class--;
    memmove(&rest.classes[c], &rest.classes[c + 1], (size_t)(rest.n_class - c) * sizeof rest.classes[c]);
    return rest;
}

/* Limits and batches are equal in all rows of a table, so the name leaves them out. */
const char *candidate_cluster_name(char *name, size_t size, const tandem_cluster *cluster)
{
    tandem_cluster bare = *cluster;
    bare.link_bytes_per_s = bare.node.bytes_per_s = 0;
    for (int c = 0; c < bare.n_class; c++)
        bare.classes[c].batch = 0, bare.classes[c].memory_bytes = 0, bare.classes[c].link.bytes_per_s = 0;
    tandem_cluster_print(name, size, &bare);
    return name;
}

/* For the options' model on a cluster whose classes have batches. */
static tandem_status open_candidate_planner(tandem_planner **planner, const cli_options *options,
                                            const tandem_cluster *cluster, tandem_error *error)
{
    char text[4096];
    tandem_cluster_print(text, sizeof text, cluster);
    tandem_request request = cli_planner_request(options);
    request.model = options->model;
    request.cluster = text;
    request.over_network = cluster->over_network;
    request.wire = cluster->wire;
    const tandem_status status = tandem_planner_open(planner, &request, error);
    if (status == TANDEM_OK) tandem_planner_problem(*planner)->slowdown = fmax(options->slowdown, 0);
    return status;
}

/* --- Batches that are chosen ------------------------------------------------------------------ */

static void close_batch_problem(void *context, tandem_allocation_problem *problem)
{
    cli_batch_context *batches = context;
    (void)problem;
    tandem_planner_close(batches->planner);
    batches->planner = NULL;
}

static tandem_status open_batch_problem(void *context, const int64_t batch[TANDEM_MAX_CLASS],
                                        tandem_allocation_problem **problem, tandem_error *error)
{
    cli_batch_context *batches = context;
    tandem_cluster cluster = *batches->cluster;
    for (int c = 0; c < cluster.n_class; c++) cluster.classes[c].batch = batch[c];
    const tandem_status status = open_candidate_planner(&batches->planner, batches->options, &cluster, error);
    if (status != TANDEM_OK) return status;
    *problem = tandem_planner_problem(batches->planner);
    (*problem)->target_ns = batches->options->max_step_ns;
    (*problem)->without_certificate = batches->without_certificate;
    return TANDEM_OK;
}

tandem_batch_source cli_batch_source(cli_batch_context *batches)
{
    return (tandem_batch_source){batches, open_batch_problem, close_batch_problem};
}

const char *cli_batch_list_print(char *text, size_t size, const int64_t *batch, int n_class)
{
    text[0] = '\0';
    for (int c = 0; c < n_class; c++)
        (void)tandem_append(text, size, "%s%lld", c ? " + " : "", (long long)batch[c]);
    return text;
}

/* --- The best plan ---------------------------------------------------------------------------- */

/* Sets what is printed with a plan. It stays the planner's last run. */
static tandem_status describe_candidate(candidate_cluster *candidate, tandem_planner *planner,
                                        const tandem_plan *plan, tandem_error *error)
{
    tandem_replayer *replayer = tandem_planner_problem(planner)->replayer;
    tandem_replay replay;
    tandem_status status = tandem_planner_goodput(&candidate->goodput, planner, plan, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_load(replayer, &plan->assignment);
    status = tandem_replayer_run(replayer, &replay, 0, error);
    if (status != TANDEM_OK) return status;
    for (int c = 0; c < candidate->cluster.n_class; c++)
        if (plan->peak_bytes[c] > candidate->peak_bytes) candidate->peak_bytes = plan->peak_bytes[c];
    for (int c = 0; c < replay.n_class; c++) candidate->busy_ns[c] = replay.classes[c].busy_ns;
    candidate->sensitivity_bound = plan->sensitivity_bound;
    tandem_replayer_sources(replayer, &candidate->sources);
    (void)snprintf(candidate->model, sizeof candidate->model, "%s", plan->model);
    candidate->loss_scale = plan->loss_scale;
    return TANDEM_OK;
}

static tandem_status split_and_allocate(candidate_cluster *candidate, const cli_options *options,
                                        const tandem_policy *policy, tandem_error *error)
{
    cli_batch_context batches = {
        .options = options, .cluster = &candidate->cluster, .without_certificate = 1};
    const tandem_batch_source source = cli_batch_source(&batches);
    tandem_batch_choice choice = {.n_split = 0};
    tandem_planner *planner = NULL;
    const char *method = options->method ? options->method : tandem_sensitivity_get(0)->name;
    tandem_status status =
        tandem_batch_choose(&choice, &candidate->cluster, options->global_batch, &source, policy, method,
                            options->max_step_ns, options->slowdown, error);
    if (status != TANDEM_OK) return status;
    candidate->allocation = choice.both.allocation;
    for (int c = 0; c < candidate->cluster.n_class; c++)
        candidate->cluster.classes[c].batch = choice.both.batch[c];
    status = open_candidate_planner(&planner, options, &candidate->cluster, error);
    if (status == TANDEM_OK) status = describe_candidate(candidate, planner, choice.both.plan, error);
    tandem_planner_close(planner);
    tandem_batch_choice_free(&choice);
    return status;
}

static tandem_status allocate_candidate(candidate_cluster *candidate, const cli_options *options,
                                        const tandem_policy *policy, tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_plan *plan = NULL;
    tandem_status status = open_candidate_planner(&planner, options, &candidate->cluster, error);
    if (status != TANDEM_OK) return status;
    tandem_planner_problem(planner)->without_certificate = 1; /* only compared, not kept */
    const tandem_goal goal = options->slowdown >= 0 ? (tandem_goal){TANDEM_MINIMIZE_SENSITIVITY, INT64_MAX}
                                                    : tandem_planner_goal(planner, policy->name);
    status = tandem_planner_allocate_for(&plan, &candidate->allocation, planner, &goal, policy->name, error);
    if (status == TANDEM_OK) status = describe_candidate(candidate, planner, plan, error);
    tandem_plan_close(plan);
    tandem_planner_close(planner);
    return status;
}

tandem_status candidate_cluster_find(candidate_cluster *out, const cli_options *options,
                                     const tandem_cluster *cluster, const tandem_policy *policy,
                                     tandem_error *error)
{
    candidate_cluster candidate = {.cluster = *cluster};
    tandem_error why = {0};
    candidate.samples =
        options->batch_auto ? options->global_batch : tandem_cluster_samples(cluster, options->step.n_micro);
    (void)candidate_cluster_name(candidate.name, sizeof candidate.name, cluster);
    const tandem_status status = options->batch_auto ? split_and_allocate(&candidate, options, policy, &why)
                                                     : allocate_candidate(&candidate, options, policy, &why);
    if (status == TANDEM_OK) {
    } else if (status == TANDEM_MISSING || status == TANDEM_INFEASIBLE ||
               (status == TANDEM_USAGE && options->batch_auto))
        candidate.error = why;
    else {
        *error = why;
        return status;
    }
    *out = candidate;
    return TANDEM_OK;
}

json_t *cli_loss_scale_json(double loss_scale)
{
    char text[TANDEM_LOSS_SCALE_TEXT];
    return loss_scale == 0 ? json_null() : json_string(tandem_loss_scale_print(text, loss_scale));
}

static json_t *candidate_devices_json(const tandem_time_sources *sources)
{
    json_t *devices = json_array();
    for (int c = 0; c < sources->n_class; c++)
        json_array_append_new(devices, json_pack("{s:s,s:o}", "name", sources->device[c], "costs",
                                                 cli_cost_sources_json(sources, c)));
    return devices;
}

json_t *candidate_cluster_json(const candidate_cluster *candidate)
{
    static const tandem_goodput no_goodput = {.sensitivity = NAN,
                                              .low = NAN,
                                              .high = NAN,
                                              .noise = NAN,
                                              .bias = NAN,
                                              .goodput = NAN,
                                              .fp32_samples_per_s = NAN};
    char text[4096];
    tandem_cluster_print(text, sizeof text, &candidate->cluster);
    const int has_plan = candidate->error.status == TANDEM_OK;
    json_t *result =
        json_pack("{s:s,s:s?,s:I}", "cluster", text, "error", has_plan ? NULL : candidate->error.text,
                  "samples", (json_int_t)candidate->samples);
    json_object_set_new(result, "samples_per_s",
                        has_plan ? json_real(candidate->goodput.samples_per_s) : json_null());
    json_object_set_new(result, "step_ns",
                        has_plan ? json_integer(candidate->allocation.step_ns) : json_null());
    goodput_add_json(result, has_plan ? &candidate->goodput : &no_goodput);
    json_object_set_new(result, "sensitivity_bound",
                        cli_json_number(has_plan ? candidate->sensitivity_bound : NAN));
    json_object_set_new(result, "peak_bytes", cli_peak_json(has_plan ? candidate->peak_bytes : 0));
    json_object_set_new(result, "loss_scale",
                        has_plan ? cli_loss_scale_json(candidate->loss_scale) : json_null());
    json_object_set_new(result, "devices",
                        has_plan ? candidate_devices_json(&candidate->sources) : json_null());
    return result;
}
