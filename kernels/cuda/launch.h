/* launch.h: what the .cu files share: launch sizes, and sums and maxima over a warp and a block.
 *
 * LAUNCH(kernel, grid, threads, stream, arguments…) launches a kernel and returns its cudaError_t. Tests
 * define LAUNCH, and run a kernel's threads as coroutines on the host (tests/cuda/simt.h). Then no CUDA
 * header is included here. */
#pragma once

#ifndef LAUNCH
#include <cuda_runtime.h>
/* clang-format off */
#define LAUNCH(kernel, grid, threads, stream, ...) \
    (kernel<<<(grid), (threads), 0, (stream)>>>(__VA_ARGS__), (int)cudaGetLastError())
/* clang-format on */
#endif

#include "kernels/cuda/kernels.h"

enum { THREADS = 256, WARP = 32, WARPS = THREADS / WARP };
/* What begins the definition of a kernel; its blocks have THREADS threads. */
#define KERNEL static __global__ void __launch_bounds__(THREADS)

/* Blocks for n work items in a grid-stride loop: enough to fill any GPU several times, and few enough that
 * each has work. */
static inline unsigned grid_of(size_t n)
{
    const size_t blocks = (n + THREADS - 1) / THREADS, max_blocks = 8192;
    return (unsigned)(blocks < 1 ? 1 : blocks < max_blocks ? blocks : max_blocks);
}

/* One block per tile, of matrices that are `across` tiles wide and `down` tiles high, one matrix after the
 * other. The grid has one dimension: the others end at 65,535 (CUDA C++ Programming Guide, "Technical
 * Specifications"), and a batch has more rows. */
static __host__ __device__ __forceinline__ size_t n_tile(size_t n, size_t side)
{
    return (n + side - 1) / side;
}

typedef struct tile_position {
    size_t column, row, matrix; /* column and row in tiles */
} tile_position;
static __device__ __forceinline__ tile_position tile_at(unsigned number, size_t across, size_t down)
{
    const unsigned wide = (unsigned)across, high = (unsigned)down;
    tile_position own;
    own.column = number % wide;
    own.row = number / wide % high;
    own.matrix = number / wide / high;
    return own;
}
static __device__ __forceinline__ tile_position tile_of_block(size_t across, size_t down)
{
    return tile_at(blockIdx.x, across, down);
}

static __device__ __forceinline__ size_t first_item(void)
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}
static __device__ __forceinline__ size_t all_items(void) { return (size_t)gridDim.x * THREADS; }

/* --- Types of elements, and one element of each --------------------------------------------------------- */

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};
struct s8 {
    int8_t bits;
};
struct e4m3 {
    uint8_t bits;
};
struct e5m2 {
    uint8_t bits;
};
static __device__ __forceinline__ float as_float(float x) { return x; }
static __device__ __forceinline__ float as_float(bf16 x) { return tandem_f32_of_bf16(x.bits); }
static __device__ __forceinline__ float as_float(f16 x) { return tandem_f32_of_f16(x.bits); }
static __device__ __forceinline__ float as_float(s8 x) { return (float)x.bits; }
static __device__ __forceinline__ float as_float(e4m3 x) { return tandem_f32_of_e4m3(x.bits); }
static __device__ __forceinline__ float as_float(e5m2 x) { return tandem_f32_of_e5m2(x.bits); }
template <typename T> static __device__ __forceinline__ float load_one(const T *at) { return as_float(*at); }
static __device__ __forceinline__ void store_one(float *at, float x) { *at = x; }
static __device__ __forceinline__ void store_one(bf16 *at, float x) { at->bits = tandem_bf16_of(x); }
static __device__ __forceinline__ void store_one(f16 *at, float x) { at->bits = tandem_f16_of(x); }

/* Two numbers of T in a register. Cards from 8.0 on have an instruction for it, of which every NaN has the
 * same bits. */
template <typename T> static __device__ __forceinline__ uint32_t pack_pair(float low, float high);
template <> __device__ __forceinline__ uint32_t pack_pair<bf16>(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (uint32_t)tandem_bf16_of(low) | (uint32_t)tandem_bf16_of(high) << 16;
#endif
}
template <> __device__ __forceinline__ uint32_t pack_pair<f16>(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (uint32_t)tandem_f16_of(low) | (uint32_t)tandem_f16_of(high) << 16;
#endif
}

/* 2^x, one instruction; what is no normal number is 0. */
#define LOG2_E 1.44269504088896341f
static __device__ __forceinline__ float approximate_exp2(float x)
{
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return exp2f(x);
#endif
}

/* Returns the launch for the type T that `type` names. */
#define RETURN_FOR(type, ...)                                                                                \
    switch (type) {                                                                                          \
    case TANDEM_CUDA_F32: {                                                                                  \
        typedef float T;                                                                                     \
        return __VA_ARGS__;                                                                                  \
    }                                                                                                        \
    case TANDEM_CUDA_BF16: {                                                                                 \
        typedef bf16 T;                                                                                      \
        return __VA_ARGS__;                                                                                  \
    }                                                                                                        \
    case TANDEM_CUDA_F16: {                                                                                  \
        typedef f16 T;                                                                                       \
        return __VA_ARGS__;                                                                                  \
    }                                                                                                        \
    }                                                                                                        \
    return (int)cudaErrorInvalidValue

/* --- Reductions over a block of THREADS threads: same result in each thread, always the same order ------ */
static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, distance);
    return x;
}

/* of_warp: WARPS words for this call alone, until all threads have returned and passed a barrier. */
static __device__ float block_sum(float x, float *of_warp)
{
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    float all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) all += of_warp[w];
    return all;
}

static __device__ __forceinline__ uint32_t larger_of(uint32_t a, uint32_t b) { return max(a, b); }
static __device__ __forceinline__ float larger_of(float a, float b) { return fmaxf(a, b); }

template <typename T> static __device__ __forceinline__ T warp_largest(T x)
{
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        x = larger_of(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
    return x;
}

template <typename T> static __device__ T block_largest(T x, T *of_warp)
{
    x = warp_largest(x);
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    T all = of_warp[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++) all = larger_of(all, of_warp[w]);
    return all;
}

/* --- The last block of a launch, which sees what all others have written ------------------------------ */

/* Whether the other n − 1 blocks of a ticket have written their parts, and all threads of this block see
 * them: each thread's stores come before the count, the count before the loads after it (CUDA C++
 * Programming Guide, "Memory Fence Functions"). All threads of a block call it; shared memory is free after
 * it. */
static __device__ __forceinline__ int is_last_block(uint32_t *ticket, size_t n)
{
    __shared__ int is_last;
    __threadfence();
    __syncthreads();
    if (n == 1) return 1;
    if (threadIdx.x == 0) {
        is_last = atomicAdd(ticket, 1u) == (uint32_t)n - 1;
        if (is_last) *ticket = 0;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}
