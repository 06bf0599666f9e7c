/* attention.c: attention as the backend runs it, one launch forward and two backward
 * (kernels/cuda/attention.cu). */
#include <math.h>

#include "bench/cuda/gpu_bench.h"

typedef struct bench_attention {
    const gpu_bench *c;
    tandem_cuda_attention_spec spec;
    void *q[GPU_TURNS], *k[GPU_TURNS], *v[GPU_TURNS], *g[GPU_TURNS], *o[GPU_TURNS]; /* bf16 */
    void *gradient[GPU_TURNS][3];                                                   /* bf16 */
    void *statistics[GPU_TURNS], *along;
} bench_attention;

static const tandem_dropout attention_dropout = {
    .seed = 1, .threshold = 65536 / 10, .scale = 1 / 0.9f}; /* as bert_base and gpt2_small were published */

static int run_attention(void *context, int turn)
{
    const bench_attention *a = context;
    return tandem_cuda_attention(a->o[turn], a->statistics[turn], a->q[turn], a->k[turn], a->v[turn],
                                 TANDEM_CUDA_BF16, &a->spec, a->c->device->stream);
}

static int run_attention_backward(void *context, int turn)
{
    const bench_attention *a = context;
    const tandem_cuda_attention_gradient gradient = {
        .gradient = {a->gradient[turn][0], a->gradient[turn][1], a->gradient[turn][2]},
        .type = {TANDEM_CUDA_BF16, TANDEM_CUDA_BF16, TANDEM_CUDA_BF16},
        .g = a->g[turn],
        .q = a->q[turn],
        .k = a->k[turn],
        .v = a->v[turn],
        .o = a->o[turn],
        .statistics = a->statistics[turn],
        .along = a->along};
    return tandem_cuda_attention_backward(&gradient, TANDEM_CUDA_BF16, &a->spec, a->c->device->stream);
}

/* Backward reads what forward has written in the same turn. */
static tandem_status open_bench_attention(bench_attention *a, gpu_bench *c, tandem_error *error)
{
    const size_t rows = a->spec.heads * a->spec.rows, n = rows * a->spec.depth;
    tandem_status status = gpu_alloc(&a->along, c, rows * sizeof(float), error);
    for (int t = 0; t < GPU_TURNS && status == TANDEM_OK; t++) {
        void **const random[] = {&a->q[t], &a->k[t], &a->v[t], &a->g[t]};
        void **const results[] = {&a->o[t], &a->gradient[t][0], &a->gradient[t][1], &a->gradient[t][2]};
        status = gpu_alloc(&a->statistics[t], c, rows * sizeof(float), error);
        for (int k = 0; k < 4 && status == TANDEM_OK; k++) {
            status = gpu_alloc(results[k], c, n * sizeof(uint16_t), error);
            if (status == TANDEM_OK) status = gpu_alloc(random[k], c, n * sizeof(uint16_t), error);
            if (status == TANDEM_OK) status = gpu_fill(c, *random[k], TANDEM_BF16, n, 0, 0, error);
        }
    }
    return status;
}

tandem_status gpu_attention_time(gpu_attention_times *times, gpu_bench *c, const gpu_attention *shape,
                                 tandem_error *error)
{
    bench_attention a = {.c = c,
                         .spec = {.heads = shape->batch * shape->heads,
                                  .rows = shape->tokens,
                                  .columns = shape->tokens,
                                  .depth = shape->depth,
                                  .scale = 1 / sqrtf((float)shape->depth),
                                  .causal = shape->causal,
                                  .dropout = shape->has_dropout ? &attention_dropout : NULL}};
    gpu_attention_times own = {-1, -1};
    if (c->device->gpu.major < 8)
        return tandem_error_set(error, TANDEM_NO_KERNEL,
                                "attention in bf16 needs compute capability 8.0; this GPU has %d.%d. Use f16",
                                c->device->gpu.major, c->device->gpu.minor);
    tandem_status status = open_bench_attention(&a, c, error);
    if (status == TANDEM_OK)
        status = gpu_time(&own.forward_ns, c, "attention", c->sizes.launches, run_attention, &a, error);
    if (status == TANDEM_OK)
        status = gpu_time(&own.backward_ns, c, "attention backward", c->sizes.launches,
                          run_attention_backward, &a, error);
    gpu_free_all(c);
    if (status == TANDEM_OK) *times = own;
    return status;
}
