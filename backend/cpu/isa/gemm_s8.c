/* gemm_s8.c: the int8 product, cut into blocks that caches hold. */
#include "backend/cpu/isa/gemm_s8.h"

#include <string.h>

/* How a product is cut, and where the parts of its workspace lie (bytes from its start). */
typedef struct blocking {
    int64_t m, n, k; /* the largest block, filled up to whole panels and steps */
    int k_is_cut;    /* then the sums of the block wait for the next block of k */
    size_t a, b;     /* packed operands of one block */
    size_t a_correction, b_correction;
    size_t sums; /* none where k is not cut */
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
    by.m = smaller(filled_up(m, A_SLOTS), n_k > 1 ? BLOCK_M_OF_CUT_K : BLOCK_M);
    by.n = smaller(filled_up(n, TILE_COLUMNS), BLOCK_N);
    by.k = filled_up((k + n_k - 1) / n_k, PACK_DEPTH);
    by.a = reserve(&by.bytes, by.m * by.k * (int64_t)sizeof(gemm_s8_packed));
    by.b = reserve(&by.bytes, by.n * by.k * (int64_t)sizeof(gemm_s8_packed));
    by.a_correction = reserve(&by.bytes, by.m * (int64_t)sizeof(uint32_t));
    by.b_correction = reserve(&by.bytes, (GEMM_S8_DOT ? 0 : by.n) * (int64_t)sizeof(uint32_t));
    by.sums = reserve(&by.bytes, (by.k_is_cut ? by.m * by.n : 0) * (int64_t)sizeof(uint32_t));
    return by;
}

/* Terms l … of B's columns of the block; the last panel is narrow where that is wide enough. */
static void pack_b(const gemm_s8_block *of, int64_t l, int64_t depth)
{
    const tandem_product_s8 *p = of->product;
    const int8_t *from = p->b + l * p->b_row + of->j * p->b_column;
    int64_t wide = of->columns / TILE_COLUMNS * TILE_COLUMNS;
    if (of->columns - wide > NARROW_COLUMNS) wide = of->columns;
    if (of->is_first && !GEMM_S8_DOT)
        memset(of->b_correction, 0, (size_t)filled_up(of->columns, TILE_COLUMNS) * sizeof *of->b_correction);
    if (wide > 0)
        ISA(gemm_s8_pack)(of->b, of->b_correction, TILE_COLUMNS, from, wide, depth, p->b_column, p->b_row);
    if (wide < of->columns)
        ISA(gemm_s8_pack)(of->b + wide * of->depth, GEMM_S8_DOT ? NULL : of->b_correction + wide,
                          NARROW_COLUMNS, from + wide * p->b_column, of->columns - wide, depth, p->b_column,
                          p->b_row);
}

static void pack_a(const gemm_s8_block *of, int64_t l, int64_t depth)
{
    const tandem_product_s8 *p = of->product;
    if (of->is_first)
        memset(of->a_correction, 0, (size_t)filled_up(of->rows, A_SLOTS) * sizeof *of->a_correction);
    ISA(gemm_s8_pack)(of->a, of->a_correction, A_SLOTS, p->a + of->i * p->a_row + l * p->a_column, of->rows,
                      depth, p->a_row, p->a_column);
}

void ISA(gemm_s8)(const tandem_product_s8 *product)
{
    const blocking by = cut(product->m, product->n, product->k);
    unsigned char *workspace = product->workspace;
    gemm_s8_block of = {.product = product, .k_is_cut = by.k_is_cut};
    of.a = (gemm_s8_packed *)(void *)(workspace + by.a);
    of.b = (gemm_s8_packed *)(void *)(workspace + by.b);
    of.a_correction = (uint32_t *)(void *)(workspace + by.a_correction);
    of.b_correction = GEMM_S8_DOT ? NULL : (uint32_t *)(void *)(workspace + by.b_correction);
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
                if (of.i == 0 || by.k_is_cut) pack_b(&of, l, depth);
                pack_a(&of, l, depth);
                ISA(gemm_s8_multiply)(&of);
                l += depth;
            } while (!of.is_last);
        }
    }
}

size_t ISA(gemm_s8_workspace)(int64_t m, int64_t n, int64_t k) { return cut(m, n, k).bytes; }
