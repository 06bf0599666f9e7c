/* rows.h: the rows of a matrix: sums over them, where a lane has a column and a warp every WARPS-th row, and
 * rows that a block has each.
 *
 * Memory is a microsecond away, so a thread asks for several rows before it uses the first. That has to be
 * written down: an unrolled loop that adds each number as it comes waits for every one
 * (scripts/kernel_limits.py shows which loads a kernel has on their way). */
#ifndef TANDEM_BACKEND_CUDA_ROWS_H
#define TANDEM_BACKEND_CUDA_ROWS_H

#include "backend/cuda/launch.h"

/* work(r, ask(r)) of rows first, first + WARPS, … below end, in order; N are asked for at once. */
template <int N, typename Ask, typename Work>
static __device__ __forceinline__ void for_rows(size_t first, size_t end, Ask ask, Work work)
{
    size_t r = first;
    for (; r + (N - 1) * WARPS < end; r += N * WARPS) {
        decltype(ask(r)) own[N];
#pragma unroll
        for (unsigned k = 0; k < N; k++) own[k] = ask(r + k * WARPS);
#pragma unroll
        for (unsigned k = 0; k < N; k++) work(r + k * WARPS, own[k]);
    }
    for (; r < end; r += WARPS) work(r, ask(r));
}

/* Calls add(column[r·stride]) so: 32 bytes on their way. */
template <typename T, typename Add>
static __device__ __forceinline__ void for_rows_of(const T *column, size_t first, size_t end, size_t stride,
                                                   Add add)
{
    for_rows<32 / sizeof(T)>(
        first, end, [&](size_t r) { return column[r * stride]; }, [&](size_t, T x) { add(as_float(x)); });
}

/* work(j, ask(j)) of the thread's own columns of a row that its block has: threadIdx.x, threadIdx.x +
 * THREADS, … below end, in order. Rows are short: those that are left over are asked for at once, too. */
template <typename Ask, typename Work>
static __device__ __forceinline__ void for_columns(size_t end, Ask ask, Work work)
{
    enum { N = 4 };
#pragma unroll 1
    for (size_t j = threadIdx.x; j < end; j += N * THREADS) {
        decltype(ask(j)) own[N];
#pragma unroll
        for (unsigned k = 0; k < N; k++)
            if (j + k * THREADS < end) own[k] = ask(j + k * THREADS);
#pragma unroll
        for (unsigned k = 0; k < N; k++)
            if (j + k * THREADS < end) work(j + k * THREADS, own[k]);
    }
}

#endif
