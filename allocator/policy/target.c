/* target.c: finds the fastest plans, the target, and the classes that need not be lowered to reach it.
 *
 * 1. Every class begins in base. The class that computes least keeps the base, and the others catch up with
 *    it, unless a given target is shorter or the class exceeds its memory.
 * 2. Every other class goes to its fastest plan that fits. The search starts from its fastest uniform plan
 *    and makes every move (search.h) that reduces the excess memory, the step or, at the same step, the busy
 *    time.
 * 3. The step of these plans, times 1 + slowdown, is the target unless one is given.
 * 4. With the others at their fastest, each class returns to base if the step stays within the target. Those
 *    that compute least come first. */
#include "allocator/policy/target.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/problem.h"
#include "base/quantity.h"

enum { MAX_DESCENT_ROUNDS = 4 }; /* of descent, each over all moves */

/* --- Descent -------------------------------------------------------------------------------------------- */

static int is_faster_plan(const tandem_plan_metrics *a, const tandem_plan_metrics *b)
{
    if (a->excess_bytes != b->excess_bytes) return a->excess_bytes < b->excess_bytes;
    if (a->step_ns != b->step_ns) return a->step_ns < b->step_ns;
    return a->busy_ns < b->busy_ns;
}

static tandem_status descend_to_fastest(tandem_search *search, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int64_t before = -1;
    for (int round = 0; round < MAX_DESCENT_ROUNDS && before != search->n_change; round++) {
        before = search->n_change;
        for (int m = 0; m < search->n_move && status == TANDEM_OK; m++) {
            tandem_move *move = &search->move[m];
            status = tandem_search_evaluate(search, move, error);
            if (status == TANDEM_OK && move->is_possible && is_faster_plan(&move->after, &search->metrics))
                tandem_search_apply(search, move);
        }
        if (status != TANDEM_OK) break;
    }
    return status;
}

/* --- Starts --------------------------------------------------------------------------------------------- */

void tandem_starting_plans_close(tandem_starting_plans *starts)
{
    for (int s = 0; s < TANDEM_N_START; s++) free(starts->plan[s]);
}

static tandem_status save_starting_plan(tandem_starting_plans *starts, int s, const tandem_search *search,
                                        tandem_error *error)
{
    const size_t bytes = (size_t)search->n_op * sizeof *search->current;
    if (!starts->plan[s]) starts->plan[s] = malloc(bytes + 1);
    if (!starts->plan[s]) return tandem_no_memory(error, "to allocate %d operators", search->n_op);
    memcpy(starts->plan[s], search->current, bytes);
    starts->metrics[s] = search->metrics;
    return TANDEM_OK;
}

/* Saves the plan as start s, unless a cost of it is missing. */
static tandem_status try_starting_plan(tandem_starting_plans *starts, int s, tandem_search *search,
                                       const tandem_precision *plan, tandem_error *error)
{
    tandem_error why = {0};
    const tandem_status status = tandem_search_set_plan(search, plan, &why);
    if (status == TANDEM_OK) return save_starting_plan(starts, s, search, error);
    if (status != TANDEM_MISSING && error) *error = why;
    return status == TANDEM_MISSING ? TANDEM_OK : status;
}

static tandem_status find_uniform_starts(tandem_starting_plans *starts, tandem_search *search,
                                         tandem_plan *plan, tandem_error *error)
{
    const unsigned precisions = plan->cluster.classes[search->c].device.precisions;
    tandem_status status = TANDEM_OK;
    const size_t bytes = (size_t)search->n_op * sizeof *search->current;
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        if (!(precisions & 1u << p)) continue;
        status = tandem_plan_uniform(plan, search->problem->graph, search->c, (tandem_precision)p, error);
        if (status != TANDEM_OK) break;
        const tandem_precision *uniform = plan->assignment.precision[search->c];
        if (!tandem_allocation_allows(search->problem, search->c, uniform) ||
            memcmp(uniform, starts->plan[TANDEM_START_CURRENT], bytes) == 0)
            continue;
        status = try_starting_plan(starts, p, search, uniform, error);
    }
    return status;
}

tandem_status tandem_starting_plans_find(tandem_starting_plans *starts, tandem_search *search,
                                         const tandem_precision *offered, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_status status = save_starting_plan(starts, TANDEM_START_CURRENT, search, error);
    if (status == TANDEM_OK && offered)
        status = try_starting_plan(starts, TANDEM_START_OFFERED, search, offered, error);
    if (status == TANDEM_OK) status = tandem_allocation_open_plan(&plan, search->problem, "", error);
    if (status == TANDEM_OK) status = find_uniform_starts(starts, search, plan, error);
    tandem_plan_close(plan);
    return status;
}

/* --- The fastest plan of a class ------------------------------------------------------------------------ */

/* Leaves the fastest plan in the search. TANDEM_INFEASIBLE: none fits. */
static tandem_status find_fastest_from_starts(tandem_starting_plans *starts, tandem_search *search,
                                              tandem_error *error)
{
    int tried[TANDEM_N_START] = {0};
    for (int attempt = 0; attempt < TANDEM_N_START; attempt++) {
        int best = -1;
        for (int s = 0; s < TANDEM_N_START; s++)
            if (starts->plan[s] && !tried[s] &&
                (best < 0 || is_faster_plan(&starts->metrics[s], &starts->metrics[best])))
                best = s;
        if (best < 0) break;
        tried[best] = 1;
        tandem_status status = tandem_search_set_plan(search, starts->plan[best], error);
        search->should_plan_memory = !tandem_search_has_ample_memory(search);
        if (status == TANDEM_OK) status = descend_to_fastest(search, error);
        if (status == TANDEM_OK && !search->should_plan_memory)
            status = tandem_search_enable_memory(search, error);
        if (status != TANDEM_OK || search->metrics.excess_bytes == 0) return status;
        search->should_plan_memory = search->limit_bytes > 0;
    }
    return tandem_allocation_infeasible(search->problem, search->c, search->min_peak_bytes, error);
}

/* --- All classes ---------------------------------------------------------------------------------------- */

typedef struct target_finder {
    const tandem_allocation_problem *problem;
    tandem_plan *base_plan;    /* every class in base */
    tandem_assignment fastest; /* the classes of `lowered` at their fastest */
    unsigned lowered;
    tandem_target target;
} target_finder;

static tandem_status find_fastest_of_class(target_finder *f, int c, tandem_error *error)
{
    tandem_search search;
    tandem_starting_plans starts = {0};
    tandem_status status = tandem_search_open(&search, f->problem, c, error);
    if (status != TANDEM_OK) return status;
    status = tandem_starting_plans_find(&starts, &search, NULL, error);
    if (status == TANDEM_OK) status = find_fastest_from_starts(&starts, &search, error);
    f->lowered |= 1u << c;
    f->target.replays += search.replays;
    tandem_starting_plans_close(&starts);
    tandem_search_close(&search);
    return status;
}

static void sort_classes_by_busy_time(tandem_target *target, const tandem_replay *base)
{
    for (int c = 0; c < base->n_class; c++) {
        int at = c;
        for (; at > 0 && base->classes[target->order[at - 1]].busy_ns < base->classes[c].busy_ns; at--)
            target->order[at] = target->order[at - 1];
        target->order[at] = c;
    }
}

/* Whether class c exceeds its memory limit in a replay with memory. */
static int exceeds_memory_limit(const target_finder *f, const tandem_replay *replay, int c)
{
    return tandem_allocation_excess_bytes(f->problem, c, replay->classes[c].peak_bytes) > 0;
}

static tandem_status report_target_missed(const target_finder *f, int64_t fastest_ns, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_INFEASIBLE,
                            "cannot reach a step time of %s: the fastest plan found takes %s (%" PRId64
                            " ns), with every class at its lowest precision. Raise --max-step, or remove the "
                            "slowest class",
                            tandem_quantity_ns(f->problem->target_ns).text,
                            tandem_quantity_ns(fastest_ns).text, fastest_ns);
}

/* Leaves all classes but the pinned ones at their fastest, replayed into *fastest. */
static tandem_status lower_classes(target_finder *f, int n_class, unsigned pinned, tandem_replay *fastest,
                                   tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < n_class && status == TANDEM_OK; k++) {
        const int c = f->target.order[k];
        if (!((pinned | f->lowered) & 1u << c)) status = find_fastest_of_class(f, c, error);
    }
    return status == TANDEM_OK ? tandem_replayer_run(f->problem->replayer, fastest, 0, error) : status;
}

/* The same from base, without plans that need a loss scale. *is_there = 0: a class has no such plan, or none
 * that fits; the replayer then has any precisions. */
static tandem_status lower_without_f16(target_finder *f, int n_class, unsigned pinned, int *is_there,
                                       tandem_replay *fastest, tandem_error *error)
{
    tandem_allocation_problem without = *f->problem;
    tandem_error why = {0};
    target_finder finder = *f;
    finder.problem = &without;
    finder.lowered = 0;
    without.without_f16_gradients = 1;
    *is_there = 0;
    if (!tandem_replayer_of_norm(f->problem->replayer, 0)) return TANDEM_OK;
    for (int c = 0; c < n_class; c++)
        if (!tandem_allocation_allows(&without, c, f->base_plan->assignment.precision[c])) return TANDEM_OK;
    tandem_replayer_load(f->problem->replayer, &f->base_plan->assignment);
    const tandem_status status = lower_classes(&finder, n_class, pinned, fastest, &why);
    f->target.replays = finder.target.replays;
    *is_there = status == TANDEM_OK;
    return status == TANDEM_OK || status == TANDEM_INFEASIBLE ? TANDEM_OK
                                                              : tandem_error_forward(status, &why, error);
}

/* The fastest of the plans that any class may have, and of those that need no loss scale: a norm that only
 * slows the step is found by neither way alone. f->fastest and the replayer have them. */
static tandem_status find_fastest_of_all(target_finder *f, int n_class, unsigned pinned,
                                         tandem_replay *fastest, tandem_error *error)
{
    tandem_replay without;
    int is_there = 0;
    tandem_status status = lower_classes(f, n_class, pinned, fastest, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_store(f->problem->replayer, &f->fastest);
    if (!tandem_replayer_needs_loss_scale(f->problem->replayer)) return TANDEM_OK;
    status = lower_without_f16(f, n_class, pinned, &is_there, &without, error);
    if (status != TANDEM_OK) return status;
    if (is_there && without.step_ns <= fastest->step_ns) {
        *fastest = without;
        tandem_replayer_store(f->problem->replayer, &f->fastest);
    }
    tandem_replayer_load(f->problem->replayer, &f->fastest);
    return tandem_replayer_run(f->problem->replayer, fastest, 0, error);
}

/* Returns classes to base while the step stays within the target. The replayer has every lowered class at its
 * fastest. */
static tandem_status pin_classes_to_base(target_finder *f, int n_class, tandem_error *error)
{
    tandem_target *target = &f->target;
    tandem_replay replay;
    for (int k = n_class - 1; k >= 0; k--) {
        const int c = target->order[k];
        tandem_replayer_load_class(f->problem->replayer, c, f->base_plan->assignment.precision[c]);
        const tandem_status status =
            tandem_replayer_run(f->problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
        if (status != TANDEM_OK) return status;
        target->replays++;
        if (!(f->problem->is_free >> c & 1) &&
            (!(f->lowered & 1u << c) ||
             (replay.step_ns <= target->target_ns && !exceeds_memory_limit(f, &replay, c))))
            target->keeps_base |= 1u << c;
        else
            tandem_replayer_load_class(f->problem->replayer, c, f->fastest.precision[c]);
    }
    return TANDEM_OK;
}

static tandem_status find_target(target_finder *f, tandem_error *error)
{
    tandem_target *target = &f->target;
    tandem_replay base, fastest;
    tandem_status status = tandem_allocation_replay_base(&f->base_plan, &base, f->problem, error);
    if (status != TANDEM_OK) return status;
    sort_classes_by_busy_time(target, &base);
    const int first = target->order[base.n_class - 1];
    const int is_pinned = base.n_class > 1 && !exceeds_memory_limit(f, &base, first);
    const unsigned pinned = is_pinned && !(f->problem->is_free >> first & 1) ? 1u << first : 0;
    target->base_ns = base.step_ns;
    target->base_sensitivity = tandem_allocation_sensitivity(f->problem);
    status = tandem_assignment_open(&f->fastest, base.n_class, f->problem->graph->n_op, error);
    if (status == TANDEM_OK) status = find_fastest_of_all(f, base.n_class, pinned, &fastest, error);
    if (status == TANDEM_OK && pinned && f->problem->target_ns && fastest.step_ns > f->problem->target_ns)
        status = find_fastest_of_all(f, base.n_class, 0, &fastest, error);
    if (status != TANDEM_OK) return status;
    target->replays += 3;
    target->fastest_ns = fastest.step_ns;
    target->fastest_sensitivity = tandem_allocation_sensitivity(f->problem);
    target->target_ns = tandem_allocation_target_ns(f->problem, fastest.step_ns);
    if (fastest.step_ns > target->target_ns) return report_target_missed(f, fastest.step_ns, error);
    return pin_classes_to_base(f, base.n_class, error);
}

tandem_status tandem_target_find(tandem_target *target, const tandem_allocation_problem *problem,
                                 tandem_error *error)
{
    target_finder f = {.problem = problem};
    const tandem_status status = find_target(&f, error);
    tandem_assignment_close(&f.fastest);
    tandem_plan_close(f.base_plan);
    if (status == TANDEM_OK) *target = f.target;
    return status;
}

tandem_status tandem_target_without_f16(int *is_within, tandem_target *target,
                                        const tandem_allocation_problem *problem, tandem_error *error)
{
    target_finder f = {.problem = problem, .target = *target};
    tandem_replay replay;
    const int n_class = tandem_replayer_cluster(problem->replayer)->n_class;
    *is_within = 0;
    tandem_status status = tandem_allocation_open_base_plan(&f.base_plan, problem, error);
    if (status == TANDEM_OK)
        status = lower_without_f16(&f, n_class, target->keeps_base, is_within, &replay, error);
    target->replays = f.target.replays;
    tandem_plan_close(f.base_plan);
    if (status != TANDEM_OK || !*is_within) return status;
    *is_within = replay.step_ns <= target->target_ns;
    status = tandem_replayer_run(problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    if (status == TANDEM_OK && tandem_allocation_check_memory(problem, &replay, NULL) != TANDEM_OK)
        *is_within = 0;
    return status;
}

void tandem_target_fill_allocation(tandem_allocation *allocation, const tandem_target *target)
{
    allocation->base_ns = target->base_ns;
    allocation->fastest_ns = target->fastest_ns;
    allocation->target_ns = target->target_ns;
    allocation->base_sensitivity = target->base_sensitivity;
    allocation->fastest_sensitivity = target->fastest_sensitivity;
    allocation->replays = target->replays;
    allocation->keeps_base = target->keeps_base;
}
