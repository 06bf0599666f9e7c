/* enumerate.c: ways within the limits, one after the other, in order of harm.
 *
 * Beginnings of ways wait in a heap by what their completions have at least (A*: Hart, Nilsson, Raphael, IEEE
 * Trans. Systems Science and Cybernetics 4 (1968)); a whole way that comes to the top is the next one. Bounds
 * are rounded to 2^-30 of themselves: what has the same harm but for the order of its sum then waits at the
 * same height, where the lower choices go first, so that of very many equal ways the first does not wait for
 * the beginnings of all others. */
#include "allocator/bound/path_dag.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COSTS = TANDEM_N_PATH_COST, MAX_PARTIAL_PATHS = 1 << 22 };

typedef struct partial_path {
    double rounded_bound; /* bound, rounded */
    double sensitivity, spent[COSTS];
    int arc, parent; /* the last arc, −1 at the start; the beginning without it */
    int n_layer;     /* layers that it has behind it */
} partial_path;

struct tandem_enumeration {
    tandem_path_dag paths;
    tandem_completion_bound completion;
    partial_path *partial;
    int *heap; /* beginnings that wait, as many as at[] has room for */
    size_t n, n_heap, capacity;
};

/* --- Order ---------------------------------------------------------------------------------------------- */

/* Numbers that people write have to lie within a step, not on its edge, where rounding would part equals. */
static const double off_edge = 1 + 0x1p-32;

/* Ascending in the bound, and the same within a step of 2^-30 of it. */
static double round_bound(double bound)
{
    const double shifted = bound * off_edge;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits &= ~UINT64_C(0) << 22;
    double rounded_bound;
    memcpy(&rounded_bound, &bits, sizeof rounded_bound);
    return rounded_bound;
}

static double unround_bound(double rounded_bound) { return rounded_bound * (1 - 0x1p-31); }

/* Whether beginning a comes before b by its choices. Neither begins the other. */
static int has_lower_choices(const tandem_enumeration *e, int a, int b)
{
    while (e->partial[a].n_layer > e->partial[b].n_layer) a = e->partial[a].parent;
    while (e->partial[b].n_layer > e->partial[a].n_layer) b = e->partial[b].parent;
    while (e->partial[a].parent != e->partial[b].parent) {
        a = e->partial[a].parent;
        b = e->partial[b].parent;
    }
    return e->partial[a].arc < e->partial[b].arc;
}

static int partial_before(const tandem_enumeration *e, int a, int b)
{
    if (e->partial[a].rounded_bound != e->partial[b].rounded_bound)
        return e->partial[a].rounded_bound < e->partial[b].rounded_bound;
    return has_lower_choices(e, a, b);
}

static void push_partial(tandem_enumeration *e, int waiting)
{
    size_t at = e->n_heap++;
    for (; at > 0 && partial_before(e, waiting, e->heap[(at - 1) / 2]); at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = waiting;
}

static int pop_partial(tandem_enumeration *e)
{
    const int top = e->heap[0], last = e->heap[--e->n_heap];
    size_t at = 0;
    for (size_t child = 1; child < e->n_heap; at = child, child = 2 * at + 1) {
        if (child + 1 < e->n_heap && partial_before(e, e->heap[child + 1], e->heap[child])) child++;
        if (!partial_before(e, e->heap[child], last)) break;
        e->heap[at] = e->heap[child];
    }
    if (e->n_heap > 0) e->heap[at] = last;
    return top;
}

/* --- Beginnings ----------------------------------------------------------------------------------------- */

static tandem_status grow_partials(tandem_enumeration *e, size_t needed, tandem_error *error)
{
    size_t wanted = e->capacity ? e->capacity : 256;
    if (needed <= e->capacity) return TANDEM_OK;
    while (wanted < needed) wanted *= 2;
    partial_path *const at = realloc(e->partial, wanted * sizeof *at);
    if (at) e->partial = at;
    int *const heap = at ? realloc(e->heap, wanted * sizeof *heap) : NULL;
    if (heap) e->heap = heap;
    if (!heap) return tandem_no_memory(error, "for %zu beginnings of plans", wanted);
    e->capacity = wanted;
    return TANDEM_OK;
}

static int partial_state(const tandem_enumeration *e, int partial)
{
    return e->partial[partial].arc < 0 ? 0 : e->paths.to[e->partial[partial].arc];
}

/* All beginnings that have one arc more and can be completed. */
static void extend_partial(tandem_enumeration *e, int partial)
{
    const tandem_path_dag *const paths = &e->paths;
    const int state = partial_state(e, partial);
    for (int a = paths->arc_start[state]; a < paths->arc_start[state + 1]; a++) {
        const partial_path *const from = &e->partial[partial];
        partial_path *const made = &e->partial[e->n];
        *made =
            (partial_path){.sensitivity = from->sensitivity + paths->sensitivity[a],
                           .spent = {from->spent[0] + paths->cost[0][a], from->spent[1] + paths->cost[1][a]},
                           .arc = a,
                           .parent = partial,
                           .n_layer = from->n_layer + 1};
        const double bound =
            tandem_completion_bound_at(&e->completion, paths, paths->to[a], made->sensitivity, made->spent);
        if (!(bound < INFINITY)) continue;
        made->rounded_bound = round_bound(made->n_layer == paths->n_layer ? made->sensitivity : bound);
        push_partial(e, (int)e->n++);
    }
}

/* --- The enumeration ------------------------------------------------------------------------------------ */

static tandem_status start_enumeration(tandem_enumeration *e, tandem_error *error)
{
    double multiplier[COSTS], bound = INFINITY;
    int64_t passes = 0;
    tandem_best_path best = {.sensitivity = INFINITY,
                             .arc = malloc(((size_t)e->paths.n_layer + 1) * sizeof *best.arc)};
    if (!best.arc) return tandem_no_memory(error, "for a way of %d layers", e->paths.n_layer);
    tandem_status status = tandem_path_dag_dual(&e->paths, multiplier, &bound, &best, &passes, error);
    free(best.arc);
    if (status == TANDEM_OK)
        status = tandem_completion_bound_open(&e->completion, &e->paths, multiplier, error);
    if (status == TANDEM_OK) status = grow_partials(e, 1, error);
    if (status != TANDEM_OK || !(bound < INFINITY)) return status;
    e->partial[e->n] = (partial_path){.arc = -1, .parent = -1, .rounded_bound = round_bound(bound)};
    push_partial(e, (int)e->n++);
    return TANDEM_OK;
}

tandem_status tandem_enumeration_open(tandem_enumeration **enumeration, const tandem_plan_dag *plan_dag,
                                      const tandem_limits *limits, tandem_error *error)
{
    tandem_enumeration *const e = calloc(1, sizeof *e);
    if (!e) return tandem_no_memory(error, "to enumerate plans");
    tandem_status status = tandem_path_dag_open(&e->paths, plan_dag, limits, error);
    if (status == TANDEM_OK && e->paths.is_feasible) status = start_enumeration(e, error);
    if (status == TANDEM_OK)
        *enumeration = e;
    else
        tandem_enumeration_close(e);
    return status;
}

void tandem_enumeration_close(tandem_enumeration *enumeration)
{
    if (!enumeration) return;
    free(enumeration->heap);
    free(enumeration->partial);
    tandem_completion_bound_close(&enumeration->completion);
    tandem_path_dag_close(&enumeration->paths);
    free(enumeration);
}

static void copy_path_choices(const tandem_enumeration *e, int whole, int *choice)
{
    for (int at = whole; e->partial[at].n_layer > 0; at = e->partial[at].parent)
        choice[e->partial[at].n_layer - 1] =
            e->paths.plan_dag->arc[e->paths.plan_arc[e->partial[at].arc]].choice;
}

tandem_status tandem_enumeration_next(tandem_enumeration *enumeration, double *sensitivity, int *choice,
                                      double *bound, int64_t max_labels, tandem_error *error)
{
    tandem_enumeration *const e = enumeration;
    const size_t before = e->n;
    double found = INFINITY;
    while (e->n_heap > 0) {
        const int top = e->heap[0], state = partial_state(e, top);
        const size_t n_arc = (size_t)(e->paths.arc_start[state + 1] - e->paths.arc_start[state]);
        if (e->partial[top].n_layer == e->paths.n_layer) {
            found = e->partial[pop_partial(e)].sensitivity;
            copy_path_choices(e, top, choice);
            break;
        }
        if ((int64_t)(e->n - before) >= max_labels || e->n + n_arc > MAX_PARTIAL_PATHS) {
            found = NAN;
            break;
        }
        const tandem_status status = grow_partials(e, e->n + n_arc, error);
        if (status != TANDEM_OK) return status;
        extend_partial(e, pop_partial(e));
    }
    *sensitivity = found;
    if (bound) *bound = e->n_heap > 0 ? unround_bound(e->partial[e->heap[0]].rounded_bound) : INFINITY;
    return TANDEM_OK;
}
