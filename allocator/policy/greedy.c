/* greedy.c: starts from the fastest plan and raises precisions again while the step stays within the target.
 *
 * 1. target.c finds the fastest plan that fits, the step target, and the classes that keep the base
 *    precision.
 * 2. Recovery repeats the move that saves most sensitivity for each ns that it adds to its class, while the
 *    step stays within the target and the plan fits. A move's gain per cost changes with the moves around it,
 *    because operators share casts. So recovery evaluates the best move again before it applies it, and puts
 *    it back into the queue if another one is better by then. The next round tries rejected moves again.
 *    Recovery starts from the fastest plan, from every uniform plan within the target, and from the base plan
 *    after the moves that save most ns for their sensitivity. The best result counts, so no uniform plan
 *    within the target is better.
 * 3. Swaps: a move that takes too long is applied together with moves that compensate for it, if less
 *    sensitivity remains. Recovery runs again after each swap.
 * 4. The plan of policy qsync for the same target is improved in the same way and taken if it is better. So
 *    the result is never worse than that plan.
 *
 * Precisions without measured costs are left out; if the base plan needs one, that is an error. Ties go to
 * the lower operator, then to the wider precision. The result depends on nothing but the input. */
#include "allocator/policies.h"
#include "allocator/policy/target.h"
#include "base/heap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RECOVERY_ROUNDS = 4, /* each over all moves */
    MAX_SWAPS = 64,
    SWAP_TRIALS = 96,        /* moves to compensate for, in one swap */
    COMPENSATION_TRIALS = 32 /* moves or evaluations for one of them */
};

static int is_feasible(const tandem_plan_metrics *metrics, int64_t target_ns)
{
    return metrics->excess_bytes == 0 && metrics->step_ns <= target_ns;
}

/* --- Recovery: a queue of moves, the best first --------------------------------------------------------- */

static int is_better_move(const tandem_move *a, const tandem_move *b)
{
    /* moves are in the order of ties */
    return a->gain_per_cost != b->gain_per_cost ? a->gain_per_cost > b->gain_per_cost : a < b;
}

typedef struct move_queue {
    tandem_move **move; /* a heap */
    int n;
} move_queue;

static int move_before(const move_queue *q, const tandem_move *a, const tandem_move *b)
{
    (void)q;
    return is_better_move(a, b);
}

TANDEM_HEAP(push_move, pop_move, tandem_move *, const move_queue *, move_before)

/* INFINITY where there is no cost */
static double gain_for_cost(double gain, double cost) { return cost > 0 ? gain / cost : INFINITY; }

/* RECOVER: moves that save sensitivity, rated by ns added. LOWER: moves that save time, rated by sensitivity
 * added. */
typedef enum move_direction { RECOVER, LOWER } move_direction;

/* Rates the move by its last evaluation. Returns whether it goes in this direction. */
static int rate_move(move_direction direction, tandem_move *move)
{
    const double busy_delta_ns = (double)move->busy_delta_ns;
    move->gain_per_cost = direction == RECOVER
                              ? gain_for_cost((double)move->sensitivity_saved, busy_delta_ns)
                              : gain_for_cost(-busy_delta_ns, (double)-move->sensitivity_saved);
    return move->is_possible && (direction == RECOVER ? move->sensitivity_saved > 0 : busy_delta_ns < 0);
}

static tandem_status apply_best_moves(tandem_search *search, move_queue *q, move_direction direction,
                                      int64_t target_ns, tandem_error *error)
{
    tandem_status status = tandem_search_evaluate_all(search, error);
    q->n = 0;
    for (int m = 0; m < search->n_move && status == TANDEM_OK; m++)
        if (rate_move(direction, &search->move[m])) push_move(q->move, &q->n, &search->move[m], q);
    while (status == TANDEM_OK && q->n > 0) {
        tandem_move *move = pop_move(q->move, &q->n, q);
        if (direction == LOWER && is_feasible(&search->metrics, target_ns)) break;
        if (move->evaluated_at != search->n_change) {
            status = tandem_search_evaluate(search, move, error);
            if (status != TANDEM_OK || !rate_move(direction, move)) continue;
            if (q->n > 0 && is_better_move(q->move[0], move)) {
                push_move(q->move, &q->n, move, q);
                continue;
            }
        }
        if (direction == LOWER || is_feasible(&move->after, target_ns)) tandem_search_apply(search, move);
    }
    return status;
}

static tandem_status recover_sensitivity(tandem_search *search, move_queue *q, int64_t target_ns,
                                         tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int64_t before = -1;
    for (int round = 0; round < MAX_RECOVERY_ROUNDS && status == TANDEM_OK && before != search->n_change;
         round++) {
        before = search->n_change;
        status = apply_best_moves(search, q, RECOVER, target_ns, error);
    }
    return status;
}

/* --- Swaps ---------------------------------------------------------------------------------------------- */

/* The moves that save most sensitivity, best first. */
static int find_largest_savings(int *best, const tandem_search *search)
{
    int n = 0;
    for (int m = 0; m < search->n_move; m++) {
        const tandem_move *move = &search->move[m];
        if (!move->is_possible || move->sensitivity_saved <= 0 ||
            (n == SWAP_TRIALS && move->sensitivity_saved <= search->move[best[n - 1]].sensitivity_saved))
            continue;
        int at = n < SWAP_TRIALS ? n++ : n - 1;
        for (; at > 0 && search->move[best[at - 1]].sensitivity_saved < move->sensitivity_saved; at--)
            best[at] = best[at - 1];
        best[at] = m;
    }
    return n;
}

/* The move that compensates for `up` at the least sensitivity: one that suffices alone, otherwise the best by
 * gain per cost. NULL: none leaves less than sensitivity_before. Never a move that overlaps `up`. */
static tandem_move *find_compensating_move(tandem_search *search, const tandem_move *up,
                                           int64_t sensitivity_before, int64_t target_ns)
{
    tandem_move *best = NULL;
    int best_suffices = 0;
    for (int m = 0; m < search->n_move; m++) {
        tandem_move *move = &search->move[m];
        if (!rate_move(LOWER, move) ||
            search->metrics.sensitivity - move->sensitivity_saved >= sensitivity_before ||
            tandem_search_overlap(search, up, move))
            continue;
        const int suffices = search->metrics.step_ns + move->busy_delta_ns <= target_ns;
        if (suffices < best_suffices) continue;
        if (!best || suffices > best_suffices ||
            (suffices ? move->sensitivity_saved > best->sensitivity_saved : is_better_move(move, best))) {
            best = move;
            best_suffices = suffices;
        }
    }
    return best;
}

/* Lowers other operators after `up`, until the plan is within the target again. */
static tandem_status compensate_move(tandem_search *search, const tandem_move *up, int64_t sensitivity_before,
                                     int64_t target_ns, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0;
         k < COMPENSATION_TRIALS && status == TANDEM_OK && !is_feasible(&search->metrics, target_ns); k++) {
        tandem_move *down = find_compensating_move(search, up, sensitivity_before, target_ns);
        if (!down) break;
        if (down->evaluated_at == search->n_change)
            tandem_search_apply(search, down);
        else
            status = tandem_search_evaluate(search, down, error);
    }
    return status;
}

/* Makes the first swap that leaves less sensitivity. */
static tandem_status swap_once(tandem_search *search, int64_t target_ns, tandem_error *error)
{
    int best[SWAP_TRIALS];
    tandem_status status = tandem_search_evaluate_all(search, error);
    const int n = status == TANDEM_OK ? find_largest_savings(best, search) : 0;
    const int64_t sensitivity_before = search->metrics.sensitivity;
    tandem_search_snapshot(search);
    for (int k = 0; k < n && status == TANDEM_OK; k++) {
        const tandem_move up = search->move[best[k]];
        tandem_search_apply(search, &up);
        status = compensate_move(search, &up, sensitivity_before, target_ns, error);
        if (status == TANDEM_OK && is_feasible(&search->metrics, target_ns) &&
            search->metrics.sensitivity < sensitivity_before)
            break;
        tandem_search_rollback(search);
    }
    return status;
}

static tandem_status swap_moves(tandem_search *search, move_queue *q, int64_t target_ns, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int64_t before = INT64_MAX;
    for (int k = 0; k < MAX_SWAPS && status == TANDEM_OK && search->metrics.sensitivity < before; k++) {
        before = search->metrics.sensitivity;
        status = swap_once(search, target_ns, error);
        if (status == TANDEM_OK && search->metrics.sensitivity < before)
            status = recover_sensitivity(search, q, target_ns, error);
    }
    return status;
}

/* --- One class ------------------------------------------------------------------------------------------ */

/* The least sensitivity of any plan of the class, at any step. */
static int64_t min_class_sensitivity(const tandem_search *search)
{
    const int64_t *sensitivity = search->problem->sensitivity[search->c];
    int64_t sum = 0;
    for (int i = 0; i < search->n_op; i++) {
        int64_t least = sensitivity[i * TANDEM_N_PRECISION + (int)search->current[i]];
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            if (tandem_op_precisions(search->problem, search->c, i) & 1u << p &&
                sensitivity[i * TANDEM_N_PRECISION + p] < least)
                least = sensitivity[i * TANDEM_N_PRECISION + p];
        sum += least;
    }
    return sum;
}

/* Whether another start is within the target, has no more sensitivity and keeps the class busy no longer. Of
 * equal starts the first one stays. */
static int is_start_dominated(const tandem_starting_plans *starts, int s, int64_t target_ns)
{
    const tandem_plan_metrics *own = &starts->metrics[s];
    for (int other = 0; other < TANDEM_N_START; other++) {
        const tandem_plan_metrics *metrics = &starts->metrics[other];
        if (other == s || other == TANDEM_START_OFFERED || !starts->plan[other] ||
            !is_feasible(metrics, target_ns))
            continue;
        const int is_less =
            metrics->sensitivity < own->sensitivity || metrics->busy_ns < own->busy_ns || other < s;
        if (metrics->sensitivity <= own->sensitivity && metrics->busy_ns <= own->busy_ns && is_less) return 1;
    }
    return 0;
}

/* Sets start s if it is within the target and not dominated. Lowers the offered start until it is within.
 * *is_usable: whether the search now has a plan within the target. */
static tandem_status begin_from_start(tandem_search *search, const tandem_starting_plans *starts, int s,
                                      move_queue *q, int64_t target_ns, int *is_usable, tandem_error *error)
{
    const int is_within = starts->plan[s] && is_feasible(&starts->metrics[s], target_ns);
    *is_usable = 0;
    if (!starts->plan[s] ||
        (s != TANDEM_START_OFFERED && (!is_within || is_start_dominated(starts, s, target_ns))))
        return TANDEM_OK;
    tandem_status status = tandem_search_set_plan(search, starts->plan[s], error);
    if (status == TANDEM_OK && !is_within) status = apply_best_moves(search, q, LOWER, target_ns, error);
    *is_usable = is_feasible(&search->metrics, target_ns);
    return status;
}

/* Whether the current plan is among the n that were reached before; otherwise appends it. */
static int was_plan_reached(tandem_precision *reached, int *n, const tandem_search *search)
{
    const size_t n_op = (size_t)search->n_op;
    for (int k = 0; k < *n; k++)
        if (memcmp(reached + (size_t)k * n_op, search->current, n_op * sizeof *reached) == 0) return 1;
    memcpy(reached + (size_t)(*n)++ * n_op, search->current, n_op * sizeof *reached);
    return 0;
}

/* Leaves the plan with the least sensitivity that any start leads to. The current start is within the
 * target. */
static tandem_status improve_from_starts(tandem_search *search, const tandem_starting_plans *starts,
                                         int64_t target_ns, tandem_error *error)
{
    tandem_precision *best = malloc(((size_t)search->n_op + 1) * sizeof *best);
    tandem_precision *reached = malloc((TANDEM_N_START * (size_t)search->n_op + 1) * sizeof *reached);
    move_queue q = {.move = malloc(((size_t)search->n_move + 1) * sizeof *q.move)};
    tandem_status status = TANDEM_OK;
    tandem_plan_metrics found = {.sensitivity = INT64_MAX};
    const int64_t least = min_class_sensitivity(search);
    int is_usable = 0, n_reached = 0;
    if (!best || !reached || !q.move)
        status = tandem_no_memory(error, "to allocate %d operators", search->n_op);
    for (int s = TANDEM_N_START - 1; s >= 0 && status == TANDEM_OK && found.sensitivity > least; s--) {
        status = begin_from_start(search, starts, s, &q, target_ns, &is_usable, error);
        if (status == TANDEM_OK && is_usable) status = recover_sensitivity(search, &q, target_ns, error);
        if (status == TANDEM_OK && is_usable && was_plan_reached(reached, &n_reached, search)) continue;
        if (status == TANDEM_OK && is_usable) status = swap_moves(search, &q, target_ns, error);
        if (status != TANDEM_OK || !is_usable || search->metrics.sensitivity >= found.sensitivity) continue;
        found = search->metrics;
        memcpy(best, search->current, (size_t)search->n_op * sizeof *best);
    }
    if (status == TANDEM_OK) status = tandem_search_set_plan(search, best, error);
    free(q.move);
    free(reached);
    free(best);
    return status;
}

/* --- All classes ---------------------------------------------------------------------------------------- */

/* Plans no memory for trials while the limit is far above every start. If the result exceeds the limit, all
 * trials are repeated with memory. */
static tandem_status improve_within_memory(tandem_search *search, const tandem_starting_plans *starts,
                                           int64_t target_ns, tandem_error *error)
{
    search->should_plan_memory = !tandem_search_has_ample_memory(search);
    tandem_status status = improve_from_starts(search, starts, target_ns, error);
    if (status == TANDEM_OK && !search->should_plan_memory)
        status = tandem_search_enable_memory(search, error);
    if (status != TANDEM_OK || search->metrics.excess_bytes == 0) return status;
    return improve_from_starts(search, starts, target_ns, error);
}

tandem_status tandem_greedy_improve_class(const tandem_allocation_problem *problem, int c,
                                          const tandem_precision *offered, int64_t target_ns,
                                          int64_t *replays, tandem_error *error)
{
    tandem_search search;
    tandem_starting_plans starts = {0};
    tandem_status status = tandem_search_open(&search, problem, c, error);
    if (status != TANDEM_OK) return status;
    status = tandem_starting_plans_find(&starts, &search, offered, error);
    if (status == TANDEM_OK) status = improve_within_memory(&search, &starts, target_ns, error);
    *replays += search.replays;
    tandem_starting_plans_close(&starts);
    tandem_search_close(&search);
    return status;
}

/* Takes the plan of policy qsync, improved, if it is better than the one in the replayer. */
static tandem_status try_qsync_plan(const tandem_allocation_problem *problem, tandem_target *target,
                                    tandem_error *error)
{
    const int64_t sensitivity = tandem_allocation_sensitivity(problem);
    const int n_class = tandem_replayer_cluster(problem->replayer)->n_class;
    tandem_assignment own;
    int found = 0;
    tandem_status status = tandem_assignment_open(&own, n_class, problem->graph->n_op, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_store(problem->replayer, &own);
    status = tandem_qsync_find_plan(problem, target->target_ns, target->keeps_base, &found, &target->replays,
                                    error);
    const int is_better = found && tandem_allocation_sensitivity(problem) < sensitivity;
    if (!is_better) tandem_replayer_load(problem->replayer, &own);
    for (int c = 0; c < n_class && is_better && status == TANDEM_OK; c++)
        if (!(target->keeps_base & 1u << c))
            status =
                tandem_greedy_improve_class(problem, c, NULL, target->target_ns, &target->replays, error);
    tandem_assignment_close(&own);
    return status;
}

/* Every class that may be lowered, in the target's order. The replayer has a plan within the target. */
static tandem_status improve_all_classes(const tandem_allocation_problem *problem, tandem_target *target,
                                         const tandem_plan *base, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; status == TANDEM_OK && k < base->cluster.n_class; k++) {
        const int c = target->order[k];
        if (!(target->keeps_base & 1u << c))
            status = tandem_greedy_improve_class(problem, c, base->assignment.precision[c], target->target_ns,
                                                 &target->replays, error);
    }
    return status;
}

/* Improves the plans of each kind, and takes the better one. */
static tandem_status improve_both_kinds(tandem_best_plan *best, const tandem_allocation_problem *problem,
                                        tandem_target *target, tandem_error *error)
{
    tandem_plan *base = NULL;
    tandem_status status = tandem_allocation_open_base_plan(&base, problem, error);
    for (int kind = TANDEM_N_PLAN_KIND - 1; kind >= 0 && status == TANDEM_OK; kind--) {
        tandem_allocation_problem of_kind;
        int is_within = 0;
        status = tandem_target_begin(&is_within, &of_kind, (tandem_plan_kind)kind, target, problem, error);
        if (status == TANDEM_OK && is_within) status = improve_all_classes(&of_kind, target, base, error);
        if (status == TANDEM_OK && is_within)
            status = tandem_best_plan_offer(best, problem, of_kind.replayer, target->target_ns, error);
    }
    tandem_plan_close(base);
    if (status == TANDEM_OK) tandem_replayer_load(problem->replayer, best->assignment);
    return status;
}

static tandem_status allocate_greedy(const tandem_allocation_problem *problem, tandem_assignment *assignment,
                                     tandem_allocation *allocation, tandem_error *error)
{
    tandem_target target = {.base_ns = 0};
    tandem_best_plan best = {assignment, INT64_MAX, INT64_MAX};
    tandem_status status = tandem_target_find(&target, problem, error);
    if (status == TANDEM_OK)
        status = tandem_best_plan_offer(&best, problem, problem->replayer, target.target_ns, error);
    if (status == TANDEM_OK) status = improve_both_kinds(&best, problem, &target, error);
    if (status == TANDEM_OK) status = try_qsync_plan(problem, &target, error);
    if (status == TANDEM_OK)
        status = tandem_best_plan_offer(&best, problem, problem->replayer, target.target_ns, error);
    if (status == TANDEM_OK) tandem_target_fill_allocation(allocation, &target);
    tandem_target_close(&target);
    return status;
}

const tandem_policy tandem_policy_greedy = {
    .name = "greedy",
    .meaning = "the fastest plan, then the precisions raised that save most sensitivity per added time",
    .allocate = allocate_greedy,
};
