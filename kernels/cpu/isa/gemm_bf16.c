/* gemm_bf16.c: the product of bf16 matrices, summed in f32, by dot products of pairs (AVX-512 BF16).
 *
 * B is packed in panels of 32 columns, two terms of a column side by side: a step of the depth is two
 * vectors. A whose terms lie side by side is read where it is, else it is packed in panels of 16 rows. 8 rows
 * by 32 columns of C stay in registers over the depth of a block. Where k is cut into blocks, C carries the
 * sums. The dot products take denormals for zero. */
#include <string.h>

#include "kernels/cpu/isa/isa.h"

#if defined __AVX512BW__

#include "kernels/cpu/isa/transpose_lanes.h"

enum {
    LANES = 16,
    PAIR = 2,          /* terms of a step */
    TILE_ROWS = 8,     /* of C in registers */
    TILE_COLUMNS = 32, /* two vectors */
    A_SLOTS = 16,      /* rows of a panel: two tiles */
    BLOCK_M = 128,
    BLOCK_N = 512,
    BLOCK_K = 512, /* a panel of B leaves the first cache room for rows of A */
};

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")
#define BF16 __attribute__((target("avx512bf16")))

static inline int64_t fewer(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t whole(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* The largest blocks, filled up: panels of A are packed two at once. */
typedef struct bf16_blocking {
    int64_t m, n, k;
} bf16_blocking;

static bf16_blocking plan_bf16_blocking(int64_t m, int64_t n, int64_t k)
{
    return (bf16_blocking){fewer(whole(m, 2 * A_SLOTS), BLOCK_M), fewer(whole(n, TILE_COLUMNS), BLOCK_N),
                           fewer(whole(k, PAIR), BLOCK_K)};
}

size_t ISA(gemm_bf16_workspace)(int64_t m, int64_t n, int64_t k)
{
    const bf16_blocking by = plan_bf16_blocking(m, n, k);
    return (size_t)((by.m + by.n) * by.k) * sizeof(uint16_t);
}

/* --- Packing -------------------------------------------------------------------------------------------- */

static inline __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= LANES ? 0xFFFF : (1u << count) - 1);
}

/* Terms that lie `stride` apart, of rows that lie side by side: pairs of two loads. 32 rows at a time, which
 * is a cache line: 16 go to `to`, the others to `beyond`. */
static void pack_side_by_side(uint32_t *to, uint32_t *beyond, int64_t step, const uint16_t *from,
                              int64_t rows, int64_t depth, int64_t stride)
{
    const __mmask32 in = rows >= 2 * LANES ? ~(__mmask32)0 : ((__mmask32)1 << rows) - 1;
    const __m512i lower = words_in_turns(0), upper = words_in_turns(LANES);
    for (int64_t l = 0; l < depth; l += PAIR, to += step, beyond += step, from += PAIR * stride) {
        const __m512i first = _mm512_maskz_loadu_epi16(in, from);
        const __m512i second =
            l + 1 < depth ? _mm512_maskz_loadu_epi16(in, from + stride) : _mm512_setzero_si512();
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, lower, second));
        _mm512_storeu_si512(beyond, _mm512_permutex2var_epi16(first, upper, second));
    }
}

/* Rows whose terms lie side by side: 16 pairs of 16 rows are transposed. */
static void pack_transposed(uint32_t *to, int64_t step, const uint16_t *from, int64_t rows, int64_t depth,
                            int64_t row_stride)
{
    for (int64_t l = 0; l < depth; l += PAIR * LANES) {
        const int64_t terms = fewer(depth - l, PAIR * LANES);
        const __mmask32 in = terms == PAIR * LANES ? ~(__mmask32)0 : ((__mmask32)1 << terms) - 1;
        __m512 pair[LANES];
        for (int64_t i = 0; i < LANES; i++)
            pair[i] = i < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(in, from + i * row_stride + l))
                               : _mm512_setzero_ps();
        transpose_16x16(pair);
        for (int64_t i = 0; PAIR * i < terms; i++) _mm512_storeu_ps(to + i * step, pair[i]);
        to += LANES * step;
    }
}

static void pack_piecemeal(uint32_t *to, int64_t step, const uint16_t *from, int64_t rows, int64_t depth,
                           int64_t row_stride, int64_t term_stride)
{
    for (int64_t l = 0; l < depth; l += PAIR, to += step)
        for (int64_t i = 0; i < LANES; i++) {
            const uint16_t *at = from + i * row_stride + l * term_stride;
            const uint32_t low = i < rows ? at[0] : 0, high = i < rows && l + 1 < depth ? at[term_stride] : 0;
            to[i] = low | high << 16;
        }
}

/* rows × depth elements into panels of `slots`, filled up with zeros. */
static void pack_bf16(uint32_t *to, int64_t slots, const uint16_t *from, int64_t rows, int64_t depth,
                      int64_t row_stride, int64_t term_stride)
{
    const int64_t panel = slots * (whole(depth, PAIR) / PAIR);
    const int64_t at_once = row_stride == 1 ? 2 * LANES : LANES;
    for (int64_t row = 0; row < whole(rows, slots); row += at_once) {
        uint32_t *const at = to + row / slots * panel + row % slots;
        const uint16_t *const here = from + (row < rows ? row : 0) * row_stride;
        const int64_t some = row < rows ? fewer(rows - row, at_once) : 0;
        if (row_stride == 1)
            pack_side_by_side(at, at + (slots == LANES ? panel : LANES), slots, here, some, depth,
                              term_stride);
        else if (term_stride == 1)
            pack_transposed(at, slots, here, some, depth, row_stride);
        else
            pack_piecemeal(at, slots, here, some, depth, row_stride, term_stride);
    }
}

/* --- Tiles ---------------------------------------------------------------------------------------------- */

/* A tile of C, and where its operands lie. */
typedef struct bf16_tile {
    const uint16_t *a; /* a pair of a row, `row` elements from the next row's, `step` from its next pair */
    int64_t row, step;
    const uint32_t *b; /* of a panel */
    int64_t steps;
    float *c;
    int64_t c_row, columns;
    const float *bias; /* NULL: none */
    int accumulate;
} bf16_tile;

BF16 INLINE void multiply_bf16_tile(const bf16_tile *t, const int rows)
{
    __m512 sum[TILE_ROWS][2];
    UNROLLED
    for (int r = 0; r < rows; r++) {
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
        _mm_prefetch((const char *)(t->c + r * t->c_row), _MM_HINT_T0);
        _mm_prefetch((const char *)((uintptr_t)(t->c + r * t->c_row) + 64), _MM_HINT_T0);
    }
    const uint16_t *a = t->a;
    const uint32_t *b = t->b;
    for (int64_t l = 0; l < t->steps; l++, a += t->step, b += TILE_COLUMNS) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + LANES);
        UNROLLED
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, a + r * t->row, sizeof pair);
            const __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], both, b0);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], both, b1);
        }
    }
    for (int v = 0; v < 2 && v * LANES < t->columns; v++) {
        const __mmask16 in = first_lanes(t->columns - v * LANES);
        const __m512 bias = t->bias ? _mm512_maskz_loadu_ps(in, t->bias + v * LANES) : _mm512_setzero_ps();
        UNROLLED
        for (int r = 0; r < rows; r++) {
            float *const to = t->c + r * t->c_row + v * LANES;
            __m512 value = _mm512_add_ps(v ? sum[r][1] : sum[r][0], bias);
            if (t->accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(in, to), value);
            _mm512_mask_storeu_ps(to, in, value);
        }
    }
}

#define HEIGHT(rows)                                                                                         \
    case rows: multiply_bf16_tile(t, rows); break;

BF16 static void compute_bf16_tile(const bf16_tile *t, int64_t rows)
{
    switch (rows) {
        HEIGHT(1)
        HEIGHT(2)
        HEIGHT(3)
        HEIGHT(4)
        HEIGHT(5)
        HEIGHT(6)
        HEIGHT(7)
    default: multiply_bf16_tile(t, TILE_ROWS);
    }
}

/* --- Blocks --------------------------------------------------------------------------------------------- */

typedef struct bf16_block {
    int64_t i, j, l, rows, columns, depth; /* of C, and of the terms */
    uint32_t *a, *b;                       /* packed */
} bf16_block;

/* Whole pairs of a row lie side by side, so that A need not be packed. */
static int has_readable_pairs(const tandem_product_bf16 *p) { return p->a_column == 1 && p->k % PAIR == 0; }

static void multiply_bf16_block(const tandem_product_bf16 *p, const bf16_block *block)
{
    const int64_t steps = whole(block->depth, PAIR) / PAIR;
    const int is_read_in_place = has_readable_pairs(p), is_last = block->l + block->depth >= p->k;
    for (int64_t j = 0; j < block->columns; j += TILE_COLUMNS)
        for (int64_t i = 0; i < block->rows; i += TILE_ROWS) {
            const int64_t column = block->j + j, row = block->i + i;
            bf16_tile tile = {.b = block->b + j * steps,
                              .steps = steps,
                              .c = p->c + row * p->c_row + column,
                              .c_row = p->c_row,
                              .columns = fewer(block->columns - j, TILE_COLUMNS),
                              .bias = p->bias && is_last ? p->bias + column : NULL,
                              .accumulate = p->accumulate || block->l > 0};
            if (is_read_in_place) {
                tile.a = p->a + row * p->a_row + block->l;
                tile.row = p->a_row;
                tile.step = PAIR;
            } else {
                tile.a = (const uint16_t *)(block->a + i / A_SLOTS * A_SLOTS * steps + i % A_SLOTS);
                tile.row = PAIR;
                tile.step = (int64_t)PAIR * A_SLOTS;
            }
            compute_bf16_tile(&tile, fewer(block->rows - i, TILE_ROWS));
        }
}

void ISA(gemm_bf16)(const tandem_product_bf16 *p)
{
    const bf16_blocking by = plan_bf16_blocking(p->m, p->n, p->k);
    bf16_block block = {.b = p->workspace};
    block.a = block.b + by.n * by.k / PAIR;
    for (block.j = 0; block.j < p->n; block.j += by.n) {
        block.columns = fewer(p->n - block.j, by.n);
        block.l = 0;
        do { /* once even where k is 0 */
            block.depth = fewer(p->k - block.l, by.k);
            pack_bf16(block.b, TILE_COLUMNS, p->b + block.l * p->b_row + block.j * p->b_column, block.columns,
                      block.depth, p->b_column, p->b_row);
            for (block.i = 0; block.i < p->m; block.i += by.m) {
                block.rows = fewer(p->m - block.i, by.m);
                if (!has_readable_pairs(p))
                    pack_bf16(block.a, A_SLOTS, p->a + block.i * p->a_row + block.l * p->a_column, block.rows,
                              block.depth, p->a_row, p->a_column);
                multiply_bf16_block(p, &block);
            }
            block.l += by.k;
        } while (block.l < p->k);
    }
}

#endif
