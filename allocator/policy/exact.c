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
#include "base/clock.h"

static const double close_gap = 1e-2, close_limit_s = 0.3, close_share = 0.03;

/* --- A plan from the bounds ----------------------------------------------------------------------------- */

typedef struct exact_search {
    const tandem_allocation_problem *problem;
    tandem_target target;
    tandem_bound bound;
    tandem_assignment *best;  /* the best plan found */
    int64_t best_sensitivity; /* INT64_MAX: none was found */
    int n_class;
} exact_search;

static void save_if_better(exact_search *e)
{
    const int64_t sensitivity = tandem_allocation_sensitivity(e->problem);
    if (sensitivity >= e->best_sensitivity) return;
    e->best_sensitivity = sensitivity;
    tandem_replayer_store(e->problem->replayer, e->best);
}

/* Class after class, the others as they are, from its relaxed best plan among others. The replayer has a plan
 * within the target before and after. */
static tandem_status improve_from_bounds(exact_search *e, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < e->n_class && status == TANDEM_OK; k++) {
        const int c = e->target.order[k];
        if (e->target.keeps_base & 1u << c) continue;
        status = tandem_greedy_improve_class(e->problem, c, tandem_bound_plan(&e->bound, c),
                                             e->target.target_ns, &e->target.replays, error);
    }
    return status;
}

static tandem_status save_qsync_plan(exact_search *e, tandem_error *error)
{
    int found = 0;
    const tandem_status status = tandem_qsync_find_plan(e->problem, e->target.target_ns, e->target.keeps_base,
                                                        &found, &e->target.replays, error);
    if (found) save_if_better(e);
    return status;
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

/* The last hundredth is worth a little of the time allowed, not all of it. */
static double enumeration_time_s(const exact_search *e, int64_t deadline_ns)
{
    const double left = (double)(deadline_ns - tandem_now_ns()) * 1e-9;
    const int is_close =
        (double)(e->best_sensitivity - e->bound.lower_bound) <= close_gap * (double)e->best_sensitivity;
    const double short_s =
        fmax(close_limit_s, close_share * tandem_time_limit_or_default(e->problem->time_limit_s));
    return is_close ? fmin(left, short_s) : left;
}

/* *found: as of tandem_bound_enumerate. */
static tandem_status prove_by_enumeration(exact_search *e, int64_t deadline_ns, int *found,
                                          tandem_error *error)
{
    int is_small = 0;
    if (e->best_sensitivity < INT64_MAX) {
        tandem_replayer_load(e->problem->replayer, e->best);
        const tandem_status status = tandem_allocation_is_gap_small(
            &is_small, e->problem, e->best_sensitivity - e->bound.lower_bound, error);
        if (status != TANDEM_OK || is_small) return status;
    }
    return tandem_bound_enumerate(&e->bound, e->best_sensitivity, enumeration_time_s(e, deadline_ns), found,
                                  &e->target.replays, error);
}

static tandem_status run_exact(exact_search *e, tandem_certificate *certificate, tandem_error *error)
{
    const tandem_allocation_problem *problem = e->problem;
    const double seconds = tandem_time_limit_or_default(problem->time_limit_s);
    const int64_t deadline_ns = tandem_now_ns() + (int64_t)(seconds * 1e9);
    int is_within = 0, found = 0;
    tandem_error refusal = {0};
    tandem_status status = find_exact_target(e, &is_within, &refusal);
    if (status != TANDEM_OK) return tandem_error_forward(refusal.status, &refusal, error);
    status = tandem_bound_open(&e->bound, problem, e->target.target_ns, e->target.keeps_base, error);
    if (status == TANDEM_OK) status = tandem_bound_compute(&e->bound, 0.5 * seconds, error);
    if (status == TANDEM_OK && is_within) status = improve_from_bounds(e, error);
    if (status == TANDEM_OK && is_within) save_if_better(e);
    if (status == TANDEM_OK && is_within) status = save_qsync_plan(e, error);
    if (status == TANDEM_OK) status = prove_by_enumeration(e, deadline_ns, &found, error);
    if (status != TANDEM_OK) return status;
    if (!is_within && !found) return tandem_error_forward(refusal.status, &refusal, error);
    if (found) save_if_better(e);
    tandem_bound_certify(certificate, &e->bound, e->best_sensitivity);
    return TANDEM_OK;
}

static tandem_status allocate_exact(const tandem_allocation_problem *problem, tandem_assignment *assignment,
                                    tandem_allocation *allocation, tandem_error *error)
{
    exact_search e = {.problem = problem,
                      .best = assignment,
                      .n_class = tandem_replayer_cluster(problem->replayer)->n_class,
                      .best_sensitivity = INT64_MAX};
    tandem_certificate certificate = {.lower_bound = -1, .gap = NAN};
    const tandem_status status = run_exact(&e, &certificate, error);
    if (status == TANDEM_OK) {
        tandem_target_fill_allocation(allocation, &e.target);
        allocation->certificate = certificate;
    }
    tandem_bound_close(&e.bound);
    return status;
}

const tandem_policy tandem_policy_exact = {
    .name = "exact",
    .meaning = "the plan with the least sensitivity, with a proof of how close it is",
    .allocate = allocate_exact,
};
