/* octet.h: kernels that memory bandwidth limits work on octets: eight consecutive elements, 16-byte aligned
 * (8 for one-byte types), read in one or two loads.
 *
 * A thread first issues loads for 32 bytes, octets_of<T> octets, and keeps them packed. 2048 threads of an SM
 * then have 64 KB in flight; 4.8 TB/s over 132 SMs at a latency of 1 µs needs 40 KB. */
#pragma once

#include "kernels/cuda/launch.h"

enum { OCTET = 8 };
template <typename T> struct octets_of {
    enum { N = sizeof(T) == 4 ? 1 : sizeof(T) == 2 ? 2 : 4 };
};

/* --- Loads ---------------------------------------------------------------------------------------------- */

/* The read-only path (__ldg) is for memory that no thread writes while the kernel runs, so not for kernels
 * that work in place (PTX ISA, "ld.global.nc"). */
enum read_path { READ_ONLY, IN_PLACE };
template <read_path HOW, typename T> static __device__ __forceinline__ T read_global(const T *at)
{
    return HOW == READ_ONLY ? __ldg(at) : *at;
}

template <typename T, size_t SIZE = sizeof(T)> struct packed;
template <typename T> struct packed<T, 4> {
    uint4 low, high;
    template <read_path HOW> __device__ __forceinline__ void load_packed(const T *at)
    {
        low = read_global<HOW>((const uint4 *)at);
        high = read_global<HOW>((const uint4 *)at + 1);
    }
    __device__ __forceinline__ uint32_t packed_word(int i) const
    {
        const uint32_t all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        return all[i];
    }
};
template <typename T> struct packed<T, 2> {
    uint4 all;
    template <read_path HOW> __device__ __forceinline__ void load_packed(const T *at)
    {
        all = read_global<HOW>((const uint4 *)at);
    }
    __device__ __forceinline__ uint32_t packed_word(int i) const
    {
        const uint32_t words[4] = {all.x, all.y, all.z, all.w};
        return words[i];
    }
};
template <typename T> struct packed<T, 1> {
    uint2 all;
    template <read_path HOW> __device__ __forceinline__ void load_packed(const T *at)
    {
        all = read_global<HOW>((const uint2 *)at);
    }
    __device__ __forceinline__ uint32_t packed_word(int i) const { return i ? all.y : all.x; }
};

static __device__ __forceinline__ void unpack_octet(float x[OCTET], const packed<float> &from)
{
#pragma unroll
    for (int i = 0; i < OCTET; i++) x[i] = tandem_float_of(from.packed_word(i));
}
static __device__ __forceinline__ void unpack_octet(float x[OCTET], const packed<int32_t> &from)
{
#pragma unroll
    for (int i = 0; i < OCTET; i++) x[i] = (float)(int32_t)from.packed_word(i);
}
static __device__ __forceinline__ void unpack_octet(float x[OCTET], const packed<bf16> &from)
{
#pragma unroll
    for (int i = 0; i < OCTET / 2; i++) {
        x[2 * i] = tandem_float_of(from.packed_word(i) << 16);
        x[2 * i + 1] = tandem_float_of(from.packed_word(i) & 0xFFFF0000u);
    }
}
static __device__ __forceinline__ void unpack_octet(float x[OCTET], const packed<f16> &from)
{
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        x[i] = tandem_f32_of_f16((uint16_t)(from.packed_word(i / 2) >> (16 * (i % 2))));
}
static __device__ __forceinline__ void unpack_octet(float x[OCTET], const packed<s8> &from)
{
#pragma unroll
    for (int i = 0; i < OCTET; i++) x[i] = (float)(int8_t)(from.packed_word(i / 4) >> (8 * (i % 4)));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
/* Two one-byte numbers as two of f16, which represents all of them; every NaN is 0x7FFF. */
static __device__ __forceinline__ void unpack_pair(float *x, uint32_t halves)
{
    x[0] = tandem_f32_of_f16((uint16_t)halves);
    x[1] = tandem_f32_of_f16((uint16_t)(halves >> 16));
}
#endif
static __device__ __forceinline__ void unpack_octet(float x[OCTET], const packed<e4m3> &from)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#pragma unroll
    for (int i = 0; i < OCTET / 2; i++) {
        uint32_t halves;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
            : "=r"(halves)
            : "h"((uint16_t)(from.packed_word(i / 2) >> (16 * (i % 2)))));
        unpack_pair(x + 2 * i, halves);
    }
#else
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        x[i] = tandem_f32_of_e4m3((uint8_t)(from.packed_word(i / 4) >> (8 * (i % 4))));
#endif
}
static __device__ __forceinline__ void unpack_octet(float x[OCTET], const packed<e5m2> &from)
{
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        x[i] = tandem_f32_of_e5m2((uint8_t)(from.packed_word(i / 4) >> (8 * (i % 4))));
}

template <typename T> static __device__ __forceinline__ void load_octet(float x[OCTET], const T *at)
{
    packed<T> from;
    from.template load_packed<IN_PLACE>(at);
    unpack_octet(x, from);
}

/* A bias of octet o, where the period is whole octets. */
static __device__ __forceinline__ void load_shift(float shift[OCTET], const float *own, size_t o,
                                                  uint32_t octets_a_period)
{
    load_octet(shift,
               own + (o >> 32 ? (uint32_t)(o % octets_a_period) : (uint32_t)o % octets_a_period) * OCTET);
}

/* --- Stores --------------------------------------------------------------------------------------------- */

/* __stwb stores four words with one plain store. The compiler splits an assignment of four words and does not
 * always join it again. */
static __device__ __forceinline__ void store_octet(float *at, const float x[OCTET])
{
    ((float4 *)at)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)at)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
/* Whether one of them is NaN; a comparison tests two. */
static __device__ __forceinline__ int has_nan(const float x[OCTET])
{
    int has;
    asm("{ .reg .pred p; setp.nan.f32 p, %1, %2; setp.nan.or.f32 p, %3, %4, p; setp.nan.or.f32 p, %5, %6, p; "
        "setp.nan.or.f32 p, %7, %8, p; selp.b32 %0, 1, 0, p; }"
        : "=r"(has)
        : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]), "f"(x[6]), "f"(x[7]));
    return has;
}
#endif

/* GPUs from compute capability 8.0 on round two numbers in one instruction, but produce a single NaN. */
static __device__ __forceinline__ void store_octet(bf16 *at, const float x[OCTET])
{
    uint32_t pair[4];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (!has_nan(x)) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
        __stwb((uint4 *)at, make_uint4(pair[0], pair[1], pair[2], pair[3]));
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = (uint32_t)tandem_bf16_of(x[2 * i]) | (uint32_t)tandem_bf16_of(x[2 * i + 1]) << 16;
    __stwb((uint4 *)at, make_uint4(pair[0], pair[1], pair[2], pair[3]));
}

static __device__ __forceinline__ void store_octet(f16 *at, const float x[OCTET])
{
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = (uint32_t)tandem_f16_of(x[2 * i]) | (uint32_t)tandem_f16_of(x[2 * i + 1]) << 16;
    __stwb((uint4 *)at, make_uint4(pair[0], pair[1], pair[2], pair[3]));
}

/* --- Loops over a grid ---------------------------------------------------------------------------------- */

/* Calls work(octet's index, its eight numbers) for whole octets of x[n], from the thread's own one on. The
 * caller handles the rest, fewer than eight elements. */
template <read_path HOW, typename T, typename Work>
static __device__ __forceinline__ void for_octets(const T *x, size_t n, Work work, size_t own_first,
                                                  size_t stride)
{
    enum { N = octets_of<T>::N };
    const size_t n_octet = n / OCTET;
    for (size_t first = own_first; first < n_octet; first += N * stride) {
        packed<T> own[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            if (first + k * stride < n_octet)
                own[k].template load_packed<HOW>(x + (first + k * stride) * OCTET);
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (first + k * stride >= n_octet) continue;
            float value[OCTET];
            unpack_octet(value, own[k]);
            work(first + k * stride, value);
        }
    }
}

template <read_path HOW, typename T, typename Work>
static __device__ __forceinline__ void for_octets(const T *x, size_t n, Work work)
{
    for_octets<HOW>(x, n, work, first_item(), all_items());
}

/* The same over a[n] and b[n]; the caller may write to one of them. */
template <typename T, typename Work>
static __device__ __forceinline__ void for_octets_of_two(const T *a, const T *b, size_t n, Work work)
{
    const size_t n_octet = n / OCTET;
    for (size_t o = first_item(); o < n_octet; o += all_items()) {
        packed<T> left, right;
        left.template load_packed<IN_PLACE>(a + o * OCTET);
        right.template load_packed<IN_PLACE>(b + o * OCTET);
        float x[OCTET], y[OCTET];
        unpack_octet(x, left);
        unpack_octet(y, right);
        work(o, x, y);
    }
}

/* Blocks for a loop over octets of n elements of T. */
template <typename T> static inline unsigned grid_of_octets(size_t n)
{
    return grid_of(n / OCTET / octets_of<T>::N);
}
