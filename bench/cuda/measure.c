/* measure.c: memory and time on the card. */
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "bench/cuda/gpu_bench.h"
#include "tandem/advanced/predictor.h"

static tandem_status bench_failure(const gpu_bench *c, const char *what, int failed, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_DEVICE, "device '%s' failed in %s: %s (error %d)",
                            c->device->name, what, c->device->vendor->error_text(failed), failed);
}

tandem_status gpu_alloc(void **memory, gpu_bench *c, uint64_t bytes, tandem_error *error)
{
    if (c->n_memory == GPU_MAX_MEMORY)
        return tandem_error_set(error, TANDEM_BUG, "more than %d pieces of memory", GPU_MAX_MEMORY);
    void *memory_taken = NULL;
    if (c->device->vendor->alloc(&memory_taken, bytes ? bytes : 1, 0))
        return tandem_error_set(error, TANDEM_NO_MEMORY, "device '%s' has no %llu bytes left",
                                c->device->name, (unsigned long long)bytes);
    c->memory[c->n_memory++] = memory_taken;
    *memory = memory_taken;
    return TANDEM_OK;
}

void gpu_free_all(gpu_bench *c)
{
    while (c->n_memory > 0) c->device->vendor->free(c->memory[--c->n_memory], 0);
}

/* --- Random numbers ------------------------------------------------------------------------------------- */

enum { PATTERN = 1 << 20 }; /* numbers that are drawn; arrays repeat them */

static void draw_pattern(void *pattern, tandem_dtype dtype, size_t n, int positive, int32_t below)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)dtype, (uint32_t)positive, 0};
        const uint32_t word = tandem_philox(counter, 1).word[0];
        const float x = tandem_philox_uniform(word) * (positive ? 1 : 2) - (positive ? 0 : 1);
        switch (dtype) {
        case TANDEM_F32: ((float *)pattern)[i] = x; break;
        case TANDEM_BF16: ((uint16_t *)pattern)[i] = tandem_bf16_of(x); break;
        case TANDEM_F16: ((uint16_t *)pattern)[i] = tandem_f16_of(x); break;
        case TANDEM_E4M3: ((uint8_t *)pattern)[i] = tandem_e4m3_of(x); break;
        case TANDEM_S32: ((int32_t *)pattern)[i] = (int32_t)(word % (uint32_t)below); break;
        default: ((unsigned char *)pattern)[i] = (unsigned char)word; break;
        }
    }
}

tandem_status gpu_fill(const gpu_bench *c, void *memory, tandem_dtype dtype, size_t n, int positive,
                       int32_t below, tandem_error *error)
{
    const size_t size = tandem_dtype_bytes(dtype), some = n < PATTERN ? n : PATTERN;
    void *pattern = malloc(some * size + 1);
    if (!pattern) return tandem_no_memory(error, "for random numbers");
    draw_pattern(pattern, dtype, some, positive, below);
    int failed = 0;
    for (size_t at = 0; at < n && !failed; at += some)
        failed = c->device->vendor->copy((char *)memory + at * size, pattern,
                                         (n - at < some ? n - at : some) * size, c->device->stream);
    if (!failed) failed = c->device->vendor->stream_sync(c->device->stream);
    free(pattern);
    return failed ? bench_failure(c, "copying random numbers", failed, error) : TANDEM_OK;
}

/* --- Time ----------------------------------------------------------------------------------------------- */

/* What has been launched runs meanwhile. */
static void note_clocks(const gpu_bench *c)
{
    gpu_clocks *seen = c->clocks;
    tandem_clocks now;
    if (!seen || c->device->vendor->read_clocks(&now.compute_mhz, &now.memory_mhz, c->device->index)) return;
    const int is_first = seen->max.compute_mhz == 0;
    if (is_first || now.compute_mhz < seen->min.compute_mhz) seen->min.compute_mhz = now.compute_mhz;
    if (is_first || now.memory_mhz < seen->min.memory_mhz) seen->min.memory_mhz = now.memory_mhz;
    if (now.compute_mhz > seen->max.compute_mhz) seen->max.compute_mhz = now.compute_mhz;
    if (now.memory_mhz > seen->max.memory_mhz) seen->max.memory_mhz = now.memory_mhz;
}

static int sample_launches(double *ns, const gpu_bench *c, int launches, gpu_work *work, void *context,
                           tandem_cuda_event event[2])
{
    const cuda_vendor *vendor = c->device->vendor;
    int64_t elapsed_ns = 0;
    int failed = vendor->event_record(event[0], c->device->stream);
    for (int k = 0; k < launches && !failed; k++) failed = work(context, k % GPU_TURNS);
    if (!failed) failed = vendor->event_record(event[1], c->device->stream);
    if (!failed) note_clocks(c);
    if (!failed) failed = vendor->stream_sync(c->device->stream);
    if (!failed) failed = vendor->elapsed_ns(&elapsed_ns, event[0], event[1]);
    *ns = (double)elapsed_ns / launches;
    return failed;
}

tandem_status gpu_time(int64_t *launch_ns, const gpu_bench *c, const char *what, int launches, gpu_work *work,
                       void *context, tandem_error *error)
{
    const cuda_vendor *vendor = c->device->vendor;
    tandem_cuda_event event[2] = {NULL, NULL};
    double ns[GPU_MAX_SAMPLES] = {0};
    int failed = vendor->event_open(&event[0]);
    if (!failed) failed = vendor->event_open(&event[1]);
    for (int k = -1; k < c->sizes.samples && !failed; k++) /* the first is not counted: it loads the kernel */
        failed = sample_launches(&ns[k < 0 ? 0 : k], c, launches, work, context, event);
    if (event[1]) vendor->event_close(event[1]);
    if (event[0]) vendor->event_close(event[0]);
    if (failed) return bench_failure(c, what, failed, error);
    const int64_t median_ns = (int64_t)tandem_median(ns, (size_t)c->sizes.samples);
    *launch_ns = median_ns > 0 ? median_ns : 1;
    return TANDEM_OK;
}
