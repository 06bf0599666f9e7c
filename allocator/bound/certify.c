/* certify.c: how good any plan can be, for a plan from any source. */
#include <math.h>

#include "allocator/problem.h"
#include "allocator/bound/bound.h"
#include "base/clock.h"

static const double tolerable_gap = 1e-3;
static const double enumeration_limit_s = 0.5; /* enumeration closes small gaps soon, or not at all */

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
static tandem_status bound_within_time(tandem_bound *bound, int64_t sensitivity, int64_t claimed_bound,
                                       double seconds, tandem_error *error)
{
    const int64_t begin_ns = tandem_now_ns();
    int found = 0;
    int64_t replays = 0;
    tandem_status status = tandem_bound_compute(bound, 0.7 * seconds, error);
    if (status != TANDEM_OK ||
        (double)(sensitivity - bound->lower_bound) <= tolerable_gap * (double)sensitivity)
        return status;
    const double left = seconds - (double)(tandem_now_ns() - begin_ns) * 1e-9;
    const int is_open = bound->lower_bound < claimed_bound;
    return tandem_bound_enumerate(bound, sensitivity, is_open ? left : fmin(left, enumeration_limit_s),
                                  &found, &replays, error);
}

tandem_status tandem_certify_claim(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                                   int64_t target_ns, unsigned keeps_base, int64_t sensitivity,
                                   int64_t claimed_bound, double time_limit_s, tandem_error *error)
{
    tandem_bound bound = {0};
    tandem_assignment saved;
    tandem_status status = tandem_assignment_open(&saved, tandem_replayer_cluster(problem->replayer)->n_class,
                                                  problem->graph->n_op, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_store(problem->replayer, &saved);
    status = pin_base_classes(problem, keeps_base, error);
    if (status == TANDEM_OK) status = tandem_bound_open(&bound, problem, target_ns, keeps_base, error);
    if (status == TANDEM_OK)
        status = bound_within_time(&bound, sensitivity, claimed_bound,
                                   tandem_time_limit_or_default(time_limit_s), error);
    if (status == TANDEM_OK) tandem_bound_certify(certificate, &bound, sensitivity);
    tandem_bound_close(&bound);
    tandem_replayer_load(problem->replayer, &saved);
    tandem_assignment_close(&saved);
    return status;
}

tandem_status tandem_certify(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                             int64_t target_ns, unsigned keeps_base, int64_t sensitivity, double time_limit_s,
                             tandem_error *error)
{
    return tandem_certify_claim(certificate, problem, target_ns, keeps_base, sensitivity, 0, time_limit_s,
                                error);
}
