/* target.c: finds the fastest plans, the target, and the classes that need not be lowered to reach it.
 *
 * 1. Every class begins in base. The class that computes least keeps the base, and the others catch up with
 *    it, unless a given target is shorter or the class exceeds its memory.
 * 2. Every other class goes to its fastest plan that fits. The search starts from its fastest uniform plan
 *    and makes every move (search.h) that reduces the excess memory, the step or, at the same step, the busy
 *    time. Where faster moves exceed the memory, it makes one of them together with a second move.
 * 3. The step of these plans, times 1 + slowdown, is the target unless one is given.
 * 4. With the others at their fastest, each class returns to base if the step stays within the target. Those
 *    that compute least come first. */
#include "allocator/policy/target.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/problem.h"
#include "base/quantity.h"

enum {
    MAX_DESCENT_ROUNDS = 4, /* of descent, each over all moves */
    MAX_PAIRS = 1024        /* replays of two moves at once, for each start */
};

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

/* The fastest move that exceeds the memory, of those after `last` in the order of steps; NULL: none is left.
 * Every move was evaluated at the current plan. */
static const tandem_move *next_oversized_move(const tandem_search *search, const tandem_move *last)
{
    const tandem_move *next = NULL;
    for (const tandem_move *move = search->move; move < search->move + search->n_move; move++) {
        if (!move->is_possible || move->after.step_ns >= search->metrics.step_ns || !move->after.excess_bytes)
            continue;
        if (last && (move->after.step_ns < last->after.step_ns ||
                     (move->after.step_ns == last->after.step_ns && move <= last)))
            continue;
        if (!next || move->after.step_ns < next->after.step_ns) next = move;
    }
    return next;
}

/* Makes a second move that ends at a plan faster than `before`; *is_made: there was one. */
static tandem_status make_second_move(int *is_made, tandem_search *search, const tandem_plan_metrics *before,
                                      int64_t last_replay, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int m = 0; m < search->n_move && search->replays < last_replay; m++) {
        tandem_move *move = &search->move[m];
        status = tandem_search_evaluate(search, move, error);
        *is_made = status == TANDEM_OK && move->is_possible && is_faster_plan(&move->after, before);
        if (*is_made) tandem_search_apply(search, move);
        if (*is_made || status != TANDEM_OK) break;
    }
    return status;
}

/* Makes two moves that are faster only together: the first exceeds the memory, the second makes room for it.
 * *is_made: there were such. */
static tandem_status make_pair_of_moves(int *is_made, tandem_search *search, int64_t last_replay,
                                        tandem_error *error)
{
    const tandem_move *first = NULL;
    *is_made = 0;
    tandem_status status = tandem_search_evaluate_all(search, error);
    if (status != TANDEM_OK) return status;
    const tandem_plan_metrics before = search->metrics;
    tandem_search_snapshot(search);
    while (status == TANDEM_OK && search->replays < last_replay &&
           (first = next_oversized_move(search, first)) != NULL) {
        tandem_search_apply(search, first);
        status = make_second_move(is_made, search, &before, last_replay, error);
        if (*is_made) break;
        tandem_search_rollback(search);
    }
    return status;
}

static tandem_status descend_within_memory(tandem_search *search, tandem_error *error)
{
    tandem_status status = descend_to_fastest(search, error);
    const int64_t last_replay = search->replays + MAX_PAIRS;
    for (int is_made = 1; is_made && status == TANDEM_OK && search->should_plan_memory &&
                          search->metrics.excess_bytes == 0 && search->replays < last_replay;) {
        status = make_pair_of_moves(&is_made, search, last_replay, error);
        if (status == TANDEM_OK && is_made) status = descend_to_fastest(search, error);
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

/* Where the problem excludes an operator's precision, it keeps the base precision. */
static void replace_excluded(const tandem_search *search, tandem_precision *precision)
{
    for (int i = 0; i < search->n_op; i++)
        if (tandem_op_is_adjustable(&search->problem->graph->op[i]) &&
            !(tandem_op_precisions(search->problem, search->c, i) >> precision[i] & 1))
            precision[i] = search->problem->base_precision;
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
        tandem_precision *uniform = plan->assignment.precision[search->c];
        replace_excluded(search, uniform);
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

/* The fastest start that was not tried; −1 = none is left. */
static int next_start(const tandem_starting_plans *starts, const int *tried)
{
    int best = -1;
    for (int s = 0; s < TANDEM_N_START; s++)
        if (starts->plan[s] && !tried[s] &&
            (best < 0 || is_faster_plan(&starts->metrics[s], &starts->metrics[best])))
            best = s;
    return best;
}

/* Descends from one start; where the plan fits, *starts keeps the fastest so far as its offered one. */
static tandem_status descend_from_start(tandem_starting_plans *starts, int s, tandem_search *search,
                                        tandem_error *error)
{
    tandem_status status = tandem_search_set_plan(search, starts->plan[s], error);
    search->should_plan_memory = !tandem_search_has_ample_memory(search);
    if (status == TANDEM_OK) status = descend_within_memory(search, error);
    if (status == TANDEM_OK && !search->should_plan_memory)
        status = tandem_search_enable_memory(search, error);
    if (status != TANDEM_OK || search->metrics.excess_bytes > 0) return status;
    if (starts->plan[TANDEM_START_OFFERED] &&
        !is_faster_plan(&search->metrics, &starts->metrics[TANDEM_START_OFFERED]))
        return TANDEM_OK;
    return save_starting_plan(starts, TANDEM_START_OFFERED, search, error);
}

/* Leaves the fastest plan in the search. One start alone often ends beside the fastest. TANDEM_INFEASIBLE:
 * none fits. */
static tandem_status find_fastest_from_starts(tandem_starting_plans *starts, tandem_search *search,
                                              tandem_error *error)
{
    enum { N_DESCENT = 2 };
    int tried[TANDEM_N_START] = {[TANDEM_START_OFFERED] = 1}, n_done = 0;
    tandem_status status = TANDEM_OK;
    for (int s; n_done < N_DESCENT && status == TANDEM_OK && (s = next_start(starts, tried)) >= 0;
         tried[s] = 1) {
        status = descend_from_start(starts, s, search, error);
        n_done += search->metrics.excess_bytes == 0;
        search->should_plan_memory = search->limit_bytes > 0;
    }
    if (status != TANDEM_OK) return status;
    return starts->plan[TANDEM_START_OFFERED]
               ? tandem_search_set_plan(search, starts->plan[TANDEM_START_OFFERED], error)
               : tandem_allocation_infeasible(search->problem, search->c, search->min_peak_bytes, error);
}

/* --- All classes ---------------------------------------------------------------------------------------- */

typedef struct target_finder {
    const tandem_allocation_problem *problem;
    tandem_plan *base_plan; /* every class in base */
    unsigned lowered;       /* bit c: class c is at its fastest */
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

/* The problem of one kind; 0: there are no plans of it. */
static int open_kind(tandem_allocation_problem *of_kind, tandem_plan_kind kind,
                     const tandem_allocation_problem *problem)
{
    const int is_split = tandem_replayer_of_norm(problem->replayer, 1) != NULL;
    *of_kind = *problem;
    if (kind == TANDEM_PLANS_WITHOUT_F16) of_kind->without_f16_gradients = 1;
    if (kind == TANDEM_PLANS_WITHOUT_F16 || !is_split) return is_split || kind == TANDEM_PLANS_WITH_NORM;
    of_kind->replayer = tandem_replayer_of_norm(problem->replayer, 1);
    return !problem->without_f16_gradients &&
           tandem_replayer_check_norm(problem->replayer, NULL) == TANDEM_OK;
}

/* Leaves all classes but the pinned ones at their fastest. */
static tandem_status lower_classes(target_finder *f, int n_class, unsigned pinned, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < n_class && status == TANDEM_OK; k++) {
        const int c = f->target.order[k];
        if (!((pinned | f->lowered) & 1u << c)) status = find_fastest_of_class(f, c, error);
    }
    return status;
}

/* Loads the plan that a kind begins with: base, and fp32 in the classes whose base the kind excludes. Returns
 * 0 where such a class is pinned, or has no plan of the kind at all. */
static int load_first_plan(tandem_allocation_problem *of_kind, const tandem_plan *base, unsigned pinned)
{
    int is_base = 1;
    tandem_replayer_load(of_kind->replayer, &base->assignment);
    for (int c = 0; c < base->cluster.n_class; c++) {
        if (tandem_allocation_allows(of_kind, c, base->assignment.precision[c])) continue;
        if (pinned >> c & 1) return 0;
        is_base = 0;
        for (int i = 0; i < of_kind->graph->n_op; i++) {
            if (!tandem_op_is_adjustable(&of_kind->graph->op[i])) continue;
            if (!(tandem_op_precisions(of_kind, c, i) & 1u << TANDEM_PRECISION_FP32)) return 0;
            tandem_replayer_set(of_kind->replayer, c, i, TANDEM_PRECISION_FP32);
        }
    }
    if (!is_base) of_kind->base_precision = TANDEM_PRECISION_FP32; /* what an excluded precision becomes */
    return 1;
}

/* The fastest plans of one kind. fastest[kind] stays without them where there are none; *why:
 * where memory is too small for them. */
static tandem_status find_fastest_of_kind(target_finder *f, tandem_plan_kind kind, unsigned pinned,
                                          tandem_error *why, tandem_error *error)
{
    const int n_class = f->base_plan->cluster.n_class;
    tandem_allocation_problem of_kind;
    target_finder finder = {.problem = &of_kind, .base_plan = f->base_plan, .target = f->target};
    tandem_error refusal = {0};
    tandem_assignment *fastest = &f->target.fastest[kind];
    if (!open_kind(&of_kind, kind, f->problem) || !load_first_plan(&of_kind, f->base_plan, pinned))
        return TANDEM_OK;
    tandem_status status = lower_classes(&finder, n_class, pinned, &refusal);
    f->target.replays = finder.target.replays;
    if (status == TANDEM_INFEASIBLE) {
        *why = refusal;
        return TANDEM_OK;
    }
    if (status != TANDEM_OK) return tandem_error_forward(status, &refusal, error);
    if (fastest->n_op == 0) status = tandem_assignment_open(fastest, n_class, f->problem->graph->n_op, error);
    if (status == TANDEM_OK) tandem_replayer_store(of_kind.replayer, fastest);
    return status;
}

static tandem_status replay_plan_of_kind(tandem_replay *replay, target_finder *f, tandem_plan_kind kind,
                                         tandem_error *error)
{
    tandem_replayer_load(f->problem->replayer, &f->target.fastest[kind]);
    f->target.replays++;
    return tandem_replayer_run(f->problem->replayer, replay, 0, error);
}

void tandem_known_fastest_close(tandem_known_fastest *known)
{
    for (int kind = 0; kind < TANDEM_N_PLAN_KIND; kind++) tandem_assignment_close(&known->of_kind[kind]);
    *known = (tandem_known_fastest){0};
}

static tandem_status copy_assignments(tandem_assignment *to, const tandem_assignment *from,
                                      tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int kind = 0; kind < TANDEM_N_PLAN_KIND && status == TANDEM_OK; kind++) {
        tandem_assignment_close(&to[kind]);
        if (!from[kind].n_op) continue;
        status = tandem_assignment_open(&to[kind], from[kind].n_class, from[kind].n_op, error);
        if (status == TANDEM_OK) tandem_assignment_copy(&to[kind], &from[kind]);
    }
    return status;
}

/* f->target.fastest, from an earlier allocation of the problem where there was one. */
static tandem_status find_fastest_of_kinds(target_finder *f, unsigned pinned, tandem_error *why,
                                           tandem_error *error)
{
    tandem_known_fastest *known = f->problem->known_fastest;
    const uint64_t limit_bytes = f->problem->memory_limit_bytes;
    tandem_status status = TANDEM_OK;
    if (known && known->is_known && known->pinned == pinned && known->memory_limit_bytes == limit_bytes)
        return copy_assignments(f->target.fastest, known->of_kind, error);
    for (int kind = TANDEM_N_PLAN_KIND - 1; kind >= 0 && status == TANDEM_OK; kind--)
        status = find_fastest_of_kind(f, (tandem_plan_kind)kind, pinned, why, error);
    if (status != TANDEM_OK || !known || why->status) return status;
    known->is_known = 0;
    status = copy_assignments(known->of_kind, f->target.fastest, error);
    known->is_known = status == TANDEM_OK;
    known->pinned = pinned;
    known->memory_limit_bytes = limit_bytes;
    return status;
}

/* why: what keeps the plans of a kind from the memory; TANDEM_OK: no kind has plans at all. */
static tandem_status refuse_all_kinds(const tandem_allocation_problem *problem, const tandem_error *why,
                                      tandem_error *error)
{
    if (why->status != TANDEM_OK) return tandem_error_forward(why->status, why, error);
    const tandem_status status = tandem_replayer_check_norm(problem->replayer, error);
    return status != TANDEM_OK ? status
                               : tandem_error_set(error, TANDEM_INFEASIBLE,
                                                  "no plan without gradients in f16 begins at the base "
                                                  "precision %s, which has such gradients",
                                                  tandem_precision_get(problem->base_precision)->name);
}

/* The fastest plans of both kinds, each costed by its need. Leaves the faster one, replayed into *fastest. A
 * plan of the second kind that needs no norm after all counts as the first kind, too, where it is faster. */
static tandem_status find_fastest_of_all(target_finder *f, unsigned pinned, tandem_replay *fastest,
                                         tandem_error *error)
{
    tandem_assignment *const with = &f->target.fastest[TANDEM_PLANS_WITH_NORM],
                             *const without = &f->target.fastest[TANDEM_PLANS_WITHOUT_F16];
    tandem_replay replay[TANDEM_N_PLAN_KIND];
    tandem_error why = {0};
    tandem_status status = find_fastest_of_kinds(f, pinned, &why, error);
    for (int kind = 0; kind < TANDEM_N_PLAN_KIND && status == TANDEM_OK; kind++)
        if (f->target.fastest[kind].n_op)
            status = replay_plan_of_kind(&replay[kind], f, (tandem_plan_kind)kind, error);
    if (status != TANDEM_OK) return status;
    if (!with->n_op && !without->n_op) return refuse_all_kinds(f->problem, &why, error);
    int best = with->n_op ? TANDEM_PLANS_WITH_NORM : TANDEM_PLANS_WITHOUT_F16;
    if (with->n_op && without->n_op) {
        best = replay[TANDEM_PLANS_WITHOUT_F16].step_ns <= replay[TANDEM_PLANS_WITH_NORM].step_ns
                   ? TANDEM_PLANS_WITHOUT_F16
                   : TANDEM_PLANS_WITH_NORM;
        tandem_replayer_load(f->problem->replayer, with);
        if (best == TANDEM_PLANS_WITH_NORM && !tandem_replayer_needs_loss_scale(f->problem->replayer))
            tandem_assignment_copy(without, with);
    }
    return replay_plan_of_kind(fastest, f, (tandem_plan_kind)best, error);
}

/* Returns classes to base while the step stays within the target. The replayer has every lowered class at its
 * fastest. */
static tandem_status pin_classes_to_base(target_finder *f, int n_class, unsigned pinned, tandem_error *error)
{
    tandem_target *target = &f->target;
    tandem_replay replay;
    tandem_status status = TANDEM_OK;
    const size_t n_op = (size_t)f->problem->graph->n_op;
    tandem_precision *own = malloc((n_op + 1) * sizeof *own);
    if (!own) return tandem_no_memory(error, "to allocate %d operators", f->problem->graph->n_op);
    for (int k = n_class - 1; k >= 0; k--) {
        const int c = target->order[k];
        memcpy(own, tandem_replayer_step(f->problem->replayer, c)->precision, n_op * sizeof *own);
        tandem_replayer_load_class(f->problem->replayer, c, f->base_plan->assignment.precision[c]);
        status = tandem_replayer_run(f->problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
        if (status != TANDEM_OK) break;
        target->replays++;
        if (!(f->problem->is_free >> c & 1) && (pinned >> c & 1 || (replay.step_ns <= target->target_ns &&
                                                                    !exceeds_memory_limit(f, &replay, c))))
            target->keeps_base |= 1u << c;
        else
            tandem_replayer_load_class(f->problem->replayer, c, own);
    }
    free(own);
    return status;
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
    unsigned pinned = is_pinned && !(f->problem->is_free >> first & 1) ? 1u << first : 0;
    target->base_ns = base.step_ns;
    target->base_sensitivity = tandem_allocation_sensitivity(f->problem);
    status = find_fastest_of_all(f, pinned, &fastest, error);
    if (status == TANDEM_OK && pinned && f->problem->target_ns && fastest.step_ns > f->problem->target_ns) {
        pinned = 0;
        status = find_fastest_of_all(f, pinned, &fastest, error);
    }
    if (status != TANDEM_OK) return status;
    target->replays += 3;
    target->fastest_ns = fastest.step_ns;
    target->fastest_sensitivity = tandem_allocation_sensitivity(f->problem);
    target->target_ns = tandem_allocation_target_ns(f->problem, fastest.step_ns);
    if (fastest.step_ns > target->target_ns) return report_target_missed(f, fastest.step_ns, error);
    return pin_classes_to_base(f, base.n_class, pinned, error);
}

tandem_status tandem_target_find(tandem_target *target, const tandem_allocation_problem *problem,
                                 tandem_error *error)
{
    target_finder f = {.problem = problem};
    const tandem_status status = find_target(&f, error);
    tandem_plan_close(f.base_plan);
    if (status == TANDEM_OK)
        *target = f.target;
    else
        tandem_target_close(&f.target);
    return status;
}

void tandem_target_close(tandem_target *target)
{
    for (int kind = 0; kind < TANDEM_N_PLAN_KIND; kind++) tandem_assignment_close(&target->fastest[kind]);
}

/* --- Plans of one kind ---------------------------------------------------------------------------------- */

tandem_status tandem_target_begin(int *is_within, tandem_allocation_problem *of_kind, tandem_plan_kind kind,
                                  const tandem_target *target, const tandem_allocation_problem *problem,
                                  tandem_error *error)
{
    tandem_plan *base = NULL;
    tandem_replay replay;
    *is_within = 0;
    if (!open_kind(of_kind, kind, problem) || !target->fastest[kind].n_op) return TANDEM_OK;
    tandem_status status = tandem_allocation_open_base_plan(&base, problem, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_load(of_kind->replayer, &target->fastest[kind]);
    for (int c = 0; c < base->cluster.n_class; c++)
        if (target->keeps_base >> c & 1)
            tandem_replayer_load_class(of_kind->replayer, c, base->assignment.precision[c]);
    status = tandem_replayer_run(of_kind->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    *is_within = status == TANDEM_OK && replay.step_ns <= target->target_ns &&
                 tandem_allocation_check_memory(problem, &replay, NULL) == TANDEM_OK;
    tandem_plan_close(base);
    return status;
}

tandem_status tandem_best_plan_offer(tandem_best_plan *best, const tandem_allocation_problem *problem,
                                     const tandem_replayer *searched, int64_t target_ns, tandem_error *error)
{
    tandem_assignment offered;
    tandem_replay replay;
    tandem_status status = tandem_assignment_open(&offered, tandem_replayer_cluster(searched)->n_class,
                                                  problem->graph->n_op, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_store(searched, &offered);
    tandem_replayer_load(problem->replayer, &offered);
    status = tandem_replayer_run(problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    const int64_t sensitivity = tandem_allocation_sensitivity(problem);
    const int is_better = sensitivity < best->sensitivity ||
                          (sensitivity == best->sensitivity && replay.step_ns < best->step_ns);
    if (status == TANDEM_OK && is_better && replay.step_ns <= target_ns &&
        tandem_allocation_check_memory(problem, &replay, NULL) == TANDEM_OK) {
        best->sensitivity = sensitivity;
        best->step_ns = replay.step_ns;
        tandem_assignment_copy(best->assignment, &offered);
    }
    tandem_assignment_close(&offered);
    return status;
}

void tandem_target_fill_allocation(tandem_allocation *allocation, const tandem_target *target)
{
    allocation->base_ns = target->base_ns;
    allocation->fastest_ns = target->fastest_ns;
    allocation->target_ns = target->target_ns;
    allocation->base_sensitivity_bound = target->base_sensitivity;
    allocation->fastest_sensitivity_bound = target->fastest_sensitivity;
    allocation->replays = target->replays;
    allocation->keeps_base = target->keeps_base;
}
