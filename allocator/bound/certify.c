/* certify.c: how good any plan can be, for a plan from any source. */
#include <math.h>

#include "allocator/problem.h"
#include "allocator/bound/bound.h"

static const double tolerable_gap = 1e-3;
/* enumeration closes small gaps soon, or not at all */
static const int64_t enumeration_work = 50000000;

static tandem_status pin_base_classes(const tandem_allocation_problem *problem, unsigned keeps_base,
                                      tandem_error *error)
{
    tandem_plan *base = NULL;
    const tandem_status status = tandem_allocation_open_base_plan(&base, problem, error);
    for (int c = 0; status == TANDEM_OK && c < base->cluster.n_class; c++)
        if (keeps_base & 1u << c)
            tandem_replayer_load_class(problem->replayer, c, base->assignment.precision[c]);
    tandem_plan_close(base);
    return status;
}

/* claimed_bound: a bound proven before, perhaps by a longer enumeration. */
static tandem_status bound_within_work(tandem_bounds *bounds, int64_t sensitivity, int64_t claimed_bound,
                                       int64_t work_limit, tandem_error *error)
{
    tandem_effort work = {.left = tandem_effort_limit(work_limit)};
    tandem_effort part = tandem_effort_lend(&work, work.left / 10 * 7);
    int found = 0;
    int64_t replays = 0;
    tandem_status status = tandem_bounds_compute(bounds, &part, error);
    const int64_t lower = tandem_bounds_lower(bounds);
    if (status != TANDEM_OK || (double)(sensitivity - lower) <= tolerable_gap * (double)sensitivity)
        return status;
    tandem_effort_take_back(&work, &part);
    part = tandem_effort_lend(&work, lower < claimed_bound ? work.left : enumeration_work);
    return tandem_bounds_enumerate(bounds, sensitivity, &part, &found, &replays, error);
}

tandem_status tandem_certify_claim(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                                   int64_t target_ns, unsigned keeps_base, int64_t sensitivity,
                                   int64_t claimed_bound, tandem_error *error)
{
    tandem_bounds bounds = {.n = 0};
    tandem_assignment saved;
    tandem_status status = tandem_assignment_open(&saved, tandem_replayer_cluster(problem->replayer)->n_class,
                                                  problem->graph->n_op, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_store(problem->replayer, &saved);
    status = pin_base_classes(problem, keeps_base, error);
    if (status == TANDEM_OK) status = tandem_bounds_open(&bounds, problem, target_ns, keeps_base, error);
    if (status == TANDEM_OK)
        status = bound_within_work(&bounds, sensitivity, claimed_bound, problem->work_limit, error);
    if (status == TANDEM_OK) tandem_bounds_certify(certificate, &bounds, sensitivity);
    tandem_bounds_close(&bounds);
    tandem_replayer_load(problem->replayer, &saved);
    tandem_assignment_close(&saved);
    return status;
}

tandem_status tandem_certify(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                             int64_t target_ns, unsigned keeps_base, int64_t sensitivity, tandem_error *error)
{
    return tandem_certify_claim(certificate, problem, target_ns, keeps_base, sensitivity, 0, error);
}
