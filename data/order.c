/* order.c: which sample each position of a step has. */
#include <stdlib.h>

#include "base/philox.h"
#include "tandem/advanced/data.h"

/* Draw i has the counter {i, epoch, its upper half, purpose}; the upper half of a 64 × 64-bit product is a
 * number in 0 … n−1. */
static int64_t philox_below(int64_t n, int64_t i, uint64_t seed, int64_t epoch)
{
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32),
                                 TANDEM_RNG_SHUFFLE};
    const tandem_philox_block block = tandem_philox(counter, seed);
    const uint64_t word = (uint64_t)block.word[1] << 32 | block.word[0];
    return (int64_t)((unsigned __int128)word * (uint64_t)n >> 64);
}

void tandem_data_order(int64_t *order, int64_t n, uint64_t seed, int64_t epoch)
{
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = philox_below(i + 1, i, seed, epoch);
        const int64_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

static tandem_status fill_data_cursor(tandem_data_cursor *cursor, int64_t n, uint64_t seed, int64_t epoch,
                                      tandem_error *error)
{
    if (cursor->order && cursor->n == n && cursor->seed == seed && cursor->epoch == epoch) return TANDEM_OK;
    if (!cursor->order || cursor->n != n) {
        int64_t *const order = malloc((size_t)n * sizeof *order);
        if (!order) return tandem_no_memory(error, "for the order of %lld samples", (long long)n);
        free(cursor->order);
        cursor->order = order;
    }
    tandem_data_order(cursor->order, n, seed, epoch);
    cursor->n = n;
    cursor->seed = seed;
    cursor->epoch = epoch;
    return TANDEM_OK;
}

tandem_status tandem_data_sample(int64_t *sample, tandem_data_cursor *cursor, const tandem_data *data,
                                 uint64_t seed, int64_t step, int64_t global_batch, int64_t position,
                                 tandem_error *error)
{
    if (step < 0 || global_batch < 1 || position < 0 || position >= global_batch)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "There is no sample at position %lld of a batch of %lld in step %lld: a step is 0 or more, a "
            "batch 1 or more, a position 0 to batch - 1.",
            (long long)position, (long long)global_batch, (long long)step);
    const int64_t batches = data->n_train / global_batch;
    if (batches == 0)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has %lld training samples, fewer than one batch of all ranks, %lld. Lower the batch.",
            data->name, (long long)data->n_train, (long long)global_batch);
    const tandem_status status = fill_data_cursor(cursor, data->n_train, seed, step / batches, error);
    if (status == TANDEM_OK) *sample = cursor->order[step % batches * global_batch + position];
    return status;
}

void tandem_data_cursor_free(tandem_data_cursor *cursor)
{
    free(cursor->order);
    *cursor = (tandem_data_cursor){0};
}
