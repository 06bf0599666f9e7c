/* noise.cu: synthetic samples. CPU reference: kernels/cpu/isa/noise.c. */
#include "kernels/cuda/launch.h"

enum { WORDS_A_BLOCK = 4 };

/* A thread writes the same positions of all samples, so it does not divide. WHOLE: n is a multiple of 4, and
 * every position is aligned. */
template <int WHOLE>
KERNEL noise(float *__restrict__ x /* (batch, n) */, size_t batch, size_t n, tandem_philox_keys keys,
             uint32_t first, uint32_t global_batch, const uint32_t *__restrict__ index)
{
    const uint32_t sample = first + *index * global_batch;
    const size_t blocks = n / WORDS_A_BLOCK + (n % WORDS_A_BLOCK > 0);
    for (size_t k = first_item(); k < blocks; k += all_items())
        for (size_t b = 0; b < batch; b++) {
            const uint32_t counter[4] = {(uint32_t)k, sample + (uint32_t)b, 0, TANDEM_RNG_SHUFFLE};
            const tandem_philox_block draws = tandem_philox_with(counter, &keys);
            float *const at = x + b * n + k * WORDS_A_BLOCK;
            float value[WORDS_A_BLOCK];
#pragma unroll
            for (int i = 0; i < WORDS_A_BLOCK; i++)
                value[i] = TANDEM_ADD(TANDEM_MUL(2.0f, tandem_philox_uniform(draws.word[i])), -1.0f);
            if (WHOLE) {
                *(float4 *)at = make_float4(value[0], value[1], value[2], value[3]);
            } else {
#pragma unroll
                for (int i = 0; i < WORDS_A_BLOCK; i++)
                    if (k * WORDS_A_BLOCK + (size_t)i < n) at[i] = value[i];
            }
        }
}

extern "C" int tandem_cuda_noise(float *x, size_t batch, size_t n, uint64_t seed, uint32_t first,
                                 uint32_t global_batch, const uint32_t *index, tandem_cuda_stream stream)
{
    const tandem_philox_keys keys = tandem_philox_expand_key(seed);
    const unsigned grid = grid_of(n / WORDS_A_BLOCK + 1);
    if (n % WORDS_A_BLOCK == 0)
        return LAUNCH(noise<1>, grid, THREADS, stream, x, batch, n, keys, first, global_batch, index);
    return LAUNCH(noise<0>, grid, THREADS, stream, x, batch, n, keys, first, global_batch, index);
}
