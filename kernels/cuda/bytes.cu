/* bytes.cu: transposes and pads one-byte matrices, as products need them. */
#include "kernels/cuda/tile.h"

/* A transpose goes through shared memory, so that it reads and writes along rows. */
KERNEL pad_bytes(uint8_t *__restrict__ y /* (batch, rows, columns) */, const uint8_t *__restrict__ x,
                 size_t rows, size_t columns, size_t x_rows, size_t x_columns, int transposed)
{
    __shared__ uint8_t tile[TILE][TILE + 4];
    const tile_position own = tile_of_block(n_tile(columns, TILE), n_tile(rows, TILE));
    const size_t row0 = own.row * TILE, column0 = own.column * TILE;
    const uint8_t *in = x + own.matrix * x_rows * x_columns;
    for (unsigned i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const unsigned fast = i % TILE, slow = i / TILE; /* along and across the rows of x */
        const size_t r = row0 + (transposed ? fast : slow), c = column0 + (transposed ? slow : fast);
        const int inside = r < x_rows && c < x_columns;
        tile[r - row0][c - column0] =
            inside ? in[transposed ? c * x_rows + r : r * x_columns + c] : (uint8_t)0;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const size_t r = row0 + i / TILE, c = column0 + i % TILE;
        if (r < rows && c < columns) y[(own.matrix * rows + r) * columns + c] = tile[i / TILE][i % TILE];
    }
}

KERNEL transpose_bytes(uint8_t *__restrict__ y /* (batch, columns, rows) */,
                       const uint8_t *__restrict__ x /* (batch, rows, columns) */, size_t rows,
                       size_t columns)
{
    __shared__ tile_bytes tile;
    const wide_tile own = wide_tile_of_block(rows, columns);
    for_sixteens(tile, own, [&](size_t at, uint4 &sixteen) { sixteen = __ldg((const uint4 *)(x + at)); });
    __syncthreads();
    store_columns(y, tile, own);
}

extern "C" int tandem_cuda_pad_bytes(void *y, const void *x, size_t batch, size_t rows, size_t columns,
                                     size_t x_rows, size_t x_columns, int transposed,
                                     tandem_cuda_stream stream)
{
    uint8_t *const to = (uint8_t *)y;
    const uint8_t *const from = (const uint8_t *)x;
    const unsigned grid = (unsigned)(n_tile(rows, TILE) * n_tile(columns, TILE) * batch);
    if (transposed && rows == x_rows && columns == x_columns && fits_tiles(rows, columns))
        return LAUNCH(transpose_bytes, grid_of_tiles(batch, rows, columns), THREADS, stream, to, from,
                      columns, rows);
    return LAUNCH(pad_bytes, grid, THREADS, stream, to, from, rows, columns, x_rows, x_columns, transposed);
}
