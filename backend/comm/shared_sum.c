/* shared_sum.c: sums over the ranks of a machine in shared memory, and their halves, piece by piece. */
#include "backend/comm/shared_sum.h"

#include <linux/futex.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backend/comm/patience.h"
#include "backend/comm/shards.h"
#include "backend/comm/wire.h"

/* A piece of two ranks fits into a core's second-level cache; the last rank waits for one piece at most. */
enum { PIECE = 32768, LINE_BYTES = 64 };

/* How often a waiting rank checks that the others are alive, as watch.h does. */
static const int64_t poll_ns = TANDEM_PATIENCE_SLICE_NS;

/* The floats of its part that a rank wants to sum, scatter or gather. */
typedef struct sum_request {
    alignas(LINE_BYTES) uint64_t first;
    uint64_t n, n_narrow, kind;
    uint64_t border_hash; /* 0 for a sum */
} sum_request;

/* Sums are numbered from 1. A rank arrives at a sum only after it has left the one before, and a sum begins
 * only when all ranks have arrived: the last one to arrive uses the counters alone. */
typedef struct sum_control {
    alignas(LINE_BYTES) atomic_uint n_arrived; /* ranks that have arrived at the next sum */
    alignas(LINE_BYTES) atomic_uint begun_sum; /* the last sum at which all ranks have arrived */
    /* its pieces that a rank sums or has summed; may exceed their number */
    alignas(LINE_BYTES) atomic_uint n_taken;
    alignas(LINE_BYTES) atomic_uint n_summed;  /* its finished pieces */
    alignas(LINE_BYTES) atomic_uint ended_sum; /* the last finished sum */
    alignas(LINE_BYTES) atomic_uint disagree;  /* whether the ranks want different sums */
    sum_request wanted[];
} sum_control;

size_t tandem_shared_sum_bytes(int n_rank)
{
    return sizeof(sum_control) + (size_t)n_rank * sizeof(sum_request);
}

static sum_control *sum_control_of(const tandem_shared_sum *sum)
{
    return (sum_control *)(void *)sum->region.common;
}

bool tandem_shared_sum_contains(const tandem_shared_sum *sum, const float *data, size_t n)
{
    const tandem_shm_region *region = &sum->region;
    const uintptr_t begin_sum = (uintptr_t)tandem_shm_region_part(region, region->rank), at = (uintptr_t)data;
    return at >= begin_sum && at - begin_sum <= region->bytes &&
           n <= (region->bytes - (at - begin_sum)) / sizeof *data;
}

/* --- Waiting -------------------------------------------------------------------------------------------- */

/* Futexes between processes: futex(2) without FUTEX_PRIVATE_FLAG. */
static void futex_wait(atomic_uint *word, unsigned seen, int64_t ns)
{
    const struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, NULL, 0); /* callers check word and clock */
}

static void futex_wake_all(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Waits until `word` reaches this rank's sum; it is one less before. */
static tandem_shared_result wait_for_sum(const tandem_shared_sum *sum, atomic_uint *word,
                                         const tandem_membership *membership, int64_t timeout_ns)
{
    const atomic_uint *summed = &sum_control_of(sum)->n_summed;
    tandem_patience patience = tandem_patience_begin();
    int64_t since_ns = 0, polled_ns = patience.seen_ns; /* waited at the last progress; the clock */
    for (unsigned progress = atomic_load(summed); atomic_load(word) != sum->sequence;) {
        futex_wait(word, sum->sequence - 1, poll_ns < timeout_ns ? poll_ns : timeout_ns);
        if (atomic_load(word) == sum->sequence) break;
        (void)tandem_patience_look(&patience);
        if (atomic_load(summed) != progress) since_ns = patience.waited_ns;
        progress = atomic_load(summed);
        if (patience.waited_ns - since_ns >= timeout_ns) return TANDEM_SHARED_TIMEOUT;
        if (patience.seen_ns - polled_ns < poll_ns) continue; /* a signal woke it */
        polled_ns = patience.seen_ns;
        if (!tandem_membership_is_broken(membership) && !tandem_membership_has_left(membership)) continue;
        if (atomic_load(word) != sum->sequence)
            return TANDEM_SHARED_BROKEN; /* otherwise the rank that left has finished the sum before */
    }
    return TANDEM_SHARED_OK;
}

/* --- Arithmetic ----------------------------------------------------------------------------------------- */

typedef tandem_narrow_floats lanes;

static inline __attribute__((always_inline)) lanes rounded_lanes(lanes x, int is_narrow)
{
    return is_narrow ? (lanes)tandem_narrow_round((tandem_narrow_words)x) : x;
}

/* Where a sum is written: into all parts, or into one. */
enum { ALL_PARTS = -1 };

/* Sums parts `from`, from - 1, … (modulo n_rank) at float `first`, in this order, and writes the sum into all
 * of them or into part `to`. Memory limits it: wider vectors are no faster, and non-temporal stores are
 * slower, because the data that was just read is in the cache. */
static inline __attribute__((always_inline)) void sum_span(const tandem_shm_region *region, int n_rank,
                                                           int from, int to, uint64_t first, size_t n,
                                                           int is_narrow)
{
    enum { LANE = TANDEM_NARROW_LANES, AT_ONCE = 4 };
    const int begin_to = to == ALL_PARTS ? 0 : to, end_to = to == ALL_PARTS ? n_rank : to + 1;
    const uint64_t stride = region->stride_bytes / sizeof(float);
    float *const base = tandem_shm_region_part(region, 0) + first, *const begin_sum =
                                                                       base + (uint64_t)from * stride;
    size_t i = 0;
    for (; i + LANE * AT_ONCE <= n; i += LANE * AT_ONCE) {
        lanes total[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++)
            total[k] = rounded_lanes(*(const lanes *)(begin_sum + i + k * LANE), is_narrow);
        for (int r = 1, rank = from; r < n_rank; r++) {
            rank = rank ? rank - 1 : n_rank - 1;
            const float *more = base + (uint64_t)rank * stride + i;
            for (int k = 0; k < AT_ONCE; k++)
                total[k] = rounded_lanes(*(const lanes *)(more + k * LANE) + total[k], is_narrow);
        }
        for (int rank = begin_to; rank < end_to; rank++)
            for (int k = 0; k < AT_ONCE; k++)
                *(lanes *)(base + (uint64_t)rank * stride + i + k * LANE) = total[k];
    }
    for (; i < n; i++) {
        float total = is_narrow ? tandem_narrow_rounded(begin_sum[i]) : begin_sum[i];
        for (int r = 1; r < n_rank; r++) {
            total = base[(uint64_t)((from + n_rank - r) % n_rank) * stride + i] + total;
            if (is_narrow) total = tandem_narrow_rounded(total);
        }
        for (int rank = begin_to; rank < end_to; rank++) base[(uint64_t)rank * stride + i] = total;
    }
}

/* Constants for the compiler. */
static void sum_span_of(const tandem_shm_region *region, int from, int to, uint64_t first, size_t n,
                        int is_narrow)
{
    if (to != ALL_PARTS && is_narrow)
        sum_span(region, region->n_rank, from, to, first, n, 1);
    else if (to != ALL_PARTS)
        sum_span(region, region->n_rank, from, to, first, n, 0);
    else if (region->n_rank == 2 && is_narrow)
        sum_span(region, 2, from, ALL_PARTS, first, n, 1);
    else if (region->n_rank == 2)
        sum_span(region, 2, from, ALL_PARTS, first, n, 0);
    else if (is_narrow)
        sum_span(region, region->n_rank, from, ALL_PARTS, first, n, 1);
    else
        sum_span(region, region->n_rank, from, ALL_PARTS, first, n, 0);
}

/* Sums floats at … end - 1, of one shard or of any. In the ring, chunk c begins at rank c - 1 and goes down
 * to rank c. */
static void sum_by_chunks(const tandem_shm_region *region, const sum_request *wanted, uint64_t at,
                          uint64_t end, int to)
{
    const int n_rank = region->n_rank;
    const uint64_t chunk = tandem_chunk_floats(wanted->n, n_rank);
    while (at < end) {
        const int is_narrow = at < wanted->n_narrow;
        const uint64_t c = at / chunk, next = (c + 1) * chunk,
                       border = is_narrow && wanted->n_narrow < next ? wanted->n_narrow : next;
        const size_t n = (border < end ? border : end) - at;
        const int from = (int)((c + (uint64_t)n_rank - 1) % (uint64_t)n_rank);
        sum_span_of(region, from, to, wanted->first + at, n, is_narrow);
        at += n;
    }
}

/* Copies floats at … end - 1 of part `from` into the other parts. */
static void copy_to_others(const tandem_shm_region *region, const sum_request *wanted, uint64_t at,
                           uint64_t end, int from)
{
    const float *source = tandem_shm_region_part(region, from) + wanted->first + at;
    for (int rank = 0; rank < region->n_rank; rank++)
        if (rank != from)
            memcpy(tandem_shm_region_part(region, rank) + wanted->first + at, source,
                   (end - at) * sizeof *source);
}

/* Scatters or gathers floats at … end - 1, shard by shard. */
static void scatter_or_gather(const tandem_shm_region *region, const sum_request *wanted,
                              const size_t *border, uint64_t at, uint64_t end)
{
    for (int owner = 0; owner < region->n_rank && at < end; owner++) {
        const uint64_t shard_end = border[owner + 1] < end ? border[owner + 1] : end;
        if (shard_end <= at) continue;
        if (wanted->kind == TANDEM_SHARED_SCATTER)
            sum_by_chunks(region, wanted, at, shard_end, owner);
        else
            copy_to_others(region, wanted, at, shard_end, owner);
        at = shard_end;
    }
}

static void do_one_piece(const tandem_shm_region *region, const sum_request *wanted, const size_t *border,
                         uint64_t piece)
{
    const uint64_t at = piece * PIECE, end = wanted->n - at < PIECE ? wanted->n : at + PIECE;
    if (!border)
        sum_by_chunks(region, wanted, at, end, ALL_PARTS);
    else
        scatter_or_gather(region, wanted, border, at, end);
}

/* --- A sum ---------------------------------------------------------------------------------------------- */

static bool wants_the_same(const sum_request *a, const sum_request *b)
{
    return a->first == b->first && a->n == b->n && a->n_narrow == b->n_narrow && a->kind == b->kind &&
           a->border_hash == b->border_hash;
}

/* Called by the last rank that arrives. */
static void begin_sum(const tandem_shared_sum *sum)
{
    sum_control *c = sum_control_of(sum);
    unsigned disagree = 0;
    for (int r = 1; r < sum->region.n_rank; r++) disagree |= !wants_the_same(&c->wanted[r], &c->wanted[0]);
    atomic_store(&c->disagree, disagree);
    atomic_store(&c->n_arrived, 0);
    atomic_store(&c->n_taken, 0);
    atomic_store(&c->n_summed, 0);
    atomic_store(&c->begun_sum, sum->sequence);
    futex_wake_all(&c->begun_sum);
}

static void do_pieces(const tandem_shared_sum *sum, const sum_request *wanted, const size_t *border)
{
    sum_control *c = sum_control_of(sum);
    const unsigned n = (unsigned)((wanted->n + PIECE - 1) / PIECE);
    for (unsigned piece; (piece = atomic_fetch_add(&c->n_taken, 1)) < n;) {
        do_one_piece(&sum->region, wanted, border, piece);
        if (atomic_fetch_add(&c->n_summed, 1) + 1 < n) continue;
        atomic_store(&c->ended_sum, sum->sequence);
        futex_wake_all(&c->ended_sum);
    }
}

tandem_shared_result tandem_shared_sum_run(tandem_shared_sum *sum, const tandem_shared_work *work,
                                           const tandem_membership *membership, int64_t timeout_ns)
{
    const int rank = sum->region.rank, n_rank = sum->region.n_rank;
    sum_control *c = sum_control_of(sum);
    const sum_request wanted = {.first = (uint64_t)(work->data - tandem_shm_region_part(&sum->region, rank)),
                                .n = work->n,
                                .n_narrow = work->n_narrow,
                                .kind = (uint64_t)work->kind,
                                .border_hash = work->border ? tandem_hash_borders(work->border, n_rank) : 0};
    c->wanted[rank] = wanted;
    sum->sequence++;
    tandem_shared_result result = TANDEM_SHARED_OK;
    if (atomic_fetch_add(&c->n_arrived, 1) + 1 == (unsigned)n_rank)
        begin_sum(sum);
    else
        result = wait_for_sum(sum, &c->begun_sum, membership, timeout_ns);
    if (result != TANDEM_SHARED_OK) return result;
    if (atomic_load(&c->disagree)) return TANDEM_SHARED_MISMATCH;
    do_pieces(sum, &wanted, work->border);
    return wait_for_sum(sum, &c->ended_sum, membership, timeout_ns);
}
