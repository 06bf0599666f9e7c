/* optimizer.cu: one update of the master weights: all flat arrays in one launch. CPU reference:
 * kernels/cpu/isa/optimizer.c. Memory bandwidth hides the arithmetic: 4 elements per thread and step. */
#include "kernels/cuda/launch.h"

enum { QUAD = 4, GROUP = 16 };

static __device__ __forceinline__ int has_nonfinite_element(float4 g)
{
    const uint32_t infinite = 0x7F800000u;
    return tandem_magnitude_bits(g.x) >= infinite || tandem_magnitude_bits(g.y) >= infinite ||
           tandem_magnitude_bits(g.z) >= infinite || tandem_magnitude_bits(g.w) >= infinite;
}

/* The first group with such an element stays: 2^32 − 1 − its number. */
static __device__ __forceinline__ void note_nonfinite(uint32_t *nonfinite, size_t group)
{
    (void)atomicMax(nonfinite, ~(uint32_t)group);
}

/* n is a multiple of GROUP: the flat arrays are padded to it. */
KERNEL sgd(float4 *__restrict__ w, float4 *__restrict__ v, const float4 *__restrict__ g,
           const uint8_t *__restrict__ decays, size_t n, float rate, float momentum, float decay,
           const float *rates, uint32_t *nonfinite)
{
    const float own = rates ? rates[0] : rate;
    for (size_t i = first_item(); i < n / QUAD; i += all_items()) {
        const float rest = !decays || decays[i / (GROUP / QUAD)] ? decay : 0;
        const float4 gradient = g[i];
        float4 weight = w[i], velocity = v[i];
        tandem_sgd_one(&weight.x, &velocity.x, gradient.x, own, momentum, rest);
        tandem_sgd_one(&weight.y, &velocity.y, gradient.y, own, momentum, rest);
        tandem_sgd_one(&weight.z, &velocity.z, gradient.z, own, momentum, rest);
        tandem_sgd_one(&weight.w, &velocity.w, gradient.w, own, momentum, rest);
        w[i] = weight, v[i] = velocity;
        if (has_nonfinite_element(gradient)) note_nonfinite(nonfinite, i / (GROUP / QUAD));
    }
}

KERNEL adamw(float4 *__restrict__ w, float4 *__restrict__ m, float4 *__restrict__ v,
             const float4 *__restrict__ g, const uint8_t *__restrict__ decays, size_t n, tandem_adamw options,
             const float *rates, uint32_t *nonfinite)
{
    if (rates) options.rate = rates[0], options.correction1 = rates[1], options.correction2 = rates[2];
    for (size_t i = first_item(); i < n / QUAD; i += all_items()) {
        tandem_adamw one = options;
        if (decays && !decays[i / (GROUP / QUAD)]) one.decay = 0;
        const float4 gradient = g[i];
        float4 weight = w[i], first = m[i], second = v[i];
        tandem_adamw_one(&weight.x, &first.x, &second.x, gradient.x, &one);
        tandem_adamw_one(&weight.y, &first.y, &second.y, gradient.y, &one);
        tandem_adamw_one(&weight.z, &first.z, &second.z, gradient.z, &one);
        tandem_adamw_one(&weight.w, &first.w, &second.w, gradient.w, &one);
        w[i] = weight, m[i] = first, v[i] = second;
        if (has_nonfinite_element(gradient)) note_nonfinite(nonfinite, i / (GROUP / QUAD));
    }
}

extern "C" int tandem_cuda_sgd(float *w, float *v, const float *g, const uint8_t *decays, size_t n,
                               float rate, float momentum, float decay, const float *rates,
                               uint32_t *nonfinite, tandem_cuda_stream stream)
{
    if (n % GROUP != 0) return TANDEM_CUDA_UNALIGNED;
    return LAUNCH(sgd, grid_of(n / QUAD), THREADS, stream, (float4 *)w, (float4 *)v, (const float4 *)g,
                  decays, n, rate, momentum, decay, rates, nonfinite);
}

extern "C" int tandem_cuda_adamw(float *w, float *m, float *v, const float *g, const uint8_t *decays,
                                 size_t n, const tandem_adamw *options, const float *rates,
                                 uint32_t *nonfinite, tandem_cuda_stream stream)
{
    if (n % GROUP != 0) return TANDEM_CUDA_UNALIGNED;
    return LAUNCH(adamw, grid_of(n / QUAD), THREADS, stream, (float4 *)w, (float4 *)m, (float4 *)v,
                  (const float4 *)g, decays, n, *options, rates, nonfinite);
}
