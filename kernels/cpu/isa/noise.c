/* noise.c: uniform random numbers in [−1, 1). */
#include "kernels/cpu/isa/philox_blocks.h"

enum { GROUP = 4 * LANES };

void ISA(noise_f32)(float *x, size_t n, uint64_t seed, const uint32_t stream[3])
{
    float group[GROUP];
    for (size_t i = 0; i < n; i += GROUP) {
        philox_blocks c;
        draw_blocks(&c, i / 4, seed, stream);
        for (int b = 0; b < LANES; b++)
            for (int k = 0; k < 4; k++)
                group[4 * b + k] = 2.0f * ((float)(int32_t)(c.word[k][b] >> 8) * 0x1p-24f) - 1.0f;
        __builtin_memcpy(x + i, group, (n - i < GROUP ? n - i : GROUP) * sizeof *x);
    }
}
