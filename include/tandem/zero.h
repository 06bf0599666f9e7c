/* zero.h: a step in which ranks share out what plain data parallelism keeps on each of them.
 *
 * Source: Rajbhandari, Rasley, Ruwase, He, "ZeRO: memory optimizations toward training trillion parameter
 * models", SC 2020. Of n ranks, each keeps an nth of every bucket, rounded up to 16 elements (a shard; of
 * equal size on unequal devices):
 *
 *   stage 1  of the optimizer's state
 *   stage 2  … and of the gradients
 *   stage 3  … and of the weights
 *
 * Rules of the step, all on the streams of a plain one (replayer.h). The communication stream takes one
 * collective at a time, in the order in which they are asked for, each once all classes have asked.
 *   - A bucket of gradients is reduce-scattered where it would be all-reduced.
 *   - An update waits for its bucket and takes its shard's part of the time.
 *   - Stages 1 and 2: behind its update a bucket of weights is all-gathered; an operator of the next step
 *     waits for its bucket.
 *   - Stages 2 and 3: two buckets of gradients exist in full. The third is begun when the first has been
 *     scattered.
 *   - Stage 3: an operator waits for its bucket of weights in its forward pass and again for the gradient of
 *     its input. Behind that wait the next bucket is asked for: one is fetched ahead. The two used last stay,
 *     so that what the forward pass used last is there when the backward pass begins, and three are there in
 *     full at most. A step's first bucket is asked for when all updates are through.
 * Weights and gradients travel in f32. What tasks take is what they took in the plain step, beside whoever
 * was busy then. Collectives take the time of the plain replay's algorithm over the links; where all-reduces
 * were measured, half of theirs.
 *
 * Nothing of tandem trains so: this is for planning. */
#ifndef TANDEM_ZERO_H
#define TANDEM_ZERO_H

#include "tandem/replayer.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { TANDEM_MAX_ZERO_STAGE = 3 };

typedef struct tandem_zero {
    tandem_replay replay; /* as of a plain step; exposed_comm_ns: from when all classes have asked */
    /* of a rank of each class, to the byte: shards, and what is there in full at most */
    tandem_memory memory[TANDEM_MAX_CLASS];
    int64_t scatter_ns, gather_ns; /* on the wire in a step */
    int n_gather;                  /* all-gathers a step */
} tandem_zero;

/* tandem_replayer_zero: a step under the current plan in a stage of ZeRO, 1 to 3. Shards and rules as above;
 * a bucket in full holds the rank's own part, which counts once. With one rank it is the plain step. Runs a
 * plain replay with memory and events. TANDEM_USAGE for another stage, and for steps with a norm of all
 * gradients; TANDEM_NO_MEMORY, what tandem_replayer_run says; *zero unchanged on error. Cost: O(tasks ×
 * classes) a lap; some laps until steps repeat. */
tandem_status tandem_replayer_zero(tandem_zero *zero, tandem_replayer *replayer, int stage,
                                   tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
