/* dropout.c: numbers dropped by Philox4x32-10, 16 bits for each, LANES blocks of eight numbers side by side. A plain loop over lanes
 * is what compilers make vectors of; the words are those of base/philox.h. */
#include "backend/cpu/isa/isa.h"

enum { LANES = 16, GROUP = 8 * LANES };

typedef struct lanes {
    uint32_t word[4][LANES];
} lanes;

/* The words of blocks block … block+LANES−1. */
static void draw(lanes *c, uint64_t block, const tandem_dropout *mask)
{
    uint32_t k0 = (uint32_t)mask->seed, k1 = (uint32_t)(mask->seed >> 32);
    for (uint32_t b = 0; b < LANES; b++) {
        c->word[0][b] = (uint32_t)(block + b);
        c->word[1][b] = mask->stream[0];
        c->word[2][b] = mask->stream[1];
        c->word[3][b] = mask->stream[2] | (uint32_t)((block + b) >> 32) << 8;
    }
    for (int round = 0; round < 10; round++) {
        for (int b = 0; b < LANES; b++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c->word[0][b], p1 = (uint64_t)0xCD9E8D57u * c->word[2][b];
            c->word[0][b] = (uint32_t)(p1 >> 32) ^ c->word[1][b] ^ k0;
            c->word[1][b] = (uint32_t)p1;
            c->word[2][b] = (uint32_t)(p0 >> 32) ^ c->word[3][b] ^ k1;
            c->word[3][b] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* By what each of the numbers from `place`, a multiple of GROUP, on is multiplied. */
static void factors(float factor[GROUP], uint64_t place, const tandem_dropout *mask)
{
    lanes c;
    draw(&c, place / 8, mask);
    for (int b = 0; b < LANES; b++)
        for (int k = 0; k < 4; k++) {
            factor[8 * b + 2 * k] = (c.word[k][b] & 0xFFFF) < mask->threshold ? 0 : mask->scale;
            factor[8 * b + 2 * k + 1] = c.word[k][b] >> 16 < mask->threshold ? 0 : mask->scale;
        }
}

/* Numbers of the group that holds place `at`: from there to its end, or the last of n. */
static size_t group_part(uint64_t at, size_t left)
{
    const size_t part = GROUP - at % GROUP;
    return part < left ? part : left;
}

/* What is dropped is 0, whatever it was: a factor of 0 would let infinities become NaN. */
void ISA(dropout_f32)(float *y, const float *x, size_t n, const tandem_dropout *mask)
{
    float factor[GROUP];
    for (size_t i = 0, part; i < n; i += part) {
        const uint64_t at = mask->first + i;
        part = group_part(at, n - i);
        factors(factor, at - at % GROUP, mask);
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
        part = group_part(at, n - i);
        factors(factor, at - at % GROUP, mask);
        const float *f = factor + at % GROUP;
        ISA_ELEMENTWISE
        for (size_t k = 0; k < part; k++)
            y[i + k] = f[k] > 0.0f ? bf16_of_float(f[k] * float_of_bf16(x[i + k])) : (uint16_t)0;
    }
}
