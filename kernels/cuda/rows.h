/* rows.h: loops over the rows of a matrix: column sums, where a lane has a column and a warp has every
 * WARPS-th row, and rows of one block each.
 *
 * A load takes about 1 µs, so a thread issues the loads of several rows before it uses the first. The code
 * must do so explicitly: an unrolled loop that adds each number at once waits for each load
 * (scripts/kernel_limits.py shows how many loads a kernel has in flight). */
#pragma once

#include "kernels/cuda/launch.h"

/* Calls work(r, ask(r)) for rows first, first + WARPS, … below end, in order. N loads are issued together. */
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

/* Calls add(column[r·stride]) in the same way, with 32 bytes in flight. */
template <typename T, typename Add>
static __device__ __forceinline__ void for_rows_of(const T *column, size_t first, size_t end, size_t stride,
                                                   Add add)
{
    for_rows<32 / sizeof(T)>(
        first, end, [&](size_t r) { return column[r * stride]; }, [&](size_t, T x) { add(as_float(x)); });
}

/* Calls work(j, ask(j)) for the thread's columns of its block's row: threadIdx.x, threadIdx.x + THREADS, …
 * below end, in order. Rows are short, so the loads of the last columns are issued together too. */
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
