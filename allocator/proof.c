/* proof.c: bounds by class, their sum, and the search in order of sensitivity. */
#include "allocator/proof.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/policies.h"
#include "base/clock.h"

static const double bound_tolerance = 2e-4; /* relative, of a class's bound */

static const tandem_replayer *replayer_of(const tandem_proof *proof) { return proof->problem->replayer; }

static double harm_now(const tandem_proof *proof, int c)
{
    double sum = 0;
    for (int i = 0; i < proof->problem->graph->n_op; i++)
        sum +=
            proof->problem
                ->sensitivity[c][i * TANDEM_N_PRECISION + (int)tandem_replayer_get(replayer_of(proof), c, i)];
    return sum;
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static tandem_status open_relaxation(tandem_proof *proof, int c, unsigned *allowed, tandem_error *error)
{
    const tandem_graph *graph = proof->problem->graph;
    const unsigned device = tandem_replayer_cluster(replayer_of(proof))->member[c].device.precisions;
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
        allowed[i] = row->op_class == TANDEM_ADJUSTABLE ? row->precisions & device : 0;
    }
    tandem_status status = tandem_relaxation_open(&proof->relaxation[c], proof->problem, c, allowed, error);
    if (status != TANDEM_OK) return status;
    proof->is_open[c] = 1;
    proof->plan[c] = calloc((size_t)graph->n_op + 1, sizeof *proof->plan[c]);
    return proof->plan[c] ? TANDEM_OK
                          : tandem_error_set(error, TANDEM_NO_MEMORY,
                                             "no memory to bound the plans of model %s", graph->model);
}

/* How long a held class computes beside others until its backward pass is through. */
static int64_t held_beside_ns(const tandem_proof *proof, int c)
{
    const tandem_step *step = tandem_replayer_step(replayer_of(proof), c);
    int64_t sum = 0;
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        if (!task->active || task->kind == TANDEM_TASK_REDUCE) continue;
        if (task->kind != TANDEM_TASK_UPDATE || tandem_step_begins(step, t))
            sum += tandem_step_repeats(step, task) * tandem_replayer_task_ns(replayer_of(proof), c, t, 1);
    }
    return sum;
}

/* How long every other class on c's node computes at the least: G of relaxation.h. */
static tandem_status accompany(tandem_proof *proof, int c, tandem_error *error)
{
    tandem_replay_company company;
    tandem_replayer_company(replayer_of(proof), c, &company);
    if (!company.shares_node) return TANDEM_OK;
    for (int o = 0; o < proof->n_class; o++) {
        int64_t ns = 0;
        tandem_status status = TANDEM_OK;
        tandem_replayer_company(replayer_of(proof), o, &company);
        if (o == c || !company.shares_node) continue;
        if (proof->is_open[o])
            status = tandem_relaxation_least_beside_ns(&ns, &proof->relaxation[o], error);
        else
            ns = held_beside_ns(proof, o);
        if (status != TANDEM_OK) return status;
        if (ns > proof->relaxation[c].together_ns) proof->relaxation[c].together_ns = ns;
    }
    return TANDEM_OK;
}

tandem_status tandem_proof_open(tandem_proof *proof, const tandem_allocation_problem *problem,
                                int64_t target_ns, unsigned keeps_base, tandem_error *error)
{
    tandem_replay replay;
    *proof = (tandem_proof){
        .problem = problem, .target_ns = target_ns, .keeps_base = keeps_base, .lower_bound = -INFINITY};
    proof->n_class = tandem_replayer_cluster(problem->replayer)->n_class;
    unsigned *allowed = malloc(((size_t)problem->graph->n_op + 1) * sizeof *allowed);
    if (!allowed)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to bound the plans of model %s",
                                problem->graph->model);
    tandem_status status = tandem_replayer_run(problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    for (int c = 0; c < proof->n_class && status == TANDEM_OK; c++) {
        proof->share[c] = tandem_allocation_batch_share(problem, c);
        proof->bound[c] = keeps_base & 1u << c ? harm_now(proof, c) : 0;
        if (!(keeps_base & 1u << c)) status = open_relaxation(proof, c, allowed, error);
    }
    for (int c = 0; c < proof->n_class && status == TANDEM_OK; c++)
        if (proof->is_open[c]) status = accompany(proof, c, error);
    free(allowed);
    return status;
}

void tandem_proof_close(tandem_proof *proof)
{
    for (int c = 0; c < proof->n_class; c++) {
        free(proof->plan[c]);
        if (proof->is_open[c]) tandem_relaxation_close(&proof->relaxation[c]);
    }
    *proof = (tandem_proof){0};
}

/* --- Bounds --------------------------------------------------------------------------------------------- */

static void add_up(tandem_proof *proof)
{
    double sum = 0;
    for (int c = 0; c < proof->n_class; c++) sum += proof->share[c] * proof->bound[c];
    if (sum > proof->lower_bound) proof->lower_bound = sum;
}

static tandem_status bound_class(tandem_proof *proof, int c, double time_limit_s, tandem_error *error)
{
    tandem_relaxation *relaxation = &proof->relaxation[c];
    const tandem_network *network = relaxation->network;
    int *choice = malloc(((size_t)network->n_layer + 1) * sizeof *choice);
    if (!choice)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to bound the plans of model %s",
                                proof->problem->graph->model);
    tandem_solution solution = {.choice = choice, .sensitivity = INFINITY};
    const tandem_status status = tandem_relaxation_bound(&solution, relaxation, proof->target_ns,
                                                         tandem_relaxation_arena_limit(relaxation),
                                                         bound_tolerance, time_limit_s, error);
    if (status == TANDEM_OK) {
        proof->bound[c] = fmax(solution.lower_bound, 0);
        proof->has_plan[c] = solution.sensitivity < INFINITY;
        for (int l = 0; l < network->n_layer && proof->has_plan[c]; l++)
            proof->plan[c][network->op[l]] = (tandem_precision)choice[l];
        if (!solution.proven) proof->method = "lagrangian";
    }
    free(choice);
    return status;
}

tandem_status tandem_proof_bound(tandem_proof *proof, double time_limit_s, tandem_error *error)
{
    int n_left = 0;
    for (int c = 0; c < proof->n_class; c++) n_left += proof->is_open[c];
    const int64_t deadline_ns = tandem_now_ns() + (int64_t)(time_limit_s * 1e9);
    proof->method = "labels";
    for (int c = 0; c < proof->n_class; c++) {
        if (!proof->is_open[c]) continue;
        const double seconds = (double)(deadline_ns - tandem_now_ns()) * 1e-9 / n_left--;
        const tandem_status status = bound_class(proof, c, fmax(seconds, 0), error);
        if (status != TANDEM_OK) return status;
    }
    add_up(proof);
    return TANDEM_OK;
}

const tandem_precision *tandem_proof_plan(const tandem_proof *proof, int c)
{
    return proof->has_plan[c] ? proof->plan[c] : NULL;
}

/* --- Search in order ------------------------------------------------------------------------------------ */

/* The plans of one class in order of harm, as far as they have been asked for. */
typedef struct stream {
    int c, n_layer;
    tandem_limits limits;
    tandem_enumeration *enumeration;
    double *sensitivity; /* [n] */
    int *choice;         /* [n × n_layer] */
    int n, room;
    int is_over;   /* there are no more */
    double beyond; /* no plan beyond the n has less harm */
} stream;

/* One plan of each class, by its place in the class's stream. */
typedef struct combination {
    double sensitivity;
    int place[TANDEM_MAX_CLASS]; /* by stream */
    int last; /* streams before it may not move on any more: so each combination comes up once */
} combination;

typedef struct searching {
    tandem_proof *plan_bound;
    stream *stream;
    int n_stream;
    double held_sensitivity;
    combination *heap;
    int n_heap, heap_room;
    int64_t deadline_ns, labels;
} searching;

enum { MOST_LABELS = 400000, MOST_HEAP = 1 << 20 };

static tandem_status out_of_memory(tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to search the plans in order of sensitivity");
}

static tandem_status grow(stream *s, tandem_error *error)
{
    if (s->n < s->room) return TANDEM_OK;
    const int room = 2 * s->room + 64;
    double *harm = realloc(s->sensitivity, (size_t)room * sizeof *harm);
    if (harm) s->sensitivity = harm;
    int *choice = harm ? realloc(s->choice, (size_t)room * ((size_t)s->n_layer + 1) * sizeof *choice) : NULL;
    if (!choice) return out_of_memory(error);
    s->choice = choice;
    s->room = room;
    return TANDEM_OK;
}

/* Makes sure that the stream has place k, if the class has so many plans. *there = 0: it has not, or it takes
 * too long to know: then !is_over. */
static tandem_status reach(stream *s, int k, int *there, tandem_error *error)
{
    *there = k < s->n;
    if (*there || s->is_over) return TANDEM_OK;
    tandem_status status = grow(s, error);
    if (status != TANDEM_OK) return status;
    double harm = NAN;
    status = tandem_enumeration_next(s->enumeration, &harm, s->choice + (size_t)s->n * (size_t)s->n_layer,
                                     &s->beyond, MOST_LABELS, error);
    if (status != TANDEM_OK) return status;
    if (harm < INFINITY) {
        s->sensitivity[s->n++] = harm;
        *there = 1;
    } else if (!isnan(harm)) {
        s->is_over = 1;
    }
    return TANDEM_OK;
}

static void go(const tandem_proof *proof, int c, const int *choice)
{
    const tandem_network *network = proof->relaxation[c].network;
    for (int l = 0; l < network->n_layer; l++)
        tandem_replayer_set(proof->problem->replayer, c, network->op[l], (tandem_precision)choice[l]);
}

static int comes_before(const combination *a, const combination *b, int n_stream)
{
    if (a->sensitivity != b->sensitivity) return a->sensitivity < b->sensitivity;
    return memcmp(a->place, b->place, (size_t)n_stream * sizeof *a->place) < 0;
}

static tandem_status push(searching *s, const combination *one, tandem_error *error)
{
    if (s->n_heap == s->heap_room) {
        const int room = 2 * s->heap_room + 64;
        combination *grown = realloc(s->heap, (size_t)room * sizeof *grown);
        if (!grown) return out_of_memory(error);
        s->heap = grown;
        s->heap_room = room;
    }
    int at = s->n_heap++;
    for (; at > 0 && comes_before(one, &s->heap[(at - 1) / 2], s->n_stream); at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = *one;
    return TANDEM_OK;
}

static combination pop(searching *s)
{
    const combination top = s->heap[0], last = s->heap[--s->n_heap];
    int at = 0;
    for (int child = 1; child < s->n_heap; at = child, child = 2 * at + 1) {
        if (child + 1 < s->n_heap && comes_before(&s->heap[child + 1], &s->heap[child], s->n_stream)) child++;
        if (!comes_before(&s->heap[child], &last, s->n_stream)) break;
        s->heap[at] = s->heap[child];
    }
    if (s->n_heap > 0) s->heap[at] = last;
    return top;
}

/* Adds the combination if every stream reaches it. *stuck: one could not be asked that far. */
static tandem_status add(searching *s, combination *one, int *stuck, tandem_error *error)
{
    one->sensitivity = s->held_sensitivity;
    for (int k = 0; k < s->n_stream; k++) {
        int there;
        const tandem_status status = reach(&s->stream[k], one->place[k], &there, error);
        if (status != TANDEM_OK) return status;
        if (!there) {
            *stuck |= !s->stream[k].is_over;
            return TANDEM_OK;
        }
        one->sensitivity += s->plan_bound->share[s->stream[k].c] * s->stream[k].sensitivity[one->place[k]];
    }
    return push(s, one, error);
}

static tandem_status try(const searching *s, const combination *one, int *fits, tandem_error *error)
{
    tandem_replay replay;
    for (int k = 0; k < s->n_stream; k++) {
        const stream *from = &s->stream[k];
        go(s->plan_bound, from->c, from->choice + (size_t)one->place[k] * (size_t)from->n_layer);
    }
    const tandem_status status =
        tandem_replayer_run(s->plan_bound->problem->replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    if (status != TANDEM_OK) return status;
    *fits = replay.step_ns <= s->plan_bound->target_ns;
    for (int c = 0; c < s->plan_bound->n_class; c++) {
        const uint64_t limit_bytes = tandem_allocation_limit_bytes(s->plan_bound->problem, c);
        if (limit_bytes && replay.member[c].peak_bytes > limit_bytes) *fits = 0;
    }
    return TANDEM_OK;
}

/* A later combination may have this much less, relatively: streams are in order to 2^-29 (solve.h), and sums
 * in another order differ in their last digits. */
static const double disorder = 0x1p-28;

static void proven(tandem_proof *proof, double sensitivity)
{
    proof->lower_bound = fmax(proof->lower_bound, sensitivity * (1 - disorder));
}

/* Replays combinations in order. */
static tandem_status search(searching *s, double sensitivity, int *found, int64_t *replays,
                            tandem_error *error)
{
    tandem_proof *proof = s->plan_bound;
    combination best = {.sensitivity = sensitivity}, one = {0};
    int stuck = 0, is_proven = 0;
    tandem_status status = add(s, &one, &stuck, error);
    while (status == TANDEM_OK && !stuck && s->n_heap < MOST_HEAP && tandem_now_ns() < s->deadline_ns) {
        int fits = 0;
        is_proven = s->n_heap == 0 || s->heap[0].sensitivity * (1 - disorder) >= best.sensitivity;
        if (is_proven) break;
        one = pop(s);
        proven(proof, fmin(one.sensitivity, best.sensitivity));
        status = try(s, &one, &fits, error);
        (*replays)++;
        if (status == TANDEM_OK && fits && one.sensitivity < best.sensitivity) {
            best = one;
            *found = 1;
        }
        for (int k = one.last; k < s->n_stream && status == TANDEM_OK && !stuck; k++) {
            combination next = one;
            next.place[k]++;
            next.last = k;
            status = add(s, &next, &stuck, error);
        }
    }
    if (status == TANDEM_OK && is_proven) {
        proven(proof, best.sensitivity);
        proof->method = "search";
    }
    int ignored;
    if (status == TANDEM_OK && *found)
        status = try(s, &best, &ignored, error); /* leaves it in the replayer */
    return status;
}

static void close_search(searching *s)
{
    for (int k = 0; k < s->n_stream; k++) {
        free(s->stream[k].choice);
        free(s->stream[k].sensitivity);
        tandem_enumeration_close(s->stream[k].enumeration);
    }
    free(s->heap);
    free(s->stream);
}

static tandem_status open_streams(searching *s, tandem_error *error)
{
    tandem_proof *proof = s->plan_bound;
    s->stream = calloc((size_t)proof->n_class, sizeof *s->stream);
    if (!s->stream) return out_of_memory(error);
    for (int c = 0; c < proof->n_class; c++) {
        if (!proof->is_open[c]) {
            s->held_sensitivity += proof->share[c] * proof->bound[c];
            continue;
        }
        stream *one = &s->stream[s->n_stream++];
        *one = (stream){.c = c, .n_layer = proof->relaxation[c].network->n_layer};
        one->limits = tandem_relaxation_limits(&proof->relaxation[c], proof->target_ns);
        const tandem_status status =
            tandem_enumeration_open(&one->enumeration, proof->relaxation[c].network, &one->limits, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

tandem_status tandem_proof_search(tandem_proof *proof, double sensitivity, double time_limit_s, int *found,
                                  int64_t *replays, tandem_error *error)
{
    searching s = {.plan_bound = proof,
                   .deadline_ns = tandem_now_ns() + (int64_t)(fmax(time_limit_s, 0) * 1e9)};
    *found = 0;
    if (sensitivity <= proof->lower_bound) return TANDEM_OK;
    tandem_status status = open_streams(&s, error);
    if (status == TANDEM_OK && s.n_stream > 0) status = search(&s, sensitivity, found, replays, error);
    close_search(&s);
    return status;
}

/* --- Certificates --------------------------------------------------------------------------------------- */

void tandem_proof_certify(tandem_certificate *certificate, const tandem_proof *proof, double sensitivity)
{
    /* else the bound is wrong, or the plan breaks a limit */
    assert(proof->lower_bound <= sensitivity * (1 + 1e-9));
    *certificate = (tandem_certificate){.lower_bound = fmin(proof->lower_bound, sensitivity)};
    certificate->gap = sensitivity > 0 ? (sensitivity - certificate->lower_bound) / sensitivity : 0;
    (void)snprintf(certificate->proof, sizeof certificate->proof, "%s",
                   sensitivity > 0 ? (proof->method ? proof->method : "labels") : "zero");
}
