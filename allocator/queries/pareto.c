/* pareto.c: the plans of one policy from the fastest step to that of base, and the uniform ones.
 *
 * Targets are closer at the fast end, where sensitivity falls steeply: target k of n is
 * fastest + (base − fastest)·(k / (n − 1))². */
#include "allocator/policies.h"
#include "allocator/bound/effort.h"
#include "allocator/problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_point_no_worse(const tandem_pareto_point *a, const tandem_pareto_point *b)
{
    return a->step_ns <= b->step_ns && a->sensitivity_bound <= b->sensitivity_bound &&
           a->peak_bytes <= b->peak_bytes;
}

/* Inserts a point, whose plan it takes, unless it is dominated, and removes those that it dominates. */
static void insert_pareto_point(tandem_pareto_front *front, const tandem_pareto_point *added)
{
    int kept = 0;
    for (int k = 0; k < front->n_point; k++)
        if (is_point_no_worse(&front->point[k], added)) {
            tandem_plan_close(added->plan);
            return;
        }
    for (int k = 0; k < front->n_point; k++)
        if (is_point_no_worse(added, &front->point[k]))
            tandem_plan_close(front->point[k].plan);
        else
            front->point[kept++] = front->point[k];
    int at = kept;
    for (; at > 0 && front->point[at - 1].step_ns > added->step_ns; at--)
        front->point[at] = front->point[at - 1];
    front->point[at] = *added;
    front->n_point = kept + 1;
}

static void insert_plan(tandem_pareto_front *front, const tandem_allocation *a, tandem_plan *plan)
{
    const tandem_pareto_point point = {.target_ns = a->target_ns,
                                       .step_ns = a->step_ns,
                                       .sensitivity_bound = a->sensitivity_bound,
                                       .lower_bound = a->certificate.lower_bound,
                                       .peak_bytes =
                                           tandem_max_peak_bytes(a->peak_bytes, plan->cluster.n_class),
                                       .plan = plan};
    insert_pareto_point(front, &point);
}

/* Adds the plan within target_ns (0 = the fastest) to the front; *base_ns: its base step. */
static tandem_status add_plan_point(tandem_pareto_front *front, const tandem_policy *policy,
                                    const tandem_allocation_problem *problem, int64_t target_ns, int n_target,
                                    int64_t *base_ns, tandem_error *error)
{
    tandem_allocation a;
    tandem_allocation_problem asked = *problem;
    tandem_plan *made = NULL;
    asked.target_ns = target_ns;
    asked.slowdown = 0;
    asked.work_limit = tandem_effort_limit(problem->work_limit) / n_target;
    const tandem_status status = tandem_allocate(&made, &a, policy, &asked, NULL, error);
    if (status != TANDEM_OK) return status;
    *base_ns = a.base_ns;
    front->replays += a.replays;
    insert_plan(front, &a, made);
    return TANDEM_OK;
}

/* Adds a uniform plan that is listed beside the front: a policy may have missed it. */
static tandem_status add_baseline_point(tandem_pareto_front *front, const tandem_baseline *baseline,
                                        const tandem_policy *policy, const tandem_allocation_problem *problem,
                                        const tandem_allocation *fastest, tandem_error *error)
{
    tandem_plan *plan = NULL;
    const int is_zero = baseline->sensitivity_bound == 0;
    tandem_allocation a = {.step_ns = baseline->step_ns,
                           .target_ns = baseline->step_ns,
                           .fastest_ns = fastest->fastest_ns,
                           .sensitivity_bound = baseline->sensitivity_bound,
                           .keeps_base = fastest->keeps_base & ~baseline->lowered,
                           .certificate = {.lower_bound = is_zero ? 0 : -1, .gap = is_zero ? 0 : NAN}};
    tandem_status status = tandem_allocation_open_plan(&plan, problem, baseline->name, error);
    if (status == TANDEM_OK)
        status = tandem_baseline_assign(plan, problem->graph, problem->base_precision, baseline, error);
    if (status != TANDEM_OK) {
        tandem_plan_close(plan);
        return status;
    }
    memcpy(a.peak_bytes, baseline->peak_bytes, sizeof a.peak_bytes);
    (void)snprintf(plan->policy, sizeof plan->policy, "%s", policy->name);
    (void)snprintf(a.certificate.proof, sizeof a.certificate.proof, "%s", is_zero ? "zero" : "");
    tandem_replayer_load(problem->replayer, &plan->assignment);
    tandem_allocation_fill_plan(plan, problem, &a);
    plan->objective = TANDEM_MINIMIZE_SENSITIVITY;
    insert_plan(front, &a, plan);
    return TANDEM_OK;
}

/* The baselines come last: a plan that a policy found, too, has its bound. */
static tandem_status find_pareto_points(tandem_pareto_front *front, const tandem_policy *policy,
                                        const tandem_allocation_problem *problem, int n_target,
                                        tandem_error *error)
{
    int64_t base_ns = 0;
    tandem_status status = add_plan_point(front, policy, problem, 0, n_target, &base_ns, error);
    if (status != TANDEM_OK) return status;
    const tandem_allocation fastest = {.fastest_ns = front->point[0].step_ns,
                                       .keeps_base = front->point[0].plan->keeps_base};
    const int64_t range_ns = base_ns - fastest.fastest_ns;
    /* the fastest plan says which classes are lowered */
    status = tandem_baselines_find(front->baseline, &front->n_baseline, problem, front->point[0].plan, error);
    front->replays += front->n_baseline;
    for (int k = 1; k < n_target && range_ns > 0 && status == TANDEM_OK; k++) {
        const double part = (double)k / (n_target - 1);
        const int64_t target_ns = fastest.fastest_ns + (int64_t)llround((double)range_ns * part * part);
        status = add_plan_point(front, policy, problem, target_ns, n_target, &base_ns, error);
    }
    for (int k = 0; k < front->n_baseline && status == TANDEM_OK; k++)
        if (front->baseline[k].fits)
            status = add_baseline_point(front, &front->baseline[k], policy, problem, &fastest, error);
    return status;
}

tandem_status tandem_pareto_front_open(tandem_pareto_front **out, const tandem_policy *policy,
                                       const tandem_allocation_problem *problem, int n_target,
                                       tandem_error *error)
{
    if (n_target < 2)
        return tandem_error_set(error, TANDEM_USAGE, "a Pareto front of %d plans: it needs 2 or more",
                                n_target);
    if (policy->ignores_target)
        return tandem_error_set(error, TANDEM_USAGE, "policy %s has no Pareto front: it has a single plan",
                                policy->name);
    tandem_pareto_front *front = calloc(1, sizeof *front);
    tandem_status status = TANDEM_OK;
    if (front) front->point = calloc((size_t)n_target + TANDEM_N_PRECISION + 1, sizeof *front->point);
    if (!front || !front->point) status = tandem_no_memory(error, "for a Pareto front of %d plans", n_target);
    tandem_known_fastest known = {.is_known = 0};
    tandem_allocation_problem asked = *problem;
    asked.known_fastest = &known;
    if (status == TANDEM_OK) status = find_pareto_points(front, policy, &asked, n_target, error);
    tandem_known_fastest_close(&known);
    if (status == TANDEM_OK)
        *out = front;
    else
        tandem_pareto_front_close(front);
    return status;
}

void tandem_pareto_front_close(tandem_pareto_front *front)
{
    if (!front) return;
    for (int k = 0; k < front->n_point; k++) tandem_plan_close(front->point[k].plan);
    free(front->point);
    free(front);
}
