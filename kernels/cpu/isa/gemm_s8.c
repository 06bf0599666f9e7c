/* gemm_s8.c: the int8 product, divided into blocks that fit the caches. */
#include "kernels/cpu/isa/gemm_s8.h"

#include <string.h>

/* How a product is divided, and the offsets in its workspace in bytes. */
typedef struct gemm_blocking {
    int64_t m, n, k; /* the largest block, filled up to whole panels and steps */
    int k_is_cut;    /* then the sums of the block wait for the next block of k */
    size_t a, b;     /* packed operands of one block */
    size_t a_correction, b_correction;
    size_t sums; /* none where k is not cut */
    size_t bytes;
} gemm_blocking;

static size_t reserve_aligned(size_t *bytes, int64_t size)
{
    const size_t at = *bytes;
    *bytes += (size_t)round_up_to(size, 64);
    return at;
}

static gemm_blocking plan_blocking(int64_t m, int64_t n, int64_t k)
{
    const int64_t n_k = k > BLOCK_K ? (k + BLOCK_K - 1) / BLOCK_K : 1;
    gemm_blocking by = {.k_is_cut = n_k > 1};
    by.m = smaller_count(round_up_to(m, A_SLOTS), n_k > 1 ? BLOCK_M_OF_CUT_K : BLOCK_M);
    by.n = smaller_count(round_up_to(n, TILE_COLUMNS), BLOCK_N);
    by.k = round_up_to((k + n_k - 1) / n_k, PACK_DEPTH);
    by.a = reserve_aligned(&by.bytes, by.m * by.k * (int64_t)sizeof(gemm_s8_packed));
    by.b = reserve_aligned(&by.bytes, by.n * by.k * (int64_t)sizeof(gemm_s8_packed));
    by.a_correction = reserve_aligned(&by.bytes, by.m * (int64_t)sizeof(uint32_t));
    by.b_correction = reserve_aligned(&by.bytes, (GEMM_S8_DOT ? 0 : by.n) * (int64_t)sizeof(uint32_t));
    by.sums = reserve_aligned(&by.bytes, (by.k_is_cut ? by.m * by.n : 0) * (int64_t)sizeof(uint32_t));
    return by;
}

/* Terms l … of B's columns of the block; the last panel is narrow where that is wide enough. */
static void pack_b(const gemm_s8_block *block, int64_t l, int64_t depth)
{
    const tandem_product_s8 *p = block->product;
    const int8_t *from = p->b + l * p->b_row + block->j * p->b_column;
    int64_t wide = block->columns / TILE_COLUMNS * TILE_COLUMNS;
    if (block->columns - wide > NARROW_COLUMNS) wide = block->columns;
    if (block->is_first && !GEMM_S8_DOT)
        memset(block->b_correction, 0,
               (size_t)round_up_to(block->columns, TILE_COLUMNS) * sizeof *block->b_correction);
    if (wide > 0)
        ISA(gemm_s8_pack)(block->b, block->b_correction, TILE_COLUMNS, from, wide, depth, p->b_column,
                          p->b_row);
    if (wide < block->columns)
        ISA(gemm_s8_pack)(block->b + wide * block->depth, GEMM_S8_DOT ? NULL : block->b_correction + wide,
                          NARROW_COLUMNS, from + wide * p->b_column, block->columns - wide, depth,
                          p->b_column, p->b_row);
}

/* Whether whole steps of each row lie side by side, so that A need not be packed. */
static int has_readable_rows(const tandem_product_s8 *p)
{
    return GEMM_S8_DOT && p->a_column == 1 && p->k % RUN == 0;
}

static void prepare_a(gemm_s8_block *block, int64_t l, int64_t depth)
{
    const tandem_product_s8 *p = block->product;
    const int8_t *const from = p->a + block->i * p->a_row + l * p->a_column;
    if (block->is_first)
        memset(block->a_correction, 0,
               (size_t)round_up_to(block->rows, A_SLOTS) * sizeof *block->a_correction);
    if (has_readable_rows(p)) {
        block->a_rows = from;
        block->terms = depth;
        ISA(gemm_s8_sum_rows)(block->a_correction, from, block->rows, depth, p->a_row);
    } else {
        ISA(gemm_s8_pack)(block->a, block->a_correction, A_SLOTS, from, block->rows, depth, p->a_row,
                          p->a_column);
    }
}

void ISA(gemm_s8)(const tandem_product_s8 *product)
{
    const gemm_blocking by = plan_blocking(product->m, product->n, product->k);
    unsigned char *workspace = product->workspace;
    gemm_s8_block block = {.product = product, .k_is_cut = by.k_is_cut};
    block.a = (gemm_s8_packed *)(void *)(workspace + by.a);
    block.b = (gemm_s8_packed *)(void *)(workspace + by.b);
    block.a_correction = (uint32_t *)(void *)(workspace + by.a_correction);
    block.b_correction = GEMM_S8_DOT ? NULL : (uint32_t *)(void *)(workspace + by.b_correction);
    block.sums = (uint32_t *)(void *)(workspace + by.sums);
    for (block.j = 0; block.j < product->n; block.j += by.n) {
        block.columns = smaller_count(product->n - block.j, by.n);
        for (block.i = 0; block.i < product->m; block.i += by.m) {
            block.rows = smaller_count(product->m - block.i, by.m);
            int64_t l = 0;
            do { /* once even where k is 0 */
                const int64_t depth = smaller_count(product->k - l, by.k);
                block.depth = round_up_to(depth, PACK_DEPTH);
                block.is_first = l == 0;
                block.is_last = l + depth == product->k;
                if (block.i == 0 || by.k_is_cut) pack_b(&block, l, depth);
                prepare_a(&block, l, depth);
                ISA(gemm_s8_multiply)(&block);
                l += depth;
            } while (!block.is_last);
        }
    }
}

size_t ISA(gemm_s8_workspace)(int64_t m, int64_t n, int64_t k) { return plan_blocking(m, n, k).bytes; }
