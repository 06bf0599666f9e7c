/* shared_sum.h: sums over the ranks of one machine in shared memory. Private to backend/comm.
 *
 * Each rank says what it wants to sum; the last one to arrive starts the sum. Then each rank that runs takes
 * piece after piece, reads it in all parts and writes the sum into all parts. Over all R ranks, R times the
 * size is read and written, and nothing is copied. The bits do not depend on which rank sums a piece: parts
 * are added in the ring's order (ring.h), so a sum over the network has the same bits.
 *
 * The halves of a sum share its pieces alike. A scatter writes each sum into the part of its shard's owner
 * alone: R times the size is read and once the size written. A gather copies each shard from its owner's part
 * into the others: once the size is read and R - 1 times the size written. */
#pragma once

#include <stdbool.h>

#include "backend/comm/membership.h"
#include "backend/comm/shm_region.h"

/* Common bytes of the region that the sums need. */
size_t tandem_shared_sum_bytes(int n_rank);

typedef struct tandem_shared_sum {
    tandem_shm_region region;
    unsigned sequence; /* sums at which this rank has arrived */
} tandem_shared_sum;

typedef enum tandem_shared_result {
    TANDEM_SHARED_OK,
    TANDEM_SHARED_BROKEN,  /* a rank that it waits for is dead, has left or has stopped */
    TANDEM_SHARED_TIMEOUT, /* no progress within the timeout */
    TANDEM_SHARED_MISMATCH /* the ranks want different work, other offsets or other shards */
} tandem_shared_result;

typedef enum tandem_shared_kind {
    TANDEM_SHARED_SUM,
    TANDEM_SHARED_SCATTER,
    TANDEM_SHARED_GATHER
} tandem_shared_kind;

/* What a rank wants done; the same on every rank, at the same offset of its part. */
typedef struct tandem_shared_work {
    tandem_shared_kind kind;
    const float *data;
    size_t n;             /* > 0 */
    size_t n_narrow;      /* of sums, the first that many are rounded to bf16 as in the ring (wire.h) */
    const size_t *border; /* [n_rank + 1] of the shards (comm.h); NULL for TANDEM_SHARED_SUM */
} tandem_shared_work;

/* Whether n floats at `data` lie in this rank's part. */
bool tandem_shared_sum_contains(const tandem_shared_sum *sum, const float *data, size_t n);

/* Does the work together with the other ranks. Blocks in the kernel. One at a time. */
tandem_shared_result tandem_shared_sum_run(tandem_shared_sum *sum, const tandem_shared_work *work,
                                           const tandem_membership *membership, int64_t timeout_ns);
