/* allocate_verify.c: `tandem allocate --verify`: re-checks a plan's file. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/allocate.h"

/* Other options say how to allocate, and here is nothing to allocate. */
static const int allowed[] = {
    OPTION_VERIFY,         OPTION_MEMORY, OPTION_BUCKET,  OPTION_COLLECTIVE,       OPTION_WIRE,
    OPTION_METHOD,         OPTION_DB,     OPTION_PREDICT, OPTION_FROM_DESCRIPTION, OPTION_KERNELS,
    OPTION_WITHOUT_UPDATE, OPTION_JSON,   OPTION_END};

typedef struct verify_context {
    cli_options options; /* with the plan's own values */
    tandem_workload workload;
    tandem_planner *planner;
    tandem_allocation found;
    tandem_goodput goodput;
} verify_context;

/* The bound was proven among plans with the loss scales that the file names. */
static tandem_status open_verify_planner(verify_context *v, tandem_error *error)
{
    const tandem_plan *plan = v->workload.plan;
    tandem_request request = cli_planner_request(&v->options);
    request.step = plan->step;
    request.step.with_norm = 0;
    request.loss_scale =
        plan->scale_rule == TANDEM_SCALE_OF_ALL || !tandem_plan_needs_loss_scale(plan, v->workload.graph[0])
            ? v->workload.loss_scale
            : 0;
    return tandem_planner_open_for(&v->planner, &request, &v->workload.cluster,
                                   (const tandem_graph *const *)v->workload.graph, error);
}

static tandem_status verify_plan_file(verify_context *v, tandem_error *error)
{
    tandem_status status = cli_workload_open(&v->workload, &v->options, error);
    const tandem_plan *plan = v->workload.plan;
    if (status != TANDEM_OK) return status;
    assert(plan);
    v->options.base_precision = tandem_precision_get(plan->base_precision)->name;
    if (!v->options.bucket_bytes) v->options.bucket_bytes = plan->bucket_bytes;
    if (!v->options.method && plan->method[0]) v->options.method = plan->method;
    status = open_verify_planner(v, error);
    if (status == TANDEM_OK) status = tandem_planner_goodput(&v->goodput, v->planner, plan, error);
    return status == TANDEM_OK
               ? tandem_plan_verify(&v->found, plan, tandem_planner_problem(v->planner), error)
               : status;
}

static double verified_value(const verify_context *v, int64_t sensitivity)
{
    return tandem_sensitivity_value(tandem_planner_problem(v->planner), sensitivity);
}

static void print_verify_text(const verify_context *v, const char *path)
{
    char pinned[256];
    const tandem_plan *plan = v->workload.plan;
    assert(plan);
    answer_line("verified", "%s: %s by policy %s", path, plan->model,
                plan->policy[0] ? plan->policy : "none");
    if (plan->target_ns)
        answer_line("step", "%s, target %s", tandem_quantity_ns(v->found.step_ns).text,
                    tandem_quantity_ns(plan->target_ns).text);
    else
        answer_line("step", "%s", tandem_quantity_ns(v->found.step_ns).text);
    const char *method = tandem_planner_method(v->planner);
    answer_line("sum", "%s (%s)",
                goodput_sum(&v->goodput, method, verified_value(v, v->found.sensitivity_bound)).text,
                cli_method_text(method));
    if (plan->has_unproven_bound)
        answer_line("lower bound",
                    "unproven: the file is older than the loss scale in the step of each plan");
    else if (v->found.certificate.lower_bound > 0)
        answer_line(
            "lower bound", "sum %s%s, within that step and memory (proof: %s)",
            goodput_sum(&v->goodput, method, verified_value(v, v->found.certificate.lower_bound)).text,
            allocate_print_pinned(pinned, sizeof pinned, plan, plan->keeps_base), v->found.certificate.proof);
    for (int c = 0; c < plan->cluster.n_class; c++) {
        const uint64_t limit_bytes = tandem_cluster_memory_limit(&v->workload.cluster, c);
        answer_line("memory", "%s on %s%s%s", CLI_PEAK_TEXT(v->found.peak_bytes[c]),
                    plan->cluster.classes[c].device.name, limit_bytes ? ", limit " : "",
                    limit_bytes ? tandem_quantity_bytes(limit_bytes).text : "");
    }
}

static json_t *verify_json(const verify_context *v, const tandem_error *error)
{
    json_t *result = cli_json_new("allocate"), *peaks = json_array();
    const tandem_plan *plan = v->workload.plan;
    json_object_set_new(result, "verified", json_boolean(error->status == TANDEM_OK));
    json_object_set_new(result, "why", error->status == TANDEM_OK ? json_null() : json_string(error->text));
    if (error->status == TANDEM_OK) {
        for (int c = 0; c < v->workload.cluster.n_class; c++)
            json_array_append_new(peaks, cli_peak_json(v->found.peak_bytes[c]));
        assert(plan);
        json_object_set_new(result, "unproven_bound", json_boolean(plan->has_unproven_bound));
        json_object_set_new(result, "step_ns", json_integer(v->found.step_ns));
        json_object_set_new(result, "sensitivity_bound",
                            cli_json_number(verified_value(v, v->found.sensitivity_bound)));
        json_object_set_new(result, "lower_bound",
                            cli_json_number(verified_value(v, v->found.certificate.lower_bound)));
        json_object_set_new(result, "gap", cli_json_number(v->found.certificate.gap));
        json_object_set_new(result, "peak_bytes", json_incref(peaks));
    }
    json_decref(peaks);
    return result;
}

int allocate_verify(const cli_options *options)
{
    const char *other = cli_option_not_allowed(options, allowed);
    if (other)
        return cli_fail_with(TANDEM_USAGE,
                             "--verify checks a plan's file as it is and does not read --%s: leave it out",
                             other);
    tandem_error error = {0};
    verify_context v = {.options = *options};
    v.options.plan = options->verify;
    int code = 0;
    const tandem_status status = verify_plan_file(&v, &error);
    /* JSON also reports a plan that fails the check, if it could be checked at all */
    if (options->json &&
        (status == TANDEM_OK || status == TANDEM_INFEASIBLE || (status == TANDEM_MALFORMED && v.planner)))
        code = cli_print_json(verify_json(&v, &error));
    else if (status == TANDEM_OK)
        print_verify_text(&v, options->verify);
    if (status != TANDEM_OK) code = cli_fail(&error);
    tandem_planner_close(v.planner);
    tandem_workload_close(&v.workload);
    return code;
}
