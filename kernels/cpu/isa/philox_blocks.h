/* philox_blocks.h: Philox4x32-10, LANES blocks side by side: the words are those of base/philox.h. A counter
 * word has 64 bits to itself, where its products fit; the compiler cuts these vectors to what an instruction
 * set has. */
#pragma once

#include "kernels/cpu/isa/isa.h"

enum { LANES = 8 };

typedef uint64_t __attribute__((vector_size(LANES * sizeof(uint64_t)))) philox_wide_words;
typedef uint32_t __attribute__((vector_size(LANES * sizeof(uint32_t)))) philox_words;

typedef struct philox_blocks {
    uint32_t word[4][LANES];
} philox_blocks;

/* The words of blocks block … block+LANES−1; counters: {block, stream[0], stream[1], stream[2] | upper half
 * of block << 8}. */
static inline void draw_blocks(philox_blocks *out, uint64_t block, uint64_t seed, const uint32_t stream[3])
{
    const philox_wide_words nothing = {0}, first = {0, 1, 2, 3, 4, 5, 6, 7}, all = nothing + block + first;
    philox_wide_words c[4] = {all & UINT32_MAX, nothing + stream[0], nothing + stream[1],
                              (nothing + stream[2]) | all >> 32 << 8};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const philox_wide_words p0 = c[0] * UINT64_C(0xD2511F53), p1 = c[2] * UINT64_C(0xCD9E8D57);
        c[0] = p1 >> 32 ^ c[1] ^ (nothing + k0);
        c[1] = p1 & UINT32_MAX;
        c[2] = p0 >> 32 ^ c[3] ^ (nothing + k1);
        c[3] = p0 & UINT32_MAX;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int k = 0; k < 4; k++) {
        const philox_words word = __builtin_convertvector(c[k], philox_words);
        __builtin_memcpy(out->word[k], &word, sizeof word);
    }
}
