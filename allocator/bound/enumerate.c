/* enumerate.c: paths within the limits, one after the other, in order of sensitivity.
 *
 * A* search (Hart, Nilsson, Raphael, IEEE Trans. Systems Science and Cybernetics 4 (1968)): partial paths
 * wait in a heap ordered by their completion bound; a complete path that reaches the top is the next one.
 * Bounds of whole numbers are rounded up to the next one, which loses nothing. Other bounds are rounded to a
 * relative 2^-30, so that sums of equal terms in different orders compare equal.
 * Among equal bounds the lower choices come first. Otherwise the first of very many equal paths would wait
 * for the beginnings of all others. */
#include <math.h>
#include <stdlib.h>

#include "allocator/bound/path_dag.h"
#include "base/heap.h"
#include "base/reserve.h"

enum { N_COST = TANDEM_N_PATH_COST, MAX_PARTIAL_PATHS = 1 << 22 };

typedef struct partial_path {
    double rounded_bound;
    double sensitivity, spent[N_COST];
    int arc, parent; /* the last arc, −1 at the start; the partial path without it */
    int n_layer;     /* layers that it has passed */
} partial_path;

struct tandem_enumeration {
    tandem_path_dag paths;
    tandem_completion_bound completion;
    partial_path *partial; /* [n] */
    int *heap;             /* [n_heap] partial paths that wait */
    int n, n_heap;
    size_t partial_capacity, heap_capacity;
};

/* --- Order ---------------------------------------------------------------------------------------------- */

/* To the nearest number of 31 significant bits. Source: Veltkamp's splitting, in Dekker, Numer. Math. 18
 * (1971). */
static double round_bound(double bound)
{
    const double scaled = bound * (0x1p22 + 1);
    return scaled - (scaled - bound);
}

/* A number that no completion of a path is below; paths are ordered by it. */
static double order_bound(const tandem_enumeration *e, double bound)
{
    return e->paths.is_whole ? ceil(bound) : round_bound(bound);
}

/* Neither path begins the other. */
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
    const double bound_a = e->partial[a].rounded_bound, bound_b = e->partial[b].rounded_bound;
    return bound_a != bound_b ? bound_a < bound_b : has_lower_choices(e, a, b);
}

TANDEM_HEAP(push_partial, pop_partial, int, const tandem_enumeration *, partial_before)

/* --- Partial paths -------------------------------------------------------------------------------------- */

static tandem_status reserve_partials(tandem_enumeration *e, int n, tandem_error *error)
{
    if (tandem_reserve(&e->partial, &e->partial_capacity, (size_t)n, sizeof *e->partial) &&
        tandem_reserve(&e->heap, &e->heap_capacity, (size_t)n, sizeof *e->heap))
        return TANDEM_OK;
    return tandem_no_memory(error, "for %d partial paths", n);
}

static int partial_state(const tandem_enumeration *e, int partial)
{
    return e->partial[partial].arc < 0 ? 0 : e->paths.to[e->partial[partial].arc];
}

/* Adds every feasible partial path that is one arc longer. There is room. */
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
        made->rounded_bound = order_bound(e, made->n_layer == paths->n_layer ? made->sensitivity : bound);
        push_partial(e->heap, &e->n_heap, e->n++, e);
    }
}

/* --- The enumeration ------------------------------------------------------------------------------------ */

static tandem_status start_enumeration(tandem_enumeration *e, tandem_error *error)
{
    double multiplier[N_COST], bound = INFINITY;
    int64_t passes = 0;
    tandem_best_path best = {.sensitivity = INFINITY,
                             .arc = malloc(((size_t)e->paths.n_layer + 1) * sizeof *best.arc)};
    if (!best.arc) return tandem_no_memory(error, "for a path of %d layers", e->paths.n_layer);
    tandem_status status = tandem_path_dag_dual(&e->paths, multiplier, &bound, &best, &passes, error);
    free(best.arc);
    if (status == TANDEM_OK)
        status = tandem_completion_bound_open(&e->completion, &e->paths, multiplier, error);
    if (status == TANDEM_OK) status = reserve_partials(e, 1, error);
    if (status != TANDEM_OK || !(bound < INFINITY)) return status;
    e->partial[0] = (partial_path){.arc = -1, .parent = -1, .rounded_bound = order_bound(e, bound)};
    push_partial(e->heap, &e->n_heap, e->n++, e);
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

int64_t tandem_enumeration_labels(const tandem_enumeration *enumeration) { return enumeration->n; }

tandem_status tandem_enumeration_next(tandem_enumeration *enumeration, double *sensitivity, int *choice,
                                      double *bound, int64_t max_labels, tandem_error *error)
{
    tandem_enumeration *const e = enumeration;
    const int before = e->n;
    double found = INFINITY;
    while (e->n_heap > 0) {
        const int top = e->heap[0], state = partial_state(e, top);
        const int n_arc = e->paths.arc_start[state + 1] - e->paths.arc_start[state];
        if (e->partial[top].n_layer == e->paths.n_layer) {
            found = e->partial[pop_partial(e->heap, &e->n_heap, e)].sensitivity;
            for (const partial_path *p = &e->partial[top]; p->n_layer > 0; p = &e->partial[p->parent])
                choice[p->n_layer - 1] = e->paths.plan_dag->arc[e->paths.plan_arc[p->arc]].choice;
            break;
        }
        if (e->n - before >= max_labels || e->n + n_arc > MAX_PARTIAL_PATHS) {
            found = NAN;
            break;
        }
        const tandem_status status = reserve_partials(e, e->n + n_arc, error);
        if (status != TANDEM_OK) return status;
        extend_partial(e, pop_partial(e->heap, &e->n_heap, e));
    }
    *sensitivity = found;
    /* rounding has moved it by 2^-31 at most, and not below what is left of whole numbers */
    const double moved = e->paths.is_whole ? 1 : 1 - 0x1p-30;
    if (bound) *bound = e->n_heap > 0 ? e->partial[e->heap[0]].rounded_bound * moved : INFINITY;
    return TANDEM_OK;
}
