/* speed_sample.h: two fixed pieces of work that say how fast this core, and this memory, is now. */
#ifndef TANDEM_BASE_SPEED_SAMPLE_H
#define TANDEM_BASE_SPEED_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* Times of the two pieces, in ns; 0 = not taken. Each runs in two halves, and the shorter half counts twice:
 * an interrupt, or a moment without the core, seldom hits both.
 *   compute  vector arithmetic between registers: the core's clock, and what its neighbour thread takes of it
 *   memory   a walk through memory that has left this core's own caches since it was last read: the shared
 *            cache and memory, and what other cores take of their bandwidth */
typedef struct tandem_speed_sample {
    int64_t compute_ns, memory_ns;
} tandem_speed_sample;

/* The memory that the walk goes through, window after window. */
typedef struct tandem_speed_sample_walk {
    float *memory; /* owned */
    size_t n, at;  /* floats; the next window */
} tandem_speed_sample_walk;

/* tandem_speed_sample_open: allocates and touches 16 MiB, several times the second-level cache of a core:
 * windows come round so seldom that nothing of them is left there. TANDEM_NO_MEMORY. Cost: some ms. */
tandem_status tandem_speed_sample_open(tandem_speed_sample_walk *walk, tandem_error *error);
void tandem_speed_sample_close(tandem_speed_sample_walk *walk); /* all zero is fine */

/* tandem_speed_sample_take: cost: some 50 us. */
tandem_speed_sample tandem_speed_sample_take(tandem_speed_sample_walk *walk);

/* A walk whose time varies by more than this, (p90 − p10) / median, says nothing of tasks, whose own accesses
 * vary less: the host moves memory, or swaps. */
#define SPEED_SAMPLE_UNRELIABLE 0.5

/* How long a walk through so many bytes takes at the sample's speed, in ns; 0 without a sample. */
double tandem_speed_sample_bytes_ns(const tandem_speed_sample *sample, double bytes);

/* How many times longer than at `steady` a task takes whose time at steady speed is spent on memory for
 * `memory_share` (0 … 1) and on arithmetic otherwise. 1 where a speed sample is missing. */
double tandem_speed_sample_slowdown(const tandem_speed_sample *now, const tandem_speed_sample *steady,
                                    double memory_share);

#endif
