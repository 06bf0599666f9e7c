/* exact.c: the plan with the least sensitivity, with a proof, or the best found by the time limit and a
 * bound.
 *
 * 1. Target and held classes as for every policy (target.h). For each other class the least sensitivity that
 *    the relaxation of its limits allows (relaxation.h): their weighted sum bounds every plan.
 * 2. A plan: each class from the plan that reached its bound, or from its fastest where a replay finds that
 *    too slow, improved by greedy's exchange.
 * 3. Proof: where plan and bound differ, the plans that the relaxation allows are replayed in order of
 *    sensitivity until one fits (it is the best there is), the next one is no better than what was found, or
 *    time runs out. Where they differ by less than what is known of the plan's sensitivity, nothing is proven
 *    further. */
#include <math.h>

#include "allocator/policies.h"
#include "allocator/bound/bound.h"

static const double close_gap = 1e-2, close_share = 0.03;
static const int64_t close_work = 30000000;

/* --- A plan from the bounds ----------------------------------------------------------------------------- */

typedef struct exact_search {
    const tandem_allocation_problem *problem;
    tandem_target target;
    tandem_bounds bounds;
    tandem_effort work; /* of all proofs */
    tandem_best_plan best;
    int n_class;
} exact_search;

static tandem_status save_if_better(exact_search *e, const tandem_replayer *searched, tandem_error *error)
{
    return tandem_best_plan_offer(&e->best, e->problem, searched, e->target.target_ns, error);
}

/* Class after class, the others as they are, from the plan that reached its bound among others. The replayer
 * has a plan within the target before and after. */
static tandem_status improve_from_bound(exact_search *e, const tandem_allocation_problem *of_kind,
                                        const tandem_bound *bound, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < e->n_class && status == TANDEM_OK; k++) {
        const int c = e->target.order[k];
        if (e->target.keeps_base & 1u << c) continue;
        status = tandem_greedy_improve_class(of_kind, c, tandem_bound_plan(bound, c), e->target.target_ns,
                                             &e->target.replays, error);
    }
    return status;
}

/* Plans of each kind, unless its bound says that none is better than what was found. */
static tandem_status improve_from_bounds(exact_search *e, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = e->bounds.n - 1; k >= 0 && status == TANDEM_OK; k--) {
        const tandem_bound *bound = &e->bounds.of[k];
        const tandem_plan_kind kind =
            bound->kind == TANDEM_BOUND_WITHOUT_NORM ? TANDEM_PLANS_WITHOUT_F16 : TANDEM_PLANS_WITH_NORM;
        tandem_allocation_problem of_kind;
        int is_within = 0;
        if (bound->lower_bound > e->best.sensitivity) continue;
        status = tandem_target_begin(&is_within, &of_kind, kind, &e->target, e->problem, error);
        if (status == TANDEM_OK && is_within) status = improve_from_bound(e, &of_kind, bound, error);
        if (status == TANDEM_OK && is_within) status = save_if_better(e, of_kind.replayer, error);
    }
    return status;
}

static tandem_status save_qsync_plan(exact_search *e, tandem_error *error)
{
    int found = 0;
    const tandem_status status = tandem_qsync_find_plan(e->problem, e->target.target_ns, e->target.keeps_base,
                                                        &found, &e->target.replays, error);
    return status == TANDEM_OK && found ? save_if_better(e, e->problem->replayer, error) : status;
}

/* --- The policy ----------------------------------------------------------------------------------------- */

/* Where greedy's way to the fastest plan does not get within a given target and memory, a plan may still be:
 * any class may be lowered then. */
static tandem_status find_exact_target(exact_search *e, int *is_within, tandem_error *error)
{
    tandem_replay base;
    tandem_plan *plan = NULL;
    tandem_status status = tandem_target_find(&e->target, e->problem, error);
    *is_within = status == TANDEM_OK;
    if (status != TANDEM_INFEASIBLE || !e->problem->target_ns) return status;
    status = tandem_allocation_replay_base(&plan, &base, e->problem, error);
    tandem_plan_close(plan);
    if (status == TANDEM_OK)
        e->target = (tandem_target){.base_ns = base.step_ns,
                                    .fastest_ns = e->problem->target_ns,
                                    .target_ns = e->problem->target_ns,
                                    .base_sensitivity = tandem_allocation_sensitivity(e->problem),
                                    .fastest_sensitivity = -1,
                                    .order = {base.slowest}};
    return status;
}

/* The last hundredth may take a little of the work allowed, not all of it. */
static int64_t enumeration_work(const exact_search *e)
{
    const int64_t gap = e->best.sensitivity - tandem_bounds_lower(&e->bounds);
    const int is_close = (double)gap <= close_gap * (double)e->best.sensitivity;
    const double share = close_share * (double)tandem_effort_limit(e->problem->work_limit);
    return is_close ? (int64_t)fmax((double)close_work, share) : e->work.left;
}

/* *found: as of tandem_bound_enumerate. */
static tandem_status prove_by_enumeration(exact_search *e, int *found, tandem_error *error)
{
    int is_small = 0;
    tandem_effort part = tandem_effort_lend(&e->work, enumeration_work(e));
    if (e->best.sensitivity < INT64_MAX) {
        tandem_replayer_load(e->problem->replayer, e->best.assignment);
        const tandem_status status = tandem_allocation_is_gap_small(
            &is_small, e->problem, e->best.sensitivity - tandem_bounds_lower(&e->bounds), error);
        if (status != TANDEM_OK || is_small) return status;
    }
    const tandem_status status =
        tandem_bounds_enumerate(&e->bounds, e->best.sensitivity, &part, found, &e->target.replays, error);
    tandem_effort_take_back(&e->work, &part);
    return status;
}

static tandem_status bound_all_plans(exact_search *e, tandem_error *error)
{
    tandem_effort half = tandem_effort_lend(&e->work, e->work.left / 2);
    tandem_status status =
        tandem_bounds_open(&e->bounds, e->problem, e->target.target_ns, e->target.keeps_base, error);
    if (status == TANDEM_OK) status = tandem_bounds_compute(&e->bounds, &half, error);
    tandem_effort_take_back(&e->work, &half);
    return status;
}

static tandem_status run_exact(exact_search *e, tandem_certificate *certificate, tandem_error *error)
{
    int is_within = 0, found = 0;
    tandem_error refusal = {0};
    tandem_status status = find_exact_target(e, &is_within, &refusal);
    if (status != TANDEM_OK) return tandem_error_forward(refusal.status, &refusal, error);
    if (is_within) status = save_if_better(e, e->problem->replayer, error);
    if (status == TANDEM_OK) status = bound_all_plans(e, error);
    if (status == TANDEM_OK && is_within) status = improve_from_bounds(e, error);
    if (status == TANDEM_OK && is_within) status = save_qsync_plan(e, error);
    if (status == TANDEM_OK) status = prove_by_enumeration(e, &found, error);
    if (status != TANDEM_OK) return status;
    if (!is_within && !found) return tandem_error_forward(refusal.status, &refusal, error);
    if (found) status = save_if_better(e, e->problem->replayer, error);
    if (status == TANDEM_OK) tandem_bounds_certify(certificate, &e->bounds, e->best.sensitivity);
    return status;
}

static tandem_status allocate_exact(const tandem_allocation_problem *problem, tandem_assignment *assignment,
                                    tandem_allocation *allocation, tandem_error *error)
{
    exact_search e = {.problem = problem,
                      .best = {assignment, INT64_MAX, INT64_MAX},
                      .n_class = tandem_replayer_cluster(problem->replayer)->n_class,
                      .work = {.left = tandem_effort_limit(problem->work_limit)}};
    tandem_certificate certificate = {.lower_bound = -1, .gap = NAN};
    const tandem_status status = run_exact(&e, &certificate, error);
    if (status == TANDEM_OK) {
        tandem_target_fill_allocation(allocation, &e.target);
        allocation->certificate = certificate;
        allocation->work = e.work.done;
    }
    tandem_target_close(&e.target);
    tandem_bounds_close(&e.bounds);
    return status;
}

const tandem_policy tandem_policy_exact = {
    .name = "exact",
    .meaning = "the plan with the least sensitivity, with a proof of how close it is",
    .allocate = allocate_exact,
};
