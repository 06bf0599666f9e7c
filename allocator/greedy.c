/* greedy.c: lowers the slowest class as far as its step gains by it, then takes back what harms most for the time it saves.
 *
 * 1. Every class in the base precision: the one that finishes its backward pass last is the one to lower (the first of them
 *    where several do). The others would only wait for it and keep the base; only a class that does not fit its memory is
 *    lowered, too, and no further than it must.
 * 2. The fastest plan that fits: from the fastest of the uniform plans, move by move (search.h) whatever makes the plan fit
 *    better, the step shorter or, with the same step, the class less busy, until nothing does. Times the slowdown, that is
 *    the target.
 * 3. Recovery: of all moves that lower the harm the one that avoids most of it for each ns that it keeps the class longer,
 *    if the step stays within the target and the plan fits; again until no move is left. A move's ratio changes as its
 *    neighbours move (casts are shared, or no longer needed), so the best one is measured anew before it is made, and goes back
 *    into the queue where another is better now. What was turned down is tried again after the rest has moved.
 * 4. Exchange: a move that was too long together with one that makes room for it, where harm is left over.
 * 3 and 4 start from the fastest plan and from every uniform plan within the target; the best result counts.
 *
 * A precision whose costs were not measured is left out of account, unless the base plan needs it, which is an error.
 * Ties go to the lower operator, then to the wider precision; no step depends on anything but its input. */
#include "allocator/policies.h"
#include "allocator/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef TOL
#define TOL 0
#endif
#ifndef LOW
#define LOW 0
#endif
enum { MOST_ROUNDS = 4, MOST_EXCHANGES = 16, EXCHANGE_TRIALS = 24 };

static int fits(const tandem_figures *figures, int64_t target_ns)
{
    return figures->excess_bytes == 0 && figures->step_ns <= target_ns;
}

/* --- The fastest plan --------------------------------------------------------------------------------------------------- */

static int is_faster(const tandem_figures *a, const tandem_figures *b)
{
    if (a->excess_bytes != b->excess_bytes)
        return a->excess_bytes < b->excess_bytes;
    if (a->step_ns != b->step_ns)
        return a->step_ns < b->step_ns;
    return a->busy_ns < b->busy_ns;
}

static tandem_status descend(tandem_search *search, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int64_t before = -1;
    for (int round = 0; round < MOST_ROUNDS && before != search->n_change; round++) {
        before = search->n_change;
        for (int m = 0; m < search->n_move && status == TANDEM_OK; m++) {
            tandem_move *move = &search->move[m];
            status = tandem_search_measure(search, move, error);
            if (status == TANDEM_OK && move->possible && is_faster(&move->after, &search->figures))
                tandem_search_make(search, move);
        }
        if (status != TANDEM_OK)
            break;
    }
    return status;
}

/* The uniform plans of the class that can be replayed: a plan a precision, NULL where there is none. */
typedef struct starts {
    tandem_precision *plan[TANDEM_N_PRECISION + 1]; /* the last: as the class was found */
    tandem_figures figures[TANDEM_N_PRECISION + 1];
} starts;
enum { N_START = TANDEM_N_PRECISION + 1, AS_FOUND = TANDEM_N_PRECISION };

static void free_starts(starts *all)
{
    for (int s = 0; s < N_START; s++)
        free(all->plan[s]);
}

static tandem_status keep_start(starts *all, int s, const tandem_search *search, tandem_error *error)
{
    const size_t bytes = (size_t)search->n_op * sizeof *search->now;
    if (!all->plan[s])
        all->plan[s] = malloc(bytes + 1);
    if (!all->plan[s])
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to allocate %d operators", search->n_op);
    memcpy(all->plan[s], search->now, bytes);
    all->figures[s] = search->figures;
    return TANDEM_OK;
}

/* `plan` is overwritten in the class of the search. */
static tandem_status find_starts(starts *all, tandem_search *search, tandem_plan *plan, tandem_error *error)
{
    const unsigned precisions = plan->cluster.member[search->c].device.precisions;
    tandem_status status = keep_start(all, AS_FOUND, search, error);
    const size_t bytes = (size_t)search->n_op * sizeof *search->now;
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        if (!(precisions & 1u << p))
            continue;
        status = tandem_plan_uniform(plan, search->problem->graph, search->c, (tandem_precision)p, error);
        if (status != TANDEM_OK)
            break;
        if (memcmp(plan->precision[search->c], all->plan[AS_FOUND], bytes) == 0)
            continue;
        tandem_error why = {0};
        status = tandem_search_go(search, plan->precision[search->c], &why);
        if (status == TANDEM_OK)
            status = keep_start(all, p, search, error);
        else if (status == TANDEM_MISSING)
            status = TANDEM_OK;
        else if (error)
            *error = why;
    }
    return status;
}

/* Leaves the fastest plan in the search, and all->figures of the rest. TANDEM_NO_FIT where not one fits. */
static tandem_status find_fastest(starts *all, tandem_search *search, tandem_error *error)
{
    int tried[N_START] = {0};
    for (int attempt = 0; attempt < N_START; attempt++) {
        int best = -1;
        for (int s = 0; s < N_START; s++)
            if (all->plan[s] && !tried[s] && (best < 0 || is_faster(&all->figures[s], &all->figures[best])))
                best = s;
        if (best < 0)
            break;
        tried[best] = 1;
        tandem_status status = tandem_search_go(search, all->plan[best], error);
        if (status == TANDEM_OK)
            status = descend(search, error);
        if (status != TANDEM_OK || search->figures.excess_bytes == 0)
            return status;
    }
    return tandem_allocation_no_fit(search->problem, search->c, search->smallest_bytes, error);
}

/* --- Recovery: a queue of moves, the best ratio first --------------------------------------------------------------------- */

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
        if (child + 1 < q->n && is_better(q->move[child + 1], q->move[child]))
            child++;
        if (!is_better(q->move[child], last))
            break;
        q->move[at] = q->move[child];
    }
    if (q->n > 0)
        q->move[at] = last;
    return top;
}

static int avoids_harm(const tandem_search *search, const tandem_move *move)
{
    return move->possible && move->after.harm < search->figures.harm;
}

static int saves_time(const tandem_search *search, const tandem_move *move)
{
    return move->possible && move->after.busy_ns < search->figures.busy_ns;
}

/* gain for each unit of a price; INFINITY where there is nothing to pay */
static double merit(double gain, double price) { return price > 0 ? gain / price : INFINITY; }

/* Which moves a queue is of, and whether it is to be made. */
typedef enum direction { RECOVER, LOWER } direction;

/* 0: not of this queue now. Else its merit is up to date. */
static int rate(const tandem_search *search, direction way, tandem_move *move)
{
    const double harm = search->figures.harm - move->after.harm;
    const double longer_ns = (double)(move->after.busy_ns - search->figures.busy_ns);
    move->merit = way == RECOVER ? merit(harm, longer_ns) : merit(-longer_ns, -harm);
    return way == RECOVER ? avoids_harm(search, move) : saves_time(search, move);
}

static tandem_status walk(tandem_search *search, queue *q, direction way, int64_t target_ns, tandem_error *error)
{
    tandem_status status = tandem_search_measure_all(search, error);
    q->n = 0;
    for (int m = 0; m < search->n_move && status == TANDEM_OK; m++)
        if (rate(search, way, &search->move[m]))
            push(q, &search->move[m]);
    while (status == TANDEM_OK && q->n > 0) {
        tandem_move *move = pop(q);
        if (way == LOWER && fits(&search->figures, target_ns))
            break;
        if (move->measured_at != search->n_change) {
            status = tandem_search_measure(search, move, error);
            if (status != TANDEM_OK || !rate(search, way, move))
                continue;
            if (q->n > 0 && is_better(q->move[0], move)) {
                push(q, move);
                continue;
            }
        }
        if (way == LOWER || fits(&move->after, target_ns))
            tandem_search_make(search, move);
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

/* --- Exchange ----------------------------------------------------------------------------------------------------------------- */

typedef struct pair {
    const tandem_move *up, *down;
    double gain;
} pair;

/* The pairs that promise most, if their times and harms just add; best first. */
static int find_pairs(pair *best, const tandem_search *search, int64_t target_ns)
{
    int n = 0;
    const tandem_figures *now = &search->figures;
    for (int u = 0; u < search->n_move; u++) {
        const tandem_move *up = &search->move[u];
        if (!avoids_harm(search, up))
            continue;
        for (int d = 0; d < search->n_move; d++) {
            const tandem_move *down = &search->move[d];
            const double gain = now->harm - up->after.harm + now->harm - down->after.harm;
            if (!down->possible || gain <= 0 || down->after.harm <= now->harm || (n == EXCHANGE_TRIALS && gain <= best[n - 1].gain))
                continue;
            if (up->after.step_ns + (down->after.busy_ns - now->busy_ns) * (100 + TOL) / 100 > target_ns || tandem_search_overlap(search, up, down))
                continue;
            int at = n < EXCHANGE_TRIALS ? n++ : n - 1;
            for (; at > 0 && best[at - 1].gain < gain; at--)
                best[at] = best[at - 1];
            best[at] = (pair){up, down, gain};
        }
    }
    return n;
}

/* Makes the first pair that holds what it promised. */
static tandem_status exchange_once(tandem_search *search, int64_t target_ns, tandem_precision *plan, tandem_error *error)
{
    pair best[EXCHANGE_TRIALS];
    const size_t bytes = (size_t)search->n_op * sizeof *plan;
    tandem_precision *const before = plan, *const tried = plan + search->n_op;
    tandem_status status = tandem_search_measure_all(search, error);
    const int n = status == TANDEM_OK ? find_pairs(best, search, target_ns) : 0;
    const double harm = search->figures.harm;
    memcpy(before, search->now, bytes);
    for (int k = 0; k < n && status == TANDEM_OK; k++) {
        tandem_error why = {0};
        memcpy(tried, before, bytes);
        tandem_search_apply(search, best[k].down, tried);
        tandem_search_apply(search, best[k].up, tried);
        status = tandem_search_go(search, tried, &why);
        if (status == TANDEM_OK && fits(&search->figures, target_ns) && search->figures.harm < harm)
            return TANDEM_OK;
        if (status == TANDEM_OK || status == TANDEM_MISSING)
            status = tandem_search_go(search, before, error);
        else if (error)
            *error = why;
    }
    return status;
}

static tandem_status exchange(tandem_search *search, queue *q, int64_t target_ns, tandem_precision *room, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    double before = INFINITY;
    for (int k = 0; k < MOST_EXCHANGES && status == TANDEM_OK && search->figures.harm < before; k++) {
        before = search->figures.harm;
        status = exchange_once(search, target_ns, room, error);
        if (status == TANDEM_OK && search->figures.harm < before)
            status = recover(search, q, target_ns, error);
    }
    return status;
}

/* --- One class ------------------------------------------------------------------------------------------------------------------- */

/* From the plan in the search, which is within the target, and from every start that is: the least harm that is found. */
static tandem_status improve(tandem_search *search, starts *all, int64_t target_ns, tandem_error *error)
{
    tandem_precision *room = malloc((3 * (size_t)search->n_op + 1) * sizeof *room);
    tandem_precision *const best = room ? room + 2 * search->n_op : NULL;
    queue q = {.move = malloc(((size_t)search->n_move + 1) * sizeof *q.move)};
    tandem_status status = TANDEM_OK;
    tandem_figures found = {.harm = INFINITY};
    if (!room || !q.move)
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to allocate %d operators", search->n_op);
    for (int s = -1; s < N_START && status == TANDEM_OK; s++) {
        if (s >= 0 && (!all->plan[s] || (!(LOW==1 || (LOW==2 && s == AS_FOUND)) && !fits(&all->figures[s], target_ns))))
            continue;
        if (s >= 0)
            status = tandem_search_go(search, all->plan[s], error);
        if (status == TANDEM_OK && s >= 0)
            status = walk(search, &q, LOWER, target_ns, error);
        if (!fits(&search->figures, target_ns)) continue;
        if (status == TANDEM_OK)
            status = recover(search, &q, target_ns, error);
        if (status == TANDEM_OK && EX)
            status = exchange(search, &q, target_ns, room, error);
        if (status == TANDEM_OK && (search->figures.harm < found.harm ||
                                    (search->figures.harm == found.harm && search->figures.step_ns < found.step_ns))) {
            found = search->figures;
            memcpy(best, search->now, (size_t)search->n_op * sizeof *best);
        }
    }
    if (status == TANDEM_OK)
        status = tandem_search_go(search, best, error);
    if (status == TANDEM_OK && !EX)
            status = exchange(search, &q, target_ns, room, error);
    free(q.move);
    free(room);
    return status;
}

typedef struct outcome {
    int64_t fastest_ns, target_ns, replays;
    double fastest_sensitivity;
} outcome;

/* Lowers class c. least_ns: a target that need not be undercut. */
static tandem_status lower(outcome *result, const tandem_allocation_problem *problem, tandem_plan *plan, int c,
                           double slowdown, int64_t least_ns, tandem_error *error)
{
    tandem_search search;
    starts all = {0};
    tandem_status status = tandem_search_open(&search, problem, c, error);
    if (status != TANDEM_OK)
        return status;
    status = find_starts(&all, &search, plan, error);
    if (status == TANDEM_OK)
        status = find_fastest(&all, &search, error);
    if (status == TANDEM_OK) {
        const int64_t fastest_ns = search.figures.step_ns;
        const int64_t target_ns = fastest_ns + (int64_t)((double)fastest_ns * slowdown);
        result->fastest_ns = fastest_ns;
        result->target_ns = target_ns > least_ns ? target_ns : least_ns;
        result->fastest_sensitivity = tandem_allocation_sensitivity(problem);
        status = improve(&search, &all, result->target_ns, error);
    }
    result->replays += search.replays;
    free_starts(&all);
    tandem_search_close(&search);
    return status;
}

static tandem_status allocate(const tandem_allocation_problem *problem, tandem_allocation *allocation, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_replay base;
    outcome result = {.replays = 1};
    tandem_status status = tandem_allocation_begin(&plan, &base, problem, error);
    if (status != TANDEM_OK)
        return status;
    const double base_sensitivity = tandem_allocation_sensitivity(problem);
    for (int c = 0; c < base.n_class && status == TANDEM_OK; c++) {
        const uint64_t limit_bytes = tandem_allocation_limit_bytes(problem, c);
        if (c != base.slowest && limit_bytes && base.member[c].peak_bytes > limit_bytes)
            status = lower(&result, problem, plan, c, 0, base.step_ns, error);
    }
    if (status == TANDEM_OK)
        status = lower(&result, problem, plan, base.slowest, problem->slowdown, 0, error);
    if (status == TANDEM_OK)
        *allocation = (tandem_allocation){
            .target_ns = result.target_ns,
            .base_ns = base.step_ns,
            .fastest_ns = result.fastest_ns,
            .base_sensitivity = base_sensitivity,
            .fastest_sensitivity = result.fastest_sensitivity,
            .replays = result.replays,
            .lowered = base.slowest,
        };
    tandem_plan_close(plan);
    return status;
}

const tandem_policy tandem_policy_greedy = {
    .name = "greedy",
    .meaning = "the fastest plan, with the precisions taken back that harm most for the time they save",
    .allocate = allocate,
};
