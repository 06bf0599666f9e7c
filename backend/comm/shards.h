/* shards.h: how floats are divided among the ranks: chunks, in which they are summed, and shards, which the
 * caller chooses. Private to backend/comm.
 *
 * The order in which a float's summands are added follows its chunk, so its sum depends on n, the number of
 * ranks and its offset, and on no shard. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Chunks end at multiples of that many floats: a cache line, in which no two ranks write. */
enum { TANDEM_CHUNK_MULTIPLE = 16 };

/* Floats of a chunk, of which chunk c begins at c times as many; the last chunks may be short or empty. */
static inline size_t tandem_chunk_floats(size_t n, int n_rank)
{
    const size_t even = n / (size_t)n_rank + (n % (size_t)n_rank != 0);
    return (even + TANDEM_CHUNK_MULTIPLE - 1) / TANDEM_CHUNK_MULTIPLE * TANDEM_CHUNK_MULTIPLE;
}

/* Floats begin … end - 1; none where both are the same. */
typedef struct tandem_shard_span {
    size_t begin, end;
} tandem_shard_span;

/* The floats of chunk c that lie in shard s. */
tandem_shard_span tandem_chunk_in_shard(size_t n, int n_rank, const size_t *border, int c, int s);
/* The longest shard, in floats. */
size_t tandem_longest_shard(const size_t *border, int n_rank);
/* Whether borders are what comm.h says. */
bool tandem_are_borders(const size_t *border, int n_rank, size_t n);
/* Of borders that are alike on all ranks the same. */
uint64_t tandem_hash_borders(const size_t *border, int n_rank);
