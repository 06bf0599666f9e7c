#include "backend/comm/shared_sum.h"

#include <linux/futex.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* A piece of two ranks lies in a core's second-level cache; who is late for the end of a sum is so by one
 * piece at most. */
enum { PIECE = 32768, LINE_BYTES = 64 };

/* How often who waits looks whether the others are there, as watch.h does. */
static const int64_t look_ns = 100000000;

/* What a rank wants summed: floats of its part. */
typedef struct request {
    alignas(LINE_BYTES) uint64_t first;
    uint64_t n;
} request;

/* Sums count from 1. A rank comes to a sum only when the one before is over for it, and none begins before
 * all have come: the last to come finds nobody else at the counters. */
typedef struct control {
    alignas(LINE_BYTES) atomic_uint come;  /* ranks that have come to the next sum */
    alignas(LINE_BYTES) atomic_uint begun; /* the last sum that all have come to */
    /* its pieces that somebody sums, or has summed; may be more than there are */
    alignas(LINE_BYTES) atomic_uint taken;
    alignas(LINE_BYTES) atomic_uint summed;   /* its pieces that are through */
    alignas(LINE_BYTES) atomic_uint ended;    /* the last sum that is through */
    alignas(LINE_BYTES) atomic_uint disagree; /* about the sum that has begun */
    request wanted[];
} control;

size_t tandem_shared_sum_bytes(int n_rank) { return sizeof(control) + (size_t)n_rank * sizeof(request); }

static control *control_of(const tandem_shared_sum *sum) { return (control *)(void *)sum->segment.common; }

bool tandem_shared_sum_holds(const tandem_shared_sum *sum, const float *data, size_t n)
{
    const tandem_segment *segment = &sum->segment;
    const uintptr_t begin = (uintptr_t)tandem_segment_part(segment, segment->rank), at = (uintptr_t)data;
    return at >= begin && at - begin <= segment->bytes && n <= (segment->bytes - (at - begin)) / sizeof *data;
}

/* --- Waiting -------------------------------------------------------------------------------------------- */

/* Words that processes share: futex(2) without FUTEX_PRIVATE_FLAG. */
static void sleep_on(atomic_uint *word, unsigned seen, int64_t ns)
{
    const struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, NULL, 0); /* callers look at word and clock */
}

static void wake_all(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Until `word`, which is one behind, comes to this rank's turn. */
static tandem_shared_result wait_for(const tandem_shared_sum *sum, atomic_uint *word,
                                     const tandem_presence *presence, int64_t timeout_ns)
{
    const atomic_uint *summed = &control_of(sum)->summed;
    int64_t since_ns = tandem_now_ns(), looked_ns = since_ns;
    for (unsigned progress = atomic_load(summed); atomic_load(word) != sum->turn;) {
        sleep_on(word, sum->turn - 1, look_ns < timeout_ns ? look_ns : timeout_ns);
        if (atomic_load(word) == sum->turn) break;
        const int64_t now_ns = tandem_now_ns();
        if (atomic_load(summed) != progress) since_ns = now_ns;
        progress = atomic_load(summed);
        if (now_ns - since_ns >= timeout_ns) return TANDEM_SHARED_LATE;
        if (now_ns - looked_ns < look_ns) continue; /* woken by a signal */
        looked_ns = now_ns;
        if (!tandem_presence_is_broken(presence) && !tandem_presence_has_lost(presence)) continue;
        if (atomic_load(word) != sum->turn)
            return TANDEM_SHARED_BROKEN; /* else who left has ended the sum before */
    }
    return TANDEM_SHARED_OK;
}

/* --- Arithmetic ----------------------------------------------------------------------------------------- */

typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));

/* Parts `from`, from - 1, … (modulo n_rank) at float `first`: their sum, in this order, into all of them.
 * Memory is the limit: wider lanes are no faster, and stores that pass the caches by are slower, for what was
 * just read lies there. */
static inline __attribute__((always_inline)) void sum_span(const tandem_segment *segment, int n_rank,
                                                           int from, uint64_t first, size_t n)
{
    enum { LANE = 4, AT_ONCE = 4 };
    const uint64_t stride = segment->stride_bytes / sizeof(float);
    float *const base = tandem_segment_part(segment, 0) + first, *const begin =
                                                                     base + (uint64_t)from * stride;
    size_t i = 0;
    for (; i + LANE * AT_ONCE <= n; i += LANE * AT_ONCE) {
        lanes total[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) total[k] = *(const lanes *)(begin + i + k * LANE);
        for (int r = 1, rank = from; r < n_rank; r++) {
            rank = rank ? rank - 1 : n_rank - 1;
            const float *more = base + (uint64_t)rank * stride + i;
            for (int k = 0; k < AT_ONCE; k++) total[k] = *(const lanes *)(more + k * LANE) + total[k];
        }
        for (int rank = 0; rank < n_rank; rank++)
            for (int k = 0; k < AT_ONCE; k++)
                *(lanes *)(base + (uint64_t)rank * stride + i + k * LANE) = total[k];
    }
    for (; i < n; i++) {
        float total = begin[i];
        for (int r = 1; r < n_rank; r++)
            total = base[(uint64_t)((from + n_rank - r) % n_rank) * stride + i] + total;
        for (int rank = 0; rank < n_rank; rank++) base[(uint64_t)rank * stride + i] = total;
    }
}

/* In the ring, chunk c begins at rank c - 1 and goes down to rank c. */
static void sum_piece(const tandem_segment *segment, const request *wanted, uint64_t piece)
{
    const int n_rank = segment->n_rank;
    const uint64_t chunk = (wanted->n + (uint64_t)n_rank - 1) / (uint64_t)n_rank, begin = piece * PIECE;
    const uint64_t end = wanted->n - begin < PIECE ? wanted->n : begin + PIECE;
    for (uint64_t at = begin; at < end;) {
        const uint64_t c = at / chunk, next = (c + 1) * chunk;
        const size_t n = (next < end ? next : end) - at;
        const int from = (int)((c + (uint64_t)n_rank - 1) % (uint64_t)n_rank);
        if (n_rank == 2) /* known to the compiler */
            sum_span(segment, 2, from, wanted->first + at, n);
        else
            sum_span(segment, n_rank, from, wanted->first + at, n);
        at += n;
    }
}

/* --- A sum ---------------------------------------------------------------------------------------------- */

/* By the last to come. */
static void begin(const tandem_shared_sum *sum)
{
    control *c = control_of(sum);
    unsigned disagree = 0;
    for (int r = 1; r < sum->segment.n_rank; r++)
        disagree |= c->wanted[r].first != c->wanted[0].first || c->wanted[r].n != c->wanted[0].n;
    atomic_store(&c->disagree, disagree);
    atomic_store(&c->come, 0);
    atomic_store(&c->taken, 0);
    atomic_store(&c->summed, 0);
    atomic_store(&c->begun, sum->turn);
    wake_all(&c->begun);
}

static void sum_pieces(const tandem_shared_sum *sum, const request *wanted)
{
    control *c = control_of(sum);
    const unsigned n = (unsigned)((wanted->n + PIECE - 1) / PIECE);
    for (unsigned piece; (piece = atomic_fetch_add(&c->taken, 1)) < n;) {
        sum_piece(&sum->segment, wanted, piece);
        if (atomic_fetch_add(&c->summed, 1) + 1 < n) continue;
        atomic_store(&c->ended, sum->turn);
        wake_all(&c->ended);
    }
}

tandem_shared_result tandem_shared_sum_run(tandem_shared_sum *sum, const float *data, size_t n,
                                           const tandem_presence *presence, int64_t timeout_ns)
{
    const int rank = sum->segment.rank;
    control *c = control_of(sum);
    const request wanted = {(uint64_t)(data - tandem_segment_part(&sum->segment, rank)), n};
    c->wanted[rank] = wanted;
    sum->turn++;
    tandem_shared_result result = TANDEM_SHARED_OK;
    if (atomic_fetch_add(&c->come, 1) + 1 == (unsigned)sum->segment.n_rank)
        begin(sum);
    else
        result = wait_for(sum, &c->begun, presence, timeout_ns);
    if (result != TANDEM_SHARED_OK) return result;
    if (atomic_load(&c->disagree)) return TANDEM_SHARED_DISAGREES;
    sum_pieces(sum, &wanted);
    return wait_for(sum, &c->ended, presence, timeout_ns);
}
