/* tile.h: tiles of matrices in shared memory, so that a transpose reads and writes along rows.
 *
 * A tile is TILE × TILE elements with one load and one store per element, or WIDE × WIDE bytes with 16 bytes
 * per load and store, where both sides of the matrix are multiples of 16. A word of such a byte tile is 4
 * bytes of a row. Each group of 16 rows is shifted by 4 words, so that neither rows nor columns of words
 * conflict in a bank. */
#pragma once

#include "kernels/cuda/launch.h"

enum { TILE = 32, WIDE = 128, SIXTEEN = 16, WORDS = WIDE / 4 };

/* The shared memory of a tile. */
typedef uint4 tile_bytes[WIDE * WIDE / SIXTEEN];

/* The position of a block's tile in the array of all matrices, and in that of their transposes. */
typedef struct wide_tile {
    size_t first, transposed_first; /* the tile's first byte */
    size_t row, column;             /* strides between rows and between columns: the matrix's sides */
    unsigned high, wide;            /* the part within the matrix */
} wide_tile;

/* Blocks for `batch` matrices. */
static inline unsigned grid_of_tiles(size_t batch, size_t rows, size_t columns)
{
    return (unsigned)(n_tile(rows, WIDE) * n_tile(columns, WIDE) * batch);
}

static inline int fits_tiles(size_t rows, size_t columns)
{
    return rows % SIXTEEN == 0 && columns % SIXTEEN == 0;
}

static __device__ __forceinline__ wide_tile wide_tile_at(unsigned number, size_t rows, size_t columns)
{
    const tile_position position = tile_at(number, n_tile(columns, WIDE), n_tile(rows, WIDE));
    const size_t start = position.matrix * rows * columns, row0 = position.row * WIDE,
                 column0 = position.column * WIDE;
    wide_tile own;
    own.first = start + row0 * columns + column0;
    own.transposed_first = start + column0 * rows + row0;
    own.row = columns;
    own.column = rows;
    own.high = rows - row0 < WIDE ? (unsigned)(rows - row0) : (unsigned)WIDE;
    own.wide = columns - column0 < WIDE ? (unsigned)(columns - column0) : (unsigned)WIDE;
    return own;
}

static __device__ __forceinline__ wide_tile wide_tile_of_block(size_t rows, size_t columns)
{
    return wide_tile_at(blockIdx.x, rows, columns);
}

static __device__ __forceinline__ unsigned tile_index(unsigned row, unsigned word)
{
    return row * WORDS + (word ^ (row / SIXTEEN * 4));
}

/* Calls work(index in the array, 16 bytes of the tile) for each 16 bytes of a row. */
template <typename Work>
static __device__ __forceinline__ void for_sixteens(uint4 *tile, const wide_tile &t, Work work)
{
#pragma unroll
    for (unsigned i = threadIdx.x; i < WIDE * WIDE / SIXTEEN; i += THREADS) {
        const unsigned r = i / (WIDE / SIXTEEN), c = i % (WIDE / SIXTEEN) * SIXTEEN;
        if (r < t.high && c < t.wide) work(t.first + r * t.row + c, tile[tile_index(r, c / 4) / 4]);
    }
}

/* Bytes k of four words, in order. */
static __device__ __forceinline__ uint32_t gather_bytes(const uint32_t word[4], int k)
{
    uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) four |= (word[i] >> (8 * k) & 0xFFu) << (8 * i);
    return four;
}

/* Stores the tile's transpose. All threads must have filled the tile and passed a barrier. */
static __device__ __forceinline__ void store_columns(uint8_t *y /* (batch, columns, rows) */,
                                                     const uint4 *tile, const wide_tile &t)
{
    const uint32_t *const words = (const uint32_t *)tile;
    const unsigned r = threadIdx.x % (WIDE / SIXTEEN) * SIXTEEN, word = threadIdx.x / (WIDE / SIXTEEN);
    if (r >= t.high || 4 * word >= t.wide) return;
    uint32_t own[SIXTEEN];
#pragma unroll
    for (unsigned i = 0; i < SIXTEEN; i++) own[i] = words[tile_index(r + i, word)];
#pragma unroll
    for (int k = 0; k < 4; k++)
        *(uint4 *)(y + t.transposed_first + (4 * word + (unsigned)k) * t.column + r) =
            make_uint4(gather_bytes(own, k), gather_bytes(own + 4, k), gather_bytes(own + 8, k),
                       gather_bytes(own + 12, k));
}
