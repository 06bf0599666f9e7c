/* kinds.c: bounds of all plans. Those that need a loss scale have a norm in their step, and the others have
 * none: each kind is bounded by the limits of its own program, and the least bound holds for all. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "allocator/bound/bound.h"
#include "allocator/problem.h"

/* Whether a class that keeps its precisions in the replayer reads f16 there. */
static int has_pinned_f16(const tandem_allocation_problem *problem, unsigned keeps_base)
{
    const tandem_cluster *cluster = tandem_replayer_cluster(problem->replayer);
    for (int c = 0; c < cluster->n_class; c++)
        for (int i = 0; i < problem->graph->n_op && keeps_base >> c & 1; i++)
            if (problem->graph->op[i].needs_gradient &&
                tandem_precision_has_f16_gradient(tandem_replayer_get(problem->replayer, c, i),
                                                  cluster->classes[c].device.amp_dtype))
                return 1;
    return 0;
}

/* Whether some operator of a class that is free may read f16 (may_have), or must. */
static int has_free_f16(const tandem_allocation_problem *problem, unsigned keeps_base, int may_have)
{
    const tandem_cluster *cluster = tandem_replayer_cluster(problem->replayer);
    tandem_allocation_problem without = *problem;
    without.without_f16_gradients = 1;
    for (int c = 0; c < cluster->n_class; c++)
        for (int i = 0; i < problem->graph->n_op && !(keeps_base >> c & 1); i++) {
            if (!tandem_op_is_adjustable(&problem->graph->op[i])) continue;
            const unsigned left = tandem_op_precisions(&without, c, i);
            if (may_have ? left != tandem_op_precisions(problem, c, i) : left == 0) return 1;
        }
    return 0;
}

/* Which kinds have plans. */
static int find_kinds(tandem_bound_kind kind[TANDEM_N_BOUND_KIND], const tandem_allocation_problem *problem,
                      unsigned keeps_base)
{
    const int is_pinned = has_pinned_f16(problem, keeps_base);
    int n = 0;
    kind[0] = TANDEM_BOUND_ALL;
    if (!tandem_replayer_of_norm(problem->replayer, 0)) return 1;
    if (!is_pinned && !has_free_f16(problem, keeps_base, 0)) kind[n++] = TANDEM_BOUND_WITHOUT_NORM;
    if ((is_pinned || has_free_f16(problem, keeps_base, 1)) &&
        tandem_replayer_check_norm(problem->replayer, NULL) == TANDEM_OK)
        kind[n++] = TANDEM_BOUND_WITH_NORM;
    return n;
}

tandem_status tandem_bounds_open(tandem_bounds *bounds, const tandem_allocation_problem *problem,
                                 int64_t target_ns, unsigned keeps_base, tandem_error *error)
{
    tandem_bound_kind kind[TANDEM_N_BOUND_KIND];
    *bounds = (tandem_bounds){.n = 0};
    const int n = find_kinds(kind, problem, keeps_base);
    tandem_status status = TANDEM_OK;
    while (bounds->n < n && status == TANDEM_OK) {
        const int k = bounds->n++;
        status = tandem_bound_open(&bounds->of[k], kind[k], problem, target_ns, keeps_base, error);
    }
    return status;
}

void tandem_bounds_close(tandem_bounds *bounds)
{
    for (int k = 0; k < bounds->n; k++) tandem_bound_close(&bounds->of[k]);
    bounds->n = 0;
}

tandem_status tandem_bounds_compute(tandem_bounds *bounds, tandem_effort *work, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < bounds->n && status == TANDEM_OK; k++) {
        tandem_effort part = tandem_effort_lend(work, work->left / (bounds->n - k));
        status = tandem_bound_compute(&bounds->of[k], &part, error);
        tandem_effort_take_back(work, &part);
    }
    return status;
}

/* A plan that one kind finds is what the next one has to be better than. */
tandem_status tandem_bounds_enumerate(tandem_bounds *bounds, int64_t sensitivity, tandem_effort *work,
                                      int *found, int64_t *replays, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    tandem_assignment best = {.n_class = 0};
    *found = 0;
    for (int k = 0; k < bounds->n && status == TANDEM_OK; k++) {
        tandem_bound *const bound = &bounds->of[k];
        const tandem_allocation_problem *const problem = bound->asked;
        tandem_effort part = tandem_effort_lend(work, work->left / (bounds->n - k));
        int is_better = 0;
        status = tandem_bound_enumerate(bound, sensitivity, &part, &is_better, replays, error);
        tandem_effort_take_back(work, &part);
        if (status != TANDEM_OK || !is_better) continue;
        *found = 1;
        sensitivity = tandem_allocation_sensitivity(problem);
        if (best.n_class == 0)
            status = tandem_assignment_open(&best, bound->n_class, problem->graph->n_op, error);
        if (status == TANDEM_OK) tandem_replayer_store(problem->replayer, &best);
    }
    if (status == TANDEM_OK && *found) tandem_replayer_load(bounds->of[0].asked->replayer, &best);
    tandem_assignment_close(&best);
    return status;
}

int64_t tandem_bounds_lower(const tandem_bounds *bounds)
{
    int64_t lower = INT64_MAX;
    for (int k = 0; k < bounds->n; k++)
        if (bounds->of[k].lower_bound < lower) lower = bounds->of[k].lower_bound;
    return lower;
}

/* Of the kind with the least bound. */
static const char *proof_of(const tandem_bounds *bounds)
{
    const tandem_bound *least = &bounds->of[0];
    for (int k = 1; k < bounds->n; k++)
        if (bounds->of[k].lower_bound < least->lower_bound) least = &bounds->of[k];
    return bounds->n > 0 && least->method ? least->method : "labels";
}

void tandem_bounds_certify(tandem_certificate *certificate, const tandem_bounds *bounds, int64_t sensitivity)
{
    /* else the bound is wrong, or the plan breaks a limit */
    const int64_t lower = tandem_bounds_lower(bounds);
    assert(lower <= sensitivity);
    *certificate = (tandem_certificate){.lower_bound = lower};
    certificate->gap = sensitivity > 0 ? (double)(sensitivity - lower) / (double)sensitivity : 0;
    (void)snprintf(certificate->proof, sizeof certificate->proof, "%s",
                   sensitivity > 0 ? proof_of(bounds) : "zero");
}
