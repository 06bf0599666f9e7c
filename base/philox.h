/* philox.h: the counter-based random generator Philox4x32-10.
 *
 * It maps a counter and a key to four 32-bit words and has no state. So any number of any rank, step and
 * operator can be computed again, alone and in any order. The counter is {index of the block, step, operator,
 * purpose}, and the key is the seed. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011. */
#pragma once

#include <stdint.h>

/* A function for the host and for GPUs. */
#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define TANDEM_HOST_DEVICE static inline
#endif

/* What a number is for: the last word of the counter, so that no two purposes share a stream. */
typedef enum tandem_rng_purpose {
    TANDEM_RNG_ACTIVATION = 0, /* stochastic rounding of an activation; | rank << 8 */
    TANDEM_RNG_WEIGHT = 1,     /* of a weight: the same on every rank */
    TANDEM_RNG_GRADIENT = 2,   /* of an output gradient; | rank << 8 */
    TANDEM_RNG_INIT = 3,       /* initial weights */
    TANDEM_RNG_SHUFFLE = 4,    /* order of the samples of an epoch */
    TANDEM_RNG_MASK = 5,       /* which tokens of a sample are hidden */
    TANDEM_RNG_DROPOUT = 6,    /* which elements are dropped; | upper bits of the block's index << 8 */
    TANDEM_RNG_TIME = 7,       /* times of tasks; {block, step, rank, this} */
    TANDEM_RNG_PLAN = 8,       /* precisions of a random plan; {operator, class, 0, this} */
    TANDEM_RNG_HADAMARD = 9,   /* signs of a recipe's transform; {0, 0, 0, this} */
    TANDEM_RNG_RECIPE = 16     /* operands of a recipe's products: + 2·product + operand, to 21; | rank << 8,
                                * but not for weights */
} tandem_rng_purpose;

typedef struct tandem_philox_block {
    uint32_t word[4];
} tandem_philox_block;

/* Both halves of a·b. On a GPU that is one instruction, which nvcc does not find by itself. */
TANDEM_HOST_DEVICE void tandem_multiply_wide(uint32_t *low, uint32_t *high, uint32_t a, uint32_t b)
{
#ifdef __CUDA_ARCH__
    asm("{ .reg .u64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p; }"
        : "=r"(*low), "=r"(*high)
        : "r"(a), "r"(b));
#else
    const uint64_t product = (uint64_t)a * b;
    *low = (uint32_t)product;
    *high = (uint32_t)(product >> 32);
#endif
}

TANDEM_HOST_DEVICE void tandem_philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint32_t low0, high0, low1, high1;
    tandem_multiply_wide(&low0, &high0, 0xD2511F53u, c[0]);
    tandem_multiply_wide(&low1, &high1, 0xCD9E8D57u, c[2]);
    c[0] = high1 ^ c[1] ^ k0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ k1;
    c[3] = low0;
}

TANDEM_HOST_DEVICE tandem_philox_block tandem_philox(const uint32_t counter[4], uint64_t key)
{
    tandem_philox_block block = {{counter[0], counter[1], counter[2], counter[3]}};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        tandem_philox_round(block.word, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return block;
}

/* The same with expanded keys, for many blocks. */
typedef struct tandem_philox_keys {
    uint32_t round_key[10][2];
} tandem_philox_keys;

TANDEM_HOST_DEVICE tandem_philox_keys tandem_philox_expand_key(uint64_t key)
{
    tandem_philox_keys keys;
    for (uint32_t round = 0; round < 10; round++) {
        keys.round_key[round][0] = (uint32_t)key + round * 0x9E3779B9u;
        keys.round_key[round][1] = (uint32_t)(key >> 32) + round * 0xBB67AE85u;
    }
    return keys;
}

TANDEM_HOST_DEVICE tandem_philox_block tandem_philox_with(const uint32_t counter[4],
                                                          const tandem_philox_keys *keys)
{
    tandem_philox_block block = {{counter[0], counter[1], counter[2], counter[3]}};
    for (int round = 0; round < 10; round++)
        tandem_philox_round(block.word, keys->round_key[round][0], keys->round_key[round][1]);
    return block;
}

/* A float in [0, 1) from the upper 24 bits of a word. */
TANDEM_HOST_DEVICE float tandem_philox_uniform(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }
