/* columns.h: sums over the rows of a matrix, per column, in one launch.
 *
 * Rows are divided into parts. A block sums one part of WARP columns. The last block of these columns to
 * finish then adds the parts, in their order, so that the bits are always the same. A ticket shows which
 * block is the last: each block counts itself there, and the last one sets the count back to 0. */
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.h"

/* The last block reads all parts: there are no more of them than fill a GPU. A matrix that is wide enough to
 * fill it has one part. So no more tickets are needed than TANDEM_CUDA_TICKETS. */
enum { MIN_PART_ROWS = 256, MAX_PARTS = 512 };
static __host__ __device__ __forceinline__ size_t part_rows(size_t rows, size_t columns)
{
    const size_t many = n_tile(rows, MAX_PARTS);
    if (n_tile(columns, WARP) > TANDEM_CUDA_TICKETS) return rows;
    return many > MIN_PART_ROWS ? many : (size_t)MIN_PART_ROWS;
}
static __host__ __device__ __forceinline__ size_t part_count(size_t rows, size_t columns)
{
    return n_tile(rows, part_rows(rows, columns));
}
static inline unsigned grid_of_parts(size_t rows, size_t columns)
{
    return (unsigned)(n_tile(columns, WARP) * part_count(rows, columns));
}

/* What a block sums: rows first to end of one column for each lane. */
typedef struct column_part {
    size_t tile, column, part, parts, first, end;
    int has_column; /* the lane's column is one of the matrix */
} column_part;

static __device__ __forceinline__ column_part column_part_of_block(size_t rows, size_t columns)
{
    const tile_position at = tile_of_block(n_tile(columns, WARP), part_count(rows, columns));
    const size_t some = part_rows(rows, columns);
    column_part own;
    own.tile = at.column;
    own.column = at.column * WARP + threadIdx.x % WARP;
    own.part = at.row;
    own.parts = part_count(rows, columns);
    own.first = at.row * some;
    own.end = own.first + some < rows ? own.first + some : rows;
    own.has_column = own.column < columns;
    return own;
}

/* Sums over the warps of a block, one column per lane. The first warp has the results. */
static __device__ __forceinline__ float sum_of_warps(float x, float of_warp[WARPS][WARP])
{
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    of_warp[warp][lane] = x;
    __syncthreads();
    for (unsigned w = 1; w < WARPS && warp == 0; w++) x += of_warp[w][lane];
    return x;
}

/* Of a lane's column, whose first part is *part; NULL: of no column. `part` is not __restrict__: other blocks
 * wrote it, and a load through the read-only cache need not see that. */
static __device__ __forceinline__ float sum_of_parts(const float *part, size_t parts, size_t stride,
                                                     float of_warp[WARPS][WARP])
{
    float sum = 0;
    if (part) for_rows_of(part, threadIdx.x / WARP, parts, stride, [&](float x) { sum += x; });
    return sum_of_warps(sum, of_warp);
}

/* Whether it is the last block of its columns. */
static __device__ __forceinline__ int is_last_part(uint32_t *ticket, const column_part &own)
{
    return is_last_block(ticket + own.tile, own.parts);
}

/* From the sums of a block's threads to those of whole columns. */
static __device__ __forceinline__ void finish_column_sum(float *sum, float *part, uint32_t *ticket,
                                                         float some, const column_part &own, size_t columns,
                                                         float of_warp[WARPS][WARP])
{
    const int has_result = threadIdx.x < WARP && own.has_column;
    some = sum_of_warps(some, of_warp);
    if (has_result) part[own.part * columns + own.column] = some;
    if (!is_last_part(ticket, own)) return;
    some = sum_of_parts(own.has_column ? part + own.column : NULL, own.parts, columns, of_warp);
    if (has_result) sum[own.column] = some;
}
