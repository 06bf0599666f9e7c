/* torch_stack.c: slices of the host become calls of operators.
 *
 * The slices of a thread nest, but files order them in different ways. They are therefore gathered into a
 * batch, sorted by thread and start, and pushed on one stack per thread. */
#include "trace/torch/torch_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

enum {
    BATCH = 1 << 16,
    FIRST_ID_OWNERS = 1 << 10,
    MAX_ID_OWNERS = 1 << 20, /* the latest operators that a kernel can be traced back to by its id */
    MAX_FRAMES = 1 << 12,
};

/* --- Operators by their External id --------------------------------------------------------------------- */

static tandem_status resize_id_owners(torch_reader *r, int64_t n)
{
    id_owner *const owner = malloc((size_t)n * sizeof *owner);
    if (!owner) return torch_reader_no_memory(r);
    for (int64_t k = 0; k < n; k++) owner[k].id = -1;
    for (int64_t k = 0; k < r->n_external; k++)
        if (r->external[k].id >= 0) owner[r->external[k].id & (n - 1)] = r->external[k];
    free(r->external);
    r->external = owner;
    r->n_external = n;
    return TANDEM_OK;
}

/* Ids ascend. The table grows until it is full; then the latest replace the oldest. */
static tandem_status add_id_owner(torch_reader *r, id_owner owner)
{
    for (;;) {
        id_owner *const slot = &r->external[owner.id & (r->n_external - 1)];
        if (slot->id < 0 || slot->id == owner.id || r->n_external == MAX_ID_OWNERS) {
            *slot = owner;
            return TANDEM_OK;
        }
        const tandem_status status = resize_id_owners(r, 2 * r->n_external);
        if (status != TANDEM_OK) return status;
    }
}

/* In many traces the External id of a kernel is its correlation, which says nothing about operators. An
 * operator cannot have launched a kernel that ended before it began. */
static const id_owner *find_id_owner(const torch_reader *r, const torch_kernel *kernel)
{
    if (kernel->external < 0 || kernel->external == kernel->correlation) return NULL;
    const id_owner *const found = &r->external[kernel->external & (r->n_external - 1)];
    return found->id == kernel->external && found->start_ns <= kernel->end_ns ? found : NULL;
}

void torch_link_by_id(torch_reader *r)
{
    for (int k = 0; k < r->rank->n_kernel; k++) {
        torch_kernel *const kernel = &r->rank->kernel[k];
        const id_owner *const owner = find_id_owner(r, kernel);
        if (!owner) continue;
        kernel->owner = owner->signature;
        kernel->pass = (uint8_t)owner->pass;
        kernel->launch_ns = owner->start_ns;
    }
}

/* --- Threads -------------------------------------------------------------------------------------------- */

int torch_find_thread(torch_reader *r, uint64_t id)
{
    if (r->n_thread && r->thread[r->last_thread].id == id) return r->last_thread;
    for (int k = 0; k < r->n_thread; k++)
        if (r->thread[k].id == id) return r->last_thread = k;
    if (r->n_thread == TORCH_MAX_THREADS)
        return r->last_thread = TORCH_MAX_THREADS - 1; /* no real process has as many */
    r->last_thread = r->n_thread++;
    r->thread[r->last_thread] = (host_thread){.id = id};
    return r->last_thread;
}

/* --- Calls ---------------------------------------------------------------------------------------------- */

/* *index = −1 beyond the limit. */
static tandem_status add_call(torch_reader *r, const torch_call *entry, int32_t *index)
{
    torch_rank *const rank = r->rank;
    *index = -1;
    if (rank->n_call == TORCH_MAX_CALLS) {
        rank->left_out.n_beyond++;
        torch_add_ns(&rank->left_out.beyond_ns, entry->end_ns - entry->start_ns);
        return TANDEM_OK;
    }
    torch_call *const more =
        tandem_grow(rank->call, &rank->call_capacity, rank->n_call, sizeof *more, TORCH_MAX_CALLS);
    if (!more) return torch_reader_no_memory(r);
    rank->call = more;
    more[rank->n_call] = *entry;
    more[rank->n_call].order = rank->n_call;
    *index = rank->n_call++;
    return TANDEM_OK;
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
    const int64_t self_ns = total_ns > top->inner_ns ? total_ns - top->inner_ns : 0;
    cost->calls++;
    torch_add_ns(&cost->total_ns, total_ns);
    torch_add_ns(&cost->self_ns, self_ns);
    if (top->call >= 0) r->rank->call[top->call].self_ns = self_ns;
}

/* How much later slices may end than they say. If start and duration are both cut to whole µs, it is up to
 * 2 µs: the last inner slice of a short one then seems to begin after it. */
static int64_t rounding_ns(const torch_reader *r) { return r->is_exact ? 0 : 2000; }

static tandem_torch_pass pass_of_slice(const torch_reader *r, host_thread *t, const stack_frame *outer,
                                       const host_slice *s)
{
    if (s->role == TORCH_BACKWARD_SCOPE || s->role == TORCH_OPTIMIZER_SCOPE) {
        t->scope = s->role == TORCH_BACKWARD_SCOPE ? TANDEM_TORCH_BACKWARD : TANDEM_TORCH_OPTIMIZER;
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
    const uint64_t hash = all[*index].hash ^ TORCH_CAST_HASH;
    const int32_t found = tandem_hash_index_find(&r->rank->table, hash);
    if (found < 0) return torch_add_signature(r, hash, "aten::copy_", "", 1, index);
    *index = found;
    return TANDEM_OK;
}

/* Adds an outermost collective of the host, and the times of one within it. */
static tandem_status add_call_times(torch_reader *r, const host_slice *s, int is_outermost)
{
    if (!is_outermost)
        return tandem_interval_set_add(&r->rank->comm[TORCH_CALL], s->start_ns, s->end_ns, r->error);
    const torch_signature *const signature = &r->rank->signature[s->signature];
    int32_t index;
    const torch_collective collective = {.start_ns = s->start_ns,
                                         .duration_ns = s->end_ns - s->start_ns,
                                         .key = ~signature->hash,
                                         .sequence = -1,
                                         .window = -1,
                                         .source = TORCH_CALL};
    return torch_add_collective(r, &collective, torch_collective_operation(signature->name),
                                signature->detail, &index);
}

/* Whether a collective of the host calls it. A slice that ends far after one that began before follows
 * it: the two overlap where a writer lacks digits. */
static int is_in_call(const torch_reader *r, const host_thread *t, const host_slice *s)
{
    int k = t->n - 1;
    while (k >= 0 && t->frame[k].end_ns + rounding_ns(r) < s->end_ns) k--;
    return k >= 0 && t->frame[k].in_call;
}

/* Adds the times of a slice to the busy times of the host. Inner operators may end after the outer one, by
 * rounding. What a collective calls is a part of it. */
static tandem_status add_busy_time(torch_reader *r, const host_slice *s, int is_inner)
{
    if (s->role == TORCH_CALL_SCOPE) return add_call_times(r, s, !is_inner);
    if (is_inner || (s->role != TORCH_OPERATOR && s->role != TORCH_BACKWARD_SCOPE)) return TANDEM_OK;
    return tandem_interval_set_add(&r->rank->host, s->start_ns, s->end_ns, r->error);
}

/* A slice that kernels may belong to. */
static tandem_status add_slice_call(torch_reader *r, const host_slice *s, stack_frame *frame, int thread)
{
    if (s->signature < 0) return TANDEM_OK;
    const torch_call entry = {.start_ns = s->start_ns,
                              .end_ns = s->end_ns,
                              .signature = frame->signature,
                              .thread = (uint16_t)thread,
                              .pass = (uint8_t)frame->pass,
                              .is_row = s->role != TORCH_BESIDE};
    const tandem_status status = add_call(r, &entry, &frame->call);
    if (status != TANDEM_OK || s->external < 0) return status;
    return add_id_owner(r, (id_owner){s->external, s->start_ns, frame->signature, frame->pass});
}

static tandem_status push_frame(torch_reader *r, host_thread *t, const stack_frame *frame)
{
    if (t->n == MAX_FRAMES) pop_frame(r, t); /* deeper than any program: treated as a sibling */
    stack_frame *const more = tandem_grow(t->frame, &t->capacity, t->n, sizeof *more, MAX_FRAMES);
    if (!more) return torch_reader_no_memory(r);
    t->frame = more;
    t->frame[t->n++] = *frame;
    return TANDEM_OK;
}

static tandem_status push_slice(torch_reader *r, const host_slice *s)
{
    const int thread = torch_find_thread(r, s->thread);
    host_thread *const t = &r->thread[thread];
    while (t->n && t->frame[t->n - 1].end_ns <= s->start_ns) pop_frame(r, t);
    stack_frame *const outer = t->n ? &t->frame[t->n - 1] : NULL;
    const int is_inner = is_in_call(r, t, s);
    int32_t signature = s->signature;
    tandem_status status = find_cast_signature(r, outer, &signature);
    if (status != TANDEM_OK) return status;
    stack_frame frame = {.start_ns = s->start_ns,
                         .end_ns = s->end_ns,
                         .signature = signature,
                         .call = -1,
                         .pass = pass_of_slice(r, t, outer, s),
                         .in_call = s->role == TORCH_CALL_SCOPE || is_inner};
    status = add_slice_call(r, s, &frame, thread);
    if (status != TANDEM_OK || s->role == TORCH_BESIDE) return status;
    if (outer) {
        const int64_t inner_end_ns = s->end_ns < outer->end_ns ? s->end_ns : outer->end_ns;
        if (s->end_ns > outer->end_ns + rounding_ns(r)) r->rank->n_overlapping++;
        if (s->signature >= 0) outer->inner_ns += inner_end_ns - s->start_ns;
    }
    status = add_busy_time(r, s, is_inner);
    return status == TANDEM_OK ? push_frame(r, t, &frame) : status;
}

/* --- Batches -------------------------------------------------------------------------------------------- */

/* By thread, start, longest first, then in file order. */
static int by_thread_start(const void *left, const void *right)
{
    const host_slice *const a = left, *const b = right;
    int order = (a->thread > b->thread) - (a->thread < b->thread);
    if (!order) order = (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
    if (!order) order = (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static tandem_status process_batch(torch_reader *r)
{
    tandem_status status = TANDEM_OK;
    qsort(r->batch, (size_t)r->n_batch, sizeof *r->batch, by_thread_start);
    for (int k = 0; k < r->n_batch && status == TANDEM_OK; k++) status = push_slice(r, &r->batch[k]);
    r->n_batch = 0;
    return status;
}

tandem_status torch_add_host_slice(torch_reader *r, int64_t end_ns, int32_t signature, int role)
{
    const tandem_event *const event = &r->event;
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

tandem_status torch_open_stacks(torch_reader *r)
{
    r->batch = malloc(BATCH * sizeof *r->batch);
    r->thread = calloc(TORCH_MAX_THREADS, sizeof *r->thread);
    if (!r->batch || !r->thread) return torch_reader_no_memory(r);
    return resize_id_owners(r, FIRST_ID_OWNERS);
}

tandem_status torch_finish_stacks(torch_reader *r)
{
    const tandem_status status = process_batch(r);
    for (int k = 0; k < r->n_thread && status == TANDEM_OK; k++)
        while (r->thread[k].n) pop_frame(r, &r->thread[k]);
    return status;
}

void torch_close_stacks(torch_reader *r)
{
    for (int k = 0; k < r->n_thread; k++) free(r->thread[k].frame);
    free(r->external);
    free(r->thread);
    free(r->batch);
}
