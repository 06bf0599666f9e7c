/* bound.c: bounds the sensitivity of every class, sums the bounds, and enumerates plans in order of
 * sensitivity. */
#include "allocator/bound/bound.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/problem.h"
#include "base/heap.h"
#include "base/reserve.h"

static const double bound_tolerance = 2e-4; /* relative, of a class's bound */

static const tandem_replayer *bound_replayer(const tandem_bound *bound) { return bound->problem.replayer; }

static int64_t current_sensitivity(const tandem_bound *bound, int c)
{
    int64_t sum = 0;
    for (int i = 0; i < bound->problem.graph->n_op; i++)
        sum += bound->problem.sensitivity[c][i * TANDEM_N_PRECISION +
                                             (int)tandem_replayer_get(bound_replayer(bound), c, i)];
    return sum;
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static tandem_status open_relaxation(tandem_bound *bound, int c, unsigned *allowed, tandem_error *error)
{
    const tandem_graph *graph = bound->problem.graph;
    for (int i = 0; i < graph->n_op; i++)
        allowed[i] = tandem_op_is_adjustable(&graph->op[i]) ? tandem_op_precisions(&bound->problem, c, i) : 0;
    tandem_status status = tandem_relaxation_open(&bound->relaxation[c], &bound->problem, c, allowed, error);
    if (status != TANDEM_OK) return status;
    bound->has_relaxation[c] = 1;
    bound->plan[c] = calloc((size_t)graph->n_op + 1, sizeof *bound->plan[c]);
    return bound->plan[c] ? TANDEM_OK
                          : tandem_no_memory(error, "to bound the plans of model %s", graph->model);
}

/* Contended time of a class that keeps the base precision, until its backward pass ends. */
static int64_t base_contended_ns(const tandem_bound *bound, int c)
{
    const tandem_step *step = tandem_replayer_step(bound_replayer(bound), c);
    int64_t sum = 0;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active || tandem_task_is_collective(task->kind)) continue;
        if (task->kind != TANDEM_TASK_UPDATE || tandem_task_wraps_iteration(step, t))
            sum += tandem_step_runs_per_step(step, task) *
                   tandem_replayer_task_ns(bound_replayer(bound), c, t, 1);
    }
    return sum;
}

/* The longest minimum time that another class of c's node computes: G of relaxation.h. */
static tandem_status set_min_contended_ns(tandem_bound *bound, int c, tandem_error *error)
{
    tandem_contention contention;
    tandem_replayer_contention(bound_replayer(bound), c, &contention);
    if (!contention.is_on_shared_node) return TANDEM_OK;
    for (int o = 0; o < bound->n_class; o++) {
        int64_t ns = 0;
        tandem_status status = TANDEM_OK;
        tandem_replayer_contention(bound_replayer(bound), o, &contention);
        if (o == c || !contention.is_on_shared_node) continue;
        if (bound->has_relaxation[o])
            status = tandem_relaxation_contended_ns(&ns, &bound->relaxation[o], error);
        else
            ns = base_contended_ns(bound, o);
        if (status != TANDEM_OK) return status;
        if (ns > bound->relaxation[c].min_contended_ns) bound->relaxation[c].min_contended_ns = ns;
    }
    return TANDEM_OK;
}

tandem_status tandem_bound_open(tandem_bound *bound, tandem_bound_kind kind,
                                const tandem_allocation_problem *problem, int64_t target_ns,
                                unsigned keeps_base, tandem_error *error)
{
    tandem_replay replay;
    *bound = (tandem_bound){.kind = kind,
                            .asked = problem,
                            .problem = *problem,
                            .target_ns = target_ns,
                            .keeps_base = keeps_base};
    if (kind != TANDEM_BOUND_ALL)
        bound->problem.replayer = tandem_replayer_of_norm(problem->replayer, kind == TANDEM_BOUND_WITH_NORM);
    if (kind == TANDEM_BOUND_WITHOUT_NORM) bound->problem.without_f16_gradients = 1;
    bound->n_class = tandem_replayer_cluster(problem->replayer)->n_class;
    unsigned *allowed = malloc(((size_t)problem->graph->n_op + 1) * sizeof *allowed);
    if (!allowed) return tandem_no_memory(error, "to bound the plans of model %s", problem->graph->model);
    tandem_status status = tandem_replayer_run(bound->problem.replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    for (int c = 0; c < bound->n_class && status == TANDEM_OK; c++) {
        bound->class_bound[c] = keeps_base & 1u << c ? current_sensitivity(bound, c) : 0;
        if (!(keeps_base & 1u << c)) status = open_relaxation(bound, c, allowed, error);
    }
    for (int c = 0; c < bound->n_class && status == TANDEM_OK; c++)
        if (bound->has_relaxation[c]) status = set_min_contended_ns(bound, c, error);
    free(allowed);
    return status;
}

void tandem_bound_close(tandem_bound *bound)
{
    for (int c = 0; c < bound->n_class; c++) {
        free(bound->plan[c]);
        if (bound->has_relaxation[c]) tandem_relaxation_close(&bound->relaxation[c]);
    }
    *bound = (tandem_bound){0};
}

/* --- Bounds --------------------------------------------------------------------------------------------- */

static void sum_class_bounds(tandem_bound *bound)
{
    int64_t sum = 0;
    for (int c = 0; c < bound->n_class && sum < INT64_MAX; c++)
        sum = bound->class_bound[c] == INT64_MAX ? INT64_MAX : sum + bound->class_bound[c];
    if (sum > bound->lower_bound) bound->lower_bound = sum;
}

/* Sensitivities are whole numbers: none lies between a bound and the next one. */
static int64_t whole_bound(double bound)
{
    return bound < 0x1p62 ? (int64_t)ceil(fmax(bound, 0)) : INT64_MAX;
}

static tandem_status bound_class(tandem_bound *bound, int c, tandem_effort *work, tandem_error *error)
{
    tandem_relaxation *relaxation = &bound->relaxation[c];
    const tandem_plan_dag *plan_dag = relaxation->plan_dag;
    int *choice = malloc(((size_t)plan_dag->n_layer + 1) * sizeof *choice);
    if (!choice)
        return tandem_no_memory(error, "to bound the plans of model %s", bound->problem.graph->model);
    tandem_solution solution = {.choice = choice, .sensitivity = INFINITY};
    const tandem_status status =
        tandem_relaxation_bound(&solution, relaxation, bound->target_ns,
                                tandem_relaxation_arena_limit(relaxation), bound_tolerance, work, error);
    if (status == TANDEM_OK) {
        bound->class_bound[c] = whole_bound(solution.lower_bound);
        bound->has_plan[c] = solution.sensitivity < INFINITY;
        for (int l = 0; l < plan_dag->n_layer && bound->has_plan[c]; l++)
            bound->plan[c][plan_dag->op[l]] = (tandem_precision)choice[l];
        if (!solution.proven) bound->method = "lagrangian";
    }
    free(choice);
    return status;
}

tandem_status tandem_bound_compute(tandem_bound *bound, tandem_effort *work, tandem_error *error)
{
    int n_left = 0;
    for (int c = 0; c < bound->n_class; c++) n_left += bound->has_relaxation[c];
    bound->method = "labels";
    for (int c = 0; c < bound->n_class; c++) {
        if (!bound->has_relaxation[c]) continue;
        tandem_effort part = tandem_effort_lend(work, work->left / n_left--);
        const tandem_status status = bound_class(bound, c, &part, error);
        if (status != TANDEM_OK) return status;
        tandem_effort_take_back(work, &part);
    }
    sum_class_bounds(bound);
    return TANDEM_OK;
}

const tandem_precision *tandem_bound_plan(const tandem_bound *bound, int c)
{
    return bound->has_plan[c] ? bound->plan[c] : NULL;
}

/* --- Enumeration ---------------------------------------------------------------------------------------- */

/* The plans of one class in order of sensitivity, as far as they were needed. */
typedef struct plan_ranking {
    int c, n_layer;
    tandem_limits limits;
    tandem_enumeration *enumeration;
    int64_t *sensitivity; /* [n] */
    int *choice;          /* [n × n_layer] */
    int n;
    size_t sensitivity_capacity, choice_capacity;
    int is_exhausted;  /* the class has no more plans */
    double next_bound; /* no later plan has less sensitivity */
} plan_ranking;

/* One plan of each class. */
typedef struct combination {
    int64_t sensitivity;
    int position[TANDEM_MAX_CLASS]; /* of the plan in each ranking */
    int first_free; /* successors keep the positions of rankings before it, so each combination occurs once */
} combination;

typedef struct best_first {
    tandem_bound *bound;
    plan_ranking *ranking;
    int n_ranking;
    int64_t base_sensitivity; /* of the classes that keep the base precision */
    combination *heap;
    int n_heap;
    size_t heap_capacity;
    tandem_effort *work;
} best_first;

enum { MAX_CALL_LABELS = 400000, MAX_HEAP = 1 << 20 };

static tandem_status enumeration_no_memory(tandem_error *error)
{
    return tandem_no_memory(error, "to enumerate plans in order of sensitivity");
}

/* Extends the ranking to position k where the class has so many plans. *exists = 0: it has not
 * (is_exhausted), or the next plan takes more than MAX_CALL_LABELS to find. */
static tandem_status reach_position(plan_ranking *r, int k, int *exists, tandem_effort *work,
                                    tandem_error *error)
{
    *exists = k < r->n;
    if (*exists || r->is_exhausted) return TANDEM_OK;
    if (!tandem_reserve(&r->sensitivity, &r->sensitivity_capacity, (size_t)r->n + 1,
                        sizeof *r->sensitivity) ||
        !tandem_reserve(&r->choice, &r->choice_capacity, (size_t)r->n + 1,
                        ((size_t)r->n_layer + 1) * sizeof *r->choice))
        return enumeration_no_memory(error);
    double sensitivity = NAN;
    const int64_t before = tandem_enumeration_labels(r->enumeration);
    const tandem_status status =
        tandem_enumeration_next(r->enumeration, &sensitivity, r->choice + (size_t)r->n * (size_t)r->n_layer,
                                &r->next_bound, MAX_CALL_LABELS, error);
    if (status != TANDEM_OK) return status;
    tandem_effort_spend(work, (tandem_enumeration_labels(r->enumeration) - before) * TANDEM_EFFORT_PARTIAL);
    *exists = sensitivity < INFINITY;
    r->is_exhausted = isinf(sensitivity);
    if (*exists) r->sensitivity[r->n++] = (int64_t)sensitivity;
    return TANDEM_OK;
}

static void set_class_plan(const tandem_bound *bound, int c, const int *choice)
{
    const tandem_plan_dag *plan_dag = bound->relaxation[c].plan_dag;
    for (int l = 0; l < plan_dag->n_layer; l++)
        tandem_replayer_set(bound->asked->replayer, c, plan_dag->op[l], (tandem_precision)choice[l]);
}

static int combination_before(const best_first *s, combination a, combination b)
{
    if (a.sensitivity != b.sensitivity) return a.sensitivity < b.sensitivity;
    return memcmp(a.position, b.position, (size_t)s->n_ranking * sizeof *a.position) < 0;
}

TANDEM_HEAP(push_combination, pop_combination, combination, const best_first *, combination_before)

/* Adds the combination where every class has the plan. *stuck: a ranking could not be extended that far. */
static tandem_status add_combination(best_first *s, combination one, int *stuck, tandem_error *error)
{
    one.sensitivity = s->base_sensitivity;
    for (int k = 0; k < s->n_ranking; k++) {
        plan_ranking *const r = &s->ranking[k];
        int exists;
        const tandem_status status = reach_position(r, one.position[k], &exists, s->work, error);
        if (status != TANDEM_OK) return status;
        if (!exists) {
            *stuck |= !r->is_exhausted;
            return TANDEM_OK;
        }
        one.sensitivity += r->sensitivity[one.position[k]];
    }
    if (!tandem_reserve(&s->heap, &s->heap_capacity, (size_t)s->n_heap + 1, sizeof *s->heap))
        return enumeration_no_memory(error);
    push_combination(s->heap, &s->n_heap, one, s);
    return TANDEM_OK;
}

/* Leaves the plan in the replayer. A plan of the other kind does not fit here: its step is another one. */
static tandem_status try_combination(const best_first *s, const combination *one, int *fits,
                                     tandem_error *error)
{
    tandem_replay replay;
    tandem_replayer *const replayer = s->bound->asked->replayer;
    for (int k = 0; k < s->n_ranking; k++) {
        const plan_ranking *from = &s->ranking[k];
        set_class_plan(s->bound, from->c, from->choice + (size_t)one->position[k] * (size_t)from->n_layer);
    }
    *fits = 0;
    if (s->bound->kind == TANDEM_BOUND_WITH_NORM && !tandem_replayer_needs_loss_scale(replayer))
        return TANDEM_OK;
    const tandem_status status = tandem_replayer_run(replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    if (status != TANDEM_OK) return status;
    tandem_effort_spend(s->work, TANDEM_EFFORT_REPLAY);
    *fits = replay.step_ns <= s->bound->target_ns;
    for (int c = 0; c < s->bound->n_class; c++)
        if (tandem_allocation_excess_bytes(s->bound->asked, c, replay.classes[c].peak_bytes)) *fits = 0;
    return TANDEM_OK;
}

/* Rankings of whole numbers are in order exactly (solve.h), so no later combination has less. */
static void raise_lower_bound(tandem_bound *bound, int64_t sensitivity)
{
    if (sensitivity > bound->lower_bound) bound->lower_bound = sensitivity;
}

/* Replays combinations in order of sensitivity. */
static tandem_status enumerate_combinations(best_first *s, int64_t sensitivity, int *found, int64_t *replays,
                                            tandem_error *error)
{
    tandem_bound *bound = s->bound;
    combination best = {.sensitivity = sensitivity}, one = {0};
    int stuck = 0, is_proven = 0;
    tandem_status status = add_combination(s, one, &stuck, error);
    while (status == TANDEM_OK && !stuck && s->n_heap < MAX_HEAP && s->work->left > 0) {
        int fits = 0;
        is_proven = s->n_heap == 0 || s->heap[0].sensitivity >= best.sensitivity;
        if (is_proven) break;
        one = pop_combination(s->heap, &s->n_heap, s);
        raise_lower_bound(bound, one.sensitivity < best.sensitivity ? one.sensitivity : best.sensitivity);
        tandem_effort_spend(s->work, TANDEM_EFFORT_PARTIAL);
        status = try_combination(s, &one, &fits, error);
        (*replays)++;
        if (status == TANDEM_OK && fits && one.sensitivity < best.sensitivity) {
            best = one;
            *found = 1;
        }
        for (int k = one.first_free; k < s->n_ranking && status == TANDEM_OK && !stuck; k++) {
            combination next = one;
            next.position[k]++;
            next.first_free = k;
            status = add_combination(s, next, &stuck, error);
        }
    }
    if (status == TANDEM_OK && is_proven) {
        raise_lower_bound(bound, best.sensitivity);
        bound->method = "enumerated";
    }
    int ignored;
    if (status == TANDEM_OK && *found)
        status = try_combination(s, &best, &ignored, error); /* the plan stays in the replayer */
    return status;
}

static void close_rankings(best_first *s)
{
    for (int k = 0; k < s->n_ranking; k++) {
        free(s->ranking[k].choice);
        free(s->ranking[k].sensitivity);
        tandem_enumeration_close(s->ranking[k].enumeration);
    }
    free(s->heap);
    free(s->ranking);
}

static tandem_status open_rankings(best_first *s, tandem_error *error)
{
    tandem_bound *bound = s->bound;
    s->ranking = calloc((size_t)bound->n_class, sizeof *s->ranking);
    if (!s->ranking) return enumeration_no_memory(error);
    for (int c = 0; c < bound->n_class; c++) {
        if (!bound->has_relaxation[c]) {
            s->base_sensitivity += bound->class_bound[c];
            continue;
        }
        plan_ranking *one = &s->ranking[s->n_ranking++];
        *one = (plan_ranking){.c = c, .n_layer = bound->relaxation[c].plan_dag->n_layer};
        one->limits = tandem_relaxation_limits(&bound->relaxation[c], bound->target_ns);
        const tandem_status status =
            tandem_enumeration_open(&one->enumeration, bound->relaxation[c].plan_dag, &one->limits, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

tandem_status tandem_bound_enumerate(tandem_bound *bound, int64_t sensitivity, tandem_effort *work,
                                     int *found, int64_t *replays, tandem_error *error)
{
    best_first s = {.bound = bound, .work = work};
    *found = 0;
    if (sensitivity <= bound->lower_bound) return TANDEM_OK;
    tandem_status status = open_rankings(&s, error);
    if (status == TANDEM_OK && s.n_ranking > 0)
        status = enumerate_combinations(&s, sensitivity, found, replays, error);
    close_rankings(&s);
    return status;
}
