/* torch_rank.c: events of the PyTorch profiler, sorted into operators, steps, busy times and collectives.
 *
 * Slices of a thread nest. Writers put them down in one order or another; so they are gathered into a batch,
 * sorted by thread and start, and go over a stack for each thread. What a batch holds is all that is ever
 * kept of them. */
#include "replayer/torch_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 1 << 16,
    FIRST_EXTERNALS = 1 << 10,
    MOST_EXTERNALS = 1 << 20, /* operators that a kernel can be traced back to: the latest ones */
    MOST_SIGNATURES = 1 << 16,
    MOST_COLLECTIVES = 1 << 20,
    MOST_STEPS = 1 << 16,
    MOST_FRAMES = 1 << 12,
    MOST_THREADS = 1 << 12,
};

/* What a slice is to those within it. */
enum { PLAIN, OPERATOR, CALL, BACKWARD_SCOPE, OPTIMIZER_SCOPE, KERNEL };

typedef struct slice {
    uint64_t thread;
    int64_t start_ns, end_ns;
    int64_t external;
    int32_t signature;   /* −1 = no row */
    int32_t role, place; /* place: in the batch */
} slice;

typedef struct frame {
    int64_t start_ns, end_ns, inner_ns;
    int32_t signature;
    tandem_torch_pass pass;
    int in_operator, in_call; /* whether it or one around it is one */
} frame;

typedef struct thread {
    uint64_t id;
    frame *frame;
    int n, room;
    tandem_torch_pass scope; /* of the last backward or optimizer scope */
    int64_t scope_end_ns;    /* the latest time at which that may have ended */
} thread;

typedef struct external {
    int64_t id;
    int32_t signature;
    tandem_torch_pass pass;
} external;

typedef struct reading {
    torch_rank *rank;
    tandem_events events;
    tandem_error *error;
    tandem_event event;
    slice *batch;
    int n_batch;
    thread *thread;
    int n_thread, last_thread;
    external *external; /* [n_external] by the low bits of the id */
    int64_t n_external;
    int is_exact; /* whether any time has been a part of a µs */
} reading;

static tandem_status no_memory(const reading *r)
{
    return tandem_error_set(r->error, TANDEM_NO_MEMORY, "no memory to read '%.200s'",
                            r->events.input->source);
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static int begins(const char *text, const char *word) { return strncmp(text, word, strlen(word)) == 0; }

/* Letters of a name alone, in lower case: ncclDevKernel_AllReduce_Sum, nccl:all_reduce, c10d::allreduce_ are
 * alike. */
static void letters_of(char *to, size_t size, const char *name)
{
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        const char lower = (char)(*name | 0x20);
        if (lower >= 'a' && lower <= 'z') to[n++] = lower;
    }
    to[n] = '\0';
}

/* The operation of a collective, or the name itself. */
static const char *operation_of(const char *name)
{
    static const struct {
        const char *letters, *operation;
    } operations[] = {
        {"allreduce", "all-reduce"},  {"reducescatter", "reduce-scatter"},
        {"allgather", "all-gather"},  {"alltoall", "all-to-all"},
        {"broadcast", "broadcast"},   {"barrier", "barrier"},
        {"sendrecv", "send-receive"}, {"gather", "gather"},
        {"scatter", "scatter"},       {"send", "send"},
        {"recv", "receive"},          {"reduce", "reduce"},
    };
    char letters[TANDEM_EVENT_TEXT];
    letters_of(letters, sizeof letters, name);
    for (size_t k = 0; k < sizeof operations / sizeof *operations; k++)
        if (strstr(letters, operations[k].letters)) return operations[k].operation;
    return name;
}

static int is_cast(const tandem_event *event)
{
    const char *const name = event->name.text;
    if (strcmp(name, "aten::to") == 0 || strcmp(name, "aten::_to_copy") == 0) return 1;
    if (strcmp(name, "aten::copy_") != 0 || event->types.n < 2) return 0;
    const char *const first = event->types.text + 1, *const comma = strchr(first, ','); /* [to,from,…] */
    if (!comma) return 0;
    const size_t n = (size_t)(comma - first);
    return strncmp(comma + 1, first, n) != 0 || (comma[1 + n] != ',' && comma[1 + n] != ']');
}

/* --- Signatures ----------------------------------------------------------------------------------------- */

static tandem_status grow(const reading *r, void **array, int *room, size_t size, int most)
{
    const int more = *room ? *room < most / 2 ? 2 * *room : most : most < 64 ? most : 64;
    void *const grown = realloc(*array, (size_t)more * size);
    if (!grown) return no_memory(r);
    *array = grown;
    *room = more;
    return TANDEM_OK;
}

static void enter(torch_rank *rank, int place)
{
    unsigned at = (unsigned)rank->signature[place].hash;
    for (;; at++) {
        int *const slot = &rank->table[at & (unsigned)(rank->table_room - 1)];
        if (*slot) continue;
        *slot = place + 1;
        return;
    }
}

static tandem_status grow_table(reading *r)
{
    torch_rank *const rank = r->rank;
    const int room = rank->table_room ? 2 * rank->table_room : 256;
    int *const table = calloc((size_t)room, sizeof *table);
    if (!table) return no_memory(r);
    free(rank->table);
    rank->table = table;
    rank->table_room = room;
    for (int k = 0; k < rank->n_signature; k++) enter(rank, k);
    return TANDEM_OK;
}

/* The signature with this hash; −1 = there is none yet. */
static int32_t find_signature(const torch_rank *rank, uint64_t hash)
{
    for (unsigned at = (unsigned)hash; rank->table_room; at++) {
        const int found = rank->table[at & (unsigned)(rank->table_room - 1)];
        if (!found) break;
        if (rank->signature[found - 1].hash == hash) return found - 1;
    }
    return -1;
}

/* A new one. Where there are too many, the rest share one. */
static tandem_status add_signature(reading *r, uint64_t hash, const char *name, const char *detail, int cast,
                                   int32_t *place)
{
    static const uint64_t rest = 1; /* hash of the one that is shared */
    torch_rank *const rank = r->rank;
    if (rank->n_signature == MOST_SIGNATURES) {
        *place = find_signature(rank, rest);
        return TANDEM_OK;
    }
    torch_signature made = {.hash = hash, .is_cast = cast};
    if (rank->n_signature == MOST_SIGNATURES - 1) {
        made = (torch_signature){.hash = rest};
        name = "(operators beyond the first 65535)";
        detail = "";
    }
    tandem_status status = TANDEM_OK;
    if (2 * (rank->n_signature + 1) > rank->table_room) status = grow_table(r);
    if (status == TANDEM_OK && rank->n_signature == rank->signature_room)
        status = grow(r, (void **)&rank->signature, &rank->signature_room, sizeof *rank->signature,
                      MOST_SIGNATURES);
    if (status != TANDEM_OK) return status;
    made.name = tandem_arena_text(&rank->arena, name);
    made.detail = tandem_arena_text(&rank->arena, detail);
    if (!made.name || !made.detail) return no_memory(r);
    rank->signature[rank->n_signature] = made;
    enter(rank, rank->n_signature);
    *place = rank->n_signature++;
    return TANDEM_OK;
}

/* Of an operator: name, shapes and types. Of a kernel: its name. */
static tandem_status signature_of_event(reading *r, int is_kernel, int32_t *place)
{
    const tandem_event *const event = &r->event;
    const uint64_t hash =
        is_kernel ? ~event->name.hash : event->name.hash + 3 * event->dims.hash + 7 * event->types.hash;
    char detail[2 * TANDEM_EVENT_TEXT + 2];
    *place = find_signature(r->rank, hash);
    if (*place >= 0) return TANDEM_OK;
    (void)snprintf(detail, sizeof detail, "%s%s%s", event->dims.text,
                   event->dims.n && event->types.n ? " " : "", event->types.text);
    return add_signature(r, hash, event->name.text, is_kernel ? "" : detail, is_cast(event), place);
}

/* --- Communication -------------------------------------------------------------------------------------- */

static tandem_status add_collective(reading *r, const char *name, const char *detail, uint64_t key,
                                    int64_t start_ns, int64_t end_ns, int source)
{
    torch_rank *const rank = r->rank;
    tandem_status status = tandem_spans_add(&rank->comm[source], start_ns, end_ns, r->error);
    if (status != TANDEM_OK) return status;
    if (rank->n_collective == MOST_COLLECTIVES) {
        rank->n_dropped++;
        return TANDEM_OK;
    }
    if (rank->n_collective == rank->collective_room)
        status = grow(r, (void **)&rank->collective, &rank->collective_room, sizeof *rank->collective,
                      MOST_COLLECTIVES);
    int32_t place = find_signature(rank, key);
    if (status == TANDEM_OK && place < 0) status = add_signature(r, key, name, detail, 0, &place);
    if (status != TANDEM_OK) return status;
    rank->collective[rank->n_collective++] = (torch_collective){.start_ns = start_ns,
                                                                .duration_ns = end_ns - start_ns,
                                                                .key = key,
                                                                .signature = place,
                                                                .source = source};
    return TANDEM_OK;
}

/* The same operation, size and members have the same key on every rank. */
static tandem_status add_event_collective(reading *r, int64_t end_ns, int source)
{
    const tandem_event *const event = &r->event;
    const char *const operation = operation_of(event->label.n ? event->label.text : event->name.text);
    char detail[2 * TANDEM_EVENT_TEXT + 40], size[32] = "";
    uint64_t key = 5381;
    for (const char *c = operation; *c; c++) key = key * 33 + (unsigned char)*c;
    key = (key + (uint64_t)event->elements) * UINT64_C(0x9e3779b97f4a7c15) + 3 * event->members.hash;
    if (event->elements < 0) key += 7 * event->dims.hash;
    if (event->elements >= 0) (void)snprintf(size, sizeof size, "n=%lld", (long long)event->elements);
    (void)snprintf(detail, sizeof detail, "%s%s%s", event->elements >= 0 ? size : event->dims.text,
                   event->members.n ? " " : "", event->members.text);
    return add_collective(r, operation, detail, key, event->start_ns, end_ns, source);
}

/* --- Which operator a kernel belongs to ----------------------------------------------------------------- */

static tandem_status make_externals(reading *r, int64_t n)
{
    external *const made = malloc((size_t)n * sizeof *made);
    if (!made) return no_memory(r);
    for (int64_t k = 0; k < n; k++) made[k].id = -1;
    for (int64_t k = 0; k < r->n_external; k++)
        if (r->external[k].id >= 0) made[r->external[k].id & (n - 1)] = r->external[k];
    free(r->external);
    r->external = made;
    r->n_external = n;
    return TANDEM_OK;
}

static const external *find_external(const reading *r, int64_t id)
{
    const external *const found = id >= 0 ? &r->external[id & (r->n_external - 1)] : NULL;
    return found && found->id == id ? found : NULL;
}

/* Ids ascend: there is room for all of them until there are too many; then the latest replace the oldest. */
static tandem_status add_external(reading *r, external one)
{
    for (;;) {
        external *const place = &r->external[one.id & (r->n_external - 1)];
        if (place->id < 0 || place->id == one.id || r->n_external == MOST_EXTERNALS) {
            *place = one;
            return TANDEM_OK;
        }
        const tandem_status status = make_externals(r, 2 * r->n_external);
        if (status != TANDEM_OK) return status;
    }
}

/* --- The stack of a thread ------------------------------------------------------------------------------ */

static thread *thread_of(reading *r, uint64_t id)
{
    if (r->n_thread && r->thread[r->last_thread].id == id) return &r->thread[r->last_thread];
    for (int k = 0; k < r->n_thread; k++)
        if (r->thread[k].id == id) return &r->thread[r->last_thread = k];
    if (r->n_thread == MOST_THREADS)
        return &r->thread[r->last_thread = MOST_THREADS - 1]; /* no real process has as many */
    r->last_thread = r->n_thread++;
    r->thread[r->last_thread] = (thread){.id = id};
    return &r->thread[r->last_thread];
}

/* Takes the uppermost slice off, and counts what it took without those within. */
static void pop(reading *r, thread *t)
{
    const frame *const top = &t->frame[--t->n];
    if (top->signature < 0) { /* a note: what is within it is within the operator around it */
        if (t->n) t->frame[t->n - 1].inner_ns += top->inner_ns;
        return;
    }
    tandem_torch_cost *const cost = &r->rank->signature[top->signature].cost[top->pass];
    const int64_t total_ns = top->end_ns - top->start_ns;
    cost->calls++;
    cost->total_ns += total_ns;
    cost->self_ns += total_ns > top->inner_ns ? total_ns - top->inner_ns : 0;
}

/* By how much slices may end later than they say: where start and duration are both cut to whole µs, up to 2
 * µs. What begins last within a short slice then seems to begin behind it. */
static int64_t slack_of(const reading *r) { return r->is_exact ? 0 : 2000; }

static tandem_torch_pass pass_of(const reading *r, thread *t, const frame *outer, const slice *s)
{
    if (s->role == BACKWARD_SCOPE || s->role == OPTIMIZER_SCOPE) {
        t->scope = s->role == BACKWARD_SCOPE ? TANDEM_TORCH_BACKWARD : TANDEM_TORCH_OPTIMIZER;
        t->scope_end_ns = s->end_ns + slack_of(r);
        return t->scope;
    }
    if (outer && outer->pass != TANDEM_TORCH_FORWARD) return outer->pass;
    return s->start_ns < t->scope_end_ns ? t->scope : TANDEM_TORCH_FORWARD;
}

/* A copy within a cast is one, where types were not recorded, too: it gets a row beside the one of plain
 * copies. */
static tandem_status find_cast(reading *r, const frame *outer, int32_t *place)
{
    const torch_signature *const all = r->rank->signature;
    if (*place < 0 || !outer || outer->signature < 0 || !all[outer->signature].is_cast ||
        all[*place].is_cast || *all[*place].detail || strcmp(all[*place].name, "aten::copy_") != 0)
        return TANDEM_OK;
    const uint64_t hash = all[*place].hash ^ UINT64_C(0x9e3779b97f4a7c15);
    const int32_t found = find_signature(r->rank, hash);
    if (found < 0) return add_signature(r, hash, "aten::copy_", "", 1, place);
    *place = found;
    return TANDEM_OK;
}

static tandem_status push(reading *r, const slice *s)
{
    thread *const t = thread_of(r, s->thread);
    while (t->n && t->frame[t->n - 1].end_ns <= s->start_ns) pop(r, t);
    frame *const outer = t->n ? &t->frame[t->n - 1] : NULL;
    const int is_operator = s->role != PLAIN && s->role != OPTIMIZER_SCOPE;
    int32_t signature = s->signature;
    tandem_status status = find_cast(r, outer, &signature);
    if (status != TANDEM_OK) return status;
    frame made = {.start_ns = s->start_ns,
                  .end_ns = s->end_ns,
                  .signature = signature,
                  .pass = pass_of(r, t, outer, s),
                  .in_operator = is_operator || (outer && outer->in_operator),
                  .in_call = s->role == CALL || (outer && outer->in_call)};
    if (outer) {
        const int64_t inner_end_ns = s->end_ns < outer->end_ns ? s->end_ns : outer->end_ns;
        if (s->end_ns > outer->end_ns + slack_of(r)) r->rank->n_overlapping++;
        if (s->signature >= 0) outer->inner_ns += inner_end_ns - s->start_ns;
    }
    if (is_operator && s->role != CALL && !(outer && outer->in_operator))
        status = tandem_spans_add(&r->rank->host, s->start_ns, s->end_ns, r->error);
    if (status == TANDEM_OK && s->role == CALL && !(outer && outer->in_call)) {
        const torch_signature *const own = &r->rank->signature[s->signature];
        status = add_collective(r, operation_of(own->name), own->detail, ~own->hash, s->start_ns, s->end_ns,
                                TORCH_CALL);
    }
    if (status == TANDEM_OK && s->external >= 0)
        status = add_external(r, (external){s->external, signature, made.pass});
    if (status == TANDEM_OK && t->n == MOST_FRAMES)
        pop(r, t); /* deeper than any program: beside it, not within it */
    if (status == TANDEM_OK && t->n == t->room)
        status = grow(r, (void **)&t->frame, &t->room, sizeof *t->frame, MOST_FRAMES);
    if (status == TANDEM_OK) t->frame[t->n++] = made;
    return status;
}

/* --- Batches -------------------------------------------------------------------------------------------- */

/* By thread, start, longest first, then as the file has them; kernels last, when what they belong to is
 * known. */
static int in_turn(const void *left, const void *right)
{
    const slice *const a = left, *const b = right;
    int order = (a->role == KERNEL) - (b->role == KERNEL);
    if (!order) order = (a->thread > b->thread) - (a->thread < b->thread);
    if (!order) order = (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
    if (!order) order = (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
    return order ? order : (a->place > b->place) - (a->place < b->place);
}

static void charge_kernel(reading *r, const slice *s)
{
    const external *const owner = find_external(r, s->external);
    tandem_torch_cost *const cost = owner ? &r->rank->signature[owner->signature].cost[owner->pass]
                                          : &r->rank->signature[s->signature].cost[TANDEM_TORCH_UNKNOWN];
    cost->device_ns += s->end_ns - s->start_ns;
    if (!owner) cost->calls++;
}

static tandem_status take_batch(reading *r)
{
    tandem_status status = TANDEM_OK;
    qsort(r->batch, (size_t)r->n_batch, sizeof *r->batch, in_turn);
    for (int k = 0; k < r->n_batch && status == TANDEM_OK; k++) {
        if (r->batch[k].role == KERNEL)
            charge_kernel(r, &r->batch[k]);
        else
            status = push(r, &r->batch[k]);
    }
    r->n_batch = 0;
    return status;
}

static tandem_status add_slice(reading *r, int64_t end_ns, int32_t signature, int role)
{
    const tandem_event *const event = &r->event;
    r->is_exact |= event->start_ns % 1000 != 0 || event->duration_ns % 1000 != 0;
    r->batch[r->n_batch] = (slice){.thread = event->thread,
                                   .start_ns = event->start_ns,
                                   .end_ns = end_ns,
                                   .external = signature < 0 ? -1 : event->external,
                                   .signature = signature,
                                   .role = role,
                                   .place = r->n_batch};
    r->n_batch++;
    return r->n_batch == BATCH ? take_batch(r) : TANDEM_OK;
}

/* --- Events --------------------------------------------------------------------------------------------- */

static tandem_status add_window(reading *r, int64_t number, int64_t end_ns)
{
    torch_rank *const rank = r->rank;
    if (rank->n_window == MOST_STEPS)
        return tandem_events_refuse(&r->events, &r->event,
                                    "expected at most 65536 steps (ProfilerStep#…) in "
                                    "a file");
    if (rank->n_window == rank->window_room) {
        const tandem_status status =
            grow(r, (void **)&rank->window, &rank->window_room, sizeof *rank->window, MOST_STEPS);
        if (status != TANDEM_OK) return status;
    }
    rank->window[rank->n_window++] = (torch_window){number, r->event.start_ns, end_ns};
    return TANDEM_OK;
}

static tandem_status take_kernel(reading *r, int64_t end_ns)
{
    const char *const name = r->event.name.text;
    int32_t signature = -1;
    if (begins(name, "nccl") || begins(name, "rccl")) {
        const tandem_status status = add_event_collective(r, end_ns, TORCH_KERNEL);
        if (status != TANDEM_OK) return status;
    } else {
        const tandem_status status = tandem_spans_add(&r->rank->device, r->event.start_ns, end_ns, r->error);
        if (status != TANDEM_OK) return status;
    }
    const tandem_status status = signature_of_event(r, 1, &signature);
    return status == TANDEM_OK ? add_slice(r, end_ns, signature, KERNEL) : status;
}

static tandem_status take_host(reading *r, int64_t end_ns, int is_annotation)
{
    static const char step[] = "ProfilerStep#";
    const char *const name = r->event.name.text;
    if (begins(name, step)) {
        const tandem_status status = add_window(r, strtoll(name + sizeof step - 1, NULL, 10), end_ns);
        return status == TANDEM_OK ? add_slice(r, end_ns, -1, PLAIN) : status;
    }
    if (begins(name, "nccl:") || begins(name, "gloo:") || begins(name, "ucc:") || begins(name, "mpi:"))
        /* runs beside what started it: no part of the stack */
        return add_event_collective(r, end_ns, TORCH_SLICE);
    if (begins(name, "Optimizer.")) return add_slice(r, end_ns, -1, OPTIMIZER_SCOPE);
    if (is_annotation) return add_slice(r, end_ns, -1, PLAIN);
    const int is_call =
        begins(name, "c10d::") || begins(name, "_c10d_functional::") || begins(name, "record_param_comms");
    const int role = is_call                                               ? CALL
                     : begins(name, "autograd::engine::evaluate_function") ? BACKWARD_SCOPE
                                                                           : OPERATOR;
    int32_t signature = -1;
    const tandem_status status = signature_of_event(r, 0, &signature);
    return status == TANDEM_OK ? add_slice(r, end_ns, signature, role) : status;
}

/* Categories by their names, also those of older versions, of which some have none at all. */
enum { OTHER, HOST, NOTE, DEVICE };
static int category_of(const tandem_event *event)
{
    static const struct {
        const char *name;
        int category;
    } categories[] = {{"cpu_op", HOST},       {"kernel", DEVICE},     {"user_annotation", NOTE},
                      {"gpu_memcpy", DEVICE}, {"gpu_memset", DEVICE}, {"Operator", HOST},
                      {"Kernel", DEVICE},     {"Memcpy", DEVICE},     {"Memset", DEVICE}};
    const char *const name = event->category.text;
    if (!*name) return begins(event->process.text, "CUDA") ? DEVICE : HOST;
    for (size_t k = 0; k < sizeof categories / sizeof *categories; k++)
        if (*name == *categories[k].name && strcmp(name, categories[k].name) == 0)
            return categories[k].category;
    return OTHER;
}

static tandem_status take_event(reading *r)
{
    const tandem_event *const event = &r->event;
    const int category = event->phase == 'X' ? category_of(event) : OTHER;
    if (category == OTHER) return TANDEM_OK;
    if (!event->has_start || !event->has_duration || !event->has_name) {
        r->rank->n_incomplete++;
        return TANDEM_OK;
    }
    if (!tandem_input_duration(&r->event.duration_ns, &r->rank->n_negative))
        return tandem_events_refuse(&r->events, event, "expected a dur " TANDEM_INPUT_DURATIONS);
    const int64_t end_ns = event->start_ns + event->duration_ns;
    return category == DEVICE ? take_kernel(r, end_ns) : take_host(r, end_ns, category == NOTE);
}

/* --- Files ---------------------------------------------------------------------------------------------- */

static tandem_status read_all(reading *r)
{
    int is_there = 1;
    torch_rank *const rank = r->rank;
    tandem_status status = TANDEM_OK;
    rank->first_ns = INT64_MAX;
    rank->last_ns = INT64_MIN;
    while (status == TANDEM_OK) {
        status = tandem_events_next(&r->events, &r->event, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        status = take_event(r);
    }
    if (status == TANDEM_OK) status = take_batch(r);
    for (int k = 0; k < r->n_thread && status == TANDEM_OK; k++)
        while (r->thread[k].n) pop(r, &r->thread[k]);
    rank->n_event = r->events.n_event;
    rank->rank = r->events.header.rank;
    return status;
}

static int by_number(const void *left, const void *right)
{
    const torch_window *const a = left, *const b = right;
    const int order = (a->number > b->number) - (a->number < b->number);
    return order ? order : (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

/* The ends of what is busy: the step of a trace that names none. */
static void find_extent(torch_rank *rank)
{
    tandem_spans *const all[] = {&rank->device, &rank->host, &rank->comm[0], &rank->comm[1], &rank->comm[2]};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        tandem_spans_unite(all[k]);
        if (all[k]->n == 0) continue;
        if (all[k]->span[0].begin_ns < rank->first_ns) rank->first_ns = all[k]->span[0].begin_ns;
        if (all[k]->span[all[k]->n - 1].end_ns > rank->last_ns)
            rank->last_ns = all[k]->span[all[k]->n - 1].end_ns;
    }
}

static void close_reading(reading *r)
{
    for (int k = 0; k < r->n_thread; k++) free(r->thread[k].frame);
    free(r->external);
    free(r->thread);
    free(r->batch);
    free(r);
}

static tandem_status read_rank(reading *r)
{
    torch_rank *const rank = r->rank;
    r->batch = malloc(BATCH * sizeof *r->batch);
    r->thread = calloc(MOST_THREADS, sizeof *r->thread);
    if (!r->batch || !r->thread) return no_memory(r);
    tandem_status status = make_externals(r, FIRST_EXTERNALS);
    if (status == TANDEM_OK) status = read_all(r);
    if (status != TANDEM_OK) return status;
    find_extent(rank);
    if (rank->n_window) qsort(rank->window, (size_t)rank->n_window, sizeof *rank->window, by_number);
    if (rank->first_ns > rank->last_ns && rank->n_window == 0)
        return tandem_error_set(r->error, TANDEM_MALFORMED,
                                "'%.200s': %lld events, none of which is an operator, a kernel or a step; "
                                "expected a trace "
                                "of the PyTorch profiler or of tandem train --trace",
                                r->events.input->source, (long long)rank->n_event);
    return TANDEM_OK;
}

tandem_status torch_rank_read(torch_rank *rank, tandem_input *input, tandem_error *error)
{
    reading *const r = calloc(1, sizeof *r);
    if (!r) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", input->source);
    r->rank = rank;
    r->error = error;
    tandem_events_open(&r->events, input, error);
    const tandem_status status = read_rank(r);
    close_reading(r);
    return status;
}

void torch_rank_close(torch_rank *rank)
{
    for (int k = 0; k < N_TORCH_SOURCE; k++) tandem_spans_free(&rank->comm[k]);
    tandem_spans_free(&rank->host);
    tandem_spans_free(&rank->device);
    free(rank->collective);
    free(rank->window);
    free(rank->table);
    free(rank->signature);
    tandem_arena_free(&rank->arena);
    *rank = (torch_rank){0};
}
