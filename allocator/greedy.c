/* greedy.c: starts from the fastest plan and raises precisions again while the step stays within the target.
 *
 * 1. target.c finds the fastest plan that fits, the step target, and the classes that keep the base
 *    precision.
 * 2. Recovery: repeat the move that avoids most harm for each ns that it adds to its class, while the step
 *    stays within the target and the plan fits. A move's merit changes when its neighbours move, because
 *    casts are shared. So recovery measures the best move again before it makes it, and puts it back in the
 *    queue where another is better by then. Moves that were rejected are tried again in the next round.
 *    Recovery starts from several plans: the fastest plan, every uniform plan within the target, and the base
 *    plan after the moves that save most ns for their harm. The best result counts, so no uniform plan within
 *    the target is better.
 * 3. Exchange: make a move that takes too long, together with moves that make room for it, where less harm
 *    remains. Recover again after each exchange.
 * 4. The plan of the published procedure (qsync.c) for the same target is improved in the same way. It is
 *    taken where it is better, so the result is never worse than that plan.
 *
 * A precision whose costs were not measured is left out of account, unless the base plan needs it, which is
 * an error. Ties go to the lower operator, then to the wider precision; no step depends on anything but its
 * input. */
#include "allocator/policies.h"
#include "allocator/target.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_ROUNDS = 4, /* of recovery, each over all moves */
    MOST_EXCHANGES = 64,
    EXCHANGE_TRIALS = 96, /* moves for which room is sought in one exchange */
    ROOM_TRIALS = 32      /* steps towards it */
};

static int fits(const tandem_figures *figures, int64_t target_ns)
{
    return figures->excess_bytes == 0 && figures->step_ns <= target_ns;
}

/* --- Recovery: a queue of moves, the best first --------------------------------------------------------- */

static int is_better(const tandem_move *a, const tandem_move *b)
{
    return a->merit != b->merit ? a->merit > b->merit : a < b; /* moves stand in the order of ties */
}

typedef struct queue {
    tandem_move **move; /* a heap */
    int n;
} queue;

static void push(queue *q, tandem_move *move)
{
    int at = q->n++;
    for (; at > 0 && is_better(move, q->move[(at - 1) / 2]); at = (at - 1) / 2)
        q->move[at] = q->move[(at - 1) / 2];
    q->move[at] = move;
}

static tandem_move *pop(queue *q)
{
    tandem_move *top = q->move[0], *last = q->move[--q->n];
    int at = 0;
    for (int child = 1; child < q->n; at = child, child = 2 * at + 1) {
        if (child + 1 < q->n && is_better(q->move[child + 1], q->move[child])) child++;
        if (!is_better(q->move[child], last)) break;
        q->move[at] = q->move[child];
    }
    if (q->n > 0) q->move[at] = last;
    return top;
}

/* gain for each unit of a price; INFINITY where there is nothing to pay */
static double merit(double gain, double price) { return price > 0 ? gain / price : INFINITY; }

/* Which moves a queue is of: those that avoid harm, by the harm for each ns they cost; or those that save
 * time, by the ns for the harm they cost. */
typedef enum direction { RECOVER, LOWER } direction;

/* Whether the move is one of them, as far as its last measurement goes; its merit. */
static int rate(direction way, tandem_move *move)
{
    const double longer_ns = (double)move->longer_ns;
    move->merit = way == RECOVER ? merit(move->avoided, longer_ns) : merit(-longer_ns, -move->avoided);
    return move->possible && (way == RECOVER ? move->avoided > 0 : longer_ns < 0);
}

static tandem_status walk(tandem_search *search, queue *q, direction way, int64_t target_ns,
                          tandem_error *error)
{
    tandem_status status = tandem_search_measure_all(search, error);
    q->n = 0;
    for (int m = 0; m < search->n_move && status == TANDEM_OK; m++)
        if (rate(way, &search->move[m])) push(q, &search->move[m]);
    while (status == TANDEM_OK && q->n > 0) {
        tandem_move *move = pop(q);
        if (way == LOWER && fits(&search->figures, target_ns)) break;
        if (move->measured_at != search->n_change) {
            status = tandem_search_measure(search, move, error);
            if (status != TANDEM_OK || !rate(way, move)) continue;
            if (q->n > 0 && is_better(q->move[0], move)) {
                push(q, move);
                continue;
            }
        }
        if (way == LOWER || fits(&move->after, target_ns)) tandem_search_make(search, move);
    }
    return status;
}

static tandem_status recover(tandem_search *search, queue *q, int64_t target_ns, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int64_t before = -1;
    for (int round = 0; round < MOST_ROUNDS && status == TANDEM_OK && before != search->n_change; round++) {
        before = search->n_change;
        status = walk(search, q, RECOVER, target_ns, error);
    }
    return status;
}

/* --- Exchange ------------------------------------------------------------------------------------------- */

/* The moves that avoid most harm, best first. */
static int find_most_harmful(int *best, const tandem_search *search)
{
    int n = 0;
    for (int m = 0; m < search->n_move; m++) {
        const tandem_move *move = &search->move[m];
        if (!move->possible || move->avoided <= 0 ||
            (n == EXCHANGE_TRIALS && move->avoided <= search->move[best[n - 1]].avoided))
            continue;
        int at = n < EXCHANGE_TRIALS ? n++ : n - 1;
        for (; at > 0 && search->move[best[at - 1]].avoided < move->avoided; at--) best[at] = best[at - 1];
        best[at] = m;
    }
    return n;
}

/* The move that makes room at the least harm: one that suffices, else the best by merit; NULL where none
 * leaves less harm than harm_before. `up` is not to be touched. */
static tandem_move *find_room(tandem_search *search, const tandem_move *up, double harm_before,
                              int64_t target_ns)
{
    tandem_move *best = NULL;
    int best_suffices = 0;
    for (int m = 0; m < search->n_move; m++) {
        tandem_move *move = &search->move[m];
        if (!rate(LOWER, move) || search->figures.harm - move->avoided >= harm_before ||
            tandem_search_overlap(search, up, move))
            continue;
        const int suffices = search->figures.step_ns + move->longer_ns <= target_ns;
        if (suffices < best_suffices) continue;
        if (!best || suffices > best_suffices ||
            (suffices ? move->avoided > best->avoided : is_better(move, best))) {
            best = move;
            best_suffices = suffices;
        }
    }
    return best;
}

/* Lowers others after `up` has been made, until the plan is within the target again. */
static tandem_status make_room(tandem_search *search, const tandem_move *up, double harm_before,
                               int64_t target_ns, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < ROOM_TRIALS && status == TANDEM_OK && !fits(&search->figures, target_ns); k++) {
        tandem_move *down = find_room(search, up, harm_before, target_ns);
        if (!down) break;
        if (down->measured_at == search->n_change)
            tandem_search_make(search, down);
        else
            status = tandem_search_measure(search, down, error);
    }
    return status;
}

/* Makes the first exchange that leaves less harm. */
static tandem_status exchange_once(tandem_search *search, int64_t target_ns, tandem_error *error)
{
    int best[EXCHANGE_TRIALS];
    tandem_status status = tandem_search_measure_all(search, error);
    const int n = status == TANDEM_OK ? find_most_harmful(best, search) : 0;
    const double harm_before = search->figures.harm;
    tandem_search_keep(search);
    for (int k = 0; k < n && status == TANDEM_OK; k++) {
        const tandem_move up = search->move[best[k]];
        tandem_search_make(search, &up);
        status = make_room(search, &up, harm_before, target_ns, error);
        if (status == TANDEM_OK && fits(&search->figures, target_ns) && search->figures.harm < harm_before)
            break;
        tandem_search_return(search);
    }
    return status;
}

static tandem_status exchange(tandem_search *search, queue *q, int64_t target_ns, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    double before = INFINITY;
    for (int k = 0; k < MOST_EXCHANGES && status == TANDEM_OK && search->figures.harm < before; k++) {
        before = search->figures.harm;
        status = exchange_once(search, target_ns, error);
        if (status == TANDEM_OK && search->figures.harm < before)
            status = recover(search, q, target_ns, error);
    }
    return status;
}

/* --- One class ------------------------------------------------------------------------------------------ */

/* No plan of the class does less. */
static double least_harm(const tandem_search *search)
{
    const double *harm = search->problem->harm[search->c];
    double sum = 0;
    for (int i = 0; i < search->n_op; i++) {
        double least = harm[i * TANDEM_N_PRECISION + (int)search->now[i]];
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            if (tandem_search_precisions(search, i) & 1u << p)
                least = fmin(least, harm[i * TANDEM_N_PRECISION + p]);
        sum += least;
    }
    return sum;
}

/* Whether another start is within the target with no more harm, and keeps the class no longer: what comes of
 * that one is hardly worse. Of equal ones the first stays. */
static int is_outdone(const tandem_starts *all, int s, int64_t target_ns)
{
    const tandem_figures *own = &all->figures[s];
    for (int other = 0; other < TANDEM_N_START; other++) {
        const tandem_figures *figures = &all->figures[other];
        if (other == s || other == TANDEM_OFFERED || !all->plan[other] || !fits(figures, target_ns)) continue;
        const int is_less = figures->harm < own->harm || figures->busy_ns < own->busy_ns || other < s;
        if (figures->harm <= own->harm && figures->busy_ns <= own->busy_ns && is_less) return 1;
    }
    return 0;
}

/* Goes to start s if it is within the target and not outdone, or is the one that is offered: that one is
 * lowered until it is within. *goes_on: whether the search now is at a plan within the target. */
static tandem_status begin_at(tandem_search *search, const tandem_starts *all, int s, queue *q,
                              int64_t target_ns, int *goes_on, tandem_error *error)
{
    const int is_within = all->plan[s] && fits(&all->figures[s], target_ns);
    *goes_on = 0;
    if (!all->plan[s] || (s != TANDEM_OFFERED && (!is_within || is_outdone(all, s, target_ns))))
        return TANDEM_OK;
    tandem_status status = tandem_search_go(search, all->plan[s], error);
    if (status == TANDEM_OK && !is_within) status = walk(search, q, LOWER, target_ns, error);
    *goes_on = fits(&search->figures, target_ns);
    return status;
}

/* Whether the plan that the search has is among the n that it had reached by now; else it is put behind them.
 * */
static int was_reached(tandem_precision *reached, int *n, const tandem_search *search)
{
    const size_t n_op = (size_t)search->n_op;
    for (int k = 0; k < *n; k++)
        if (memcmp(reached + (size_t)k * n_op, search->now, n_op * sizeof *reached) == 0) return 1;
    memcpy(reached + (size_t)(*n)++ * n_op, search->now, n_op * sizeof *reached);
    return 0;
}

/* From every start, of which the one as the class was found is within the target: leaves the least harm that
 * is found. */
static tandem_status improve(tandem_search *search, const tandem_starts *all, int64_t target_ns,
                             tandem_error *error)
{
    tandem_precision *best = malloc(((size_t)search->n_op + 1) * sizeof *best);
    tandem_precision *reached = malloc((TANDEM_N_START * (size_t)search->n_op + 1) * sizeof *reached);
    queue q = {.move = malloc(((size_t)search->n_move + 1) * sizeof *q.move)};
    tandem_status status = TANDEM_OK;
    tandem_figures found = {.harm = INFINITY};
    const double least = least_harm(search);
    int goes_on = 0, n_reached = 0;
    if (!best || !reached || !q.move)
        status =
            tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to allocate %d operators", search->n_op);
    for (int s = TANDEM_N_START - 1; s >= 0 && status == TANDEM_OK && found.harm > least; s--) {
        status = begin_at(search, all, s, &q, target_ns, &goes_on, error);
        if (status == TANDEM_OK && goes_on) status = recover(search, &q, target_ns, error);
        if (status == TANDEM_OK && goes_on && was_reached(reached, &n_reached, search)) continue;
        if (status == TANDEM_OK && goes_on) status = exchange(search, &q, target_ns, error);
        if (status != TANDEM_OK || !goes_on || search->figures.harm >= found.harm) continue;
        found = search->figures;
        memcpy(best, search->now, (size_t)search->n_op * sizeof *best);
    }
    if (status == TANDEM_OK) status = tandem_search_go(search, best, error);
    free(q.move);
    free(reached);
    free(best);
    return status;
}

/* --- All classes ---------------------------------------------------------------------------------------- */

/* Where the limit is far above every start, no trial is weighed; what comes of it is, and only if it does not
 * fit all are. */
static tandem_status improve_weighed(tandem_search *search, const tandem_starts *all, int64_t target_ns,
                                     tandem_error *error)
{
    search->weighs = !tandem_search_is_roomy(search);
    tandem_status status = improve(search, all, target_ns, error);
    if (status == TANDEM_OK && !search->weighs) status = tandem_search_weigh(search, error);
    if (status != TANDEM_OK || search->figures.excess_bytes == 0) return status;
    return improve(search, all, target_ns, error);
}

tandem_status tandem_greedy_recover(const tandem_allocation_problem *problem, int c,
                                    const tandem_precision *offered, int64_t target_ns, int64_t *replays,
                                    tandem_error *error)
{
    tandem_search search;
    tandem_starts all = {0};
    tandem_status status = tandem_search_open(&search, problem, c, error);
    if (status != TANDEM_OK) return status;
    status = tandem_starts_find(&all, &search, offered, error);
    if (status == TANDEM_OK) status = improve_weighed(&search, &all, target_ns, error);
    *replays += search.replays;
    tandem_starts_close(&all);
    tandem_search_close(&search);
    return status;
}

/* The class in base, to be lowered from there. */
static tandem_status recover_from_base(const tandem_allocation_problem *problem, const tandem_plan *base,
                                       int c, tandem_target *target, tandem_error *error)
{
    if (target->held & 1u << c) return TANDEM_OK;
    return tandem_greedy_recover(problem, c, base->precision[c], target->target_ns, &target->replays, error);
}

/* The published procedure's plan, improved, where it is better than the one in the replayer. */
static tandem_status try_published(const tandem_allocation_problem *problem, tandem_target *target,
                                   tandem_error *error)
{
    const double sensitivity = tandem_allocation_sensitivity(problem);
    tandem_plan *own = NULL;
    int found = 0;
    tandem_status status = tandem_allocation_open_plan(&own, problem, "", error);
    if (status != TANDEM_OK) return status;
    for (int c = 0; c < own->cluster.n_class; c++)
        for (int i = 0; i < own->n_op; i++)
            own->precision[c][i] = tandem_replayer_get(problem->replayer, c, i);
    status = tandem_qsync_plan(problem, target->target_ns, target->held, &found, &target->replays, error);
    const int is_better = found && tandem_allocation_sensitivity(problem) < sensitivity;
    if (!is_better) tandem_replayer_set_plan(problem->replayer, own);
    for (int c = 0; c < own->cluster.n_class && is_better && status == TANDEM_OK; c++)
        if (!(target->held & 1u << c))
            status = tandem_greedy_recover(problem, c, NULL, target->target_ns, &target->replays, error);
    tandem_plan_close(own);
    return status;
}

static tandem_status allocate(const tandem_allocation_problem *problem, tandem_allocation *allocation,
                              tandem_error *error)
{
    tandem_target target;
    tandem_plan *base = NULL;
    tandem_status status = tandem_target_find(&target, problem, error);
    if (status == TANDEM_OK) status = tandem_allocation_open_base(&base, problem, error);
    for (int k = 0; status == TANDEM_OK && k < base->cluster.n_class; k++)
        status = recover_from_base(problem, base, target.order[k], &target, error);
    if (status == TANDEM_OK) status = try_published(problem, &target, error);
    if (status == TANDEM_OK) tandem_target_report(allocation, &target);
    tandem_plan_close(base);
    return status;
}

const tandem_policy tandem_policy_greedy = {
    .name = "greedy",
    .meaning = "the fastest plan, with the precisions taken back that harm most for the time they save",
    .allocate = allocate,
};
