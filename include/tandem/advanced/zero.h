/* zero.h: plans a step in which ranks share what plain data parallelism keeps on each of them (ZeRO).
 * `tandem train --zero 1` trains so on CPUs; stages 2 and 3 are planned only.
 *
 * Source: Rajbhandari, Rasley, Ruwase, He, "ZeRO: memory optimizations toward training trillion parameter
 * models", SC
 * 2020. Of n ranks, each keeps a shard: an nth of every bucket, rounded up to 16 elements, or a share of
 * its own (tandem_sharding). Sharded are:
 *
 *   stage 1  the optimizer's state
 *   stage 2  also the gradients
 *   stage 3  also the weights
 *
 * The streams are those of a plain step (replayer.h). The communication stream runs one collective at a
 * time, in the order of the requests, each once all classes have requested it.
 *   - A bucket of gradients is reduce-scattered where a plain step all-reduces it.
 *   - An update waits for its bucket and takes the shard's part of the time. So does the norm of all
 *     gradients, which waits for all buckets.
 *   - Stages 1 and 2: after its update a bucket of weights is all-gathered. An operator of the next step
 *     waits for its bucket.
 *   - Stages 2 and 3: two buckets of gradients exist in full. The third begins when the first has been
 *     scattered.
 *   - Stage 3: an operator waits for its bucket of weights in its forward pass, and again for the gradient
 * of
 *     its input. After that wait the next bucket is requested: one is prefetched. The two buckets used last
 *     stay, so that the backward pass begins with what the forward pass used last. At most three exist in
 *     full. The first bucket of a step is requested after all updates.
 * Weights and gradients travel in f32. Tasks take their times of the plain step, with its contention.
 * Collectives take their measured times (tandem_profile_request.zero). Without, their time over the links by
 * the replayer's algorithm, or half of a measured all-reduce. */
#ifndef TANDEM_ZERO_H
#define TANDEM_ZERO_H

#include "tandem/advanced/replayer.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_zero {
    tandem_replay replay; /* exposed_comm_ns: from when all classes have requested the collective */
    /* Of a rank of each class, to the byte: shards, and the most that exists in full. */
    tandem_memory memory[TANDEM_MAX_CLASS];
    int64_t scatter_ns, gather_ns; /* time of the collectives per step */
    int n_gather;                  /* all-gathers per step */
} tandem_zero;

/* tandem_replayer_zero: a step under the current plan in stage 1, 2 or 3 of `sharding`
 * (tandem_cluster_shard), of which stage and shares are read. A bucket in full includes the rank's own
 * shard, which counts once. A single rank has the plain step. Runs a replay with memory and events.
 * TANDEM_USAGE: another stage. TANDEM_NO_MEMORY, errors of tandem_replayer_run. *zero unchanged on error.
 * Cost: O(tasks × classes) per iteration, until steps repeat. */
tandem_status tandem_replayer_zero(tandem_zero *zero, tandem_replayer *replayer,
                                   const tandem_sharding *sharding, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
