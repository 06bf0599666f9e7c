/* dropout.c: dropout with Philox4x32-10, 16 bits per element. */
#include "kernels/cpu/isa/philox_blocks.h"

enum { GROUP = 8 * LANES };

/* The factors of the elements from `place`, a multiple of GROUP, on. */
static void dropout_factors(float factor[GROUP], uint64_t position, const tandem_dropout *mask)
{
    philox_blocks c;
    draw_blocks(&c, position / 8, mask->seed, mask->stream);
    for (int b = 0; b < LANES; b++)
        for (int k = 0; k < 4; k++) {
            factor[8 * b + 2 * k] = (c.word[k][b] & 0xFFFF) < mask->threshold ? 0 : mask->scale;
            factor[8 * b + 2 * k + 1] = c.word[k][b] >> 16 < mask->threshold ? 0 : mask->scale;
        }
}

/* The number of elements from `at` to the end of its group, or to the end of n. */
static size_t group_remainder(uint64_t at, size_t left)
{
    const size_t part = GROUP - at % GROUP;
    return part < left ? part : left;
}

/* A dropped element is 0 in any case; a factor of 0 would turn infinities into NaN. */
void ISA(dropout_f32)(float *y, const float *x, size_t n, const tandem_dropout *mask)
{
    float factor[GROUP];
    for (size_t i = 0, part; i < n; i += part) {
        const uint64_t at = mask->first + i;
        part = group_remainder(at, n - i);
        dropout_factors(factor, at - at % GROUP, mask);
        const float *f = factor + at % GROUP;
        ISA_ELEMENTWISE
        for (size_t k = 0; k < part; k++) y[i + k] = f[k] > 0.0f ? f[k] * x[i + k] : 0.0f;
    }
}

void ISA(dropout_bf16)(uint16_t *y, const uint16_t *x, size_t n, const tandem_dropout *mask)
{
    float factor[GROUP];
    for (size_t i = 0, part; i < n; i += part) {
        const uint64_t at = mask->first + i;
        part = group_remainder(at, n - i);
        dropout_factors(factor, at - at % GROUP, mask);
        const float *f = factor + at % GROUP;
        ISA_ELEMENTWISE
        for (size_t k = 0; k < part; k++)
            y[i + k] = f[k] > 0.0f ? bf16_of_float(f[k] * float_of_bf16(x[i + k])) : (uint16_t)0;
    }
}
