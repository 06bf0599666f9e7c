/* ring.c: runs one pass of data around the ring of ranks. */
#include "backend/comm/ring.h"

#include <stdbool.h>

#include "backend/comm/wire.h"

/* Both were measured with 2 ranks of one core each over loopback, idle and with a busy thread: larger slices
 * overlap less, and smaller ones each cost a switch of threads; with a window below 8, busy cores wait for
 * each other. All-reduce of 12 MiB with a busy thread: 16 ms with 4 slices of 1 MiB in flight, 10 ms with 8
 * of 512 KiB. */
enum { SLICE_BYTES = 512 * 1024, WINDOW = 8 };

/* The state of a running pass. Receive number: step · n_slice + slice. */
typedef struct ring_pass {
    const tandem_ring *ring;
    tandem_gloo *gloo;
    tandem_gloo_buffer *data, *scratch;
    char *scratch_memory;
    size_t slice_bytes, slot_bytes; /* of data; of scratch memory for a slice */
    size_t n_slice;                 /* per chunk */
    size_t n_receive;
    size_t n_sent;
    tandem_gloo_error *reason;
} ring_pass;

typedef struct ring_span {
    size_t offset, bytes; /* in data; bytes = 0: the chunk has ended before */
    size_t n_narrow;      /* floats at its beginning that travel in bf16 */
    size_t sent_bytes;
} ring_span;

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* A slice in bf16 is as long on its way as another one. */
static size_t slice_bytes_of(const tandem_ring *ring)
{
    return min_size(ring->chunk_bytes, ring->n_narrow ? 2 * SLICE_BYTES : SLICE_BYTES);
}

/* A slice with floats that stay f32 is at most one of them longer than its half. */
static size_t slot_bytes_of(const tandem_ring *ring)
{
    const size_t slice_bytes = slice_bytes_of(ring);
    return ring->n_narrow ? tandem_narrow_rest_at(slice_bytes / sizeof(float)) + sizeof(float) : slice_bytes;
}

static size_t n_slice_of(const tandem_ring *ring)
{
    const size_t slice_bytes = slice_bytes_of(ring);
    return (ring->chunk_bytes + slice_bytes - 1) / slice_bytes;
}

size_t tandem_ring_scratch_bytes(const tandem_ring *ring)
{
    return min_size((size_t)ring->n_add * n_slice_of(ring), WINDOW) * slot_bytes_of(ring);
}

static size_t chunk_begin(const tandem_ring *ring, int chunk)
{
    return ring->border ? ring->border[chunk] * sizeof(float)
                        : min_size((size_t)chunk * ring->chunk_bytes, ring->bytes);
}

static ring_span slice_span(const ring_pass *r, int chunk, size_t slice)
{
    const size_t begin = chunk_begin(r->ring, chunk), end = chunk_begin(r->ring, chunk + 1);
    const size_t offset = min_size(begin + slice * r->slice_bytes, end);
    ring_span s = {.offset = offset, .bytes = min_size(r->slice_bytes, end - offset)};
    s.sent_bytes = s.bytes;
    const size_t narrow_bytes = r->ring->n_narrow * sizeof(float);
    if (narrow_bytes > offset) {
        s.n_narrow = min_size(narrow_bytes - offset, s.bytes) / sizeof(float);
        s.sent_bytes = tandem_narrow_bytes(s.bytes / sizeof(float), s.n_narrow);
    }
    return s;
}

static ring_span receive_span(const ring_pass *r, size_t receive)
{
    const int step = (int)(receive / r->n_slice);
    return slice_span(r, (r->ring->first + step) % r->ring->n_rank, receive % r->n_slice);
}

static bool is_summand(const ring_pass *r, size_t receive)
{
    return receive < (size_t)r->ring->n_add * r->n_slice;
}

static bool is_forwarded(const ring_pass *r, size_t receive)
{
    return receive < (size_t)r->ring->n_forward * r->n_slice;
}

static size_t scratch_offset(const ring_pass *r, size_t receive) { return receive % WINDOW * r->slot_bytes; }

static float *floats_of(const ring_pass *r, ring_span s)
{
    return (float *)(void *)(r->ring->data + s.offset);
}

static tandem_gloo_result post_slice_receive(ring_pass *r, size_t receive)
{
    const ring_span s = receive_span(r, receive);
    if (s.bytes == 0) return TANDEM_GLOO_OK;
    const int from = (r->ring->rank + 1) % r->ring->n_rank;
    if (is_summand(r, receive))
        return tandem_gloo_recv(r->scratch, from, r->ring->slot, scratch_offset(r, receive), s.sent_bytes,
                                r->reason);
    return tandem_gloo_recv(r->data, from, r->ring->slot, s.offset, s.sent_bytes, r->reason);
}

static tandem_gloo_result post_slice_send(ring_pass *r, ring_span s)
{
    if (s.bytes == 0) return TANDEM_GLOO_OK;
    const int to = (r->ring->rank + r->ring->n_rank - 1) % r->ring->n_rank;
    r->n_sent++;
    return tandem_gloo_send(r->data, to, r->ring->slot, s.offset, s.sent_bytes, r->reason);
}

static tandem_gloo_result start_ring_pass(ring_pass *r)
{
    tandem_gloo_result result = TANDEM_GLOO_OK;
    tandem_gloo_hold(r->gloo);
    for (size_t i = 0; !result && i < min_size(WINDOW, r->n_receive); i++) result = post_slice_receive(r, i);
    for (size_t i = 0; !result && r->ring->own >= 0 && i < r->n_slice; i++) {
        const ring_span s = slice_span(r, r->ring->own, i);
        if (s.n_narrow) { /* Gloo's thread sends one slice while the next is packed */
            tandem_gloo_release(r->gloo);
            tandem_narrow_pack(floats_of(r, s), NULL, s.bytes / sizeof(float), s.n_narrow);
            tandem_gloo_hold(r->gloo);
        }
        result = post_slice_send(r, s);
    }
    tandem_gloo_release(r->gloo);
    return result;
}

/* sum[i] += more[i], four lanes at once: gcc -O2 leaves the plain loop scalar, at half the speed. */
static void add_floats(float *sum, const float *more, size_t n)
{
    typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));
    const size_t n_lane = n / 4 * 4;
    for (size_t i = 0; i < n_lane; i += 4) *(lanes *)(sum + i) += *(const lanes *)(more + i);
    for (size_t i = n_lane; i < n; i++) sum[i] += more[i];
}

static void add_slice(const ring_pass *r, ring_span s, size_t receive)
{
    const char *more = r->scratch_memory + scratch_offset(r, receive);
    if (s.n_narrow)
        tandem_narrow_pack(floats_of(r, s), more, s.bytes / sizeof(float), s.n_narrow);
    else
        add_floats(floats_of(r, s), (const float *)(const void *)more, s.bytes / sizeof(float));
}

static void unpack_slice(const ring_pass *r, ring_span s)
{
    if (s.n_narrow) tandem_narrow_unpack(floats_of(r, s), s.bytes / sizeof(float), s.n_narrow);
}

/* Waits for one receive, adds it if it is a summand, forwards it, and posts the receive one window later. */
static tandem_gloo_result complete_receive(ring_pass *r, size_t receive)
{
    const ring_span s = receive_span(r, receive);
    if (s.bytes > 0) {
        const bool added = is_summand(r, receive);
        const tandem_gloo_result result =
            tandem_gloo_wait_received(added ? r->scratch : r->data, r->ring->timeout_ms, r->reason);
        if (result) return result;
        if (added) add_slice(r, s, receive);
    }
    const bool forwarded = s.bytes > 0 && is_forwarded(r, receive);
    if (!forwarded) unpack_slice(r, s);
    const bool posted = receive + WINDOW < r->n_receive;
    if (!forwarded && !posted) return TANDEM_GLOO_OK;
    tandem_gloo_hold(r->gloo);
    tandem_gloo_result result = forwarded ? post_slice_send(r, s) : TANDEM_GLOO_OK;
    if (!result && posted) result = post_slice_receive(r, receive + WINDOW);
    tandem_gloo_release(r->gloo);
    return result;
}

tandem_gloo_result tandem_ring_run(const tandem_ring *ring, tandem_gloo *gloo, void *scratch,
                                   tandem_gloo_error *reason)
{
    ring_pass r = {.ring = ring, .gloo = gloo, .scratch_memory = scratch, .reason = reason};
    r.slice_bytes = slice_bytes_of(ring);
    r.slot_bytes = slot_bytes_of(ring);
    r.n_slice = n_slice_of(ring);
    r.n_receive = (size_t)ring->n_step * r.n_slice;

    tandem_gloo_result result = tandem_gloo_buffer_open(&r.data, gloo, ring->data, ring->bytes, reason);
    if (!result && ring->n_add > 0)
        result = tandem_gloo_buffer_open(&r.scratch, gloo, scratch, tandem_ring_scratch_bytes(ring), reason);
    if (!result) result = start_ring_pass(&r);
    for (size_t i = 0; !result && i < r.n_receive; i++) result = complete_receive(&r, i);
    for (size_t i = 0; !result && i < r.n_sent; i++)
        result = tandem_gloo_wait_sent(r.data, ring->timeout_ms, reason);
    /* What is still packed was forwarded; each chunk came last in the steps after the sums. */
    for (size_t i = (size_t)(ring->n_add - 1) * r.n_slice;
         !result && ring->n_narrow && i < r.n_receive && is_forwarded(&r, i); i++)
        unpack_slice(&r, receive_span(&r, i));
    tandem_gloo_buffer_close(r.scratch);
    tandem_gloo_buffer_close(r.data);
    return result;
}
