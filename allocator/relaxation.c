/* relaxation.c: the limits of relaxation.h as weights of a network, and the search for the interval with the
 * least bound. */
#include "allocator/relaxation.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/policies.h"
#include "allocator/rows.h"
#include "base/clock.h"

static const double rounding = 1e-11; /* relative error of a sum of products of doubles, on the safe side */
enum { ROUNDING_NS = 2 };             /* a replayed step is rounded to ns, sums of its parts are not */

static const tandem_step *step_of(const tandem_relaxation *r)
{
    return tandem_replayer_step(r->problem->replayer, r->c);
}

static tandem_status no_memory(const tandem_relaxation *r, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to bound the plans of model %s (%d choices)",
                            r->problem->graph->model, r->network ? r->network->n_layer : 0);
}

/* --- Terms ---------------------------------------------------------------------------------------------- */

/* Moments of a step: see relaxation.h. Updates but the last bucket's come behind all work. */
static int64_t end_of_work(const tandem_step *step) { return (int64_t)step->options.n_micro * step->n_task; }
static int64_t end_of_step(const tandem_step *step) { return end_of_work(step) + 1; }
static int64_t in_last_pass(const tandem_step *step, int task)
{
    return (int64_t)(step->options.n_micro - 1) * step->n_task + task;
}

/* When the task runs first. */
static int64_t place_of(const tandem_step *step, int task)
{
    if (tandem_step_begins(step, task)) return -1;
    return step->task[task].kind == TANDEM_TASK_UPDATE ? end_of_work(step) : task;
}

/* How often what runs first at `place` runs before `moment`. */
static int64_t runs_before(const tandem_step *step, int64_t place, int64_t moment)
{
    const int64_t end = end_of_work(step);
    if (place < 0 || place >= end) return place < moment;
    if (moment <= place) return 0;
    return moment >= end ? step->options.n_micro : moment / step->n_task + (place < moment % step->n_task);
}

static void price_terms(tandem_relaxation *r, const tandem_replay_company *company)
{
    const tandem_network *network = r->network;
    const tandem_replayer *replayer = r->problem->replayer;
    for (int k = 0; k < network->term_start[network->n_bundle]; k++) {
        const tandem_term *term = &network->term[k];
        const int64_t alone = tandem_replayer_form_ns(replayer, r->c, term->task, term->variant, 0);
        const int64_t beside = tandem_replayer_form_ns(replayer, r->c, term->task, term->variant, 1);
        r->place[k] = place_of(step_of(r), term->task);
        r->beside_ns[k] = company->is_own_neighbour || company->shares_node ? beside : alone;
        r->least_ns[k] = company->is_own_neighbour                ? beside
                         : company->shares_node && beside < alone ? beside
                                                                  : alone;
    }
}

static void find_cuts(tandem_relaxation *r)
{
    const tandem_step *step = step_of(r);
    int before = -1;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task_kind kind = step->task[t].kind;
        const int is_backward = kind == TANDEM_TASK_WGRAD || kind == TANDEM_TASK_DGRAD;
        if (!is_backward || step->task[t].op == before) continue;
        before = step->task[t].op;
        r->cut[r->n_cut++] = t;
    }
}

/* --- Opening -------------------------------------------------------------------------------------------- */

tandem_status tandem_relaxation_open(tandem_relaxation *out, const tandem_allocation_problem *problem, int c,
                                     const unsigned *allowed, tandem_error *error)
{
    tandem_relaxation r = {
        .problem = problem, .c = c, .limit_bytes = tandem_allocation_limit_bytes(problem, c)};
    tandem_replay_company company;
    tandem_status status =
        tandem_network_open(&r.network, problem->replayer, c, allowed, problem->sensitivity[c], error);
    if (status != TANDEM_OK) return status;
    const size_t n_term = (size_t)r.network->term_start[r.network->n_bundle] + 1;
    const size_t n_bundle = (size_t)r.network->n_bundle;
    r.beside_ns = malloc(n_term * sizeof *r.beside_ns);
    r.least_ns = malloc(n_term * sizeof *r.least_ns);
    r.place = malloc(n_term * sizeof *r.place);
    r.cut = malloc(((size_t)step_of(&r)->n_task + 1) * sizeof *r.cut);
    r.time_ns = malloc(n_bundle * sizeof *r.time_ns);
    r.after_ns = malloc(n_bundle * sizeof *r.after_ns);
    if (!r.beside_ns || !r.least_ns || !r.place || !r.cut || !r.time_ns || !r.after_ns) {
        tandem_relaxation_close(&r);
        return no_memory(&(tandem_relaxation){.problem = problem}, error);
    }
    tandem_replayer_company(problem->replayer, c, &company);
    price_terms(&r, &company);
    find_cuts(&r);
    const tandem_memory *memory = tandem_replayer_memory(problem->replayer, c);
    r.fixed_bytes = memory->weights + memory->gradients + memory->optimizer;
    *out = r;
    return TANDEM_OK;
}

void tandem_relaxation_close(tandem_relaxation *r)
{
    free(r->after_ns);
    free(r->time_ns);
    free(r->cut);
    free(r->place);
    free(r->least_ns);
    free(r->beside_ns);
    tandem_network_close(r->network);
    *r = (tandem_relaxation){0};
}

uint64_t tandem_relaxation_arena_limit(const tandem_relaxation *r)
{
    if (!r->limit_bytes) return UINT64_MAX;
    return r->limit_bytes > r->fixed_bytes ? r->limit_bytes - r->fixed_bytes : 0;
}

/* --- Weights of an interval ----------------------------------------------------------------------------- */

/* time_ns: the tasks before the moment `first` beside others, the others at their best; after_ns: those from
 * `last` on at their best. Tasks from `end` on count in neither. */
static void weigh(tandem_relaxation *r, int64_t first, int64_t last, int64_t end)
{
    const tandem_network *network = r->network;
    const tandem_step *step = step_of(r);
    const int64_t together = first < end ? first : end, before = last < end ? last : end;
    for (int b = 0; b < network->n_bundle; b++) {
        int64_t time = 0, after = 0;
        for (int k = network->term_start[b]; k < network->term_start[b + 1]; k++) {
            const int64_t n = runs_before(step, r->place[k], end),
                          n_together = runs_before(step, r->place[k], together);
            time += n_together * r->beside_ns[k] + (n - n_together) * r->least_ns[k];
            after += (n - runs_before(step, r->place[k], before)) * r->least_ns[k];
        }
        r->time_ns[b] = time;
        r->after_ns[b] = (uint64_t)after;
    }
}

/* How long classes can compute while the last bucket is on the wire: updates of the others. */
static double updates_ns(const tandem_relaxation *r)
{
    const tandem_replayer *replayer = r->problem->replayer;
    double sum = 0;
    for (int c = 0; c < tandem_replayer_cluster(replayer)->n_class; c++) {
        const tandem_step *step = tandem_replayer_step(replayer, c);
        tandem_replay_company company;
        tandem_replayer_company(replayer, c, &company);
        for (int b = 0; b < step->n_bucket; b++) {
            const int t = step->bucket[b].update_task;
            if (tandem_step_begins(step, t)) continue;
            const double alone = (double)tandem_replayer_form_ns(replayer, c, t, 0, 0);
            sum += company.slowed * fmax(alone, (double)tandem_replayer_form_ns(replayer, c, t, 0, 1));
        }
    }
    return sum;
}

/* The least that bucket b takes on the wire; the last one has it almost to itself. */
static double least_wire_ns(const tandem_relaxation *r, int b)
{
    double idle, loaded;
    tandem_replayer_bucket_ns(r->problem->replayer, b, &idle, &loaded);
    if (loaded >= idle) return idle;
    return b == step_of(r)->n_bucket - 1 ? fmax(loaded, idle - updates_ns(r) * (idle / loaded - 1)) : loaded;
}

/* What of the target is left for the work until bucket `anchor` is handed over. */
static int64_t work_limit_ns(const tandem_relaxation *r, int anchor, int64_t target_ns)
{
    tandem_replay_company company;
    double rest = 0;
    tandem_replayer_company(r->problem->replayer, r->c, &company);
    for (int b = 0; b < step_of(r)->n_bucket; b++) {
        double idle, loaded;
        tandem_replayer_bucket_ns(r->problem->replayer, b, &idle, &loaded);
        const double wire = least_wire_ns(r, b);
        rest += b < anchor ? fmin((1 - 1 / company.slowed) * loaded, wire) : wire;
    }
    return target_ns - (int64_t)floor(rest) + ROUNDING_NS;
}

/* Where the work ends until bucket `anchor` is handed over. */
static int64_t end_of_anchor(const tandem_relaxation *r, int anchor)
{
    const tandem_step *step = step_of(r);
    return anchor == step->n_bucket - 1 ? end_of_work(step)
                                        : in_last_pass(step, step->bucket[anchor].reduce_task);
}

/* Time of what runs first. */
static int64_t begin_ns(const tandem_relaxation *r)
{
    const tandem_step *step = step_of(r);
    int64_t sum = 0;
    for (int t = step->bucket[0].update_task - 1; t < step->n_task; t++)
        if (tandem_step_begins(step, t)) sum += tandem_replayer_form_ns(r->problem->replayer, r->c, t, 0, 1);
    return sum;
}

/* Where intervals may end: place k of n_end. */
static int n_end(const tandem_relaxation *r) { return r->n_cut * step_of(r)->options.n_micro + 2; }
static int64_t end_at(const tandem_relaxation *r, int k)
{
    const tandem_step *step = step_of(r);
    if (k == 0) return r->together_ns > begin_ns(r) ? 0 : -1;
    if (k == n_end(r) - 1) return end_of_work(step);
    return (int64_t)((k - 1) / r->n_cut) * step->n_task + r->cut[(k - 1) % r->n_cut];
}

tandem_limits tandem_relaxation_limits(tandem_relaxation *r, int64_t target_ns)
{
    const int last_bucket = step_of(r)->n_bucket - 1;
    weigh(r, end_at(r, 0), end_of_work(step_of(r)), end_of_anchor(r, last_bucket));
    return (tandem_limits){.time_ns = r->time_ns,
                           .time_limit_ns = work_limit_ns(r, last_bucket, target_ns),
                           .bytes = r->limit_bytes ? r->network->bytes : NULL,
                           .byte_limit = tandem_relaxation_arena_limit(r)};
}

/* --- Extremes ------------------------------------------------------------------------------------------- */

tandem_status tandem_relaxation_least_beside_ns(int64_t *ns, const tandem_relaxation *r, tandem_error *error)
{
    double value;
    tandem_relaxation *scratch = (tandem_relaxation *)r; /* its weights are overwritten before each use */
    const int64_t end = end_of_work(step_of(r));
    weigh(scratch, end, end, end);
    const tandem_limits limits = {
        .time_ns = r->time_ns, .time_limit_ns = INT64_MAX, .byte_limit = UINT64_MAX};
    const tandem_status status = tandem_solve_shortest(&value, NULL, r->network, &limits, 0, 1, 0, error);
    if (status == TANDEM_OK) *ns = (int64_t)value;
    return status;
}

/* --- Rows: every limit on the plans of an interval ------------------------------------------------------ */

typedef struct interval {
    int first, last; /* places of end_at */
    double bound;
    int is_exact; /* the bound is that of all rows */
} interval;

typedef struct weights {
    int64_t *of; /* [n_bundle] */
    int64_t limit;
} weights;

typedef struct bounding {
    tandem_relaxation *r;
    int64_t target_ns;
    uint64_t byte_limit; /* UINT64_MAX where memory cannot bind */
    double tolerance;
    int64_t deadline_ns;
    int *choice;         /* [n_layer] scratch */
    weights pure, joint; /* a row; a weighted sum of rows, or another row */
    tandem_rows rows;    /* room for all */
    double *multiplier;  /* [n_row] */
} bounding;

/* Rows 0 … n_bucket − 1: work until the bucket is handed over; then work behind the interval; all work of a
 * step; memory. */
enum { ROW_BEHIND, ROW_ALL, ROW_MEMORY, N_ROW_MORE }; /* beyond the buckets' */
static int n_row(const bounding *b) { return step_of(b->r)->n_bucket + N_ROW_MORE; }

static double seconds_left(const bounding *b) { return (double)(b->deadline_ns - tandem_now_ns()) * 1e-9; }

/* Puts the row's weights into r->after_ns. Returns 0 where it does not bind in this interval. */
static int weigh_row(const bounding *b, const interval *i, int row, uint64_t *limit)
{
    tandem_relaxation *r = b->r;
    const int n_bucket = step_of(r)->n_bucket, kind = row - n_bucket, anchor = kind < 0 ? row : n_bucket - 1;
    const int64_t first = end_at(r, i->first), last = end_at(r, i->last);
    int64_t limit_ns = work_limit_ns(r, anchor, b->target_ns);
    if (kind == ROW_MEMORY) {
        memcpy(r->after_ns, r->network->bytes, (size_t)r->network->n_bundle * sizeof *r->after_ns);
        *limit = b->byte_limit;
        return b->byte_limit < UINT64_MAX;
    }
    if (kind == ROW_BEHIND) {
        if (last == end_of_work(step_of(r))) return 0;
        weigh(r, first, last, end_of_anchor(r, anchor));
        limit_ns -= r->together_ns;
    } else if (kind == ROW_ALL) { /* behind the last step's, it may begin late, and alone */
        weigh(r, -1, -1, end_of_step(step_of(r)));
        limit_ns = b->target_ns + ROUNDING_NS;
    } else {
        weigh(r, first, -1, end_of_anchor(r, anchor));
        for (int k = 0; k < r->network->n_bundle; k++) r->after_ns[k] = (uint64_t)r->time_ns[k];
    }
    *limit = limit_ns > 0 ? (uint64_t)limit_ns : 0;
    return 1;
}

/* The row in r->after_ns. */
static void take_row(const bounding *b, weights *to, uint64_t limit)
{
    for (int k = 0; k < b->r->network->n_bundle; k++) to->of[k] = (int64_t)b->r->after_ns[k];
    to->limit = (int64_t)limit;
}

/* Both limits; `second` NULL = one. The second is copied to r->after_ns. */
static tandem_limits limits_of(const bounding *b, const weights *first, const weights *second)
{
    tandem_limits limits = {.time_ns = first->of, .time_limit_ns = first->limit, .byte_limit = UINT64_MAX};
    if (!second) return limits;
    for (int k = 0; k < b->r->network->n_bundle; k++) b->r->after_ns[k] = (uint64_t)second->of[k];
    limits.bytes = b->r->after_ns;
    limits.byte_limit = (uint64_t)second->limit;
    return limits;
}

/* All rows of the interval into b->rows. */
static void take_all_rows(bounding *b, const interval *i)
{
    const size_t n_bundle = (size_t)b->r->network->n_bundle;
    b->rows.n_row = 0;
    for (int row = 0; row < n_row(b); row++) {
        uint64_t limit;
        if (!weigh_row(b, i, row, &limit)) continue;
        weights to = {.of = b->rows.weight + (size_t)b->rows.n_row * n_bundle};
        take_row(b, &to, limit);
        b->rows.limit[b->rows.n_row++] = to.limit;
    }
}

/* Rows first … end − 1 as their multipliers weigh them, in units of the dearest one, rounded so that whatever
 * is within all of them is within their sum. */
static void join_rows(const bounding *b, weights *to, int first, int end)
{
    const size_t n_bundle = (size_t)b->r->network->n_bundle;
    double dearest = 0, limit = 0;
    for (int r = first; r < end; r++) dearest = fmax(dearest, b->multiplier[r]);
    for (size_t k = 0; k < n_bundle; k++) {
        double sum = 0;
        for (int r = first; r < end && dearest > 0; r++)
            sum += b->multiplier[r] / dearest * (double)b->rows.weight[(size_t)r * n_bundle + k];
        to->of[k] = (int64_t)floor(sum * (1 - rounding));
    }
    for (int r = first; r < end && dearest > 0; r++)
        limit += b->multiplier[r] / dearest * (double)b->rows.limit[r];
    to->limit = (int64_t)ceil(limit * (1 + rounding));
}

/* Divides the rows in two of about equal weight in the bound: the first row of the second part. */
static int find_middle(const bounding *b)
{
    double all = 0, sum = 0;
    int r = 0;
    for (int k = 0; k < b->rows.n_row; k++) all += b->multiplier[k] * (double)b->rows.limit[k];
    while (r < b->rows.n_row && sum + b->multiplier[r] * (double)b->rows.limit[r] <= all / 2)
        sum += b->multiplier[r] * (double)b->rows.limit[r], r++;
    return r;
}

/* The row that the way exceeds most, relatively; −1 = none. */
static int find_exceeded(const bounding *b, const int *choice)
{
    int worst = -1;
    double worst_share = 0;
    for (int r = 0; r < b->rows.n_row; r++) {
        const double limit = (double)b->rows.limit[r];
        const double share =
            ((double)tandem_rows_length(&b->rows, b->r->network, r, choice) - limit) / (limit + 1);
        if (share <= worst_share) continue;
        worst = r;
        worst_share = share;
    }
    return worst;
}

/* --- Intervals ------------------------------------------------------------------------------------------ */

static void raise(interval *i, double bound)
{
    if (bound > i->bound) i->bound = bound;
}

/* By work until the last bucket, and work behind the interval. */
static tandem_status bound_quickly(bounding *b, interval *i, tandem_error *error)
{
    const int n_bucket = step_of(b->r)->n_bucket;
    tandem_solution solution = {.choice = NULL};
    uint64_t limit = 0;
    (void)weigh_row(b, i, n_bucket - 1, &limit);
    take_row(b, &b->pure, limit);
    const int is_bounded = weigh_row(b, i, n_bucket + ROW_BEHIND, &limit);
    if (is_bounded) take_row(b, &b->joint, limit);
    const tandem_limits limits = limits_of(b, &b->pure, is_bounded ? &b->joint : NULL);
    const tandem_status status = tandem_solve_lagrange(&solution, NULL, b->r->network, &limits, error);
    if (status == TANDEM_OK) raise(i, solution.lower_bound);
    return status;
}

/* By all rows: as their multipliers weigh them, and exactly by the sums of two halves of them, then by the
 * sum of all beside a row that the way found exceeds. Of the ways found one within all rows is preferred. */
static tandem_status bound_by_all(bounding *b, interval *i, tandem_solution *out, tandem_error *error)
{
    enum { MOST_ROUNDS = 4 };
    const size_t n_bundle = (size_t)b->r->network->n_bundle, n_layer = (size_t)b->r->network->n_layer;
    double bound, within = INFINITY;
    take_all_rows(b, i);
    tandem_status status =
        tandem_rows_bound(&bound, b->multiplier, &within, out->choice, &b->rows, b->r->network, error);
    if (status != TANDEM_OK) return status;
    raise(i, bound);
    out->sensitivity = within;
    const int middle = find_middle(b);
    join_rows(b, &b->pure, 0, middle);
    join_rows(b, &b->joint, middle, b->rows.n_row);
    for (int round = 0; round < MOST_ROUNDS; round++) {
        tandem_solution solution = {.choice = b->choice, .sensitivity = INFINITY};
        const tandem_limits limits = limits_of(b, &b->pure, &b->joint);
        status = tandem_solve_exact(&solution, b->r->network, &limits, INFINITY, b->tolerance,
                                    fmax(seconds_left(b), 0), error);
        if (status != TANDEM_OK) break;
        raise(i, solution.lower_bound);
        i->is_exact = 1;
        out->proven = solution.proven;
        if (solution.sensitivity == INFINITY) break;
        const int row = find_exceeded(b, b->choice);
        if (row < 0 ? solution.sensitivity < out->sensitivity : within == INFINITY) {
            out->sensitivity = solution.sensitivity;
            memcpy(out->choice, b->choice, n_layer * sizeof *b->choice);
        }
        if (row < 0) break;
        join_rows(b, &b->joint, 0, b->rows.n_row);
        memcpy(b->pure.of, b->rows.weight + (size_t)row * n_bundle, n_bundle * sizeof *b->pure.of);
        b->pure.limit = b->rows.limit[row];
    }
    return status;
}

static int least_of(const interval *list, int n)
{
    int least = 0;
    for (int k = 1; k < n; k++)
        if (list[k].bound < list[least].bound) least = k;
    return least;
}

/* Halves interval `at`; the second half goes to list[*n]. */
static tandem_status halve(bounding *b, interval *list, int *n, int at, tandem_error *error)
{
    const interval whole = list[at];
    const int middle = (whole.first + whole.last) / 2;
    list[at] = (interval){whole.first, middle, whole.bound, 0};
    list[*n] = (interval){middle, whole.last, whole.bound, 0};
    tandem_status status = bound_quickly(b, &list[at], error);
    if (status == TANDEM_OK) status = bound_quickly(b, &list[*n], error);
    (*n)++;
    return status;
}

static tandem_status bound_all_intervals(bounding *b, tandem_solution *solution, tandem_error *error)
{
    const tandem_relaxation *r = b->r;
    interval *list = malloc((size_t)n_end(r) * sizeof *list);
    if (!list) return no_memory(r, error);
    int n = 1, at = 0;
    tandem_status status = TANDEM_OK;
    list[0] = (interval){0, n_end(r) - 1, -INFINITY, 0};
    while (status == TANDEM_OK && !list[at].is_exact && list[at].bound < INFINITY && seconds_left(b) > 0) {
        if (r->together_ns > 0 && list[at].last - list[at].first > 1)
            status = halve(b, list, &n, at, error);
        else
            status = bound_by_all(b, &list[at], solution, error);
        at = least_of(list, n);
    }
    solution->lower_bound = list[at].bound;
    solution->proven = list[at].is_exact && solution->proven;
    free(list);
    return status;
}

/* Whether memory can bind: whether a plan may have more than the limit, for all that its layers say one by
 * one. */
static int can_bind(const tandem_network *network, uint64_t byte_limit)
{
    uint64_t most = network->bytes[0];
    for (int l = 0; l < network->n_layer; l++) {
        uint64_t of_layer = 0;
        const int first = network->arc_start[network->state_start[l]];
        const int end = network->arc_start[network->state_start[l + 1]];
        for (int a = first; a < end; a++)
            if (network->bytes[network->arc[a].bundle] > of_layer)
                of_layer = network->bytes[network->arc[a].bundle];
        most += of_layer;
    }
    return most > byte_limit;
}

tandem_status tandem_relaxation_bound(tandem_solution *out, tandem_relaxation *r, int64_t target_ns,
                                      uint64_t byte_limit, double tolerance, double time_limit_s,
                                      tandem_error *error)
{
    bounding b = {.r = r,
                  .target_ns = target_ns,
                  .byte_limit = can_bind(r->network, byte_limit) ? byte_limit : UINT64_MAX,
                  .tolerance = tolerance,
                  .deadline_ns = tandem_now_ns() + (int64_t)(time_limit_s * 1e9)};
    tandem_solution solution = {.choice = out->choice, .sensitivity = INFINITY};
    const size_t n_bundle = (size_t)r->network->n_bundle, n_rows = (size_t)n_row(&b);
    int64_t *room = malloc(((2 + n_rows) * n_bundle + n_rows) * sizeof *room);
    b.choice = malloc(((size_t)r->network->n_layer + 1) * sizeof *b.choice);
    b.multiplier = malloc(n_rows * sizeof *b.multiplier);
    tandem_status status = TANDEM_OK;
    if (!room || !b.choice || !b.multiplier) {
        status = no_memory(r, error);
    } else {
        b.pure.of = room;
        b.joint.of = room + n_bundle;
        b.rows.weight = room + 2 * n_bundle;
        b.rows.limit = room + (2 + n_rows) * n_bundle;
        status = bound_all_intervals(&b, &solution, error);
    }
    free(b.multiplier);
    free(b.choice);
    free(room);
    if (status == TANDEM_OK) *out = solution;
    return status;
}
