/* relaxation.c: the limits of relaxation.h as weights of a network, and the search for the interval with the least bound. */
#include "allocator/relaxation.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "allocator/policies.h"
#include "base/clock.h"

enum { ROUNDING_NS = 2 }; /* a replayed step is rounded to ns, sums of its parts are not */

static const tandem_step *step_of(const tandem_relaxation *r) { return tandem_replayer_step(r->problem->replayer, r->c); }

static tandem_status no_memory(const tandem_relaxation *r, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to bound the plans of model %s (%d choices)",
                            r->problem->graph->model, r->network ? r->network->n_layer : 0);
}

/* --- Terms ---------------------------------------------------------------------------------------------- */

/* When the task runs, for comparison with cuts. */
static int place_of(const tandem_step *step, int task)
{
    if (step->task[task].kind != TANDEM_TASK_UPDATE) return task;
    return step->task[task].bucket == step->n_bucket - 1 ? -1 : INT_MAX;
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
        r->least_ns[k] = company->is_own_neighbour                    ? beside
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
    tandem_relaxation r = {.problem = problem, .c = c, .limit_bytes = tandem_allocation_limit_bytes(problem, c)};
    tandem_replay_company company;
    tandem_status status =
        tandem_network_open(&r.network, problem->replayer, c, allowed, problem->harm[c], error);
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

/* time_ns: the tasks before `first` beside others, the others at their best; after_ns: those from `last` on at
 * their best. Tasks behind `end` count in neither. */
static void weigh(tandem_relaxation *r, int first, int last, int end)
{
    const tandem_network *network = r->network;
    for (int b = 0; b < network->n_bundle; b++) {
        int64_t time = 0, after = 0;
        for (int k = network->term_start[b]; k < network->term_start[b + 1]; k++) {
            if (r->place[k] > end) continue;
            time += r->place[k] < first ? r->beside_ns[k] : r->least_ns[k];
            if (r->place[k] >= last) after += r->least_ns[k];
        }
        r->time_ns[b] = time;
        r->after_ns[b] = (uint64_t)after;
    }
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
        const double wire = fmin(idle, loaded);
        rest += b < anchor ? fmin((1 - 1 / company.slowed) * loaded, wire) : wire;
    }
    return target_ns - (int64_t)floor(rest) + ROUNDING_NS;
}

/* The last task of the work until bucket `anchor` is handed over. */
static int last_place(const tandem_relaxation *r, int anchor)
{
    const tandem_step *step = step_of(r);
    return anchor == step->n_bucket - 1 ? INT_MAX - 1 : step->bucket[anchor].reduce_task;
}

/* Time of what runs first, the update of the last bucket. */
static int64_t first_update_ns(const tandem_relaxation *r)
{
    const tandem_step *step = step_of(r);
    return tandem_replayer_form_ns(r->problem->replayer, r->c, step->bucket[step->n_bucket - 1].update_task, 0, 1);
}

/* Where intervals may end: place k of n_cut + 2. */
static int end_at(const tandem_relaxation *r, int k)
{
    if (k == 0) return r->together_ns > first_update_ns(r) ? 0 : -1;
    return k <= r->n_cut ? r->cut[k - 1] : INT_MAX;
}

tandem_limits tandem_relaxation_limits(tandem_relaxation *r, int64_t target_ns)
{
    const int last_bucket = step_of(r)->n_bucket - 1;
    weigh(r, end_at(r, 0), INT_MAX, last_place(r, last_bucket));
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
    weigh(scratch, INT_MAX, INT_MAX, INT_MAX - 1);
    const tandem_limits limits = {.time_ns = r->time_ns, .time_limit_ns = INT64_MAX, .byte_limit = UINT64_MAX};
    const tandem_status status = tandem_solve_shortest(&value, NULL, r->network, &limits, 0, 1, 0, error);
    if (status == TANDEM_OK) *ns = (int64_t)value;
    return status;
}

tandem_status tandem_relaxation_fastest(int *choice, const tandem_relaxation *r, int beside, tandem_error *error)
{
    double value;
    tandem_relaxation *scratch = (tandem_relaxation *)r;
    weigh(scratch, beside ? INT_MAX : -1, INT_MAX, INT_MAX - 1);
    const tandem_limits limits = {.time_ns = r->time_ns, .time_limit_ns = INT64_MAX, .byte_limit = UINT64_MAX};
    return tandem_solve_shortest(&value, choice, r->network, &limits, 0, 1, 0, error);
}

/* --- Intervals ------------------------------------------------------------------------------------------ */

typedef struct interval {
    int first, last; /* places of end_at */
    double bound;
    int is_exact; /* the bound is that of tandem_solve_exact */
} interval;

typedef struct bounding {
    tandem_relaxation *r;
    int64_t target_ns;
    uint64_t byte_limit; /* UINT64_MAX where memory cannot bind */
    double cutoff, tolerance;
    int64_t deadline_ns;
    int anchor;
    int *choice; /* scratch */
} bounding;

static double seconds_left(const bounding *b) { return (double)(b->deadline_ns - tandem_now_ns()) * 1e-9; }

static tandem_limits limits_of(const bounding *b, const interval *i)
{
    tandem_relaxation *r = b->r;
    const int64_t work_ns = work_limit_ns(r, b->anchor, b->target_ns);
    const int last = end_at(r, i->last);
    tandem_limits limits = {.time_ns = r->time_ns, .time_limit_ns = work_ns, .byte_limit = UINT64_MAX};
    weigh(r, end_at(r, i->first), last, last_place(r, b->anchor));
    if (last == INT_MAX) return limits;
    limits.bytes = r->after_ns;
    limits.byte_limit = work_ns > r->together_ns ? (uint64_t)(work_ns - r->together_ns) : 0;
    return limits;
}

/* One limit on time made of both, so that there is room for one on memory: the sum of both, weighted as the
 * Lagrangian bound weights them. Every plan within both is within it. */
static tandem_status join_times(const bounding *b, tandem_limits *limits, tandem_error *error)
{
    tandem_relaxation *r = b->r;
    double multiplier[2] = {0, 0};
    tandem_solution solution = {.choice = b->choice};
    if (limits->bytes) {
        const tandem_status status = tandem_solve_lagrange(&solution, multiplier, r->network, limits, error);
        if (status != TANDEM_OK) return status;
        const double all = multiplier[0] + multiplier[1], share = all > 0 ? multiplier[0] / all : 1;
        if (solution.lower_bound < INFINITY) {
            for (int k = 0; k < r->network->n_bundle; k++)
                r->time_ns[k] =
                    (int64_t)floor(share * (double)r->time_ns[k] + (1 - share) * (double)r->after_ns[k]);
            limits->time_limit_ns = (int64_t)ceil(share * (double)limits->time_limit_ns +
                                                  (1 - share) * (double)limits->byte_limit);
        }
    }
    limits->bytes = r->network->bytes;
    limits->byte_limit = b->byte_limit;
    return TANDEM_OK;
}

/* Bounds the harm of the interval's plans: quickly, or exactly. */
static tandem_status bound_interval(const bounding *b, interval *i, int exactly, tandem_solution *solution,
                                    tandem_error *error)
{
    tandem_limits limits = limits_of(b, i);
    tandem_status status = TANDEM_OK;
    if (b->byte_limit < UINT64_MAX) status = join_times(b, &limits, error);
    if (status == TANDEM_OK && exactly)
        status = tandem_solve_exact(solution, b->r->network, &limits, b->cutoff, b->tolerance,
                                    fmax(seconds_left(b), 0), error);
    else if (status == TANDEM_OK)
        status = tandem_solve_lagrange(solution, NULL, b->r->network, &limits, error);
    if (status != TANDEM_OK) return status;
    if (!(i->bound > solution->lower_bound)) i->bound = solution->lower_bound;
    i->is_exact = exactly;
    return TANDEM_OK;
}

static int least_of(const interval *list, int n)
{
    int least = 0;
    for (int k = 1; k < n; k++)
        if (list[k].bound < list[least].bound) least = k;
    return least;
}

/* Halves interval `at`; the second half goes to list[*n]. */
static tandem_status halve(const bounding *b, interval *list, int *n, int at, tandem_error *error)
{
    tandem_solution ignored = {.choice = b->choice};
    const interval whole = list[at];
    const int middle = (whole.first + whole.last) / 2;
    list[at] = (interval){whole.first, middle, whole.bound, 0};
    list[*n] = (interval){middle, whole.last, whole.bound, 0};
    tandem_status status = bound_interval(b, &list[at], 0, &ignored, error);
    if (status == TANDEM_OK) status = bound_interval(b, &list[*n], 0, &ignored, error);
    (*n)++;
    return status;
}

/* The bound for one anchor; solution->choice of the last interval solved exactly. */
static tandem_status bound_anchor(const bounding *b, tandem_solution *solution, tandem_error *error)
{
    const tandem_relaxation *r = b->r;
    interval *list = malloc(((size_t)r->n_cut + 2) * sizeof *list);
    if (!list) return no_memory(r, error);
    int n = 1;
    list[0] = (interval){0, r->n_cut + 1, -INFINITY, 0};
    tandem_status status = bound_interval(b, &list[0], r->together_ns == 0, solution, error);
    int at = 0;
    while (status == TANDEM_OK && !list[at].is_exact && list[at].bound < b->cutoff && seconds_left(b) > 0) {
        if (list[at].last - list[at].first > 1)
            status = halve(b, list, &n, at, error);
        else
            status = bound_interval(b, &list[at], 1, solution, error);
        at = least_of(list, n);
    }
    solution->lower_bound = list[at].bound;
    solution->proven = list[at].is_exact && solution->proven;
    free(list);
    return status;
}

/* Whether memory can bind: whether a plan may have more than the limit, for all that its layers say one by one. */
static int can_bind(const tandem_network *network, uint64_t byte_limit)
{
    uint64_t most = network->bytes[0];
    for (int l = 0; l < network->n_layer; l++) {
        uint64_t of_layer = 0;
        const int first = network->arc_start[network->state_start[l]];
        const int end = network->arc_start[network->state_start[l + 1]];
        for (int a = first; a < end; a++)
            if (network->bytes[network->arc[a].bundle] > of_layer) of_layer = network->bytes[network->arc[a].bundle];
        most += of_layer;
    }
    return most > byte_limit;
}

tandem_status tandem_relaxation_bound(tandem_solution *out, tandem_relaxation *r, int64_t target_ns,
                                      uint64_t byte_limit, double cutoff, double tolerance, double most_seconds,
                                      tandem_error *error)
{
    const int n_bucket = step_of(r)->n_bucket;
    bounding b = {.r = r, .target_ns = target_ns, .cutoff = cutoff, .tolerance = tolerance,
                  .deadline_ns = tandem_now_ns() + (int64_t)(most_seconds * 1e9), .anchor = n_bucket - 1};
    b.choice = malloc(((size_t)r->network->n_layer + 1) * sizeof *b.choice);
    if (!b.choice) return no_memory(r, error);
    tandem_solution solution = {.choice = out->choice, .harm = INFINITY};
    b.byte_limit = can_bind(r->network, byte_limit) ? byte_limit : UINT64_MAX;
    tandem_status status = bound_anchor(&b, &solution, error);
    /* where the wire is the bottleneck, an earlier bucket says more */
    for (b.anchor = 0; b.anchor < n_bucket - 1 && status == TANDEM_OK; b.anchor++) {
        interval whole = {0, r->n_cut + 1, -INFINITY, 0};
        tandem_solution of_anchor = {.choice = b.choice};
        status = bound_interval(&b, &whole, 0, &of_anchor, error);
        if (status == TANDEM_OK && whole.bound > solution.lower_bound) {
            of_anchor.choice = out->choice;
            status = bound_anchor(&b, &of_anchor, error);
            if (status == TANDEM_OK && of_anchor.lower_bound > solution.lower_bound) solution = of_anchor;
        }
    }
    free(b.choice);
    if (status == TANDEM_OK) *out = solution;
    return status;
}
