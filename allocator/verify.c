/* verify.c: writes into a plan what is known about it, and checks these values by a replay. */
#include "allocator/bound/bound.h"
#include "allocator/policies.h"
#include "base/quantity.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* --- Writing -------------------------------------------------------------------------------------------- */

/* The problem's, or where it leaves that open a dynamic one for a plan that needs one. */
static void fill_loss_scale(tandem_plan *plan, const tandem_allocation_problem *problem)
{
    const int by_need = tandem_replayer_of_norm(problem->replayer, 0) != NULL;
    const int has_norm = tandem_replayer_step(problem->replayer, 0)->options.with_norm;
    plan->loss_scale = problem->loss_scale;
    if (plan->loss_scale == 0 && (by_need || has_norm) && tandem_plan_needs_loss_scale(plan, problem->graph))
        plan->loss_scale = -1;
    if (by_need) plan->step.with_norm = plan->loss_scale != 0;
}

tandem_certificate tandem_certificate_without_empty(const tandem_certificate *certificate,
                                                    int64_t sensitivity)
{
    return certificate->lower_bound > 0 || sensitivity == 0
               ? *certificate
               : (tandem_certificate){.lower_bound = -1, .gap = NAN};
}

void tandem_allocation_fill_plan(tandem_plan *plan, const tandem_allocation_problem *problem,
                                 const tandem_allocation *allocation)
{
    fill_loss_scale(plan, problem);
    plan->base_precision = problem->base_precision;
    plan->keeps_base = allocation->keeps_base;
    plan->bucket_bytes = tandem_replayer_step(problem->replayer, 0)->bucket_bytes;
    const int is_of_slowdown =
        !problem->target_ns &&
        allocation->target_ns == tandem_allocation_target_ns(problem, allocation->fastest_ns);
    plan->slowdown = is_of_slowdown ? problem->slowdown : NAN;
    plan->target_ns = allocation->target_ns;
    plan->fastest_ns = allocation->fastest_ns;
    plan->step_ns = allocation->step_ns;
    plan->sensitivity_bound = tandem_sensitivity_value(problem, allocation->sensitivity_bound);
    for (int c = 0; c < plan->cluster.n_class; c++) plan->peak_bytes[c] = allocation->peak_bytes[c];
    const tandem_certificate certificate =
        tandem_certificate_without_empty(&allocation->certificate, allocation->sensitivity_bound);
    plan->lower_bound = tandem_sensitivity_value(problem, certificate.lower_bound);
    plan->gap = certificate.gap;
    (void)snprintf(plan->proof, sizeof plan->proof, "%s", certificate.proof);
    plan->scale_rule = problem->loss_scale != 0 ? TANDEM_SCALE_OF_ALL : TANDEM_SCALE_AS_NEEDED;
}

/* --- Values --------------------------------------------------------------------------------------------- */

/* Two proofs of one problem may stop at different bounds, each within 1e-3 of what it could reach
 * (certify.c). */
static const double bound_tolerance = 2e-3;

static tandem_status report_wrong_integer(const char *field, int64_t says, int64_t is, const char *how,
                                          tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED, "%s is %" PRId64 " in the plan, and %" PRId64 " %s",
                            field, says, is, how);
}

static tandem_status report_wrong_real(const char *field, double says, double is, const char *how,
                                       tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED, "%s is %.9g in the plan, and %.9g %s", field, says, is,
                            how);
}

/* Equal up to the rounding of sums. */
static int are_nearly_equal(double a, double b)
{
    return a == b || fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* A plan claims nothing by values that it lacks. */
static tandem_status check_replayed_metrics(const tandem_plan *plan, const tandem_allocation *found,
                                            double sensitivity, tandem_error *error)
{
    static const char replayed[] = "as replayed here";
    if (plan->step_ns && plan->step_ns != found->step_ns)
        return report_wrong_integer("step_ns", plan->step_ns, found->step_ns, replayed, error);
    for (int c = 0; c < plan->cluster.n_class; c++) {
        char name[TANDEM_DEVICE_NAME + 32];
        (void)snprintf(name, sizeof name, "peak_bytes of %s", plan->cluster.classes[c].device.name);
        if (plan->peak_bytes[c] && plan->peak_bytes[c] != found->peak_bytes[c])
            return report_wrong_integer(name, (int64_t)plan->peak_bytes[c], (int64_t)found->peak_bytes[c],
                                        replayed, error);
    }
    if (!isnan(plan->sensitivity_bound) && !are_nearly_equal(plan->sensitivity_bound, sensitivity))
        return report_wrong_real("sensitivity_bound", plan->sensitivity_bound, sensitivity,
                                 "by the statistics here", error);
    return TANDEM_OK;
}

/* Values of the plan that depend on each other must agree. */
static tandem_status check_plan_consistency(const tandem_plan *plan, const tandem_graph *graph,
                                            tandem_error *error)
{
    for (int c = 0; c < plan->cluster.n_class; c++)
        if (plan->keeps_base >> c & 1 && !tandem_plan_is_uniform(plan, graph, c, plan->base_precision))
            return tandem_error_set(
                error, TANDEM_MALFORMED, "class %d (%s) is held in the plan, but not all in %s", c + 1,
                plan->cluster.classes[c].device.name, tandem_precision_get(plan->base_precision)->name);
    if (!isnan(plan->slowdown) && plan->fastest_ns && plan->target_ns) {
        const int64_t target_ns =
            plan->fastest_ns + (int64_t)fmin((double)plan->fastest_ns * plan->slowdown, 0x1p61);
        if (plan->target_ns != target_ns)
            return report_wrong_integer("target_ns", plan->target_ns, target_ns,
                                        "by its slowdown and fastest_ns", error);
    }
    if (isnan(plan->gap) || isnan(plan->lower_bound) || isnan(plan->sensitivity_bound)) return TANDEM_OK;
    const double gap = plan->sensitivity_bound > 0
                           ? (plan->sensitivity_bound - plan->lower_bound) / plan->sensitivity_bound
                           : 0;
    if (plan->lower_bound > plan->sensitivity_bound * (1 + 1e-9))
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "lower_bound is %.9g in the plan, over its sensitivity_bound of %.9g",
                                plan->lower_bound, plan->sensitivity_bound);
    return fabs(plan->gap - gap) <= 1e-9
               ? TANDEM_OK
               : report_wrong_real("gap", plan->gap, gap, "by its sensitivity_bound and lower_bound", error);
}

/* --- Limits --------------------------------------------------------------------------------------------- */

static tandem_status check_plan_limits(const tandem_plan *plan, const tandem_allocation_problem *problem,
                                       const tandem_allocation *found, tandem_error *error)
{
    for (int c = 0; c < plan->cluster.n_class; c++) {
        const uint64_t limit_bytes = tandem_allocation_limit_bytes(problem, c);
        if (limit_bytes && found->peak_bytes[c] > limit_bytes)
            return tandem_error_set(
                error, TANDEM_INFEASIBLE,
                "the plan takes %s (%" PRIu64 " B) a rank on %s, its limit is %s (%" PRIu64 " B)",
                tandem_quantity_bytes(found->peak_bytes[c]).text, found->peak_bytes[c],
                plan->cluster.classes[c].device.name, tandem_quantity_bytes(limit_bytes).text, limit_bytes);
    }
    if (plan->target_ns && found->step_ns > plan->target_ns)
        return tandem_error_set(error, TANDEM_INFEASIBLE,
                                "the plan's step takes %s (%" PRId64 " ns), its target is %s (%" PRId64
                                " ns)",
                                tandem_quantity_ns(found->step_ns).text, found->step_ns,
                                tandem_quantity_ns(plan->target_ns).text, plan->target_ns);
    return TANDEM_OK;
}

/* --- The bound ------------------------------------------------------------------------------------------ */

/* Proves a bound for the plan's target. A bound above the claimed one contradicts nothing. */
static tandem_status check_plan_bound(tandem_certificate *certificate, const tandem_plan *plan,
                                      const tandem_allocation_problem *problem, int64_t sensitivity,
                                      tandem_error *error)
{
    if (isnan(plan->lower_bound) || !plan->target_ns) return TANDEM_OK;
    tandem_allocation_problem asked = *problem;
    asked.base_precision = plan->base_precision;
    const tandem_status status = tandem_certify_claim(
        certificate, &asked, plan->target_ns, plan->keeps_base, sensitivity,
        tandem_sensitivity_units(problem, plan->lower_bound / (1 + bound_tolerance)), error);
    const double proven = tandem_sensitivity_value(problem, certificate->lower_bound);
    if (status != TANDEM_OK || plan->lower_bound <= proven * (1 + bound_tolerance)) return status;
    return report_wrong_real("lower_bound", plan->lower_bound, proven, "as proven here", error);
}

/* --- Public --------------------------------------------------------------------------------------------- */

/* Whether the plan is for this model and cluster, and every device has its precisions. */
static tandem_status check_plan_form(const tandem_plan *plan, const tandem_allocation_problem *problem,
                                     tandem_error *error)
{
    const tandem_cluster *cluster = tandem_replayer_cluster(problem->replayer);
    const tandem_status status = tandem_plan_check(plan, problem->graph, error);
    if (status != TANDEM_OK) return status;
    if (plan->cluster.n_class != cluster->n_class)
        return tandem_error_set(error, TANDEM_WRONG_MODEL, "the plan is for %d classes, the cluster has %d",
                                plan->cluster.n_class, cluster->n_class);
    for (int c = 0; c < cluster->n_class; c++)
        for (int i = 0; i < plan->assignment.n_op; i++) {
            const unsigned precisions = tandem_op_row_get(problem->graph->op[i].kind)->precisions;
            const char *name = tandem_precision_get(plan->assignment.precision[c][i])->name;
            if (precisions && !(precisions & cluster->classes[c].device.precisions &
                                1u << plan->assignment.precision[c][i]))
                return tandem_error_set(error, TANDEM_MALFORMED, "'%s' cannot be %s on %s",
                                        problem->graph->op[i].name, name, cluster->classes[c].device.name);
        }
    return TANDEM_OK;
}

tandem_status tandem_plan_verify(tandem_allocation *allocation, const tandem_plan *plan,
                                 const tandem_allocation_problem *problem, tandem_error *error)
{
    tandem_allocation found = {.target_ns = plan->target_ns,
                               .fastest_ns = plan->fastest_ns,
                               .keeps_base = plan->keeps_base,
                               .replays = 1,
                               .certificate = {.lower_bound = -1, .gap = NAN}};
    tandem_replay replay;
    tandem_status status = check_plan_form(plan, problem, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_load(problem->replayer, &plan->assignment);
    status = tandem_replayer_run(problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    if (status != TANDEM_OK) return status;
    found.step_ns = replay.step_ns;
    found.sensitivity_bound = tandem_allocation_sensitivity(problem);
    for (int c = 0; c < replay.n_class; c++) found.peak_bytes[c] = replay.classes[c].peak_bytes;
    status = check_plan_consistency(plan, problem->graph, error);
    if (status == TANDEM_OK)
        status = check_replayed_metrics(plan, &found,
                                        tandem_sensitivity_value(problem, found.sensitivity_bound), error);
    if (status == TANDEM_OK) status = check_plan_limits(plan, problem, &found, error);
    if (status == TANDEM_OK)
        status = check_plan_bound(&found.certificate, plan, problem, found.sensitivity_bound, error);
    if (status == TANDEM_OK) *allocation = found;
    return status;
}
