/* delivery.c: sends sums from the owners of chunks to the owners of shards. */
#include "backend/comm/delivery.h"

#include "backend/comm/shards.h"
#include "backend/comm/wire.h"

/* As long as a slice of the ring, so that a long part counts as progress on its way; in bf16 twice as many
 * floats are as long. */
enum { PART_FLOATS = 128 * 1024 };

/* The state of a running delivery. */
typedef struct delivery_pass {
    const tandem_delivery *delivery;
    tandem_gloo *gloo;
    tandem_gloo_buffer *buffer; /* of all data */
    size_t n_sent, n_received;  /* messages that were posted */
    tandem_gloo_error *reason;
} delivery_pass;

/* One message. */
typedef struct delivery_slice {
    size_t at, n; /* floats; n = 0: there is none */
    size_t n_narrow;
} delivery_slice;

static delivery_slice delivery_slice_at(const tandem_delivery *x, tandem_shard_span part, size_t at)
{
    const size_t longest = x->n_narrow ? 2 * PART_FLOATS : PART_FLOATS, left = part.end - at;
    delivery_slice s = {.at = at, .n = left < longest ? left : longest};
    if (x->n_narrow > at) s.n_narrow = x->n_narrow - at < s.n ? x->n_narrow - at : s.n;
    return s;
}

static size_t delivery_slice_bytes(delivery_slice s) { return tandem_narrow_bytes(s.n, s.n_narrow); }

static tandem_shard_span delivery_part(const tandem_delivery *x, int chunk, int shard)
{
    return tandem_chunk_in_shard(x->n, x->n_rank, x->border, chunk, shard);
}

static tandem_gloo_result post_part_receives(delivery_pass *p, int from)
{
    const tandem_delivery *x = p->delivery;
    const tandem_shard_span part = delivery_part(x, from, x->rank);
    tandem_gloo_result result = TANDEM_GLOO_OK;
    for (size_t at = part.begin; !result && at < part.end;) {
        const delivery_slice s = delivery_slice_at(x, part, at);
        result = tandem_gloo_recv(p->buffer, from, x->slot, s.at * sizeof *x->data, delivery_slice_bytes(s),
                                  p->reason);
        p->n_received++;
        at += s.n;
    }
    return result;
}

/* With Gloo's thread held, which sends one slice while the next is packed. */
static tandem_gloo_result post_part_sends(delivery_pass *p, int to)
{
    const tandem_delivery *x = p->delivery;
    const tandem_shard_span part = delivery_part(x, x->rank, to);
    tandem_gloo_result result = TANDEM_GLOO_OK;
    for (size_t at = part.begin; !result && at < part.end;) {
        const delivery_slice s = delivery_slice_at(x, part, at);
        if (s.n_narrow) {
            tandem_gloo_release(p->gloo);
            tandem_narrow_pack(x->data + s.at, NULL, s.n, s.n_narrow);
            tandem_gloo_hold(p->gloo);
        }
        result = tandem_gloo_send(p->buffer, to, x->slot, s.at * sizeof *x->data, delivery_slice_bytes(s),
                                  p->reason);
        p->n_sent++;
        at += s.n;
    }
    return result;
}

/* Each rank begins with the next one, so that no rank gets the first parts of all. */
static tandem_gloo_result post_parts(delivery_pass *p)
{
    const int rank = p->delivery->rank, n_rank = p->delivery->n_rank;
    tandem_gloo_result result = TANDEM_GLOO_OK;
    tandem_gloo_hold(p->gloo);
    for (int k = 1; !result && k < n_rank; k++) result = post_part_receives(p, (rank + n_rank - k) % n_rank);
    for (int k = 1; !result && k < n_rank; k++) result = post_part_sends(p, (rank + k) % n_rank);
    tandem_gloo_release(p->gloo);
    return result;
}

static void unpack_parts(const tandem_delivery *x)
{
    for (int from = 0; x->n_narrow && from < x->n_rank; from++) {
        if (from == x->rank) continue;
        const tandem_shard_span part = delivery_part(x, from, x->rank);
        for (size_t at = part.begin; at < part.end;) {
            const delivery_slice s = delivery_slice_at(x, part, at);
            if (s.n_narrow) tandem_narrow_unpack(x->data + s.at, s.n, s.n_narrow);
            at += s.n;
        }
    }
}

/* Whether this rank sends or receives a part. */
static int takes_part_in_delivery(const tandem_delivery *x)
{
    for (int r = 0; r < x->n_rank; r++) {
        const tandem_shard_span in = delivery_part(x, r, x->rank), out = delivery_part(x, x->rank, r);
        if (r != x->rank && (in.begin < in.end || out.begin < out.end)) return 1;
    }
    return 0;
}

tandem_gloo_result tandem_delivery_run(const tandem_delivery *delivery, tandem_gloo *gloo,
                                       tandem_gloo_error *reason)
{
    delivery_pass p = {.delivery = delivery, .gloo = gloo, .reason = reason};
    if (!takes_part_in_delivery(delivery)) return TANDEM_GLOO_OK;
    tandem_gloo_result result = tandem_gloo_buffer_open(&p.buffer, gloo, delivery->data,
                                                        delivery->n * sizeof *delivery->data, reason);
    if (!result) result = post_parts(&p);
    for (size_t i = 0; !result && i < p.n_received; i++)
        result = tandem_gloo_wait_received(p.buffer, delivery->timeout_ms, reason);
    for (size_t i = 0; !result && i < p.n_sent; i++)
        result = tandem_gloo_wait_sent(p.buffer, delivery->timeout_ms, reason);
    if (!result) unpack_parts(delivery);
    tandem_gloo_buffer_close(p.buffer);
    return result;
}
