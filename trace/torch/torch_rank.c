/* torch_rank.c: sorts the PyTorch profiler's events of one rank into operators, steps, busy times and
 * collectives.
 *
 * The slices of a thread nest, but files order them in different ways. They are therefore gathered into a
 * batch, sorted by thread and start, and pushed on one stack per thread. Nothing of a batch is kept after
 * that. */
#include "trace/torch/torch_rank.h"

#include "base/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 1 << 16,
    FIRST_KERNEL_OWNERS = 1 << 10,
    MAX_KERNEL_OWNERS = 1 << 20, /* the latest operators that a kernel can be traced back to */
    MAX_SIGNATURES = 1 << 16,
    MAX_COLLECTIVES = 1 << 20,
    MAX_STEPS = 1 << 16,
    MAX_FRAMES = 1 << 12,
    MAX_THREADS = 1 << 12,
};

/* What a slice means for the slices inside it. */
enum { PLAIN, OPERATOR, CALL, BACKWARD_SCOPE, OPTIMIZER_SCOPE, KERNEL };

typedef struct host_slice {
    uint64_t thread;
    int64_t start_ns, end_ns;
    int64_t external;
    int32_t signature;   /* −1 = none */
    int32_t role, index; /* index in the batch */
} host_slice;

typedef struct stack_frame {
    int64_t start_ns, end_ns, inner_ns;
    int32_t signature;
    tandem_torch_pass pass;
    int in_operator, in_call; /* whether it or an outer slice is one */
} stack_frame;

typedef struct host_thread {
    uint64_t id;
    stack_frame *frame;
    int n, capacity;
    tandem_torch_pass scope; /* of the last backward or optimizer scope */
    int64_t scope_end_ns;    /* latest possible end of that scope */
} host_thread;

typedef struct kernel_owner {
    int64_t id;
    int32_t signature;
    tandem_torch_pass pass;
} kernel_owner;

typedef struct torch_reader {
    torch_rank *rank;
    tandem_events events;
    tandem_error *error;
    tandem_event event;
    host_slice *batch;
    int n_batch;
    host_thread *thread;
    int n_thread, last_thread;
    kernel_owner *external; /* [n_external] by the low bits of the id */
    int64_t n_external;
    int is_exact; /* whether any time has a fraction of a µs */
} torch_reader;

static tandem_status torch_rank_no_memory(const torch_reader *r)
{
    return tandem_no_memory(r->error, "to read '%.200s'", r->events.input->source);
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static int starts_with(const char *text, const char *word) { return strncmp(text, word, strlen(word)) == 0; }

/* The letters of a name in lower case, so that ncclDevKernel_AllReduce_Sum, nccl:all_reduce and
 * c10d::allreduce_ are alike. */
static void lower_letters(char *to, size_t size, const char *name)
{
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        const char lower = (char)(*name | 0x20);
        if (lower >= 'a' && lower <= 'z') to[n++] = lower;
    }
    to[n] = '\0';
}

/* The operation of a collective, or the name itself. */
static const char *collective_operation(const char *name)
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
    lower_letters(letters, sizeof letters, name);
    for (size_t k = 0; k < sizeof operations / sizeof *operations; k++)
        if (strstr(letters, operations[k].letters)) return operations[k].operation;
    return name;
}

static int is_cast_event(const tandem_event *event)
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

/* Adds a signature. Beyond the limit, all share one. */
static tandem_status add_signature(torch_reader *r, uint64_t hash, const char *name, const char *detail,
                                   int cast, int32_t *index)
{
    static const uint64_t rest = 1; /* hash of the shared one */
    torch_rank *const rank = r->rank;
    if (rank->n_signature == MAX_SIGNATURES) {
        *index = tandem_hash_index_find(&rank->table, rest);
        return TANDEM_OK;
    }
    torch_signature made = {.hash = hash, .is_cast = cast};
    if (rank->n_signature == MAX_SIGNATURES - 1) {
        made = (torch_signature){.hash = rest};
        name = "(operators beyond the first 65535)";
        detail = "";
    }
    torch_signature *const more = tandem_grow(rank->signature, &rank->signature_capacity, rank->n_signature,
                                              sizeof *more, MAX_SIGNATURES);
    if (!more) return torch_rank_no_memory(r);
    rank->signature = more;
    made.name = tandem_arena_text(&rank->arena, name);
    made.detail = tandem_arena_text(&rank->arena, detail);
    if (!made.name || !made.detail || !tandem_hash_index_add(&rank->table, made.hash, rank->n_signature))
        return torch_rank_no_memory(r);
    more[rank->n_signature] = made;
    *index = rank->n_signature++;
    return TANDEM_OK;
}

/* The signature is name, shapes and types of an operator, and the name of a kernel. */
static tandem_status find_event_signature(torch_reader *r, int is_kernel, int32_t *index)
{
    const tandem_event *const event = &r->event;
    const uint64_t hash =
        is_kernel ? ~event->name.hash : event->name.hash + 3 * event->dims.hash + 7 * event->types.hash;
    char detail[2 * TANDEM_EVENT_TEXT + 2];
    *index = tandem_hash_index_find(&r->rank->table, hash);
    if (*index >= 0) return TANDEM_OK;
    (void)snprintf(detail, sizeof detail, "%s%s%s", event->dims.text,
                   event->dims.n && event->types.n ? " " : "", event->types.text);
    return add_signature(r, hash, event->name.text, is_kernel ? "" : detail, is_cast_event(event), index);
}

/* --- Communication -------------------------------------------------------------------------------------- */

static tandem_status add_collective(torch_reader *r, const char *name, const char *detail, uint64_t key,
                                    int64_t start_ns, int64_t end_ns, int source)
{
    torch_rank *const rank = r->rank;
    tandem_status status = tandem_interval_set_add(&rank->comm[source], start_ns, end_ns, r->error);
    if (status != TANDEM_OK) return status;
    if (rank->n_collective == MAX_COLLECTIVES) {
        rank->n_dropped++;
        return TANDEM_OK;
    }
    torch_collective *const more = tandem_grow(rank->collective, &rank->collective_capacity,
                                               rank->n_collective, sizeof *more, MAX_COLLECTIVES);
    if (!more) return torch_rank_no_memory(r);
    rank->collective = more;
    int32_t index = tandem_hash_index_find(&rank->table, key);
    if (index < 0) status = add_signature(r, key, name, detail, 0, &index);
    if (status != TANDEM_OK) return status;
    more[rank->n_collective++] = (torch_collective){.start_ns = start_ns,
                                                    .duration_ns = end_ns - start_ns,
                                                    .key = key,
                                                    .signature = index,
                                                    .source = source};
    return TANDEM_OK;
}

/* Equal operations, sizes and members have equal keys on all ranks. */
static tandem_status add_event_collective(torch_reader *r, int64_t end_ns, int source)
{
    const tandem_event *const event = &r->event;
    const char *const operation = collective_operation(event->label.n ? event->label.text : event->name.text);
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

static tandem_status resize_kernel_owners(torch_reader *r, int64_t n)
{
    kernel_owner *const made = malloc((size_t)n * sizeof *made);
    if (!made) return torch_rank_no_memory(r);
    for (int64_t k = 0; k < n; k++) made[k].id = -1;
    for (int64_t k = 0; k < r->n_external; k++)
        if (r->external[k].id >= 0) made[r->external[k].id & (n - 1)] = r->external[k];
    free(r->external);
    r->external = made;
    r->n_external = n;
    return TANDEM_OK;
}

static const kernel_owner *find_kernel_owner(const torch_reader *r, int64_t id)
{
    const kernel_owner *const found = id >= 0 ? &r->external[id & (r->n_external - 1)] : NULL;
    return found && found->id == id ? found : NULL;
}

/* Ids ascend. The table grows until it is full; then the latest replace the oldest. */
static tandem_status add_kernel_owner(torch_reader *r, kernel_owner one)
{
    for (;;) {
        kernel_owner *const slot = &r->external[one.id & (r->n_external - 1)];
        if (slot->id < 0 || slot->id == one.id || r->n_external == MAX_KERNEL_OWNERS) {
            *slot = one;
            return TANDEM_OK;
        }
        const tandem_status status = resize_kernel_owners(r, 2 * r->n_external);
        if (status != TANDEM_OK) return status;
    }
}

/* --- The stack of a thread ------------------------------------------------------------------------------ */

static host_thread *find_thread(torch_reader *r, uint64_t id)
{
    if (r->n_thread && r->thread[r->last_thread].id == id) return &r->thread[r->last_thread];
    for (int k = 0; k < r->n_thread; k++)
        if (r->thread[k].id == id) return &r->thread[r->last_thread = k];
    if (r->n_thread == MAX_THREADS)
        return &r->thread[r->last_thread = MAX_THREADS - 1]; /* no real process has as many */
    r->last_thread = r->n_thread++;
    r->thread[r->last_thread] = (host_thread){.id = id};
    return &r->thread[r->last_thread];
}

/* Pops the innermost slice and adds its self time. */
static void pop_frame(torch_reader *r, host_thread *t)
{
    const stack_frame *const top = &t->frame[--t->n];
    if (top->signature < 0) { /* an annotation: its inner slices count for the outer operator */
        if (t->n) t->frame[t->n - 1].inner_ns += top->inner_ns;
        return;
    }
    tandem_torch_cost *const cost = &r->rank->signature[top->signature].cost[top->pass];
    const int64_t total_ns = top->end_ns - top->start_ns;
    cost->calls++;
    cost->total_ns += total_ns;
    cost->self_ns += total_ns > top->inner_ns ? total_ns - top->inner_ns : 0;
}

/* How much later slices may end than they say. If start and duration are both cut to whole µs, it is up to
 * 2 µs: the last inner slice of a short one then seems to begin after it. */
static int64_t rounding_ns(const torch_reader *r) { return r->is_exact ? 0 : 2000; }

static tandem_torch_pass pass_of_slice(const torch_reader *r, host_thread *t, const stack_frame *outer,
                                       const host_slice *s)
{
    if (s->role == BACKWARD_SCOPE || s->role == OPTIMIZER_SCOPE) {
        t->scope = s->role == BACKWARD_SCOPE ? TANDEM_TORCH_BACKWARD : TANDEM_TORCH_OPTIMIZER;
        t->scope_end_ns = s->end_ns + rounding_ns(r);
        return t->scope;
    }
    if (outer && outer->pass != TANDEM_TORCH_FORWARD) return outer->pass;
    return s->start_ns < t->scope_end_ns ? t->scope : TANDEM_TORCH_FORWARD;
}

/* Without recorded types, a copy inside a cast is a cast too. It gets a row apart from plain copies. */
static tandem_status find_cast_signature(torch_reader *r, const stack_frame *outer, int32_t *index)
{
    const torch_signature *const all = r->rank->signature;
    if (*index < 0 || !outer || outer->signature < 0 || !all[outer->signature].is_cast ||
        all[*index].is_cast || *all[*index].detail || strcmp(all[*index].name, "aten::copy_") != 0)
        return TANDEM_OK;
    const uint64_t hash = all[*index].hash ^ UINT64_C(0x9e3779b97f4a7c15);
    const int32_t found = tandem_hash_index_find(&r->rank->table, hash);
    if (found < 0) return add_signature(r, hash, "aten::copy_", "", 1, index);
    *index = found;
    return TANDEM_OK;
}

static tandem_status push_slice(torch_reader *r, const host_slice *s)
{
    host_thread *const t = find_thread(r, s->thread);
    while (t->n && t->frame[t->n - 1].end_ns <= s->start_ns) pop_frame(r, t);
    stack_frame *const outer = t->n ? &t->frame[t->n - 1] : NULL;
    const int is_operator = s->role != PLAIN && s->role != OPTIMIZER_SCOPE;
    int32_t signature = s->signature;
    tandem_status status = find_cast_signature(r, outer, &signature);
    if (status != TANDEM_OK) return status;
    stack_frame made = {.start_ns = s->start_ns,
                        .end_ns = s->end_ns,
                        .signature = signature,
                        .pass = pass_of_slice(r, t, outer, s),
                        .in_operator = is_operator || (outer && outer->in_operator),
                        .in_call = s->role == CALL || (outer && outer->in_call)};
    if (outer) {
        const int64_t inner_end_ns = s->end_ns < outer->end_ns ? s->end_ns : outer->end_ns;
        if (s->end_ns > outer->end_ns + rounding_ns(r)) r->rank->n_overlapping++;
        if (s->signature >= 0) outer->inner_ns += inner_end_ns - s->start_ns;
    }
    if (is_operator && s->role != CALL && !(outer && outer->in_operator))
        status = tandem_interval_set_add(&r->rank->host, s->start_ns, s->end_ns, r->error);
    if (status == TANDEM_OK && s->role == CALL && !(outer && outer->in_call)) {
        const torch_signature *const own = &r->rank->signature[s->signature];
        status = add_collective(r, collective_operation(own->name), own->detail, ~own->hash, s->start_ns,
                                s->end_ns, TORCH_CALL);
    }
    if (status == TANDEM_OK && s->external >= 0)
        status = add_kernel_owner(r, (kernel_owner){s->external, signature, made.pass});
    if (status == TANDEM_OK && t->n == MAX_FRAMES)
        pop_frame(r, t); /* deeper than any program: treated as a sibling */
    if (status != TANDEM_OK) return status;
    stack_frame *const more = tandem_grow(t->frame, &t->capacity, t->n, sizeof *more, MAX_FRAMES);
    if (!more) return torch_rank_no_memory(r);
    t->frame = more;
    t->frame[t->n++] = made;
    return status;
}

/* --- Batches -------------------------------------------------------------------------------------------- */

/* By thread, start, longest first, then in file order. Kernels come last, when their operators are known. */
static int by_thread_start(const void *left, const void *right)
{
    const host_slice *const a = left, *const b = right;
    int order = (a->role == KERNEL) - (b->role == KERNEL);
    if (!order) order = (a->thread > b->thread) - (a->thread < b->thread);
    if (!order) order = (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
    if (!order) order = (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static void add_kernel_time(torch_reader *r, const host_slice *s)
{
    const kernel_owner *const owner = find_kernel_owner(r, s->external);
    tandem_torch_cost *const cost = owner ? &r->rank->signature[owner->signature].cost[owner->pass]
                                          : &r->rank->signature[s->signature].cost[TANDEM_TORCH_UNKNOWN];
    cost->device_ns += s->end_ns - s->start_ns;
    if (!owner) cost->calls++;
}

static tandem_status process_batch(torch_reader *r)
{
    tandem_status status = TANDEM_OK;
    qsort(r->batch, (size_t)r->n_batch, sizeof *r->batch, by_thread_start);
    for (int k = 0; k < r->n_batch && status == TANDEM_OK; k++) {
        if (r->batch[k].role == KERNEL)
            add_kernel_time(r, &r->batch[k]);
        else
            status = push_slice(r, &r->batch[k]);
    }
    r->n_batch = 0;
    return status;
}

static tandem_status add_to_batch(torch_reader *r, int64_t end_ns, int32_t signature, int role)
{
    const tandem_event *const event = &r->event;
    r->is_exact |= event->start_ns % 1000 != 0 || event->duration_ns % 1000 != 0;
    r->batch[r->n_batch] = (host_slice){.thread = event->thread,
                                        .start_ns = event->start_ns,
                                        .end_ns = end_ns,
                                        .external = signature < 0 ? -1 : event->external,
                                        .signature = signature,
                                        .role = role,
                                        .index = r->n_batch};
    r->n_batch++;
    return r->n_batch == BATCH ? process_batch(r) : TANDEM_OK;
}

/* --- Events --------------------------------------------------------------------------------------------- */

static tandem_status add_step_window(torch_reader *r, int64_t number, int64_t end_ns)
{
    torch_rank *const rank = r->rank;
    if (rank->n_window == MAX_STEPS)
        return tandem_events_refuse(&r->events, &r->event,
                                    "expected at most 65536 steps (ProfilerStep#…) in a file");
    torch_step_window *const more =
        tandem_grow(rank->window, &rank->window_capacity, rank->n_window, sizeof *more, MAX_STEPS);
    if (!more) return torch_rank_no_memory(r);
    rank->window = more;
    rank->window[rank->n_window++] = (torch_step_window){number, r->event.start_ns, end_ns};
    return TANDEM_OK;
}

static tandem_status add_kernel_slice(torch_reader *r, int64_t end_ns)
{
    const char *const name = r->event.name.text;
    int32_t signature = -1;
    if (starts_with(name, "nccl") || starts_with(name, "rccl")) {
        const tandem_status status = add_event_collective(r, end_ns, TORCH_KERNEL);
        if (status != TANDEM_OK) return status;
    } else {
        const tandem_status status =
            tandem_interval_set_add(&r->rank->device, r->event.start_ns, end_ns, r->error);
        if (status != TANDEM_OK) return status;
    }
    const tandem_status status = find_event_signature(r, 1, &signature);
    return status == TANDEM_OK ? add_to_batch(r, end_ns, signature, KERNEL) : status;
}

static tandem_status add_host_slice(torch_reader *r, int64_t end_ns, int is_annotation)
{
    static const char step[] = "ProfilerStep#";
    const char *const name = r->event.name.text;
    if (starts_with(name, step)) {
        const tandem_status status = add_step_window(r, strtoll(name + sizeof step - 1, NULL, 10), end_ns);
        return status == TANDEM_OK ? add_to_batch(r, end_ns, -1, PLAIN) : status;
    }
    if (starts_with(name, "nccl:") || starts_with(name, "gloo:") || starts_with(name, "ucc:") ||
        starts_with(name, "mpi:"))
        /* runs concurrently with its caller: not part of the stack */
        return add_event_collective(r, end_ns, TORCH_SLICE);
    if (starts_with(name, "Optimizer.")) return add_to_batch(r, end_ns, -1, OPTIMIZER_SCOPE);
    if (is_annotation) return add_to_batch(r, end_ns, -1, PLAIN);
    const int is_call = starts_with(name, "c10d::") || starts_with(name, "_c10d_functional::") ||
                        starts_with(name, "record_param_comms");
    const int role = is_call                                                    ? CALL
                     : starts_with(name, "autograd::engine::evaluate_function") ? BACKWARD_SCOPE
                                                                                : OPERATOR;
    int32_t signature = -1;
    const tandem_status status = find_event_signature(r, 0, &signature);
    return status == TANDEM_OK ? add_to_batch(r, end_ns, signature, role) : status;
}

/* Categories by name. Older versions have other names, or none. */
enum { OTHER, HOST, NOTE, DEVICE };
static int event_category(const tandem_event *event)
{
    static const struct {
        const char *name;
        int category;
    } categories[] = {{"cpu_op", HOST},       {"kernel", DEVICE},     {"user_annotation", NOTE},
                      {"gpu_memcpy", DEVICE}, {"gpu_memset", DEVICE}, {"Operator", HOST},
                      {"Kernel", DEVICE},     {"Memcpy", DEVICE},     {"Memset", DEVICE}};
    const char *const name = event->category.text;
    if (!*name) return starts_with(event->process.text, "CUDA") ? DEVICE : HOST;
    for (size_t k = 0; k < sizeof categories / sizeof *categories; k++)
        if (*name == *categories[k].name && strcmp(name, categories[k].name) == 0)
            return categories[k].category;
    return OTHER;
}

static tandem_status add_torch_event(torch_reader *r)
{
    const tandem_event *const event = &r->event;
    const int category = event->phase == 'X' ? event_category(event) : OTHER;
    if (category == OTHER) return TANDEM_OK;
    if (!event->has_start || !event->has_duration || !event->has_name) {
        r->rank->n_incomplete++;
        return TANDEM_OK;
    }
    if (!tandem_input_clamp_duration(&r->event.duration_ns, &r->rank->n_negative))
        return tandem_events_refuse(&r->events, event, "expected a dur " TANDEM_INPUT_DURATIONS);
    const int64_t end_ns = event->start_ns + event->duration_ns;
    return category == DEVICE ? add_kernel_slice(r, end_ns) : add_host_slice(r, end_ns, category == NOTE);
}

/* --- Files ---------------------------------------------------------------------------------------------- */

static tandem_status read_torch_events(torch_reader *r)
{
    int is_there = 1;
    torch_rank *const rank = r->rank;
    tandem_status status = TANDEM_OK;
    rank->first_ns = INT64_MAX;
    rank->last_ns = INT64_MIN;
    while (status == TANDEM_OK) {
        status = tandem_events_next(&r->events, &r->event, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        status = add_torch_event(r);
    }
    if (status == TANDEM_OK) status = process_batch(r);
    for (int k = 0; k < r->n_thread && status == TANDEM_OK; k++)
        while (r->thread[k].n) pop_frame(r, &r->thread[k]);
    rank->n_event = r->events.n_event;
    rank->rank = r->events.header.rank;
    return status;
}

static int by_step_number(const void *left, const void *right)
{
    const torch_step_window *const a = left, *const b = right;
    const int order = (a->number > b->number) - (a->number < b->number);
    return order ? order : (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

/* From the first to the last busy time: the step of a trace without steps. */
static void find_busy_extent(torch_rank *rank)
{
    tandem_interval_set *const all[] = {&rank->device, &rank->host, &rank->comm[0], &rank->comm[1],
                                        &rank->comm[2]};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        tandem_interval_set_merge(all[k]);
        if (all[k]->n == 0) continue;
        if (all[k]->interval[0].begin_ns < rank->first_ns) rank->first_ns = all[k]->interval[0].begin_ns;
        if (all[k]->interval[all[k]->n - 1].end_ns > rank->last_ns)
            rank->last_ns = all[k]->interval[all[k]->n - 1].end_ns;
    }
}

static void close_torch_reader(torch_reader *r)
{
    for (int k = 0; k < r->n_thread; k++) free(r->thread[k].frame);
    free(r->external);
    free(r->thread);
    free(r->batch);
    free(r);
}

static tandem_status read_torch_rank(torch_reader *r)
{
    torch_rank *const rank = r->rank;
    r->batch = malloc(BATCH * sizeof *r->batch);
    r->thread = calloc(MAX_THREADS, sizeof *r->thread);
    if (!r->batch || !r->thread) return torch_rank_no_memory(r);
    tandem_status status = resize_kernel_owners(r, FIRST_KERNEL_OWNERS);
    if (status == TANDEM_OK) status = read_torch_events(r);
    if (status != TANDEM_OK) return status;
    find_busy_extent(rank);
    if (rank->n_window) qsort(rank->window, (size_t)rank->n_window, sizeof *rank->window, by_step_number);
    if (rank->first_ns > rank->last_ns && rank->n_window == 0)
        return tandem_error_set(r->error, TANDEM_MALFORMED,
                                "'%.200s': %lld events, none of which is an operator, a kernel or a step; "
                                "expected a trace of the PyTorch profiler or of tandem train --trace",
                                r->events.input->source, (long long)rank->n_event);
    return TANDEM_OK;
}

tandem_status torch_rank_read(torch_rank *rank, tandem_input *input, tandem_error *error)
{
    torch_reader *const r = calloc(1, sizeof *r);
    if (!r) return tandem_no_memory(error, "to read '%.200s'", input->source);
    r->rank = rank;
    r->error = error;
    tandem_events_open(&r->events, input, error);
    const tandem_status status = read_torch_rank(r);
    close_torch_reader(r);
    return status;
}

void torch_rank_close(torch_rank *rank)
{
    for (int k = 0; k < N_TORCH_SOURCE; k++) tandem_interval_set_free(&rank->comm[k]);
    tandem_interval_set_free(&rank->host);
    tandem_interval_set_free(&rank->device);
    free(rank->collective);
    free(rank->window);
    tandem_hash_index_free(&rank->table);
    free(rank->signature);
    tandem_arena_free(&rank->arena);
    *rank = (torch_rank){0};
}
