#include "cli/prospect.h"

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

int64_t cli_cluster_samples(const tandem_cluster *cluster)
{
    int64_t samples = 0;
    for (int c = 0; c < cluster->n_class; c++)
        samples += cluster->classes[c].n_rank * cluster->classes[c].batch;
    return samples;
}

/* Devices and ranks alone: limits and batches are the same in every row of a table. */
const char *cli_prospect_name(char *name, size_t size, const tandem_cluster *cluster)
{
    tandem_cluster bare = *cluster;
    bare.link_bytes_per_s = bare.node.bytes_per_s = 0;
    for (int c = 0; c < bare.n_class; c++)
        bare.classes[c].batch = 0, bare.classes[c].memory_bytes = 0, bare.classes[c].link.bytes_per_s = 0;
    tandem_cluster_print(name, size, &bare);
    return name;
}

/* Of the model of the options, on a cluster whose classes have their batch. */
static tandem_status open_planner(tandem_planner **planner, const cli_options *options,
                                  const tandem_cluster *cluster, int with_norm, tandem_error *error)
{
    char text[4096];
    tandem_cluster_print(text, sizeof text, cluster);
    tandem_request request = cli_request(options);
    request.model = options->model;
    request.cluster = text;
    request.over_network = cluster->over_network;
    request.step.with_norm = with_norm;
    const tandem_status status = tandem_planner_open(planner, &request, error);
    if (status == TANDEM_OK) tandem_planner_problem(*planner)->slowdown = fmax(options->slowdown, 0);
    return status;
}

/* --- Batches that are chosen ------------------------------------------------------------------ */

static void close_problem(void *context, tandem_allocation_problem *problem)
{
    cli_batches *batches = context;
    (void)problem;
    tandem_planner_close(batches->planner);
    batches->planner = NULL;
}

static tandem_status open_problem(void *context, const int64_t batch[TANDEM_MAX_CLASS],
                                  tandem_allocation_problem **problem, tandem_error *error)
{
    cli_batches *batches = context;
    tandem_cluster cluster = *batches->cluster;
    for (int c = 0; c < cluster.n_class; c++) cluster.classes[c].batch = batch[c];
    const tandem_status status =
        open_planner(&batches->planner, batches->options, &cluster, batches->with_norm, error);
    if (status != TANDEM_OK) return status;
    *problem = tandem_planner_problem(batches->planner);
    (*problem)->target_ns = batches->options->max_step_ns;
    (*problem)->without_certificate = batches->without_certificate;
    return TANDEM_OK;
}

tandem_batch_source cli_batches_source(cli_batches *batches)
{
    return (tandem_batch_source){batches, open_problem, close_problem};
}

const char *cli_batches_print(char *text, size_t size, const int64_t *batch, int n_class)
{
    size_t used = 0;
    text[0] = '\0';
    for (int c = 0; c < n_class && used < size; c++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", c ? " + " : "", (long long)batch[c]);
    return text;
}

/* --- The loss scale --- */

double cli_loss_scale_first(const cli_options *options, const tandem_cluster *cluster)
{
    if (options->loss_scale != 0) return options->loss_scale;
    return cli_may_have_gradients_in_f16(cluster) ? -1 : 0;
}

/* --- The best plan ---------------------------------------------------------------------------- */

/* What is shown of a plan beside its figures: it is the planner's last run. */
static tandem_status look_at(cli_prospect *prospect, tandem_planner *planner, const tandem_plan *plan,
                             tandem_error *error)
{
    tandem_replayer *replayer = tandem_planner_problem(planner)->replayer;
    tandem_replay replay;
    tandem_replayer_set_plan(replayer, plan);
    const tandem_status status = tandem_replayer_run(replayer, &replay, 0, error);
    if (status != TANDEM_OK) return status;
    for (int c = 0; c < prospect->cluster.n_class; c++)
        if (plan->peak_bytes[c] > prospect->peak_bytes) prospect->peak_bytes = plan->peak_bytes[c];
    cli_basis_take(&prospect->basis, replayer);
    prospect->has_f16 = cli_gradients_in_f16(plan, tandem_planner_graph(planner, 0), NULL, 0) > 0;
    return TANDEM_OK;
}

static tandem_status split_and_allocate(cli_prospect *prospect, const cli_options *options,
                                        const tandem_policy *policy, int with_norm, tandem_error *error)
{
    cli_batches batches = {
        .options = options, .cluster = &prospect->cluster, .without_certificate = 1, .with_norm = with_norm};
    const tandem_batch_source source = cli_batches_source(&batches);
    tandem_batch_choice choice = {.n_split = 0};
    tandem_planner *planner = NULL;
    const char *method = options->method ? options->method : tandem_sensitivity_get(0)->name;
    tandem_status status =
        tandem_batch_choose(&choice, &prospect->cluster, options->global_batch, &source, policy, method,
                            options->max_step_ns, fmax(options->slowdown, 0), error);
    if (status != TANDEM_OK) return status;
    prospect->allocation = choice.both.allocation;
    for (int c = 0; c < prospect->cluster.n_class; c++)
        prospect->cluster.classes[c].batch = choice.both.batch[c];
    status = open_planner(&planner, options, &prospect->cluster, with_norm, error);
    if (status == TANDEM_OK) status = look_at(prospect, planner, choice.both.plan, error);
    tandem_planner_close(planner);
    tandem_batch_choice_free(&choice);
    return status;
}

static tandem_status allocate(cli_prospect *prospect, const cli_options *options, const tandem_policy *policy,
                              int with_norm, tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_plan *plan = NULL;
    tandem_status status = open_planner(&planner, options, &prospect->cluster, with_norm, error);
    if (status != TANDEM_OK) return status;
    tandem_planner_problem(planner)->without_certificate = 1; /* compared with others, not kept */
    status = tandem_planner_allocate(&plan, &prospect->allocation, planner, policy->name, error);
    if (status == TANDEM_OK) status = look_at(prospect, planner, plan, error);
    tandem_plan_close(plan);
    tandem_planner_close(planner);
    return status;
}

static tandem_status plan_it(cli_prospect *prospect, const cli_options *options, const tandem_policy *policy,
                             double loss_scale, tandem_error *error)
{
    prospect->loss_scale = loss_scale;
    prospect->peak_bytes = 0;
    return options->batch_free ? split_and_allocate(prospect, options, policy, loss_scale != 0, error)
                               : allocate(prospect, options, policy, loss_scale != 0, error);
}

/* With the loss scale that the plan found needs: it costs time, so that it is in the step while a plan is
 * looked for. */
static tandem_status plan_scaled(cli_prospect *prospect, const cli_options *options,
                                 const tandem_policy *policy, tandem_error *error)
{
    const double first = cli_loss_scale_first(options, &prospect->cluster);
    tandem_status status = plan_it(prospect, options, policy, first, error);
    if (status == TANDEM_MISSING && options->loss_scale == 0 && first != 0)
        return plan_it(prospect, options, policy, 0, error);
    if (status != TANDEM_OK || options->loss_scale != 0 || first == 0 || prospect->has_f16) return status;
    status = plan_it(prospect, options, policy, 0, error);
    return status == TANDEM_OK && prospect->has_f16 ? plan_it(prospect, options, policy, first, error)
                                                    : status;
}

tandem_status cli_prospect_find(cli_prospect *out, const cli_options *options, const tandem_cluster *cluster,
                                const tandem_policy *policy, tandem_error *error)
{
    cli_prospect prospect = {.cluster = *cluster};
    tandem_error why = {0};
    prospect.samples = options->batch_free ? options->global_batch
                                           : cli_cluster_samples(cluster) *
                                                 (options->step.n_micro > 1 ? options->step.n_micro : 1);
    (void)cli_prospect_name(prospect.name, sizeof prospect.name, cluster);
    const tandem_status status = plan_scaled(&prospect, options, policy, &why);
    if (status == TANDEM_OK)
        prospect.samples_per_s = (double)prospect.samples / ((double)prospect.allocation.step_ns * 1e-9);
    else if (status == TANDEM_MISSING || status == TANDEM_INFEASIBLE ||
             (status == TANDEM_USAGE && options->batch_free))
        prospect.lacks = why;
    else {
        *error = why;
        return status;
    }
    *out = prospect;
    return TANDEM_OK;
}

json_t *cli_loss_scale_json(double loss_scale)
{
    char text[TANDEM_LOSS_SCALE_TEXT];
    return loss_scale == 0 ? json_null() : json_string(tandem_loss_scale_print(text, loss_scale));
}

static json_t *devices_json(const cli_basis *basis)
{
    json_t *devices = json_array();
    for (int c = 0; c < basis->n_class; c++)
        json_array_append_new(
            devices, json_pack("{s:s,s:o}", "name", basis->device[c], "costs", cli_basis_json(basis, c)));
    return devices;
}

json_t *cli_prospect_json(const cli_prospect *prospect)
{
    char text[4096];
    tandem_cluster_print(text, sizeof text, &prospect->cluster);
    if (prospect->lacks.status != TANDEM_OK)
        return json_pack("{s:s,s:s,s:I,s:n,s:n,s:n,s:n,s:n,s:n}", "cluster", text, "lacks",
                         prospect->lacks.text, "samples", (json_int_t)prospect->samples, "samples_per_s",
                         "step_ns", "sensitivity", "peak_bytes", "loss_scale", "devices");
    return json_pack("{s:s,s:n,s:I,s:f,s:I,s:o,s:I,s:o,s:o}", "cluster", text, "lacks", "samples",
                     (json_int_t)prospect->samples, "samples_per_s", prospect->samples_per_s, "step_ns",
                     (json_int_t)prospect->allocation.step_ns, "sensitivity",
                     cli_number(prospect->allocation.sensitivity), "peak_bytes",
                     (json_int_t)prospect->peak_bytes, "loss_scale",
                     cli_loss_scale_json(prospect->loss_scale), "devices", devices_json(&prospect->basis));
}
