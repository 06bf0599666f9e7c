/* probe_kept.c: the numbers of tensors that a probe keeps of one pass for the next, and ranges of batches. */
#include "runtime/estimate/probe_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/estimate/probe_loops.h"

enum {
    KEPT_NUMBERS = 4096, /* of a tensor of samples, but */
    KEPT_SAMPLES = 2     /* at the least */
};

int64_t probe_count_kept(const probe_kept_tensor *of, int64_t batch, int64_t n)
{
    const int64_t fit = of->is_costly ? KEPT_SAMPLES : KEPT_NUMBERS / (n / batch),
                  kept = fit > KEPT_SAMPLES ? fit : KEPT_SAMPLES;
    return kept < batch ? kept : batch;
}

void probe_close_rooms(probe_run *run)
{
    free(run->room);
    free(run->difference);
    free(run->read);
}

void probe_open_rooms(probe_run *run, int64_t n)
{
    run->room = malloc((size_t)n * sizeof *run->room);
    run->difference = malloc((size_t)n * sizeof *run->difference);
    run->read = malloc((size_t)n * sizeof *run->read);
    run->room_size = run->room && run->difference && run->read ? n : 0;
}

static void take_kept_memory(probe_run *run, probe_kept_tensor *kept)
{
    const uint64_t bytes = ((uint64_t)kept->n * sizeof *kept->x + 63) / 64 * 64;
    if (kept->is_own) free(kept->x);
    kept->is_own = bytes > run->n_spare;
    kept->x = kept->is_own ? malloc(bytes) : (float *)(void *)run->spare;
    kept->capacity = kept->x ? kept->n : 0;
    if (kept->is_own) return;
    run->spare += bytes;
    run->n_spare -= bytes;
}

float *probe_keep_samples(probe_run *run, probe_kept_tensor *kept, int64_t n)
{
    const int64_t batch = run->point->estimate->batch;
    if (n % batch != 0 || n < 1) { /* no tensor of samples */
        kept->n = 0;
        return NULL;
    }
    kept->n_sample = probe_count_kept(kept, batch, n);
    kept->n = kept->n_sample * (n / batch);
    if (kept->n > kept->capacity) take_kept_memory(run, kept);
    if (kept->n > run->room_size) {
        probe_close_rooms(run);
        probe_open_rooms(run, kept->n);
    }
    if (kept->x && run->room_size >= kept->n) return kept->x;
    run->status = tandem_no_memory(&run->error, "for the tensors of a probe");
    return NULL;
}

int probe_batches_of_range(const probe_run *run, int range, int n_seen)
{
    const int n = run->point->n_range_batch * (range == PROBE_WIDE_RANGE ? TANDEM_WIDE_RANGE : 1);
    return n < n_seen ? n : n_seen;
}

static void see_range(const probe_run *run, probe_kept_tensor *kept, const float *x, int64_t n)
{
    const int place = run->n_batch_seen, ring = run->point->n_range_batch * TANDEM_WIDE_RANGE;
    kept->amax_of[place % ring] = probe_amax(x, n);
    for (int k = 0; k < N_PROBE_RANGE; k++) {
        kept->amax[k] = 0;
        for (int b = 0; b < probe_batches_of_range(run, k, place + 1); b++)
            kept->amax[k] = fmaxf(kept->amax[k], kept->amax_of[(place - b) % ring]);
    }
}

void probe_keep_values(probe_run *run, probe_kept_tensor *kept, const float *x, int64_t n, int has_range)
{
    float *to = probe_keep_samples(run, kept, n);
    if (!to) return;
    memcpy(to, x, (size_t)kept->n * sizeof *to);
    if (has_range) see_range(run, kept, x, n);
}
