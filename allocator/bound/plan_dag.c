/* plan_dag.c: builds the plan DAG of a class layer by layer from its state space, then removes the states
 * from which no path reaches the end. */
#include "allocator/bound/plan_dag.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/reserve.h"

enum { FIRST_SLOTS = 512, MAX_ARCS = 1 << 22 };

/* --- Sets of keys, numbered in order of arrival --------------------------------------------- */

typedef struct key_set {
    int n_word, n;
    size_t capacity;
    uint64_t *key; /* [n × n_word] */
    int *slot;     /* [n_slot], a power of two: number of a key, −1 = free */
    int n_slot;
} key_set;

static uint64_t hash_key(const uint64_t *key, int n_word)
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

static uint64_t *key_at(const key_set *set, int number)
{
    return set->key + (size_t)number * (size_t)set->n_word;
}

static int *find_key_slot(const key_set *set, const uint64_t *key)
{
    const uint64_t last = (uint64_t)set->n_slot - 1;
    uint64_t at = hash_key(key, set->n_word) & last;
    while (set->slot[at] >= 0 &&
           memcmp(key_at(set, set->slot[at]), key, (size_t)set->n_word * sizeof *key) != 0)
        at = (at + 1) & last;
    return &set->slot[at];
}

static void clear_key_set(key_set *set)
{
    set->n = 0;
    for (int at = 0; at < set->n_slot; at++) set->slot[at] = -1;
}

static int rehash_key_set(key_set *set)
{
    const int n_slot = set->n_slot ? 2 * set->n_slot : FIRST_SLOTS;
    int *slot = realloc(set->slot, (size_t)n_slot * sizeof *slot);
    if (!slot) return 0;
    const int n = set->n;
    set->slot = slot;
    set->n_slot = n_slot;
    clear_key_set(set);
    for (; set->n < n; set->n++) *find_key_slot(set, key_at(set, set->n)) = set->n;
    return 1;
}

/* The number of a key, which is added where it is new: then the number is the set->n of before. −1: no
 * memory. */
static int intern_key(key_set *set, const uint64_t *key)
{
    if (2 * set->n >= set->n_slot && !rehash_key_set(set)) return -1;
    int *slot = find_key_slot(set, key);
    if (*slot >= 0) return *slot;
    if (!tandem_reserve(&set->key, &set->capacity, (size_t)(set->n + 1), (size_t)set->n_word * sizeof *key))
        return -1;
    memcpy(key_at(set, set->n), key, (size_t)set->n_word * sizeof *key);
    return *slot = set->n++;
}

/* --- Growing -------------------------------------------------------------------------------------------- */

typedef struct dag_builder {
    const tandem_replayer *replayer;
    const tandem_step *step;
    const unsigned *allowed;
    const int64_t *sensitivity;
    int c;
    tandem_state_space *space;
    tandem_plan_dag *plan_dag; /* task sets, states and arcs so far */
    size_t arc_capacity, state_capacity, task_variant_capacity, task_set_capacity, bytes_capacity;
    int n_state, n_arc;
    int *first_task_set; /* [n_layer + 1] of a layer */
    key_set state, next, pattern;
    /* Sequences of task variants and bytes, as pairs (number of the sequence before, next item): finds equal
     * task sets. */
    key_set sequence;
    int *task_set_of; /* by number of the sequence */
    size_t task_set_of_capacity;
    /* of each pattern (the bits of a state that a stage reads) and precision */
    int *transition; /* task set; −1 = a cost is missing */
    uint64_t *set_bits;
    size_t transition_capacity, set_bits_capacity;
    tandem_stage_cost stage_cost;
    tandem_task_variant missing; /* the first of the layer; task −1 = none */
} dag_builder;

static tandem_status plan_dag_no_memory(const dag_builder *b, tandem_error *error)
{
    if (b->n_arc >= MAX_ARCS)
        return tandem_error_set(
            error, TANDEM_NO_MEMORY,
            "the plan DAG of model '%s' (%d operators) has more than %d arcs: too many tensors are in use at "
            "once between its operators",
            b->step->graph->model, b->step->graph->n_op, MAX_ARCS);
    return tandem_no_memory(error,
                            "for the plan DAG of model '%s' (%d operators), which has %d states and "
                            "%d arcs so far",
                            b->step->graph->model, b->step->graph->n_op, b->n_state, b->n_arc);
}

/* The number of a sequence that is one item longer than sequence `before`: a task variant; or, with `ends`,
 * the layer at the begin and the bytes at the end. 0 is the empty sequence; −1: no memory. */
static int intern_sequence_item(dag_builder *b, int before, int ends, uint64_t what)
{
    const uint64_t pair[2] = {(uint64_t)before << 1 | (uint64_t)ends, what};
    const int last = intern_key(&b->sequence, pair);
    return last < 0 ? -1 : last + 1;
}

/* A layer's task sets are its own, even where they are equal to those of another layer:
 * find_common_tasks counts them. */
static int intern_sequence(dag_builder *b, int l)
{
    int last = intern_sequence_item(b, 0, 1, (uint64_t)l);
    for (int k = 0; k < b->stage_cost.n_task_variant && last >= 0; k++) {
        const tandem_task_variant entry = b->stage_cost.task_variant[k];
        last = intern_sequence_item(b, last, 0, (uint64_t)(entry.task * TANDEM_MAX_VARIANT + entry.variant));
    }
    return last < 0 ? -1 : intern_sequence_item(b, last, 1, b->stage_cost.bytes);
}

static int append_task_set(dag_builder *b)
{
    tandem_plan_dag *plan_dag = b->plan_dag;
    const int n = plan_dag->n_task_set;
    if (!tandem_reserve(&plan_dag->task_set_start, &b->task_set_capacity, (size_t)(n + 2),
                        sizeof *plan_dag->task_set_start) ||
        !tandem_reserve(&plan_dag->bytes, &b->bytes_capacity, (size_t)(n + 1), sizeof *plan_dag->bytes))
        return -1;
    if (n == 0) plan_dag->task_set_start[0] = 0;
    const int start = plan_dag->task_set_start[n];
    if (!tandem_reserve(&plan_dag->task_variant, &b->task_variant_capacity,
                        (size_t)(start + b->stage_cost.n_task_variant), sizeof *plan_dag->task_variant))
        return -1;
    if (b->stage_cost.n_task_variant > 0)
        memcpy(&plan_dag->task_variant[start], b->stage_cost.task_variant,
               (size_t)b->stage_cost.n_task_variant * sizeof *plan_dag->task_variant);
    plan_dag->task_set_start[n + 1] = start + b->stage_cost.n_task_variant;
    plan_dag->bytes[n] = b->stage_cost.bytes;
    return plan_dag->n_task_set++;
}

/* The number of the task set of layer l with the content of b->stage_cost; −1: no memory. */
static int intern_task_set(dag_builder *b, int l)
{
    const int before = b->sequence.n, last = intern_sequence(b, l);
    if (last < 0 || !tandem_reserve(&b->task_set_of, &b->task_set_of_capacity, (size_t)(last + 1),
                                    sizeof *b->task_set_of))
        return -1;
    if (last > before) b->task_set_of[last] = append_task_set(b);
    return b->task_set_of[last];
}

static int are_costs_measured(dag_builder *b)
{
    for (int k = 0; k < b->stage_cost.n_task_variant; k++) {
        const tandem_task_variant entry = b->stage_cost.task_variant[k];
        if (tandem_replayer_has_cost(b->replayer, b->c, entry.task, entry.variant)) continue;
        if (b->missing.task < 0) b->missing = entry;
        return 0;
    }
    return 1;
}

/* The transitions of a new pattern in layer l, one per allowed precision. */
static int add_transitions(dag_builder *b, int l, int pattern)
{
    const int n_word = b->pattern.n_word, op = b->plan_dag->op[l];
    const int end = (pattern + 1) * TANDEM_N_PRECISION;
    if (!tandem_reserve(&b->transition, &b->transition_capacity, (size_t)end, sizeof *b->transition) ||
        !tandem_reserve(&b->set_bits, &b->set_bits_capacity, (size_t)end,
                        (size_t)n_word * sizeof *b->set_bits))
        return 0;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        const int m = pattern * TANDEM_N_PRECISION + p;
        b->transition[m] = -1;
        if (!(b->allowed[op] & 1u << p)) continue;
        tandem_state_space_transition(b->space, l + 1, (tandem_precision)p, key_at(&b->pattern, pattern),
                                      &b->stage_cost, &b->set_bits[(size_t)m * (size_t)n_word]);
        if (!are_costs_measured(b)) continue;
        b->transition[m] = intern_task_set(b, l);
        if (b->transition[m] < 0) return 0;
    }
    return 1;
}

static int append_arc(dag_builder *b, int l, int p, int transition, const uint64_t *state, uint64_t *key)
{
    const int n_word = b->state.n_word, op = b->plan_dag->op[l];
    const uint64_t *pass_mask = tandem_state_space_pass_mask(b->space, l + 1);
    const uint64_t *set_bits = &b->set_bits[(size_t)transition * (size_t)n_word];
    for (int w = 0; w < n_word; w++) key[w] = (state[w] & pass_mask[w]) | set_bits[w];
    const int to = intern_key(&b->next, key);
    if (to < 0 || b->n_arc >= MAX_ARCS ||
        !tandem_reserve(&b->plan_dag->arc, &b->arc_capacity, (size_t)(b->n_arc + 1),
                        sizeof *b->plan_dag->arc))
        return 0;
    b->plan_dag->arc[b->n_arc++] =
        (tandem_arc){.to = b->n_state + to,
                     .task_set = b->transition[transition],
                     .choice = p,
                     .sensitivity = (double)b->sensitivity[op * TANDEM_N_PRECISION + p]};
    return 1;
}

/* Adds the arcs that leave state s of layer l; b->n_state already counts the layer. */
static int expand_state(dag_builder *b, int l, int s, uint64_t *key)
{
    const int n_word = b->state.n_word;
    const uint64_t *state = key_at(&b->state, s);
    const uint64_t *read_mask = tandem_state_space_read_mask(b->space, l + 1);
    for (int w = 0; w < n_word; w++) key[w] = state[w] & read_mask[w];
    const int n_pattern = b->pattern.n, pattern = intern_key(&b->pattern, key);
    if (pattern < 0 || (pattern == n_pattern && !add_transitions(b, l, pattern))) return 0;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        const int transition = pattern * TANDEM_N_PRECISION + p;
        if (b->transition[transition] >= 0 && !append_arc(b, l, p, transition, state, key)) return 0;
    }
    return 1;
}

static tandem_status build_layer(dag_builder *b, int l, uint64_t *key, tandem_error *error)
{
    tandem_plan_dag *plan_dag = b->plan_dag;
    const int first = b->n_state;
    clear_key_set(&b->next);
    clear_key_set(&b->pattern);
    b->missing.task = -1;
    plan_dag->state_start[l] = first;
    b->first_task_set[l] = plan_dag->n_task_set;
    b->n_state += b->state.n;
    if (!tandem_reserve(&plan_dag->arc_start, &b->state_capacity, (size_t)(b->n_state + 2),
                        sizeof *plan_dag->arc_start))
        return plan_dag_no_memory(b, error);
    for (int s = 0; s < b->state.n; s++) {
        plan_dag->arc_start[first + s] = b->n_arc;
        if (!expand_state(b, l, s, key)) return plan_dag_no_memory(b, error);
    }
    if (b->next.n == 0)
        return tandem_replayer_missing_cost(b->replayer, b->c, b->missing.task, b->missing.variant, error);
    const key_set done = b->state;
    b->state = b->next;
    b->next = done;
    return TANDEM_OK;
}

/* Updates of buckets, the norm before them and sums over micro-steps are the same in every plan. */
static int is_fixed_task(const tandem_task *task)
{
    return task->kind == TANDEM_TASK_UPDATE || task->kind == TANDEM_TASK_NORM ||
           (task->kind == TANDEM_TASK_ACCUMULATE && task->parameter >= 0);
}

/* Task set 0: what precedes the first choice, and the tasks that every plan has. */
static tandem_status build_root(dag_builder *b, uint64_t *key, tandem_error *error)
{
    tandem_state_space_transition(b->space, 0, TANDEM_PRECISION_FP32, NULL, &b->stage_cost, key);
    for (int t = 0; t < b->step->n_task; t++)
        if (is_fixed_task(&b->step->task[t]))
            b->stage_cost.task_variant[b->stage_cost.n_task_variant++] = (tandem_task_variant){t, 0};
    if (!are_costs_measured(b))
        return tandem_replayer_missing_cost(b->replayer, b->c, b->missing.task, b->missing.variant, error);
    return append_task_set(b) < 0 || intern_key(&b->state, key) < 0 ? plan_dag_no_memory(b, error)
                                                                    : TANDEM_OK;
}

static tandem_status build_layers(dag_builder *b, tandem_error *error)
{
    tandem_plan_dag *plan_dag = b->plan_dag;
    const int n_layer = plan_dag->n_layer;
    uint64_t *key = malloc((size_t)b->state.n_word * sizeof *key);
    tandem_status status = key ? build_root(b, key, error) : plan_dag_no_memory(b, error);
    for (int l = 0; l < n_layer && status == TANDEM_OK; l++) status = build_layer(b, l, key, error);
    if (status == TANDEM_OK) {
        assert(b->state.n == 1); /* no state bits remain */
        plan_dag->state_start[n_layer] = b->n_state++;
        plan_dag->state_start[n_layer + 1] = b->n_state;
        b->first_task_set[n_layer] = plan_dag->n_task_set;
        plan_dag->arc_start[b->n_state - 1] = plan_dag->arc_start[b->n_state] = b->n_arc;
    }
    free(key);
    return status;
}

/* --- Pruning ------------------------------------------------------------------------------------------- */

/* Numbers the states from which a path reaches the end; −1 for the others. */
static void number_live_states(const dag_builder *b, int *number)
{
    const tandem_plan_dag *plan_dag = b->plan_dag;
    for (int s = b->n_state - 1; s >= 0; s--) {
        number[s] = s == b->n_state - 1 ? 0 : -1;
        for (int a = plan_dag->arc_start[s]; a < plan_dag->arc_start[s + 1]; a++)
            if (number[plan_dag->arc[a].to] >= 0) number[s] = 0;
    }
    int n = 0;
    for (int s = 0; s < b->n_state; s++)
        if (number[s] >= 0) number[s] = n++;
}

static void drop_dead_states(dag_builder *b, const int *number)
{
    tandem_plan_dag *plan_dag = b->plan_dag;
    int layer = 0, n_arc = 0, n_state = 0, start = 0;
    for (int s = 0; s < b->n_state; s++) {
        const int end = plan_dag->arc_start[s + 1];
        while (layer <= plan_dag->n_layer && plan_dag->state_start[layer] == s)
            plan_dag->state_start[layer++] = n_state;
        if (number[s] >= 0) {
            plan_dag->arc_start[n_state++] = n_arc;
            for (int a = start; a < end; a++) {
                if (number[plan_dag->arc[a].to] < 0) continue;
                plan_dag->arc[n_arc] = plan_dag->arc[a];
                plan_dag->arc[n_arc++].to = number[plan_dag->arc[a].to];
            }
        }
        start = end;
    }
    plan_dag->state_start[plan_dag->n_layer + 1] = b->n_state = n_state;
    plan_dag->arc_start[n_state] = b->n_arc = n_arc;
}

/* How many used task sets of a layer have a task in the variant of the first one. */
typedef struct sharing {
    int n_set, variant;
} sharing;

/* Appends the task variants that all used task sets of layer l share to `common`. shared[n_task]: all 0. */
static int find_common_tasks(const dag_builder *b, int l, const int *used, sharing *shared,
                             tandem_task_variant *common)
{
    const tandem_plan_dag *plan_dag = b->plan_dag;
    int n_used = 0, n = 0;
    for (int round = 0; round < 2; round++)
        for (int set = b->first_task_set[l]; set < b->first_task_set[l + 1]; set++) {
            if (!used[set]) continue;
            n_used += round == 0;
            for (int k = plan_dag->task_set_start[set]; k < plan_dag->task_set_start[set + 1]; k++) {
                const tandem_task_variant entry = plan_dag->task_variant[k];
                sharing *const task = &shared[entry.task];
                if (round == 0) {
                    if (task->n_set == 0) task->variant = entry.variant;
                    task->n_set += task->variant == entry.variant;
                } else {
                    if (task->n_set == n_used) common[n++] = entry;
                    task->n_set = 0;
                }
            }
        }
    return n;
}

/* Keeps the used task sets, and moves what all of a layer share to task set 0. number[n_task_set]: 1 for the
 * used ones; becomes their new numbers. */
static int rewrite_task_sets(dag_builder *b, int *number)
{
    tandem_plan_dag *plan_dag = b->plan_dag;
    int *start = malloc(((size_t)plan_dag->n_task_set + 1) * sizeof *start);
    tandem_task_variant *entry =
        malloc(((size_t)plan_dag->task_set_start[plan_dag->n_task_set] + 1) * sizeof *entry);
    int *const is_common = calloc((size_t)b->step->n_task, sizeof *is_common);
    sharing *const shared = calloc((size_t)b->step->n_task, sizeof *shared);
    const int done = start && entry && is_common && shared;
    if (!done) goto out;
    int n_entry = plan_dag->task_set_start[1], n = 1;
    memcpy(entry, plan_dag->task_variant, (size_t)n_entry * sizeof *entry);
    for (int l = 0; l < plan_dag->n_layer; l++)
        n_entry += find_common_tasks(b, l, number, shared, &entry[n_entry]);
    for (int k = 0; k < n_entry; k++) is_common[entry[k].task] = 1;
    start[0] = 0;
    start[1] = n_entry;
    for (int task_set = 1; task_set < plan_dag->n_task_set; task_set++) {
        if (!number[task_set]) continue;
        for (int k = plan_dag->task_set_start[task_set]; k < plan_dag->task_set_start[task_set + 1]; k++)
            if (!is_common[plan_dag->task_variant[k].task]) entry[n_entry++] = plan_dag->task_variant[k];
        plan_dag->bytes[n] = plan_dag->bytes[task_set];
        number[task_set] = n;
        start[++n] = n_entry;
    }
    plan_dag->n_task_set = n;
    free(plan_dag->task_variant);
    free(plan_dag->task_set_start);
    plan_dag->task_variant = entry;
    plan_dag->task_set_start = start;
    entry = NULL;
    start = NULL;
out:
    free(shared);
    free(is_common);
    free(entry);
    free(start);
    return done;
}

static int prune_dag(dag_builder *b)
{
    tandem_plan_dag *plan_dag = b->plan_dag;
    int *state_number = malloc((size_t)b->n_state * sizeof *state_number);
    int *task_set_number = calloc((size_t)plan_dag->n_task_set, sizeof *task_set_number);
    int done = 0;
    if (!state_number || !task_set_number) goto out;
    number_live_states(b, state_number);
    drop_dead_states(b, state_number);
    for (int a = 0; a < b->n_arc; a++) task_set_number[plan_dag->arc[a].task_set] = 1;
    if (!rewrite_task_sets(b, task_set_number)) goto out;
    for (int a = 0; a < b->n_arc; a++) plan_dag->arc[a].task_set = task_set_number[plan_dag->arc[a].task_set];
    done = 1;
out:
    free(task_set_number);
    free(state_number);
    return done;
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static tandem_status check_allowed(const dag_builder *b, tandem_error *error)
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

static tandem_status open_dag_builder(dag_builder *b, tandem_error *error)
{
    tandem_status status = tandem_state_space_open(&b->space, b->step, b->allowed, error);
    if (status != TANDEM_OK) return status;
    const size_t n_layer = (size_t)tandem_state_space_n_layer(b->space);
    b->state.n_word = b->next.n_word = b->pattern.n_word = tandem_state_space_n_word(b->space);
    b->sequence.n_word = 2;
    b->missing.task = -1;
    b->stage_cost.task_variant = malloc((size_t)b->step->n_task * sizeof *b->stage_cost.task_variant);
    b->first_task_set = calloc(n_layer + 1, sizeof *b->first_task_set);
    tandem_plan_dag *plan_dag = b->plan_dag = calloc(1, sizeof *plan_dag);
    if (!plan_dag) return plan_dag_no_memory(b, error);
    plan_dag->n_layer = (int)n_layer;
    plan_dag->op = malloc((n_layer + 1) * sizeof *plan_dag->op);
    plan_dag->state_start = malloc((n_layer + 2) * sizeof *plan_dag->state_start);
    if (!b->stage_cost.task_variant || !b->first_task_set || !plan_dag->op || !plan_dag->state_start ||
        !tandem_reserve(&plan_dag->arc_start, &b->state_capacity, 2, sizeof *plan_dag->arc_start))
        return plan_dag_no_memory(b, error);
    for (int l = 0; l < plan_dag->n_layer; l++) plan_dag->op[l] = tandem_state_space_op(b->space, l);
    return TANDEM_OK;
}

static void close_dag_builder(dag_builder *b)
{
    key_set *const set[] = {&b->state, &b->next, &b->pattern, &b->sequence};
    for (size_t k = 0; k < sizeof set / sizeof *set; k++) {
        free(set[k]->key);
        free(set[k]->slot);
    }
    free(b->set_bits);
    free(b->transition);
    free(b->task_set_of);
    free(b->first_task_set);
    free(b->stage_cost.task_variant);
    tandem_state_space_close(b->space);
    tandem_plan_dag_close(b->plan_dag);
}

tandem_status tandem_plan_dag_open(tandem_plan_dag **out, const tandem_replayer *replayer, int c,
                                   const unsigned *allowed, const int64_t *sensitivity, tandem_error *error)
{
    dag_builder b = {.replayer = replayer,
                     .step = tandem_replayer_step(replayer, c),
                     .allowed = allowed,
                     .sensitivity = sensitivity,
                     .c = c};
    tandem_status status = check_allowed(&b, error);
    if (status == TANDEM_OK) status = open_dag_builder(&b, error);
    if (status == TANDEM_OK) status = build_layers(&b, error);
    if (status == TANDEM_OK && !prune_dag(&b)) status = plan_dag_no_memory(&b, error);
    if (status == TANDEM_OK) {
        *out = b.plan_dag;
        b.plan_dag = NULL;
    }
    close_dag_builder(&b);
    return status;
}

void tandem_plan_dag_close(tandem_plan_dag *plan_dag)
{
    if (!plan_dag) return;
    free(plan_dag->bytes);
    free(plan_dag->task_variant);
    free(plan_dag->task_set_start);
    free(plan_dag->arc);
    free(plan_dag->arc_start);
    free(plan_dag->state_start);
    free(plan_dag->op);
    free(plan_dag);
}
