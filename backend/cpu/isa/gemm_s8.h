/* gemm_s8.h: what the three files of the int8 product share: its method, its packed layout, its block sizes.
 *
 * Operands are widened to int16 when they are packed, because the int8 multiply-add of instruction sets without VNNI
 * saturates. Products are then formed in pairs, after Winograd: with x = A's row, y = B's column,
 *
 *     x1·y1 + x2·y2  =  (x1 + y2)·(x2 + y1)  −  x1·x2  −  y1·y2
 *
 * so that one multiplication of two int16 sums replaces two. x1·x2 depends only on the row and y1·y2 only on the column;
 * they are summed once, when a panel is packed, and subtracted at the end. The sums |x + y| ≤ 256 cannot overflow
 * int16; int32 accumulators may wrap, but the true result fits (k ≤ 2^17), and wrapping is undone by the subtraction.
 * This halves the work of the multiplier ports and leaves the additions to the others: a pmaddwd and three additions
 * for 4 × (vector bytes / 4) terms, where the plain form needs two pmaddwd and two additions.
 * Source: Winograd, "A new algorithm for inner product", IEEE Transactions on Computers C-17, 1968.
 *
 * A panel holds `slots` rows of A (or columns of B), its depth cut into steps of 2·RUN terms:
 *
 *     int16_t panel[step][half][slot][RUN]      term = step·2·RUN + half·RUN + run;  half 0 is "1" above, half 1 is "2"
 *
 * RUN = 2: a vector is one half of many columns; a row's two terms are broadcast to all of them (avx2, avx512).
 * RUN = 8: a vector is eight terms of one slot, the accumulators are added up across at the end (sse41, avx, which have
 * no integer broadcast from memory, or no room for the operands it takes). */
#ifndef TANDEM_BACKEND_CPU_ISA_GEMM_S8_H
#define TANDEM_BACKEND_CPU_ISA_GEMM_S8_H

#include "backend/cpu/isa/isa.h"

enum {
#if defined __AVX512BW__
    RUN = 2,
    TILE_ROWS = 8,
    TILE_COLUMNS = 32,
    NARROW_COLUMNS = 16, /* of the last panel of B where this is enough */
    A_SLOTS = 16,        /* two tiles high */
#elif defined __AVX2__
    RUN = 2,
    TILE_ROWS = 4,
    TILE_COLUMNS = 16,
    NARROW_COLUMNS = 8,
    A_SLOTS = 8,
#else
    RUN = 8,
    TILE_ROWS = 2,
    TILE_COLUMNS = 4,
    NARROW_COLUMNS = 4,
    A_SLOTS = 4,
#endif
    PACK_DEPTH = 16, /* depths are filled up with zeros to a multiple of it */
    BLOCK_M = 256,
    BLOCK_N = 512,
    BLOCK_K = 1024
};

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t filled_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* Packs rows × depth elements (row i, term l at from[i·row_stride + l·term_stride]) into panels of `slots`, unused slots
 * and terms zero, and adds each row's Σ x1·x2 to correction[row] (filled_up(rows, slots) of them). */
void ISA(gemm_s8_pack)(int16_t *panels, uint32_t *correction, int64_t slots, const int8_t *from, int64_t rows,
                       int64_t depth, int64_t row_stride, int64_t term_stride);

/* sum[i·TILE_COLUMNS + j] = Σ (x1 + y2)(x2 + y1) for the first `rows` ≤ TILE_ROWS slots of `a` and all `columns`
 * (TILE_COLUMNS or NARROW_COLUMNS) of `b`; added to what `sum` holds where `add`. */
void ISA(gemm_s8_tile)(uint32_t *sum, const int16_t *a, const int16_t *b, int64_t steps, int64_t rows, int64_t columns,
                       int add);

#endif
