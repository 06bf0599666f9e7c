/* draws.h: Philox4x32-10, LANES blocks side by side: a plain loop over lanes is what compilers make vectors of. The words are those of
 * base/philox.h. */
#ifndef TANDEM_BACKEND_CPU_ISA_DRAWS_H
#define TANDEM_BACKEND_CPU_ISA_DRAWS_H

#include "backend/cpu/isa/isa.h"

enum { LANES = 16 };

typedef struct lanes {
    uint32_t word[4][LANES];
} lanes;

/* The words of blocks block … block+LANES−1; counters: {block, stream[0], stream[1], stream[2] | upper half of block << 8}. */
static inline void draw(lanes *c, uint64_t block, uint64_t seed, const uint32_t stream[3])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (uint32_t b = 0; b < LANES; b++) {
        c->word[0][b] = (uint32_t)(block + b);
        c->word[1][b] = stream[0];
        c->word[2][b] = stream[1];
        c->word[3][b] = stream[2] | (uint32_t)((block + b) >> 32) << 8;
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

#endif
