/* allocate_json.c: prints a plan and its baselines as JSON. */
#include <math.h>

#include "cli/command/allocate.h"
#include "cli/ratios.h"
#include "cli/whole_plan.h"

static json_t *allocated_devices_json(const allocate_context *a)
{
    json_t *devices = json_array();
    for (int c = 0; c < a->answer.plan->cluster.n_class; c++) {
        json_t *precisions = json_array();
        for (int k = 0; k < TANDEM_N_PRECISION; k++) {
            const precision_share part = allocate_precision_share(a, c, (tandem_precision)k);
            if (part.n_op > 0)
                json_array_append_new(precisions,
                                      json_pack("{s:s,s:i,s:f}", "name",
                                                tandem_precision_get((tandem_precision)k)->name, "operators",
                                                part.n_op, "flops_share", part.flops_share));
        }
        const int lowered =
            !tandem_plan_is_uniform(a->answer.plan, a->problem->graph, c, a->problem->base_precision);
        json_array_append_new(
            devices,
            json_pack("{s:s,s:b,s:b,s:o,s:o,s:o}", "name", a->answer.plan->cluster.classes[c].device.name,
                      "lowered", lowered, "keeps_base", (int)(a->answer.allocation.keeps_base >> c & 1),
                      "peak_bytes", cli_peak_json(a->answer.allocation.peak_bytes[c]), "precisions",
                      precisions, "costs", cli_cost_sources_json(&a->answer.sources, c)));
    }
    return devices;
}

static json_t *baselines_json(const allocate_context *a)
{
    static const char *const relations[] = {NULL, "base", "faster", "slower"};
    json_t *baselines = json_array();
    for (int k = 0; k < a->n_baseline; k++) {
        const tandem_baseline *n = &a->baselines[k];
        json_t *baseline =
            json_pack("{s:s,s:s,s:s?,s:I,s:o,s:b}", "name", n->name, "precision",
                      tandem_precision_get(n->precision)->name, "relation", relations[n->relation], "step_ns",
                      (json_int_t)n->step_ns, "sensitivity_bound",
                      cli_json_number(allocate_value(a, n->sensitivity_bound)), "fits", n->fits);
        goodput_add_json(baseline, &a->baseline_goodput[k]);
        json_array_append_new(baselines, baseline);
    }
    return baselines;
}

json_t *allocate_kept_json(const tandem_plan *plan, unsigned keeps_base)
{
    json_t *kept = json_array();
    for (int c = 0; c < plan->cluster.n_class; c++)
        if (keeps_base >> c & 1)
            json_array_append_new(kept, json_string(plan->cluster.classes[c].device.name));
    return kept;
}

json_t *allocate_result_json(const allocate_context *a)
{
    char recompute[TANDEM_RECOMPUTE_TEXT];
    json_t *result = cli_json_new("allocate"), *peaks = json_array();
    for (int c = 0; c < a->answer.plan->cluster.n_class; c++)
        json_array_append_new(peaks, cli_peak_json(a->answer.allocation.peak_bytes[c]));
    json_object_set_new(result, "fits", json_true());
    json_object_set_new(result, "plan", json_string(a->answer.plan->name));
    json_object_set_new(result, "policy", json_string(a->answer.plan->policy));
    json_object_set_new(result, "model", json_string(a->answer.plan->model));
    json_object_set_new(result, "method", json_string(a->answer.plan->method));
    json_object_set_new(result, "objective", json_string(tandem_objective_name(a->answer.goal.objective)));
    json_object_set_new(result, "max_sensitivity",
                        cli_json_number(allocate_value(a, a->answer.goal.max_sensitivity)));
    json_object_set_new(result, "slowdown",
                        cli_json_number(a->problem->target_ns ? NAN : a->problem->slowdown));
    json_object_set_new(result, "micro_steps", json_integer(a->answer.plan->step.n_micro));
    json_object_set_new(result, "wire", json_string(tandem_dtype_name(a->answer.plan->cluster.wire)));
    json_object_set_new(
        result, "recompute",
        json_string(tandem_recompute_print(recompute, a->answer.plan->step.n_recompute_segment)));
    json_object_set_new(result, "loss_scale", cli_loss_scale_json(a->answer.plan->loss_scale));
    json_object_set_new(result, "step_ns", json_integer(a->answer.allocation.step_ns));
    json_object_set_new(
        result, "profile_interval",
        cli_json_number(tandem_profile_interval(a->options->db, tandem_planner_cluster(a->planner))));
    json_object_set_new(result, "samples_per_s", json_real(a->answer.goodput.samples_per_s));
    json_object_set_new(result, "target_ns", json_integer(a->answer.allocation.target_ns));
    json_object_set_new(result, "training_ns", cli_json_number(a->answer.allocation.training_ns));
    json_object_set_new(result, "training_bound_ns", cli_json_number(a->answer.allocation.training_bound_ns));
    json_object_set_new(result, "training_from_ns",
                        isfinite(a->answer.allocation.training_ns)
                            ? json_integer(a->answer.allocation.training_from_ns)
                            : json_null());
    json_object_set_new(result, "training_keeps_base",
                        allocate_kept_json(a->answer.plan, isfinite(a->answer.allocation.training_ns)
                                                               ? a->answer.allocation.training_keeps_base
                                                               : 0));
    json_object_set_new(result, "indistinguishable_ns",
                        a->answer.allocation.indistinguishable_ns
                            ? json_integer(a->answer.allocation.indistinguishable_ns)
                            : json_null());
    json_object_set_new(result, "difference", cli_json_number(a->answer.allocation.difference));
    json_object_set_new(result, "difference_low", cli_json_number(a->answer.allocation.difference_low));
    json_object_set_new(result, "difference_high", cli_json_number(a->answer.allocation.difference_high));
    json_object_set_new(result, "fastest_ns", json_integer(a->answer.allocation.fastest_ns));
    goodput_add_json(result, &a->answer.goodput);
    json_object_set_new(result, "as_a_whole", a->has_whole ? whole_plan_json(&a->whole) : json_null());
    json_object_set_new(result, "sensitivity_bound",
                        cli_json_number(allocate_value(a, a->answer.allocation.sensitivity_bound)));
    json_object_set_new(result, "fastest_sensitivity_bound",
                        cli_json_number(allocate_value(a, a->answer.allocation.fastest_sensitivity_bound)));
    json_object_set_new(result, "lower_bound",
                        cli_json_number(allocate_value(a, a->answer.allocation.certificate.lower_bound)));
    json_object_set_new(result, "gap", cli_json_number(a->answer.allocation.certificate.gap));
    json_object_set_new(result, "proof", json_string(a->answer.allocation.certificate.proof));
    json_object_set_new(result, "replays", json_integer(a->answer.allocation.replays));
    json_object_set_new(result, "seconds", json_real(a->seconds));
    json_object_set_new(result, "peak_bytes", peaks);
    json_object_set_new(result, "ratios", ratios_json(&a->ratios));
    json_object_set_new(result, "baselines", baselines_json(a));
    json_object_set_new(result, "devices", allocated_devices_json(a));
    json_object_set_new(result, "fewer_devices",
                        a->smaller_cluster.answer.plan ? cli_candidate_json(&a->smaller_cluster)
                                                       : json_null());
    if (a->explained >= 0) json_object_set_new(result, "explained", allocate_explain_json(a));
    if (a->explains_all) json_object_set_new(result, "explained_all", allocate_explain_all_json(a));
    return result;
}
