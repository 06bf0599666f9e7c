/* collectives.c: collectives as passes of the ring, direct messages or work in shared memory, and their
 * failures. */
#include "backend/comm/comm_state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/comm/delivery.h"
#include "backend/comm/ring.h"
#include "backend/comm/shards.h"

typedef enum collective_op {
    KIND_SUM = 1,
    KIND_BARRIER,
    KIND_BROADCAST,
    KIND_GATHER,
    KIND_NARROW_SUM,
    KIND_SCATTER,
    KIND_NARROW_SCATTER,
    KIND_DELIVERY, /* the second stage of a scatter */
    KIND_NARROW_DELIVERY,
    KIND_GATHER_SHARDS
} collective_op;

static const char *collective_name(collective_op k)
{
    static const char *const name[] = {[KIND_SUM] = "an all-reduce",
                                       [KIND_BARRIER] = "a barrier",
                                       [KIND_BROADCAST] = "a broadcast",
                                       [KIND_GATHER] = "a gather",
                                       [KIND_NARROW_SUM] = "an all-reduce in bf16",
                                       [KIND_SCATTER] = "a reduce-scatter",
                                       [KIND_NARROW_SCATTER] = "a reduce-scatter in bf16",
                                       [KIND_DELIVERY] = "a reduce-scatter",
                                       [KIND_NARROW_DELIVERY] = "a reduce-scatter in bf16",
                                       [KIND_GATHER_SHARDS] = "an all-gather"};
    return name[k];
}

/* The slot contains the kind and size of a collective, so that ranks which disagree about them do not match
 * (gloo_shim.h says why). Sizes below 2^28 never share a slot; larger ones, and the hashes of different
 * borders, rarely do. */
static uint64_t collective_slot(collective_op k, uint64_t size, uint32_t tag)
{
    const uint64_t folded = (size ^ size >> 28) & 0xfffffff;
    return (uint64_t)tag << 32 | folded << 4 | (uint64_t)k;
}

/* --- Failure -------------------------------------------------------------------------------------------- */

void tandem_comm_block_sigpipe(sigset_t *before)
{
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, before);
}

void tandem_comm_unblock_sigpipe(const sigset_t *before)
{
    if (sigismember(before, SIGPIPE)) return;
    sigset_t pending, pipe;
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE)) {
        const struct timespec none = {0, 0};
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        (void)sigtimedwait(&pipe, NULL, &none);
    }
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

tandem_status tandem_comm_check_alive(tandem_comm *comm, tandem_error *error)
{
    pthread_mutex_lock(&comm->mutex);
    const bool is_dead = comm->is_dead;
    if (is_dead && error) *error = comm->failure;
    pthread_mutex_unlock(&comm->mutex);
    return is_dead ? TANDEM_RANK_FAILED : TANDEM_OK;
}

tandem_status tandem_comm_fail(tandem_comm *comm, tandem_gloo_result result, const char *what,
                               const char *reason, tandem_error *error)
{
    pthread_mutex_lock(&comm->mutex);
    if (!comm->is_dead) {
        if (result == TANDEM_GLOO_NO_MEMORY) {
            char text[TANDEM_ERROR_TEXT];
            (void)snprintf(text, sizeof text, "rank %d ran out of memory during %s; the other ranks stop",
                           comm->rank, what);
            tandem_membership_report_failed(&comm->membership, comm->rank, text);
        }
        tandem_membership_stop(&comm->membership);
        tandem_gloo_break(comm->gloo);
        tandem_membership_find_failed(&comm->membership, what, reason, &comm->failure);
        comm->is_dead = true;
    }
    const tandem_status status = comm->failure.status;
    if (error) *error = comm->failure;
    pthread_mutex_unlock(&comm->mutex);
    return result == TANDEM_GLOO_NO_MEMORY ? tandem_no_memory(error, "for %s", what) : status;
}

/* --- Collectives ---------------------------------------------------------------------------------------- */

/* Scratch memory for one pass. Several threads may each hold one; the larger of two is kept for the next
 * pass. */
static void *acquire_scratch(tandem_comm *comm, size_t bytes)
{
    void *scratch = NULL;
    pthread_mutex_lock(&comm->mutex);
    if (comm->spare_bytes >= bytes) {
        scratch = comm->spare;
        comm->spare = NULL;
        comm->spare_bytes = 0;
    }
    pthread_mutex_unlock(&comm->mutex);
    return scratch ? scratch : malloc(bytes);
}

static void release_scratch(tandem_comm *comm, void *scratch, size_t bytes)
{
    pthread_mutex_lock(&comm->mutex);
    if (bytes > comm->spare_bytes) {
        void *smaller = comm->spare;
        comm->spare = scratch;
        comm->spare_bytes = bytes;
        scratch = smaller;
    }
    pthread_mutex_unlock(&comm->mutex);
    free(scratch);
}

static void count_running_collectives(tandem_comm *comm, int more)
{
    pthread_mutex_lock(&comm->mutex);
    comm->n_running += more;
    pthread_mutex_unlock(&comm->mutex);
}

/* What a collective does over the network; one of the two is NULL. */
typedef struct network_pass {
    const tandem_ring *ring;
    const tandem_delivery *delivery;
} network_pass;

static tandem_status run_network_pass(tandem_comm *comm, collective_op k, network_pass pass,
                                      tandem_error *error)
{
    if (tandem_comm_check_alive(comm, error) != TANDEM_OK) return TANDEM_RANK_FAILED;
    const size_t scratch_bytes = pass.ring ? tandem_ring_scratch_bytes(pass.ring) : 0;
    void *scratch = scratch_bytes ? acquire_scratch(comm, scratch_bytes) : NULL;
    if (scratch_bytes && !scratch)
        return tandem_comm_fail(comm, TANDEM_GLOO_NO_MEMORY, collective_name(k), "", error);
    tandem_gloo_error reason;
    sigset_t mask;
    tandem_comm_block_sigpipe(&mask);
    count_running_collectives(comm, 1);
    const tandem_gloo_result result = pass.ring ? tandem_ring_run(pass.ring, comm->gloo, scratch, &reason)
                                                : tandem_delivery_run(pass.delivery, comm->gloo, &reason);
    count_running_collectives(comm, -1);
    tandem_comm_unblock_sigpipe(&mask);
    if (scratch) release_scratch(comm, scratch, scratch_bytes);
    return result == TANDEM_GLOO_OK ? TANDEM_OK
                                    : tandem_comm_fail(comm, result, collective_name(k), reason.text, error);
}

static tandem_status run_ring_pass(tandem_comm *comm, collective_op k, const tandem_ring *ring,
                                   tandem_error *error)
{
    return run_network_pass(comm, k, (network_pass){.ring = ring}, error);
}

static tandem_ring make_ring_pass(const tandem_comm *comm, void *data, size_t bytes, uint64_t slot)
{
    return (tandem_ring){.rank = comm->rank,
                         .n_rank = comm->n_rank,
                         .data = data,
                         .bytes = bytes,
                         .slot = slot,
                         .timeout_ms = comm->timeout_ms};
}

static bool is_narrow_op(collective_op k)
{
    return k == KIND_NARROW_SUM || k == KIND_NARROW_SCATTER || k == KIND_NARROW_DELIVERY;
}

/* Of n floats that are summed, as many travel in bf16: all but the last, which may carry a loss. */
static size_t n_narrow_of(collective_op k, size_t n) { return is_narrow_op(k) ? n - 1 : 0; }

/* The first half of a sum: afterwards rank c holds chunk c. */
static tandem_ring make_sum_pass(const tandem_comm *comm, collective_op k, float *data, size_t n,
                                 uint64_t slot)
{
    const int n_rank = comm->n_rank;
    tandem_ring ring = make_ring_pass(comm, data, n * sizeof *data, slot);
    ring.chunk_bytes = tandem_chunk_floats(n, n_rank) * sizeof *data;
    ring.own = (comm->rank + 1) % n_rank;
    ring.first = (comm->rank + 2) % n_rank;
    ring.n_step = n_rank - 1;
    ring.n_add = n_rank - 1;
    ring.n_forward = ring.n_step - 1;
    ring.n_narrow = n_narrow_of(k, n);
    return ring;
}

static tandem_status sum_over_ring(tandem_comm *comm, collective_op k, float *data, size_t n, uint32_t tag,
                                   tandem_error *error)
{
    assert(n > 0);
    tandem_ring ring = make_sum_pass(comm, k, data, n, collective_slot(k, n, tag));
    ring.n_step = 2 * (comm->n_rank - 1);
    ring.n_forward = ring.n_step - 1;
    return run_ring_pass(comm, k, &ring, error);
}

/* The shared allocation that holds the data; NULL = none. */
static shared_allocation *find_shared_allocation(tandem_comm *comm, const float *data, size_t n)
{
    pthread_mutex_lock(&comm->mutex);
    shared_allocation *s = comm->first;
    while (s && !tandem_shared_sum_contains(&s->sum, data, n)) s = s->next;
    pthread_mutex_unlock(&comm->mutex);
    return s;
}

static tandem_status work_in_shared_memory(tandem_comm *comm, collective_op k, shared_allocation *s,
                                           const tandem_shared_work *work, tandem_error *error)
{
    static const char *const reason[] = {
        [TANDEM_SHARED_BROKEN] = "its answer never came",
        [TANDEM_SHARED_TIMEOUT] = "timed out",
        [TANDEM_SHARED_MISMATCH] = "different offsets or shards in shared memory",
    };
    if (tandem_comm_check_alive(comm, error) != TANDEM_OK) return TANDEM_RANK_FAILED;
    const tandem_shared_result result =
        tandem_shared_sum_run(&s->sum, work, &comm->membership, (int64_t)comm->timeout_ms * 1000000);
    if (result == TANDEM_SHARED_OK) return TANDEM_OK;
    return tandem_comm_fail(comm, TANDEM_GLOO_FAILED, collective_name(k), reason[result], error);
}

static tandem_status sum_over_ranks(tandem_comm *comm, collective_op k, float *data, size_t n, uint32_t tag,
                                    tandem_error *error)
{
    if (comm->n_rank == 1 || n == 0) return tandem_comm_check_alive(comm, error);
    if (!data || n > PTRDIFF_MAX / sizeof *data)
        return tandem_error_set(error, TANDEM_USAGE, "an all-reduce of %zu floats at %p", n, (void *)data);
    shared_allocation *s = find_shared_allocation(comm, data, n);
    if (!s) return sum_over_ring(comm, k, data, n, tag, error);
    const tandem_shared_work work = {
        .kind = TANDEM_SHARED_SUM, .data = data, .n = n, .n_narrow = n_narrow_of(k, n)};
    return work_in_shared_memory(comm, k, s, &work, error);
}

tandem_status tandem_comm_sum_f32(tandem_comm *comm, float *data, size_t n, uint32_t tag, tandem_error *error)
{
    return sum_over_ranks(comm, KIND_SUM, data, n, tag, error);
}

tandem_status tandem_comm_sum_gradients(tandem_comm *comm, float *data, size_t n, uint32_t tag,
                                        tandem_error *error)
{
    return sum_over_ranks(comm, comm->wire == TANDEM_BF16 ? KIND_NARROW_SUM : KIND_SUM, data, n, tag, error);
}

/* --- Shards --------------------------------------------------------------------------------------------- */

static tandem_status check_shards(const tandem_comm *comm, collective_op k, const float *data, size_t n,
                                  const size_t *border, tandem_error *error)
{
    if (!data && n > 0)
        return tandem_error_set(error, TANDEM_USAGE, "%s of %zu floats at NULL", collective_name(k), n);
    if (n > PTRDIFF_MAX / sizeof *data || !tandem_are_borders(border, comm->n_rank, n))
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s of %zu floats: the shards' borders are wrong. Give %d that ascend from 0 "
                                "to %zu; those between are multiples of %d",
                                collective_name(k), n, comm->n_rank + 1, n, TANDEM_CHUNK_MULTIPLE);
    return TANDEM_OK;
}

/* Sums that the ring left at the owners of chunks go to the owners of shards. */
static tandem_status scatter_over_network(tandem_comm *comm, collective_op k, float *data, size_t n,
                                          const size_t *border, uint32_t tag, tandem_error *error)
{
    const collective_op then = k == KIND_SCATTER ? KIND_DELIVERY : KIND_NARROW_DELIVERY;
    const uint64_t hash = tandem_hash_borders(border, comm->n_rank);
    const tandem_ring ring = make_sum_pass(comm, k, data, n, collective_slot(k, hash, tag));
    const tandem_delivery delivery = {.rank = comm->rank,
                                      .n_rank = comm->n_rank,
                                      .data = data,
                                      .n = n,
                                      .n_narrow = n_narrow_of(then, n),
                                      .border = border,
                                      .slot = collective_slot(then, hash, tag),
                                      .timeout_ms = comm->timeout_ms};
    const tandem_status status = run_ring_pass(comm, k, &ring, error);
    return status == TANDEM_OK ? run_network_pass(comm, then, (network_pass){.delivery = &delivery}, error)
                               : status;
}

static tandem_status gather_over_network(tandem_comm *comm, float *data, size_t n, const size_t *border,
                                         uint32_t tag, tandem_error *error)
{
    const collective_op k = KIND_GATHER_SHARDS;
    tandem_ring ring = make_ring_pass(comm, data, n * sizeof *data,
                                      collective_slot(k, tandem_hash_borders(border, comm->n_rank), tag));
    ring.chunk_bytes = tandem_longest_shard(border, comm->n_rank) * sizeof *data;
    ring.border = border;
    ring.own = comm->rank;
    ring.first = (comm->rank + 1) % comm->n_rank;
    ring.n_step = comm->n_rank - 1;
    ring.n_forward = ring.n_step - 1;
    return run_ring_pass(comm, k, &ring, error);
}

tandem_status tandem_comm_scatter_gradients(tandem_comm *comm, float *data, size_t n, const size_t *border,
                                            uint32_t tag, tandem_error *error)
{
    const collective_op k = comm->wire == TANDEM_BF16 ? KIND_NARROW_SCATTER : KIND_SCATTER;
    const tandem_status status = check_shards(comm, k, data, n, border, error);
    if (status != TANDEM_OK) return status;
    if (comm->n_rank == 1 || n == 0) return tandem_comm_check_alive(comm, error);
    shared_allocation *s = find_shared_allocation(comm, data, n);
    if (!s) return scatter_over_network(comm, k, data, n, border, tag, error);
    const tandem_shared_work work = {
        .kind = TANDEM_SHARED_SCATTER, .data = data, .n = n, .n_narrow = n_narrow_of(k, n), .border = border};
    return work_in_shared_memory(comm, k, s, &work, error);
}

tandem_status tandem_comm_gather_shards(tandem_comm *comm, float *data, size_t n, const size_t *border,
                                        uint32_t tag, tandem_error *error)
{
    const tandem_status status = check_shards(comm, KIND_GATHER_SHARDS, data, n, border, error);
    if (status != TANDEM_OK) return status;
    if (comm->n_rank == 1 || n == 0) return tandem_comm_check_alive(comm, error);
    shared_allocation *s = find_shared_allocation(comm, data, n);
    if (!s) return gather_over_network(comm, data, n, border, tag, error);
    const tandem_shared_work work = {.kind = TANDEM_SHARED_GATHER, .data = data, .n = n, .border = border};
    return work_in_shared_memory(comm, KIND_GATHER_SHARDS, s, &work, error);
}

/* --- Other collectives ---------------------------------------------------------------------------------- */

tandem_status tandem_comm_barrier(tandem_comm *comm, uint32_t tag, tandem_error *error)
{
    if (comm->n_rank == 1) return TANDEM_OK;
    float token = 0;
    return sum_over_ring(comm, KIND_BARRIER, &token, 1, tag, error);
}

tandem_status tandem_comm_broadcast(tandem_comm *comm, void *data, size_t bytes, int root, uint32_t tag,
                                    tandem_error *error)
{
    if (root < 0 || root >= comm->n_rank)
        return tandem_error_set(error, TANDEM_USAGE, "a broadcast from rank %d of %d ranks", root,
                                comm->n_rank);
    if (comm->n_rank == 1 || bytes == 0) return tandem_comm_check_alive(comm, error);
    if (!data) return tandem_error_set(error, TANDEM_USAGE, "a broadcast of %zu bytes at NULL", bytes);
    tandem_ring ring = make_ring_pass(comm, data, bytes, collective_slot(KIND_BROADCAST, bytes, tag));
    const bool is_root = comm->rank == root, is_last = comm->rank == (root + 1) % comm->n_rank;
    ring.chunk_bytes = bytes;
    ring.own = is_root ? 0 : -1;
    ring.n_step = is_root ? 0 : 1;
    ring.n_forward = is_root || is_last ? 0 : 1;
    return run_ring_pass(comm, KIND_BROADCAST, &ring, error);
}

tandem_status tandem_comm_gather(tandem_comm *comm, const void *mine, void *all, size_t bytes, uint32_t tag,
                                 tandem_error *error)
{
    const size_t n_rank = (size_t)comm->n_rank;
    if (bytes == 0) return tandem_comm_check_alive(comm, error);
    if (!mine || !all || bytes > PTRDIFF_MAX / n_rank)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a gather of %zu bytes of each of %zu ranks from %p to %p", bytes, n_rank,
                                mine, all);
    if (tandem_comm_check_alive(comm, error) != TANDEM_OK) return TANDEM_RANK_FAILED;
    memmove((char *)all + (size_t)comm->rank * bytes, mine, bytes);
    if (n_rank == 1) return TANDEM_OK;
    tandem_ring ring = make_ring_pass(comm, all, n_rank * bytes, collective_slot(KIND_GATHER, bytes, tag));
    ring.chunk_bytes = bytes;
    ring.own = comm->rank;
    ring.first = (comm->rank + 1) % comm->n_rank;
    ring.n_step = comm->n_rank - 1;
    ring.n_forward = ring.n_step - 1;
    return run_ring_pass(comm, KIND_GATHER, &ring, error);
}
