/* certify.c: how good a plan can be at all, for a plan that somebody else has made. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/policies.h"
#include "allocator/bound/bound.h"
#include "base/clock.h"

static const double tolerable_gap = 1e-3;
static const double enumeration_limit_s = 0.5; /* it closes small gaps soon, or none */

/* What the replayer has, to be put back. */
static tandem_precision *save_all_plans(const tandem_allocation_problem *problem, int n_class)
{
    const int n_op = problem->graph->n_op;
    tandem_precision *saved = malloc(((size_t)n_class * (size_t)n_op + 1) * sizeof *saved);
    for (int c = 0; saved && c < n_class; c++)
        for (int i = 0; i < n_op; i++) saved[c * n_op + i] = tandem_replayer_get(problem->replayer, c, i);
    return saved;
}

static void restore_class_plan(const tandem_allocation_problem *problem, int c,
                               const tandem_precision *precision)
{
    const tandem_graph *graph = problem->graph;
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i]))
            tandem_replayer_set(problem->replayer, c, i, precision[i]);
}

static tandem_status pin_base_classes(const tandem_allocation_problem *problem, unsigned keeps_base,
                                      tandem_error *error)
{
    tandem_plan *base = NULL;
    const tandem_status status = tandem_allocation_open_base_plan(&base, problem, error);
    for (int c = 0; status == TANDEM_OK && c < base->cluster.n_class; c++)
        if (keeps_base & 1u << c) restore_class_plan(problem, c, base->precision[c]);
    tandem_plan_close(base);
    return status;
}

/* claimed: a bound that somebody has proven, perhaps by a longer search. */
static tandem_status bound_within_time(tandem_bound *bound, double sensitivity, double claimed_bound,
                                       double seconds, tandem_error *error)
{
    const int64_t begin_ns = tandem_now_ns();
    int found = 0;
    int64_t replays = 0;
    tandem_status status = tandem_bound_compute(bound, 0.7 * seconds, error);
    if (status != TANDEM_OK || sensitivity - bound->lower_bound <= tolerable_gap * sensitivity) return status;
    const double left = seconds - (double)(tandem_now_ns() - begin_ns) * 1e-9;
    const int is_open = bound->lower_bound < claimed_bound;
    return tandem_bound_enumerate(bound, sensitivity, is_open ? left : fmin(left, enumeration_limit_s),
                                  &found, &replays, error);
}

tandem_status tandem_certify_claim(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                                   int64_t target_ns, unsigned keeps_base, double sensitivity,
                                   double claimed_bound, double time_limit_s, tandem_error *error)
{
    const int n_class = tandem_replayer_cluster(problem->replayer)->n_class, n_op = problem->graph->n_op;
    tandem_bound bound = {0};
    tandem_precision *saved = save_all_plans(problem, n_class);
    if (!saved) return tandem_no_memory(error, "to certify a plan of %d operators", n_op);
    tandem_status status = pin_base_classes(problem, keeps_base, error);
    if (status == TANDEM_OK) status = tandem_bound_open(&bound, problem, target_ns, keeps_base, error);
    if (status == TANDEM_OK)
        status = bound_within_time(&bound, sensitivity, claimed_bound,
                                   tandem_time_limit_or_default(time_limit_s), error);
    if (status == TANDEM_OK) tandem_bound_certify(certificate, &bound, sensitivity);
    tandem_bound_close(&bound);
    for (int c = 0; c < n_class; c++) restore_class_plan(problem, c, saved + c * n_op);
    free(saved);
    return status;
}

tandem_status tandem_certify(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                             int64_t target_ns, unsigned keeps_base, double sensitivity, double time_limit_s,
                             tandem_error *error)
{
    return tandem_certify_claim(certificate, problem, target_ns, keeps_base, sensitivity, 0, time_limit_s,
                                error);
}
