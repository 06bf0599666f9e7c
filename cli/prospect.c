#include "cli/prospect.h"

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
static void print_name(char *name, size_t size, const tandem_cluster *cluster)
{
    tandem_cluster bare = *cluster;
    bare.link_bytes_per_s = bare.node.bytes_per_s = 0;
    for (int c = 0; c < bare.n_class; c++)
        bare.member[c].batch = 0, bare.member[c].memory_bytes = 0, bare.member[c].link.bytes_per_s = 0;
    tandem_cluster_print(name, size, &bare);
}

static tandem_status allocate(cli_prospect *prospect, const cli_options *options, const tandem_policy *policy,
                              tandem_error *error)
{
    char text[4096];
    tandem_planner *planner = NULL;
    tandem_plan *plan = NULL;
    tandem_cluster_print(text, sizeof text, &prospect->cluster);
    tandem_request request = cli_request(options);
    request.model = options->model;
    request.cluster = text;
    tandem_status status = tandem_planner_open(&planner, &request, error);
    if (status != TANDEM_OK) return status;
    tandem_planner_problem(planner)->without_certificate = 1; /* compared with others, not kept */
    tandem_planner_problem(planner)->slowdown = options->slowdown > 0 ? options->slowdown : 0;
    status = tandem_planner_allocate(&plan, &prospect->allocation, planner, policy->name, error);
    for (int c = 0; c < prospect->cluster.n_class && status == TANDEM_OK; c++)
        if (plan->peak_bytes[c] > prospect->peak_bytes) prospect->peak_bytes = plan->peak_bytes[c];
    tandem_plan_close(plan);
    tandem_planner_close(planner);
    return status;
}

tandem_status cli_prospect_find(cli_prospect *out, const cli_options *options, const tandem_cluster *cluster,
                                const tandem_policy *policy, tandem_error *error)
{
    cli_prospect prospect = {.cluster = *cluster};
    tandem_error why = {0};
    prospect.samples = cli_cluster_samples(cluster) * (options->step.n_micro > 1 ? options->step.n_micro : 1);
    print_name(prospect.name, sizeof prospect.name, cluster);
    const tandem_status status = allocate(&prospect, options, policy, &why);
    if (status == TANDEM_OK)
        prospect.samples_per_s = (double)prospect.samples / ((double)prospect.allocation.step_ns * 1e-9);
    else if (status == TANDEM_MISSING || status == TANDEM_NO_FIT)
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
