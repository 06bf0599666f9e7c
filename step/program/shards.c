/* shards.c: which part of each bucket a rank keeps (ZeRO). */
#include "tandem/advanced/step.h"

enum { SHARD_ALIGNMENT = 16 }; /* elements; parameters begin at multiples of it */

static int64_t round_up(int64_t elements)
{
    return (elements + SHARD_ALIGNMENT - 1) / SHARD_ALIGNMENT * SHARD_ALIGNMENT;
}

static int64_t at_most(int64_t x, int64_t limit) { return x < limit ? x : limit; }

/* Units of the ranks before this one, and of all. */
static int64_t count_units(const tandem_sharding *sharding, int rank, int64_t *all)
{
    int64_t before = 0;
    *all = 0;
    for (int c = 0; c < sharding->n_share; c++) {
        const int ranks = sharding->class_ranks[c], units = sharding->class_units[c],
                  counted = rank < 0       ? 0
                            : rank < ranks ? rank
                                           : ranks;
        before += (int64_t)counted * units;
        *all += (int64_t)ranks * units;
        rank -= ranks;
    }
    return before;
}

int64_t tandem_shard_border(const tandem_sharding *sharding, int64_t elements, int rank)
{
    const int n_rank = sharding->n_rank > 0 ? sharding->n_rank : 1;
    if (rank >= n_rank) return elements;
    if (sharding->n_share == 0) return at_most(rank * round_up((elements + n_rank - 1) / n_rank), elements);
    int64_t all;
    const int64_t before = count_units(sharding, rank, &all);
    return at_most(all > 0 ? round_up((int64_t)((__int128)elements * before / all)) : 0, elements);
}

double tandem_shard_share(const tandem_sharding *sharding, int c)
{
    int64_t all;
    (void)count_units(sharding, 0, &all);
    return all > 0 ? (double)sharding->class_units[c] / (double)all : 0;
}

tandem_shard tandem_step_shard(const tandem_step *step, int b)
{
    const tandem_sharding *sharding = &step->options.sharding;
    tandem_shard shard = {.elements = step->bucket[b].elements, .start = step->bucket[b].start};
    if (sharding->stage == 0) return shard;
    shard.start = 0;
    for (int k = 0; k <= b; k++) {
        const int64_t elements = step->bucket[k].elements;
        shard.start += k > 0 ? shard.elements : 0;
        shard.first = tandem_shard_border(sharding, elements, sharding->rank);
        shard.elements = tandem_shard_border(sharding, elements, sharding->rank + 1) - shard.first;
    }
    return shard;
}

int64_t tandem_step_shard_elements(const tandem_step *step)
{
    if (step->options.sharding.stage == 0 || step->n_bucket == 0) return step->n_flat;
    const tandem_shard last = tandem_step_shard(step, step->n_bucket - 1);
    return last.start + last.elements;
}

static uint64_t n_state(const tandem_step *step)
{
    return (uint64_t)tandem_optimizer_n_state(step->graph->optimizer.kind);
}

uint64_t tandem_step_state_bytes(const tandem_step *step)
{
    return (uint64_t)step->n_flat * sizeof(float) * n_state(step);
}

tandem_shard_room tandem_step_shard_room(const tandem_step *step, const tandem_memory *even, uint64_t limit)
{
    const uint64_t rounding = (uint64_t)step->n_bucket * SHARD_ALIGNMENT * sizeof(float) * n_state(step),
                   other = even->peak - even->optimizer + rounding;
    if (limit == 0) return (tandem_shard_room){UINT64_MAX, 1};
    return (tandem_shard_room){limit > other ? limit - other : 0, even->peak <= limit};
}
