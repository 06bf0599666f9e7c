/* gemm_s8.h: what the files of the int8 product share: its methods, its packed layouts, its block sizes.
 *
 * With int8 dot products (VNNI) four terms are one instruction, of an unsigned and a signed operand: B is
 * packed with its sign bits flipped, which makes it b + 128, unsigned, and 128·Σ a of each row is subtracted
 * at the end. A panel holds `slots` rows of A (or columns of B):
 *
 *     int8_t panel[step][slot][RUN]             term = step·RUN + run
 *
 * A whose terms lie side by side is not packed: a step's terms of a row are read where they are.
 *
 * Without them operands are widened to int16 when they are packed, because the int8 multiply-add of
 * instruction sets without VNNI saturates. Products are then formed in pairs, after Winograd: with x = A's
 * row, y = B's column,
 *
 *     x1·y1 + x2·y2  =  (x1 + y2)·(x2 + y1)  −  x1·x2  −  y1·y2
 *
 * so that one multiplication of two int16 sums replaces two. x1·x2 depends only on the row and y1·y2 only on
 * the column; they are summed once, when a panel is packed, and subtracted at the end. The sums |x + y| ≤ 256
 * cannot overflow int16; int32 accumulators may wrap, but the true result fits (k ≤ 2^17), and wrapping is
 * undone by the subtraction. This halves the work of the multiplier ports and leaves the additions to the
 * others: a pmaddwd and three additions for 4 × (vector bytes / 4) terms, where the plain form needs two
 * pmaddwd and two additions. Source: Winograd, "A new algorithm for inner product", IEEE Transactions on
 * Computers C-17, 1968.
 *
 * The depth of such a panel is cut into steps of 2·RUN terms:
 *
 *     int16_t panel[step][half][slot][RUN]      term = step·2·RUN + half·RUN + run;  half 0 is "1" above,
 *     half 1 is "2"
 *
 * A vector is one half of several columns; the same half of a row is broadcast to all of them. RUN = 2 makes
 * an element of the vector one column's sum; sse41 can broadcast 64 bits from memory but not 32, so that it
 * takes RUN = 4, and adds neighbours up at the end. */
#pragma once

#include "kernels/cpu/isa/isa.h"

#if defined __AVX512VNNI__ || defined __AVXVNNI__
#define GEMM_S8_DOT 1
typedef int8_t gemm_s8_packed;
#else
#define GEMM_S8_DOT 0
typedef int16_t gemm_s8_packed;
#endif

enum {
#if defined __AVX512VNNI__
    RUN = 4,
    TILE_ROWS = 8,
    TILE_COLUMNS = 32,
    NARROW_COLUMNS = 16, /* of the last panel of B where they are enough */
    A_SLOTS = 16,        /* two tiles high */
#elif defined __AVXVNNI__
    RUN = 4,
    TILE_ROWS = 6,
    TILE_COLUMNS = 16,
    NARROW_COLUMNS = 8,
    A_SLOTS = 24,
#elif defined __AVX512BW__
    RUN = 2,
    TILE_ROWS = 8,
    TILE_COLUMNS = 32,
    NARROW_COLUMNS = 16,
    A_SLOTS = 16,
#elif defined __AVX2__
    RUN = 2,
    TILE_ROWS = 4,
    TILE_COLUMNS = 16,
    NARROW_COLUMNS = 8,
    A_SLOTS = 8,
#elif defined __AVX__ /* 128 bits wide: this set has no wider integers */
    RUN = 2,
    TILE_ROWS = 4,
    TILE_COLUMNS = 8,
    NARROW_COLUMNS = 8,
    A_SLOTS = 8,
#else
    RUN = 4,
    TILE_ROWS = 4,
    TILE_COLUMNS = 4,
    NARROW_COLUMNS = 4,
    A_SLOTS = 4,
#endif
    PACK_DEPTH = 16, /* depths are filled up with zeros to a multiple of it */
    /* Packed, a block of each operand leaves the second cache room for the other. Where k is cut, B is packed
     * again for each block of rows, so that these are more. Both are whole panels. */
    BLOCK_M = 128 / A_SLOTS * A_SLOTS,
    BLOCK_M_OF_CUT_K = 256 / A_SLOTS * A_SLOTS,
    BLOCK_N = 512,
    BLOCK_K = 1024
};

#if GEMM_S8_DOT
/* sum += four products, of the unsigned a and the signed b, in each lane. */
static inline __m256i dot_u8_s8(__m256i sum, __m256i a, __m256i b)
{
#if defined __AVX512VNNI__
    return _mm256_dpbusd_epi32(sum, a, b);
#else
    return _mm256_dpbusd_avx_epi32(sum, a, b);
#endif
}
#endif

static inline int64_t smaller_count(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t round_up_to(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* Packs rows × depth elements (row i, term l at from[i·row_stride + l·term_stride]) into panels of `slots`,
 * unused slots and terms zero, and adds each row's Σ x1·x2, or 128·Σ x, to correction[row] (round_up_to(rows,
 * slots) of them). `correction` is NULL for B with dot products: its sign bits are flipped, those of unused
 * places too. */
void ISA(gemm_s8_pack)(gemm_s8_packed *panels, uint32_t *correction, int64_t slots, const int8_t *from,
                       int64_t rows, int64_t depth, int64_t row_stride, int64_t term_stride);

/* correction[row] += 128·Σ x, of rows that are not packed; with dot products only. */
void ISA(gemm_s8_sum_rows)(uint32_t *correction, const int8_t *from, int64_t rows, int64_t depth,
                           int64_t row_stride);

/* One block of the product: its place in C, and its operands, packed. */
typedef struct gemm_s8_block {
    const tandem_product_s8 *product;
    int64_t i, j, rows, columns;           /* of C */
    int64_t depth;                         /* filled up */
    const int8_t *a_rows;                  /* A as it lies, rows a_row apart; NULL: packed */
    int64_t terms;                         /* of a_rows: depth, not filled up */
    int k_is_cut, is_first, is_last;       /* among the blocks of k */
    gemm_s8_packed *a, *b;                 /* panels of A_SLOTS, of TILE_COLUMNS */
    uint32_t *a_correction, *b_correction; /* of B: NULL with dot products */
    /* [tile][TILE_ROWS][TILE_COLUMNS], carried from one block of k to the next; unused where k is whole */
    uint32_t *sums;
} gemm_s8_block;

/* Adds the block's share to the sums; after the last block of k, writes C. */
void ISA(gemm_s8_multiply)(const gemm_s8_block *block);

/* Rows i … of C, columns j …, from a tile that is cut off by C's edge, or is more than scaled floats. */
void ISA(gemm_s8_store_rows)(const tandem_product_s8 *product, int64_t i, int64_t j,
                             const int32_t (*compute_tile)[TILE_COLUMNS], int64_t rows, int64_t columns);
