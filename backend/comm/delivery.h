/* delivery.h: sends sums from the ranks where the ring has left them to the owners of the shards. Private to
 * backend/comm.
 *
 * After the sums of the ring (ring.h) rank c holds chunk c. What of it lies in the shard of another rank goes
 * there directly, in slices, all of which are posted at once. Where shards are chunks nothing is sent. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/comm/gloo_shim.h"

typedef struct tandem_delivery {
    int rank, n_rank;
    float *data; /* [n] */
    size_t n;
    size_t n_narrow;      /* the first n_narrow floats are bf16 in f32, and travel in bf16 */
    const size_t *border; /* [n_rank + 1] of the shards; the same on every rank */
    uint64_t slot;        /* as in ring.h */
    int64_t timeout_ms;   /* longest wait without progress */
} tandem_delivery;

/* Afterwards this rank's shard is complete, and what it sent is undefined; blocks. After an error the data
 * are undefined, and the mesh must be broken. */
tandem_gloo_result tandem_delivery_run(const tandem_delivery *delivery, tandem_gloo *gloo,
                                       tandem_gloo_error *reason);
