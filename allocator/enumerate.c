/* enumerate.c: ways within the limits, one after the other, in order of harm.
 *
 * Beginnings of ways wait in a heap by what their completions have at least (A*: Hart, Nilsson, Raphael, IEEE
 * Trans. Systems Science and Cybernetics 4 (1968)); a whole way that comes to the top is the next one. Bounds
 * are rounded to 2^-30 of themselves: what has the same harm but for the order of its sum then waits at the
 * same height, where the lower choices go first, so that of very many equal ways the first does not wait for
 * the beginnings of all others. */
#include "allocator/ways.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COSTS = TANDEM_WAYS_COSTS, MOST_BEGINNINGS = 1 << 22 };

typedef struct beginning {
    double height; /* bound, rounded */
    double sensitivity, spent[COSTS];
    int arc, parent; /* the last arc, −1 at the start; the beginning without it */
    int n_layer;     /* layers that it has behind it */
} beginning;

struct tandem_enumeration {
    tandem_ways ways;
    tandem_completion completion;
    beginning *at;
    int *heap; /* beginnings that wait, as many as at[] has room for */
    size_t n, n_heap, capacity;
};

/* --- Order ---------------------------------------------------------------------------------------------- */

/* Numbers that people write have to lie within a step, not on its edge, where rounding would part equals. */
static const double off_edge = 1 + 0x1p-32;

/* Ascending in the bound, and the same within a step of 2^-30 of it. */
static double height_of(double bound)
{
    const double shifted = bound * off_edge;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits &= ~UINT64_C(0) << 22;
    double height;
    memcpy(&height, &bits, sizeof height);
    return height;
}

static double bound_of(double height) { return height * (1 - 0x1p-31); }

/* Whether beginning a comes before b by its choices. Neither begins the other. */
static int has_lower_choices(const tandem_enumeration *e, int a, int b)
{
    while (e->at[a].n_layer > e->at[b].n_layer) a = e->at[a].parent;
    while (e->at[b].n_layer > e->at[a].n_layer) b = e->at[b].parent;
    while (e->at[a].parent != e->at[b].parent) {
        a = e->at[a].parent;
        b = e->at[b].parent;
    }
    return e->at[a].arc < e->at[b].arc;
}

static int comes_before(const tandem_enumeration *e, int a, int b)
{
    if (e->at[a].height != e->at[b].height) return e->at[a].height < e->at[b].height;
    return has_lower_choices(e, a, b);
}

static void push(tandem_enumeration *e, int waiting)
{
    size_t at = e->n_heap++;
    for (; at > 0 && comes_before(e, waiting, e->heap[(at - 1) / 2]); at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = waiting;
}

static int pop(tandem_enumeration *e)
{
    const int top = e->heap[0], last = e->heap[--e->n_heap];
    size_t at = 0;
    for (size_t child = 1; child < e->n_heap; at = child, child = 2 * at + 1) {
        if (child + 1 < e->n_heap && comes_before(e, e->heap[child + 1], e->heap[child])) child++;
        if (!comes_before(e, e->heap[child], last)) break;
        e->heap[at] = e->heap[child];
    }
    if (e->n_heap > 0) e->heap[at] = last;
    return top;
}

/* --- Beginnings ----------------------------------------------------------------------------------------- */

static tandem_status grow(tandem_enumeration *e, size_t needed, tandem_error *error)
{
    size_t wanted = e->capacity ? e->capacity : 256;
    if (needed <= e->capacity) return TANDEM_OK;
    while (wanted < needed) wanted *= 2;
    beginning *const at = realloc(e->at, wanted * sizeof *at);
    if (at) e->at = at;
    int *const heap = at ? realloc(e->heap, wanted * sizeof *heap) : NULL;
    if (heap) e->heap = heap;
    if (!heap)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %zu beginnings of plans", wanted);
    e->capacity = wanted;
    return TANDEM_OK;
}

static int state_of(const tandem_enumeration *e, int begun)
{
    return e->at[begun].arc < 0 ? 0 : e->ways.to[e->at[begun].arc];
}

/* All beginnings that have one arc more and can be completed. */
static void extend(tandem_enumeration *e, int begun)
{
    const tandem_ways *const ways = &e->ways;
    const int state = state_of(e, begun);
    for (int a = ways->arc_start[state]; a < ways->arc_start[state + 1]; a++) {
        const beginning *const from = &e->at[begun];
        beginning *const made = &e->at[e->n];
        *made = (beginning){.sensitivity = from->sensitivity + ways->sensitivity[a],
                            .spent = {from->spent[0] + ways->cost[0][a], from->spent[1] + ways->cost[1][a]},
                            .arc = a,
                            .parent = begun,
                            .n_layer = from->n_layer + 1};
        const double bound =
            tandem_completion_bound(&e->completion, ways, ways->to[a], made->sensitivity, made->spent);
        if (!(bound < INFINITY)) continue;
        made->height = height_of(made->n_layer == ways->n_layer ? made->sensitivity : bound);
        push(e, (int)e->n++);
    }
}

/* --- The enumeration ------------------------------------------------------------------------------------ */

static tandem_status start(tandem_enumeration *e, tandem_error *error)
{
    double multiplier[COSTS], bound = INFINITY;
    int64_t passes = 0;
    tandem_best best = {.sensitivity = INFINITY,
                        .arc = malloc(((size_t)e->ways.n_layer + 1) * sizeof *best.arc)};
    if (!best.arc)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for a way of %d layers", e->ways.n_layer);
    tandem_status status = tandem_ways_dual(&e->ways, multiplier, &bound, &best, &passes, error);
    free(best.arc);
    if (status == TANDEM_OK) status = tandem_completion_open(&e->completion, &e->ways, multiplier, error);
    if (status == TANDEM_OK) status = grow(e, 1, error);
    if (status != TANDEM_OK || !(bound < INFINITY)) return status;
    e->at[e->n] = (beginning){.arc = -1, .parent = -1, .height = height_of(bound)};
    push(e, (int)e->n++);
    return TANDEM_OK;
}

tandem_status tandem_enumeration_open(tandem_enumeration **enumeration, const tandem_network *network,
                                      const tandem_limits *limits, tandem_error *error)
{
    tandem_enumeration *const e = calloc(1, sizeof *e);
    if (!e) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to enumerate plans");
    tandem_status status = tandem_ways_open(&e->ways, network, limits, error);
    if (status == TANDEM_OK && e->ways.possible) status = start(e, error);
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
    free(enumeration->at);
    tandem_completion_close(&enumeration->completion);
    tandem_ways_close(&enumeration->ways);
    free(enumeration);
}

static void report(const tandem_enumeration *e, int whole, int *choice)
{
    for (int at = whole; e->at[at].n_layer > 0; at = e->at[at].parent)
        choice[e->at[at].n_layer - 1] = e->ways.network->arc[e->ways.origin[e->at[at].arc]].choice;
}

tandem_status tandem_enumeration_next(tandem_enumeration *enumeration, double *harm, int *choice,
                                      double *bound, int64_t most_labels, tandem_error *error)
{
    tandem_enumeration *const e = enumeration;
    const size_t before = e->n;
    double found = INFINITY;
    while (e->n_heap > 0) {
        const int top = e->heap[0], state = state_of(e, top);
        const size_t n_arc = (size_t)(e->ways.arc_start[state + 1] - e->ways.arc_start[state]);
        if (e->at[top].n_layer == e->ways.n_layer) {
            found = e->at[pop(e)].sensitivity;
            report(e, top, choice);
            break;
        }
        if ((int64_t)(e->n - before) >= most_labels || e->n + n_arc > MOST_BEGINNINGS) {
            found = NAN;
            break;
        }
        const tandem_status status = grow(e, e->n + n_arc, error);
        if (status != TANDEM_OK) return status;
        extend(e, pop(e));
    }
    *harm = found;
    if (bound) *bound = e->n_heap > 0 ? bound_of(e->at[e->heap[0]].height) : INFINITY;
    return TANDEM_OK;
}
