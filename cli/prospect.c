#include "cli/prospect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/prediction.h"

tandem_cluster cli_cluster_without(const tandem_cluster *cluster, int c)
{
    tandem_cluster rest = *cluster;
    rest.n_class--;
    memmove(&rest.member[c], &rest.member[c + 1], (size_t)(rest.n_class - c) * sizeof rest.member[c]);
    return rest;
}

int64_t cli_cluster_samples(const tandem_cluster *cluster)
{
    int64_t samples = 0;
    for (int c = 0; c < cluster->n_class; c++)
        samples += cluster->member[c].n_rank * cluster->member[c].batch;
    return samples;
}

/* Devices and ranks alone: limits and batches are the same in every row of a table. */
const char *cli_prospect_name(char *name, size_t size, const tandem_cluster *cluster)
{
    tandem_cluster bare = *cluster;
    bare.link_bytes_per_s = bare.node.bytes_per_s = 0;
    for (int c = 0; c < bare.n_class; c++)
        bare.member[c].batch = 0, bare.member[c].memory_bytes = 0, bare.member[c].link.bytes_per_s = 0;
    tandem_cluster_print(name, size, &bare);
    return name;
}

/* Of the model of the options, on a cluster whose classes have their batch. */
static tandem_status open_planner(tandem_planner **planner, const cli_options *options,
                                  const tandem_cluster *cluster, tandem_error *error)
{
    char text[4096];
    tandem_cluster_print(text, sizeof text, cluster);
    tandem_request request = cli_request(options);
    request.model = options->model;
    request.cluster = text;
    request.over_network = cluster->over_network;
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
    for (int c = 0; c < cluster.n_class; c++) cluster.member[c].batch = batch[c];
    const tandem_status status = open_planner(&batches->planner, batches->options, &cluster, error);
    if (status != TANDEM_OK) return status;
    *problem = tandem_planner_problem(batches->planner);
    (*problem)->target_ns = batches->options->target_ns;
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

/* --- The best plan ---------------------------------------------------------------------------- */

static void take_peaks(cli_prospect *prospect, const tandem_plan *plan)
{
    for (int c = 0; c < prospect->cluster.n_class; c++)
        if (plan->peak_bytes[c] > prospect->peak_bytes) prospect->peak_bytes = plan->peak_bytes[c];
}

static tandem_status split_and_allocate(cli_prospect *prospect, const cli_options *options,
                                        const tandem_policy *policy, tandem_error *error)
{
    cli_batches batches = {.options = options, .cluster = &prospect->cluster, .without_certificate = 1};
    const tandem_batch_source source = cli_batches_source(&batches);
    tandem_batch_choice choice = {.n_split = 0};
    const char *method = options->method ? options->method : tandem_sensitivity_get(0)->name;
    const tandem_status status =
        tandem_batch_choose(&choice, &prospect->cluster, options->global_batch, &source, policy, method,
                            options->target_ns, fmax(options->slowdown, 0), error);
    if (status != TANDEM_OK) return status;
    prospect->allocation = choice.both.allocation;
    for (int c = 0; c < prospect->cluster.n_class; c++)
        prospect->cluster.member[c].batch = choice.both.batch[c];
    take_peaks(prospect, choice.both.plan);
    tandem_batch_choice_free(&choice);
    return TANDEM_OK;
}

static tandem_status allocate(cli_prospect *prospect, const cli_options *options, const tandem_policy *policy,
                              tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_plan *plan = NULL;
    tandem_status status = open_planner(&planner, options, &prospect->cluster, error);
    if (status != TANDEM_OK) return status;
    tandem_planner_problem(planner)->without_certificate = 1; /* compared with others, not kept */
    status = tandem_planner_allocate(&plan, &prospect->allocation, planner, policy->name, error);
    if (status == TANDEM_OK) take_peaks(prospect, plan);
    tandem_plan_close(plan);
    tandem_planner_close(planner);
    return status;
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
    const tandem_status status = options->batch_free ? split_and_allocate(&prospect, options, policy, &why)
                                                     : allocate(&prospect, options, policy, &why);
    if (status == TANDEM_OK)
        prospect.samples_per_s = (double)prospect.samples / ((double)prospect.allocation.step_ns * 1e-9);
    else if (status == TANDEM_MISSING || status == TANDEM_NO_FIT || (status == TANDEM_USAGE && options->batch_free))
        prospect.lacks = why;
    else {
        *error = why;
        return status;
    }
    *out = prospect;
    return TANDEM_OK;
}

json_t *cli_prospect_json(const cli_prospect *prospect)
{
    char text[4096];
    tandem_cluster_print(text, sizeof text, &prospect->cluster);
    if (prospect->lacks.status != TANDEM_OK)
        return json_pack("{s:s,s:s,s:I,s:n,s:n,s:n,s:n}", "cluster", text, "lacks", prospect->lacks.text, "samples",
                         (json_int_t)prospect->samples, "samples_per_s", "step_ns", "sensitivity", "peak_bytes");
    return json_pack("{s:s,s:n,s:I,s:f,s:I,s:o,s:I}", "cluster", text, "lacks", "samples",
                     (json_int_t)prospect->samples, "samples_per_s", prospect->samples_per_s, "step_ns",
                     (json_int_t)prospect->allocation.step_ns, "sensitivity",
                     cli_number(prospect->allocation.sensitivity), "peak_bytes", (json_int_t)prospect->peak_bytes);
}
