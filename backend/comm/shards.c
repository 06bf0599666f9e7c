/* shards.c: how floats are divided among the ranks. */
#include "backend/comm/shards.h"

#include "base/hash.h"

static size_t lesser_border(size_t a, size_t b) { return a < b ? a : b; }
static size_t greater_border(size_t a, size_t b) { return a > b ? a : b; }

tandem_shard_span tandem_chunk_in_shard(size_t n, int n_rank, const size_t *border, int c, int s)
{
    const size_t chunk = tandem_chunk_floats(n, n_rank), chunk_begin = lesser_border((size_t)c * chunk, n),
                 chunk_end = chunk_begin + lesser_border(chunk, n - chunk_begin),
                 begin = greater_border(chunk_begin, border[s]),
                 end = lesser_border(chunk_end, border[s + 1]);
    return (tandem_shard_span){.begin = begin, .end = greater_border(begin, end)};
}

size_t tandem_longest_shard(const size_t *border, int n_rank)
{
    size_t longest = 0;
    for (int r = 0; r < n_rank; r++) longest = greater_border(longest, border[r + 1] - border[r]);
    return longest;
}

bool tandem_are_borders(const size_t *border, int n_rank, size_t n)
{
    if (!border || border[0] != 0 || border[n_rank] != n) return false;
    for (int r = 0; r < n_rank; r++) {
        if (border[r + 1] < border[r]) return false;
        if (border[r + 1] % TANDEM_CHUNK_MULTIPLE && border[r + 1] != n) return false;
    }
    return true;
}

uint64_t tandem_hash_borders(const size_t *border, int n_rank)
{
    return tandem_hash_bytes(TANDEM_HASH_START, border, ((size_t)n_rank + 1) * sizeof *border);
}
