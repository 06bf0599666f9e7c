/* warp_rows.h: rows of a matrix that a warp keeps in registers, WARPS rows a block.
 *
 * The row is read once, and its sums and maxima are shuffles: no shared memory, no barrier. A block's threads
 * would be idle where a row has fewer columns than it has threads, and a block has few bytes of a short row
 * on their way. */
#pragma once

#include "kernels/cuda/octet.h"
#include "kernels/cuda/rows.h"

/* --- Four consecutive elements, in one load or store of 16 or 8 bytes ----------------------------------- */

enum { QUAD = 4 };

/* What the row kernels compute has the bits of no other kernel, so a NaN may have any. */
static __device__ __forceinline__ void store_number(bf16 *at, float x)
{
    at->bits = (uint16_t)pack_pair<bf16>(x, 0);
}
template <typename T> static __device__ __forceinline__ void store_number(T *at, float x)
{
    store_one(at, x);
}

static __device__ __forceinline__ void load_quad(float x[QUAD], const float *at)
{
    const float4 all = *(const float4 *)at;
    x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
}
static __device__ __forceinline__ void load_quad(float x[QUAD], const bf16 *at)
{
    const uint2 all = *(const uint2 *)at;
    x[0] = tandem_float_of(all.x << 16), x[1] = tandem_float_of(all.x & 0xFFFF0000u);
    x[2] = tandem_float_of(all.y << 16), x[3] = tandem_float_of(all.y & 0xFFFF0000u);
}
static __device__ __forceinline__ void load_quad(float x[QUAD], const f16 *at)
{
    const uint2 all = *(const uint2 *)at;
    x[0] = tandem_f32_of_f16((uint16_t)all.x), x[1] = tandem_f32_of_f16((uint16_t)(all.x >> 16));
    x[2] = tandem_f32_of_f16((uint16_t)all.y), x[3] = tandem_f32_of_f16((uint16_t)(all.y >> 16));
}

static __device__ __forceinline__ void store_quad(float *at, const float x[QUAD])
{
    *(float4 *)at = make_float4(x[0], x[1], x[2], x[3]);
}
template <typename T> static __device__ __forceinline__ void store_quad(T *at, const float x[QUAD])
{
    *(uint2 *)at = make_uint2(pack_pair<T>(x[0], x[1]), pack_pair<T>(x[2], x[3]));
}

/* --- Rows ----------------------------------------------------------------------------------------------- */

static inline unsigned grid_of_warps(size_t rows) { return (unsigned)((rows + WARPS - 1) / WARPS); }
/* The row of this warp; there may be fewer. */
static __device__ __forceinline__ size_t row_of_warp(void)
{
    return (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
}

/* A row of which each lane has N columns. IN_QUADS: lane l has the fours l, l + WARP, … of consecutive
 * columns; rows, and so their starts, are multiples of four. Otherwise it has columns l, l + WARP, … The
 * order of a sum over the row follows from its length alone. */
template <int N, int IN_QUADS> struct held_row {
    enum { LANE_COLUMNS = N, AT_ONCE = IN_QUADS ? (int)QUAD : 1 };

    /* The lane's column number k; it may lie past the row's end, with all that are read with it. */
    static __device__ __forceinline__ unsigned column(int k)
    {
        return (threadIdx.x % WARP + (unsigned)(k / AT_ONCE) * WARP) * AT_ONCE + (unsigned)(k % AT_ONCE);
    }
    static __device__ __forceinline__ int has(int k, unsigned columns)
    {
        return column(k / AT_ONCE * AT_ONCE) < columns;
    }
    /* own[k] = row[column(k)]; `none` past the row's end. A load that would lie there reads the row's last
     * column instead: without a branch around each, all loads are issued together. */
    template <typename T>
    static __device__ __forceinline__ void load(float own[N], const T *row, unsigned columns, float none)
    {
#pragma unroll
        for (int k = 0; k < N; k += AT_ONCE) {
            const T *const at = row + min(column(k), columns - AT_ONCE);
            if constexpr (IN_QUADS)
                load_quad(own + k, at);
            else
                own[k] = load_one(at);
        }
#pragma unroll
        for (int k = 0; k < N; k++) own[k] = has(k, columns) ? own[k] : none;
    }
    template <typename T>
    static __device__ __forceinline__ void store(T *row, const float own[N], unsigned columns)
    {
#pragma unroll
        for (int k = 0; k < N; k += AT_ONCE) {
            if (!has(k, columns)) continue;
            if constexpr (IN_QUADS)
                store_quad(row + column(k), own + k);
            else
                store_number(row + column(k), own[k]);
        }
    }
};

/* How many columns of its row a lane has, where a warp has the row; 0: a block has it.
 *
 * A lane of 32 columns needs 32 registers for each array that it keeps; then 24 warps fit into an SM, with 48
 * KB of rows of bf16, more than the 36 KB that must be on their way (docs/cuda.md). With 64 columns there
 * would be 12 warps at most, and in a block of 256 a thread has at least four columns of so long a row. Rows
 * that cannot be read in quads end at 8: 24 loads of two bytes need as many registers as 24 of eight. 24 are
 * 768 columns, which most transformers have. */
enum { MAX_LANE_COLUMNS = 32, MAX_SINGLE_COLUMNS = 8 };
static inline int lane_columns(size_t columns, int max)
{
    static const int counts[] = {4, MAX_SINGLE_COLUMNS, 24, MAX_LANE_COLUMNS};
    if (columns % QUAD != 0 && max > MAX_SINGLE_COLUMNS) max = MAX_SINGLE_COLUMNS;
    for (const int n : counts)
        if (n <= max && columns <= (size_t)n * WARP) return n;
    return 0;
}

/* Returns of_warp(held_row<…>()), or of_block() where a lane would have more than MAX columns. */
template <int MAX, typename OfWarp, typename OfBlock>
static inline int launch_by_row_length(size_t columns, OfWarp of_warp, OfBlock of_block)
{
    const int in_quads = columns % QUAD == 0;
    switch (lane_columns(columns, MAX)) {
    case 4: return in_quads ? of_warp(held_row<4, 1>()) : of_warp(held_row<4, 0>());
    case 8: return in_quads ? of_warp(held_row<8, 1>()) : of_warp(held_row<8, 0>());
    case 24:
        if constexpr (MAX >= 24) return of_warp(held_row<24, 1>());
        break;
    case 32:
        if constexpr (MAX >= 32) return of_warp(held_row<32, 1>());
        break;
    }
    return of_block();
}
