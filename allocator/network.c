/* network.c: grows the network of a class layer by layer from its frontier, then takes out what leads
 * nowhere. */
#include "allocator/network.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/frontier.h"
#include "replayer/measured.h"

enum { FIRST_ROOM = 256, MOST_ARCS = 1 << 22 };

/* Gives *array room for n elements of `size` bytes; 0 = there is no memory, and it is as it was. */
static int make_room(void *array, int *room, int n, size_t size)
{
    if (n <= *room) return 1;
    int more = *room ? *room : FIRST_ROOM;
    while (more < n) more *= 2;
    void *old, *larger;
    memcpy(&old, array, sizeof old);
    larger = realloc(old, (size_t)more * size);
    if (!larger) return 0;
    memcpy(array, &larger, sizeof larger);
    *room = more;
    return 1;
}

/* --- Sets of keys, numbered in the order in which they come --------------------------------------------- */

typedef struct key_set {
    int n_word, n, room;
    uint64_t *key; /* [n × n_word] */
    int *place;    /* [n_place], a power of two: number of a key, −1 = free */
    int n_place;
} key_set;

static uint64_t hash_of(const uint64_t *key, int n_word)
{
    uint64_t hash = 0; /* mixed as in splitmix64: source: Steele, Lea, Flood, OOPSLA 2014 */
    for (int w = 0; w < n_word; w++) {
        hash = (hash ^ key[w]) + UINT64_C(0x9e3779b97f4a7c15);
        hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
        hash ^= hash >> 31;
    }
    return hash;
}

static uint64_t *key_of(const key_set *set, int number)
{
    return set->key + (size_t)number * (size_t)set->n_word;
}

static int *place_of(const key_set *set, const uint64_t *key)
{
    const uint64_t last = (uint64_t)set->n_place - 1;
    uint64_t at = hash_of(key, set->n_word) & last;
    while (set->place[at] >= 0 &&
           memcmp(key_of(set, set->place[at]), key, (size_t)set->n_word * sizeof *key) != 0)
        at = (at + 1) & last;
    return &set->place[at];
}

static void clear(key_set *set)
{
    set->n = 0;
    for (int at = 0; at < set->n_place; at++) set->place[at] = -1;
}

static int spread(key_set *set)
{
    const int n_place = set->n_place ? 2 * set->n_place : 2 * FIRST_ROOM;
    int *place = realloc(set->place, (size_t)n_place * sizeof *place);
    if (!place) return 0;
    const int n = set->n;
    set->place = place;
    set->n_place = n_place;
    clear(set);
    for (; set->n < n; set->n++) *place_of(set, key_of(set, set->n)) = set->n;
    return 1;
}

/* Number of the key; it is new where that is what set->n was before. −1 = no memory. */
static int number_of(key_set *set, const uint64_t *key)
{
    if (2 * set->n >= set->n_place && !spread(set)) return -1;
    int *place = place_of(set, key);
    if (*place >= 0) return *place;
    if (!make_room(&set->key, &set->room, set->n + 1, (size_t)set->n_word * sizeof *key)) return -1;
    memcpy(key_of(set, set->n), key, (size_t)set->n_word * sizeof *key);
    return *place = set->n++;
}

/* --- Growing -------------------------------------------------------------------------------------------- */

typedef struct builder {
    const tandem_replayer *replayer;
    const tandem_step *step;
    const unsigned *allowed;
    const double *sensitivity;
    int c;
    tandem_frontier *frontier;
    tandem_network *network; /* bundles, states and arcs under way */
    int arc_room, state_room, term_room, bundle_room, bytes_room;
    int n_state, n_arc;
    int *first_bundle; /* [n_layer + 1] of a layer */
    key_set state, next, pattern;
    /* of terms and bytes, as pairs (number of what comes before, one more): equal bundles are found here */
    key_set sequence;
    int *bundle_of; /* by number of the last pair */
    int bundle_of_room;
    /* of each pattern and precision */
    int *move; /* bundle; −1 = a cost is missing */
    uint64_t *settled;
    int move_room, settled_room;
    tandem_effect effect;
    tandem_term missing; /* the first that was found in the layer; task −1 = none */
} builder;

static tandem_status no_memory(const builder *b, tandem_error *error)
{
    if (b->n_arc >= MOST_ARCS)
        return tandem_error_set(
            error, TANDEM_NO_MEMORY,
            "the network of model '%s' (%d operators) has more than %d arcs: too much is open at once "
            "between its operators",
            b->step->graph->model, b->step->graph->n_op, MOST_ARCS);
    return tandem_error_set(error, TANDEM_NO_MEMORY,
                            "no memory for the network of model '%s' (%d operators), which has %d states and "
                            "%d arcs so far",
                            b->step->graph->model, b->step->graph->n_op, b->n_state, b->n_arc);
}

/* Number of the sequence (`before`, what): a term behind what came before, or at last the bytes. 0 = nothing
 * came before; −1 = no memory. */
static int extend_sequence(builder *b, int before, int ends, uint64_t what)
{
    const uint64_t pair[2] = {(uint64_t)before << 1 | (uint64_t)ends, what};
    const int last = number_of(&b->sequence, pair);
    return last < 0 ? -1 : last + 1;
}

static int find_sequence(builder *b)
{
    int last = 0;
    for (int k = 0; k < b->effect.n_term && last >= 0; k++) {
        const tandem_term term = b->effect.term[k];
        last = extend_sequence(b, last, 0, (uint64_t)term.task * TANDEM_MAX_VARIANT + (uint64_t)term.variant);
    }
    return last < 0 ? -1 : extend_sequence(b, last, 1, b->effect.bytes);
}

static int append_bundle(builder *b)
{
    tandem_network *network = b->network;
    const int n = network->n_bundle;
    if (!make_room(&network->term_start, &b->bundle_room, n + 2, sizeof *network->term_start) ||
        !make_room(&network->bytes, &b->bytes_room, n + 1, sizeof *network->bytes))
        return -1;
    if (n == 0) network->term_start[0] = 0;
    const int start = network->term_start[n];
    if (!make_room(&network->term, &b->term_room, start + b->effect.n_term, sizeof *network->term)) return -1;
    if (b->effect.n_term > 0)
        memcpy(&network->term[start], b->effect.term, (size_t)b->effect.n_term * sizeof *network->term);
    network->term_start[n + 1] = start + b->effect.n_term;
    network->bytes[n] = b->effect.bytes;
    return network->n_bundle++;
}

/* Number of the bundle with the effect's content; −1 = no memory. */
static int bundle_of_effect(builder *b)
{
    const int before = b->sequence.n, last = find_sequence(b);
    if (last < 0 || !make_room(&b->bundle_of, &b->bundle_of_room, last + 1, sizeof *b->bundle_of)) return -1;
    if (last > before) b->bundle_of[last] = append_bundle(b);
    return b->bundle_of[last];
}

static int is_measured(builder *b)
{
    for (int k = 0; k < b->effect.n_term; k++) {
        const tandem_term term = b->effect.term[k];
        if (tandem_replayer_measured(b->replayer, b->c, term.task, term.variant)) continue;
        if (b->missing.task < 0) b->missing = term;
        return 0;
    }
    return 1;
}

/* What each precision does in layer l to states of a pattern that is new. */
static int make_moves(builder *b, int l, int pattern)
{
    const int n_word = b->pattern.n_word, op = b->network->op[l];
    const int end = (pattern + 1) * TANDEM_N_PRECISION;
    if (!make_room(&b->move, &b->move_room, end, sizeof *b->move) ||
        !make_room(&b->settled, &b->settled_room, end, (size_t)n_word * sizeof *b->settled))
        return 0;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        const int m = pattern * TANDEM_N_PRECISION + p;
        b->move[m] = -1;
        if (!(b->allowed[op] & 1u << p)) continue;
        tandem_frontier_run(b->frontier, l + 1, (tandem_precision)p, key_of(&b->pattern, pattern), &b->effect,
                            &b->settled[(size_t)m * (size_t)n_word]);
        if (!is_measured(b)) continue;
        b->move[m] = bundle_of_effect(b);
        if (b->move[m] < 0) return 0;
    }
    return 1;
}

static int append_arc(builder *b, int l, int p, int move, const uint64_t *state, uint64_t *key)
{
    const int n_word = b->state.n_word, op = b->network->op[l];
    const uint64_t *passed = tandem_frontier_passed(b->frontier, l + 1);
    const uint64_t *settled = &b->settled[(size_t)move * (size_t)n_word];
    for (int w = 0; w < n_word; w++) key[w] = (state[w] & passed[w]) | settled[w];
    const int to = number_of(&b->next, key);
    if (to < 0 || b->n_arc >= MOST_ARCS ||
        !make_room(&b->network->arc, &b->arc_room, b->n_arc + 1, sizeof *b->network->arc))
        return 0;
    b->network->arc[b->n_arc++] = (tandem_arc){.to = b->n_state + to,
                                               .bundle = b->move[move],
                                               .choice = p,
                                               .sensitivity = b->sensitivity[op * TANDEM_N_PRECISION + p]};
    return 1;
}

/* The arcs of one state of layer l; b->n_state is already behind the layer. */
static int expand(builder *b, int l, int s, uint64_t *key)
{
    const int n_word = b->state.n_word;
    const uint64_t *state = key_of(&b->state, s);
    const uint64_t *touched = tandem_frontier_touched(b->frontier, l + 1);
    for (int w = 0; w < n_word; w++) key[w] = state[w] & touched[w];
    const int n_pattern = b->pattern.n, pattern = number_of(&b->pattern, key);
    if (pattern < 0 || (pattern == n_pattern && !make_moves(b, l, pattern))) return 0;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        const int move = pattern * TANDEM_N_PRECISION + p;
        if (b->move[move] >= 0 && !append_arc(b, l, p, move, state, key)) return 0;
    }
    return 1;
}

static tandem_status grow_layer(builder *b, int l, uint64_t *key, tandem_error *error)
{
    tandem_network *network = b->network;
    const int first = b->n_state;
    clear(&b->next);
    clear(&b->pattern);
    b->missing.task = -1;
    network->state_start[l] = first;
    b->first_bundle[l] = network->n_bundle;
    b->n_state += b->state.n;
    if (!make_room(&network->arc_start, &b->state_room, b->n_state + 2, sizeof *network->arc_start))
        return no_memory(b, error);
    for (int s = 0; s < b->state.n; s++) {
        network->arc_start[first + s] = b->n_arc;
        if (!expand(b, l, s, key)) return no_memory(b, error);
    }
    if (b->next.n == 0)
        return tandem_replayer_missing(b->replayer, b->c, b->missing.task, b->missing.variant, error);
    const key_set done = b->state;
    b->state = b->next;
    b->next = done;
    return TANDEM_OK;
}

/* Updates of buckets, the norm before them, and sums over micro-steps: every plan has them, in one form. */
static int is_fixed(const tandem_task *task)
{
    return task->kind == TANDEM_TASK_UPDATE || task->kind == TANDEM_TASK_NORM ||
           (task->kind == TANDEM_TASK_ACCUMULATE && task->parameter >= 0);
}

/* What comes before the first choice, and what every plan has: bundle 0. */
static tandem_status grow_root(builder *b, uint64_t *key, tandem_error *error)
{
    tandem_frontier_run(b->frontier, 0, TANDEM_PRECISION_FP32, NULL, &b->effect, key);
    for (int t = 0; t < b->step->n_task; t++)
        if (is_fixed(&b->step->task[t])) b->effect.term[b->effect.n_term++] = (tandem_term){t, 0};
    if (!is_measured(b))
        return tandem_replayer_missing(b->replayer, b->c, b->missing.task, b->missing.variant, error);
    return append_bundle(b) < 0 || number_of(&b->state, key) < 0 ? no_memory(b, error) : TANDEM_OK;
}

static tandem_status grow(builder *b, tandem_error *error)
{
    tandem_network *network = b->network;
    const int n_layer = network->n_layer;
    uint64_t *key = malloc((size_t)b->state.n_word * sizeof *key);
    tandem_status status = key ? grow_root(b, key, error) : no_memory(b, error);
    for (int l = 0; l < n_layer && status == TANDEM_OK; l++) status = grow_layer(b, l, key, error);
    if (status == TANDEM_OK) {
        assert(b->state.n == 1); /* nothing is open at the end */
        network->state_start[n_layer] = b->n_state++;
        network->state_start[n_layer + 1] = b->n_state;
        b->first_bundle[n_layer] = network->n_bundle;
        if (!make_room(&network->arc_start, &b->state_room, b->n_state + 1, sizeof *network->arc_start))
            status = no_memory(b, error);
        else
            network->arc_start[b->n_state - 1] = network->arc_start[b->n_state] = b->n_arc;
    }
    free(key);
    return status;
}

/* --- Taking out ----------------------------------------------------------------------------------------- */

/* Numbers the states from which the end can be reached; −1 for the others. */
static void number_states(const builder *b, int *number)
{
    const tandem_network *network = b->network;
    for (int s = b->n_state - 1; s >= 0; s--) {
        number[s] = s == b->n_state - 1 ? 0 : -1;
        for (int a = network->arc_start[s]; a < network->arc_start[s + 1]; a++)
            if (number[network->arc[a].to] >= 0) number[s] = 0;
    }
    int n = 0;
    for (int s = 0; s < b->n_state; s++)
        if (number[s] >= 0) number[s] = n++;
}

static void drop_states(builder *b, const int *number)
{
    tandem_network *network = b->network;
    int layer = 0, n_arc = 0, n_state = 0, start = 0;
    for (int s = 0; s < b->n_state; s++) {
        const int end = network->arc_start[s + 1];
        while (layer <= network->n_layer && network->state_start[layer] == s)
            network->state_start[layer++] = n_state;
        if (number[s] >= 0) {
            network->arc_start[n_state++] = n_arc;
            for (int a = start; a < end; a++) {
                if (number[network->arc[a].to] < 0) continue;
                network->arc[n_arc] = network->arc[a];
                network->arc[n_arc++].to = number[network->arc[a].to];
            }
        }
        start = end;
    }
    network->state_start[network->n_layer + 1] = b->n_state = n_state;
    network->arc_start[n_state] = b->n_arc = n_arc;
}

static int has_term(const tandem_network *network, int bundle, tandem_term term)
{
    int first = network->term_start[bundle], end = network->term_start[bundle + 1];
    while (first < end) {
        const int middle = first + (end - first) / 2;
        if (network->term[middle].task < term.task)
            first = middle + 1;
        else
            end = middle;
    }
    return first < network->term_start[bundle + 1] && network->term[first].task == term.task &&
           network->term[first].variant == term.variant;
}

/* The terms that all used bundles of a layer have; they go to bundle 0. Appends them to `common`. */
static int find_common(const builder *b, int l, const int *used, tandem_term *common)
{
    const tandem_network *network = b->network;
    int first = b->first_bundle[l], n = 0;
    const int end = b->first_bundle[l + 1];
    while (!used[first]) first++;
    for (int k = network->term_start[first]; k < network->term_start[first + 1]; k++) {
        int in_all = 1;
        for (int other = first + 1; other < end && in_all; other++)
            in_all = !used[other] || has_term(network, other, network->term[k]);
        if (in_all) common[n++] = network->term[k];
    }
    return n;
}

/* Writes the bundles that are used into arrays of their size, the common terms in bundle 0. `number`: 1 for
 * those that are used; becomes their new numbers. */
static int rewrite_bundles(builder *b, int *number)
{
    tandem_network *network = b->network;
    int *start = malloc(((size_t)network->n_bundle + 1) * sizeof *start);
    tandem_term *term = malloc(((size_t)network->term_start[network->n_bundle] + 1) * sizeof *term);
    int *const is_common = calloc((size_t)b->step->n_task, sizeof *is_common);
    const int done = start && term && is_common;
    if (!done) goto out;
    int n_term = network->term_start[1], n = 1;
    memcpy(term, network->term, (size_t)n_term * sizeof *term);
    for (int l = 0; l < network->n_layer; l++) n_term += find_common(b, l, number, &term[n_term]);
    for (int k = 0; k < n_term; k++) is_common[term[k].task] = 1;
    start[0] = 0;
    start[1] = n_term;
    for (int bundle = 1; bundle < network->n_bundle; bundle++) {
        if (!number[bundle]) continue;
        for (int k = network->term_start[bundle]; k < network->term_start[bundle + 1]; k++)
            if (!is_common[network->term[k].task]) term[n_term++] = network->term[k];
        network->bytes[n] = network->bytes[bundle];
        number[bundle] = n;
        start[++n] = n_term;
    }
    network->n_bundle = n;
    free(network->term);
    free(network->term_start);
    network->term = term;
    network->term_start = start;
    term = NULL;
    start = NULL;
out:
    free(is_common);
    free(term);
    free(start);
    return done;
}

static int take_out(builder *b)
{
    tandem_network *network = b->network;
    int *state_number = malloc((size_t)b->n_state * sizeof *state_number);
    int *bundle_number = calloc((size_t)network->n_bundle, sizeof *bundle_number);
    int done = 0;
    if (!state_number || !bundle_number) goto out;
    number_states(b, state_number);
    drop_states(b, state_number);
    for (int a = 0; a < b->n_arc; a++) bundle_number[network->arc[a].bundle] = 1;
    if (!rewrite_bundles(b, bundle_number)) goto out;
    for (int a = 0; a < b->n_arc; a++) network->arc[a].bundle = bundle_number[network->arc[a].bundle];
    done = 1;
out:
    free(bundle_number);
    free(state_number);
    return done;
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static tandem_status check(const builder *b, tandem_error *error)
{
    const tandem_graph *graph = b->step->graph;
    for (int i = 0; i < graph->n_op; i++) {
        const unsigned precisions = tandem_op_row_get(graph->op[i].kind)->precisions;
        if (precisions && !(b->allowed[i] & precisions))
            return tandem_error_set(
                error, TANDEM_USAGE,
                "operator '%s' of model '%s' is allowed none of the precisions in which it exists; give it "
                "at least one",
                graph->op[i].name, graph->model);
    }
    return TANDEM_OK;
}

static tandem_status set_up(builder *b, tandem_error *error)
{
    tandem_status status = tandem_frontier_open(&b->frontier, b->step, b->allowed, error);
    if (status != TANDEM_OK) return status;
    const size_t n_layer = (size_t)tandem_frontier_n_layer(b->frontier);
    b->state.n_word = b->next.n_word = b->pattern.n_word = tandem_frontier_n_word(b->frontier);
    b->sequence.n_word = 2;
    b->missing.task = -1;
    b->effect.term = malloc((size_t)b->step->n_task * sizeof *b->effect.term);
    b->first_bundle = calloc(n_layer + 1, sizeof *b->first_bundle);
    tandem_network *network = b->network = calloc(1, sizeof *network);
    if (!network) return no_memory(b, error);
    network->n_layer = (int)n_layer;
    network->op = malloc((n_layer + 1) * sizeof *network->op);
    network->state_start = malloc((n_layer + 2) * sizeof *network->state_start);
    if (!b->effect.term || !b->first_bundle || !network->op || !network->state_start)
        return no_memory(b, error);
    for (int l = 0; l < network->n_layer; l++) network->op[l] = tandem_frontier_op(b->frontier, l);
    return TANDEM_OK;
}

static void tear_down(builder *b)
{
    key_set *const set[] = {&b->state, &b->next, &b->pattern, &b->sequence};
    for (size_t k = 0; k < sizeof set / sizeof *set; k++) {
        free(set[k]->key);
        free(set[k]->place);
    }
    free(b->settled);
    free(b->move);
    free(b->bundle_of);
    free(b->first_bundle);
    free(b->effect.term);
    tandem_frontier_close(b->frontier);
    tandem_network_close(b->network);
}

tandem_status tandem_network_open(tandem_network **out, const tandem_replayer *replayer, int c,
                                  const unsigned *allowed, const double *harm, tandem_error *error)
{
    builder b = {.replayer = replayer,
                 .step = tandem_replayer_step(replayer, c),
                 .allowed = allowed,
                 .sensitivity = harm,
                 .c = c};
    tandem_status status = check(&b, error);
    if (status == TANDEM_OK) status = set_up(&b, error);
    if (status == TANDEM_OK) status = grow(&b, error);
    if (status == TANDEM_OK && !take_out(&b)) status = no_memory(&b, error);
    if (status == TANDEM_OK) {
        *out = b.network;
        b.network = NULL;
    }
    tear_down(&b);
    return status;
}

void tandem_network_close(tandem_network *network)
{
    if (!network) return;
    free(network->bytes);
    free(network->term);
    free(network->term_start);
    free(network->arc);
    free(network->arc_start);
    free(network->state_start);
    free(network->op);
    free(network);
}
