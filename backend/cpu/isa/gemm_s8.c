/* gemm_s8.c: the int8 product, cut into blocks that caches hold, and its dequantising end. */
#include "backend/cpu/isa/gemm_s8.h"

#include <string.h>

enum { TILE = TILE_ROWS * TILE_COLUMNS };

/* How a product is cut, and where the parts of its workspace lie (bytes from its start). */
typedef struct blocking {
    int64_t m, n, k;                /* the largest block, filled up to whole panels and steps */
    int k_is_cut;                   /* then the sums of a whole block wait for the next block of k */
    size_t a, b;                    /* packed operands of one block */
    size_t a_correction, b_correction;
    size_t sums;                    /* uint32_t[tile][TILE_ROWS][TILE_COLUMNS]; one tile where k is not cut */
    size_t bytes;
} blocking;

static size_t reserve(size_t *bytes, int64_t size)
{
    const size_t at = *bytes;
    *bytes += (size_t)filled_up(size, 64);
    return at;
}

static blocking cut(int64_t m, int64_t n, int64_t k)
{
    const int64_t n_k = k > BLOCK_K ? (k + BLOCK_K - 1) / BLOCK_K : 1;
    blocking by = {.k_is_cut = n_k > 1};
    by.m = smaller(filled_up(m, A_SLOTS), BLOCK_M);
    by.n = smaller(filled_up(n, TILE_COLUMNS), BLOCK_N);
    by.k = filled_up((k + n_k - 1) / n_k, PACK_DEPTH);
    by.a = reserve(&by.bytes, by.m * by.k * (int64_t)sizeof(int16_t));
    by.b = reserve(&by.bytes, by.n * by.k * (int64_t)sizeof(int16_t));
    by.a_correction = reserve(&by.bytes, by.m * (int64_t)sizeof(uint32_t));
    by.b_correction = reserve(&by.bytes, by.n * (int64_t)sizeof(uint32_t));
    by.sums = reserve(&by.bytes, (by.k_is_cut ? by.m * by.n : TILE) * (int64_t)sizeof(uint32_t));
    return by;
}

/* One block of the product: its place in C, and its operands, packed. */
typedef struct block {
    const tandem_gemm_s8 *product;
    int64_t i, j, rows, columns; /* of C */
    int64_t depth;               /* filled up */
    int k_is_cut, is_first, is_last; /* among the blocks of k */
    int16_t *a, *b;
    uint32_t *a_correction, *b_correction, *sums;
} block;

static inline float dequantised(uint32_t sum, float scale) { return (float)(int32_t)sum * scale; }

static inline void store_row_f32(float *c, const uint32_t *sum, uint32_t a_correction, const uint32_t *b_correction,
                                 int64_t columns, float scale)
{
    for (int64_t j = 0; j < columns; j++)
        c[j] = dequantised(sum[j] - a_correction - b_correction[j], scale);
}

static inline void store_row_bf16(uint16_t *c, const uint32_t *sum, uint32_t a_correction,
                                  const uint32_t *b_correction, int64_t columns, float scale)
{
    for (int64_t j = 0; j < columns; j++)
        c[j] = bf16_of_float(dequantised(sum[j] - a_correction - b_correction[j], scale));
}

/* The tile's rows i … of C, columns j … (both within the block). */
static void store(const block *of, const uint32_t *sum, int64_t i, int64_t j, int64_t rows, int64_t columns)
{
    const tandem_gemm_s8 *p = of->product;
    const uint32_t *b_correction = of->b_correction + j;
    for (int64_t r = 0; r < rows; r++, sum += TILE_COLUMNS) {
        const int64_t at = (of->i + i + r) * p->c_row + of->j + j;
        const uint32_t a_correction = of->a_correction[i + r];
        /* The whole width is written out as a constant for the sake of the compiler. */
        if (p->c_is_bf16 && columns == TILE_COLUMNS)
            store_row_bf16((uint16_t *)p->c + at, sum, a_correction, b_correction, TILE_COLUMNS, p->scale);
        else if (p->c_is_bf16)
            store_row_bf16((uint16_t *)p->c + at, sum, a_correction, b_correction, columns, p->scale);
        else if (columns == TILE_COLUMNS)
            store_row_f32((float *)p->c + at, sum, a_correction, b_correction, TILE_COLUMNS, p->scale);
        else
            store_row_f32((float *)p->c + at, sum, a_correction, b_correction, columns, p->scale);
    }
}

static void multiply(const block *of)
{
    uint32_t *sum = of->sums;
    const int64_t steps = of->depth / (2 * RUN);
    for (int64_t j = 0; j < of->columns; j += TILE_COLUMNS) {
        const int16_t *b = of->b + j * of->depth;
        const int64_t columns = smaller(of->columns - j, TILE_COLUMNS);
        for (int64_t i = 0; i < of->rows; i += TILE_ROWS) {
            const int16_t *a = of->a + i / A_SLOTS * A_SLOTS * of->depth + i % A_SLOTS * RUN;
            const int64_t rows = smaller(of->rows - i, TILE_ROWS);
            ISA(gemm_s8_tile)(sum, a, b, steps, rows, columns, !of->is_first);
            if (of->is_last)
                store(of, sum, i, j, rows, columns);
            if (of->k_is_cut)
                sum += TILE;
        }
    }
}

/* Terms l … of B's columns of the block; the last panel is narrow where that is wide enough. */
static void pack_b(const block *of, int64_t l, int64_t depth)
{
    const tandem_gemm_s8 *p = of->product;
    const int8_t *from = p->b + l * p->b_row + of->j * p->b_column;
    int64_t wide = of->columns / TILE_COLUMNS * TILE_COLUMNS;
    if (of->columns - wide > NARROW_COLUMNS)
        wide = of->columns;
    if (of->is_first)
        memset(of->b_correction, 0, (size_t)filled_up(of->columns, TILE_COLUMNS) * sizeof *of->b_correction);
    if (wide > 0)
        ISA(gemm_s8_pack)(of->b, of->b_correction, TILE_COLUMNS, from, wide, depth, p->b_column, p->b_row);
    if (wide < of->columns)
        ISA(gemm_s8_pack)(of->b + wide * of->depth, of->b_correction + wide, NARROW_COLUMNS,
                          from + wide * p->b_column, of->columns - wide, depth, p->b_column, p->b_row);
}

static void pack_a(const block *of, int64_t l, int64_t depth)
{
    const tandem_gemm_s8 *p = of->product;
    if (of->is_first)
        memset(of->a_correction, 0, (size_t)filled_up(of->rows, A_SLOTS) * sizeof *of->a_correction);
    ISA(gemm_s8_pack)(of->a, of->a_correction, A_SLOTS, p->a + of->i * p->a_row + l * p->a_column, of->rows, depth,
                      p->a_row, p->a_column);
}

void ISA(gemm_s8)(const tandem_gemm_s8 *product)
{
    const blocking by = cut(product->m, product->n, product->k);
    unsigned char *workspace = product->workspace;
    block of = {.product = product, .k_is_cut = by.k_is_cut};
    of.a = (int16_t *)(void *)(workspace + by.a);
    of.b = (int16_t *)(void *)(workspace + by.b);
    of.a_correction = (uint32_t *)(void *)(workspace + by.a_correction);
    of.b_correction = (uint32_t *)(void *)(workspace + by.b_correction);
    of.sums = (uint32_t *)(void *)(workspace + by.sums);
    for (of.j = 0; of.j < product->n; of.j += by.n) {
        of.columns = smaller(product->n - of.j, by.n);
        for (of.i = 0; of.i < product->m; of.i += by.m) {
            of.rows = smaller(product->m - of.i, by.m);
            int64_t l = 0;
            do { /* once even where k is 0 */
                const int64_t depth = smaller(product->k - l, by.k);
                of.depth = filled_up(depth, PACK_DEPTH);
                of.is_first = l == 0;
                of.is_last = l + depth == product->k;
                if (of.i == 0 || by.k_is_cut)
                    pack_b(&of, l, depth);
                pack_a(&of, l, depth);
                multiply(&of);
                l += depth;
            } while (!of.is_last);
        }
    }
}

size_t ISA(gemm_s8_workspace)(int64_t m, int64_t n, int64_t k) { return cut(m, n, k).bytes; }
