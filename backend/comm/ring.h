/* ring.h: one pass of data around the ring of ranks, of which every collective is built. Private to
 * backend/comm.
 *
 * Rank r receives from r + 1 and sends to r - 1 (modulo n_rank). The data are cut into n_rank chunks, of
 * which the last may be short or empty (shards.h), or where the caller says, and chunks into slices, so that
 * one slice travels while another is added.
 *
 * Sum (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
 * 2009): in the first n_rank - 1 steps each chunk collects the summands of all ranks in ring order and ends
 * at its owner, rank c for chunk c; in the other steps the finished chunks travel round. Each half alone is
 * a pass, too: a reduce-scatter and an all-gather. One rank makes each sum, in an order
 * that depends on n_rank and the size alone, so all ranks hold the same bits in every run. Each rank sends
 * and receives 2 (n_rank - 1) / n_rank of the data.
 *
 * Numbers that travel in bf16 (wire.h) are packed where they lie: the first rank of a chunk rounds its own,
 * each other one adds its own in f32 to what it received and rounds the sum, and the owner keeps what it
 * sends round. So all ranks unpack the same bits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/comm/gloo_shim.h"

typedef struct tandem_ring {
    int rank, n_rank; /* n_rank >= 2 */
    char *data;       /* bytes; never NULL */
    size_t bytes;     /* > 0 */
    /* chunk c is data[c · chunk_bytes, …), at most to `bytes`; a multiple of 4 for a sum; of the longest one
     * where there is `border` */
    size_t chunk_bytes;
    const size_t *border; /* [n_rank + 1] NULL, or chunk c is floats border[c] … border[c + 1] - 1 */
    int own;              /* the chunk that this rank sends first, -1 = none */
    int first;            /* the first chunk it receives; first + 1 … modulo n_rank follow */
    int n_step;           /* chunks it receives */
    int n_add;            /* the first n_add of these are added to data as floats; the rest replace it */
    int n_forward;        /* the first n_forward of these are forwarded */
    size_t n_narrow;      /* of a sum, that many floats travel in bf16: none, or all but the last one */
    uint64_t slot;        /* the same on every rank; no other pass with this slot may run at the same time */
    int64_t timeout_ms;   /* longest wait without progress */
} tandem_ring;

/* Bytes of scratch memory that the pass needs for summands in flight, at most 4 MiB. 0 = none. */
size_t tandem_ring_scratch_bytes(const tandem_ring *ring);

/* Runs the pass; blocks. After an error the data are undefined, and the mesh must be broken. */
tandem_gloo_result tandem_ring_run(const tandem_ring *ring, tandem_gloo *gloo, void *scratch,
                                   tandem_gloo_error *reason);
