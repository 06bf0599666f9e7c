/* gemm_bf16_amx.c: the bf16 product in the tile registers of AMX, for the table avx512_amx.
 *
 * A tile holds 16 rows of A with 32 terms, or 16 columns of B with 32 terms in pairs, and one instruction
 * adds the product of two of them to 16 × 16 sums in f32. Two tiles of each operand make four of sums, which
 * stay in registers over the depth of a block. Operands are packed first, filled up with zeros:
 *
 *     uint16_t a[step][2 tiles][16 rows][32 terms], b[step][2 tiles][16 pairs][16 columns][2 terms]
 *
 * Where the depth is cut into blocks, C carries the sums. Tiles take denormals for zero. */
#include "kernels/cpu/isa/amx.h"

#if defined __AVX512VNNI__

#include <string.h>

#include "kernels/cpu/isa/transpose_lanes.h"

#define AMX __attribute__((target("amx-tile,amx-bf16")))

enum {
    SIDE = 16,         /* rows of a tile of A, columns of one of B */
    STEP = 32,         /* terms of a tile */
    PANEL = 32,        /* rows, and columns, that are multiplied together */
    LINE = 64,         /* bytes of a row of a tile */
    BLOCK_K = 512,     /* terms: a panel of A stays in the first cache */
    B_BYTES = 1 << 20, /* of a packed block of B, which stays in the second */
    STEP_ELEMENTS = PANEL * STEP
};

static inline int64_t fewer(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t whole(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* How a product is divided, and the offsets in its workspace in bytes: a panel of A comes first. */
typedef struct tile_blocking {
    int64_t columns, depth; /* of a block of B */
    size_t b, bytes;
} tile_blocking;

static tile_blocking plan_tile_blocks(int64_t n, int64_t k)
{
    tile_blocking by = {.depth = fewer(k > 0 ? whole(k, STEP) : STEP, BLOCK_K)};
    const int64_t panels = B_BYTES / (by.depth * PANEL * (int64_t)sizeof(uint16_t));
    by.columns = fewer(whole(n, PANEL), panels * PANEL);
    by.b = (size_t)(PANEL * by.depth) * sizeof(uint16_t);
    by.bytes = by.b + (size_t)(by.columns * by.depth) * sizeof(uint16_t);
    return by;
}

size_t ISA(gemm_bf16_amx_workspace)(int64_t m, int64_t n, int64_t k) { return plan_tile_blocks(n, k).bytes; }

/* --- Packing -------------------------------------------------------------------------------------------- */

static inline __mmask32 first_words(int64_t count)
{
    return count >= STEP ? ~(__mmask32)0 : ((__mmask32)1 << count) - 1;
}

/* Rows and terms that exist, of PANEL by STEP. */
static void pack_rows_piecemeal(uint16_t *to, const tandem_product_bf16 *p, const uint16_t *from,
                                int64_t rows, int64_t terms)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t l = 0; l < terms; l++) to[r * STEP + l] = from[r * p->a_row + l * p->a_column];
}

static void pack_tile_rows(uint16_t *to, const tandem_product_bf16 *p, const uint16_t *from, int64_t rows,
                           int64_t terms)
{
    if (p->a_column == 1) {
        const __mmask32 in = first_words(terms);
        for (int64_t r = 0; r < PANEL; r++)
            _mm512_storeu_si512(to + r * STEP, r < rows ? _mm512_maskz_loadu_epi16(in, from + r * p->a_row)
                                                        : _mm512_setzero_si512());
    } else if (p->a_row == 1) {
        const __mmask32 in = first_words(rows);
        __m512i term[STEP];
        for (int64_t l = 0; l < STEP; l++)
            term[l] =
                l < terms ? _mm512_maskz_loadu_epi16(in, from + l * p->a_column) : _mm512_setzero_si512();
        transpose_words_32x32(to, STEP, term);
    } else {
        memset(to, 0, STEP_ELEMENTS * sizeof *to);
        pack_rows_piecemeal(to, p, from, rows, terms);
    }
}

/* Columns and terms of B that exist, of PANEL by STEP: term l of column j at from[l·b_row + j·b_column]. */
static void pack_columns_by_rows(uint16_t *to, const tandem_product_bf16 *p, const uint16_t *from,
                                 int64_t columns, int64_t terms)
{
    const __mmask32 in = first_words(columns);
    const __m512i lower = words_in_turns(0), upper = words_in_turns(SIDE);
    for (int64_t l = 0; l < STEP; l += 2, to += STEP) {
        const uint16_t *const row = from + (l < terms ? l : 0) * p->b_row;
        const __m512i first = l < terms ? _mm512_maskz_loadu_epi16(in, row) : _mm512_setzero_si512(),
                      second = l + 1 < terms ? _mm512_maskz_loadu_epi16(in, row + p->b_row)
                                             : _mm512_setzero_si512();
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, lower, second));
        _mm512_storeu_si512(to + SIDE * STEP, _mm512_permutex2var_epi16(first, upper, second));
    }
}

static void pack_columns_by_columns(uint16_t *to, const tandem_product_bf16 *p, const uint16_t *from,
                                    int64_t columns, int64_t terms)
{
    const __mmask32 in = first_words(terms);
    for (int64_t j = 0; j < PANEL; j += SIDE, to += SIDE * STEP) {
        __m512 pairs[SIDE];
        for (int64_t i = 0; i < SIDE; i++)
            pairs[i] = j + i < columns
                           ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(in, from + (j + i) * p->b_column))
                           : _mm512_setzero_ps();
        transpose_16x16(pairs);
        for (int64_t i = 0; i < SIDE; i++) _mm512_storeu_ps(to + i * STEP, pairs[i]);
    }
}

static void pack_columns_piecemeal(uint16_t *to, const tandem_product_bf16 *p, const uint16_t *from,
                                   int64_t columns, int64_t terms)
{
    memset(to, 0, STEP_ELEMENTS * sizeof *to);
    for (int64_t j = 0; j < columns; j++)
        for (int64_t l = 0; l < terms; l++)
            to[j / SIDE * SIDE * STEP + l / 2 * STEP + j % SIDE * 2 + l % 2] =
                from[l * p->b_row + j * p->b_column];
}

/* `columns` of B and `depth` terms from `from` on, in panels, in the order of B's memory. */
static void pack_tile_columns(uint16_t *to, const tandem_product_bf16 *p, const uint16_t *from,
                              int64_t columns, int64_t depth)
{
    const int64_t steps = whole(depth, STEP) / STEP, panels = whole(columns, PANEL) / PANEL;
    for (int64_t block = 0; block < panels * steps; block++) {
        const int64_t panel = p->b_row == 1 ? block / steps : block % panels;
        const int64_t step = p->b_row == 1 ? block % steps : block / panels;
        const int64_t j = panel * PANEL, l = step * STEP;
        (p->b_column == 1 ? pack_columns_by_rows
         : p->b_row == 1  ? pack_columns_by_columns
                          : pack_columns_piecemeal)(to + (panel * steps + step) * STEP_ELEMENTS, p,
                                                   from + l * p->b_row + j * p->b_column,
                                                   fewer(columns - j, PANEL), fewer(depth - l, STEP));
    }
}

/* --- Tiles ---------------------------------------------------------------------------------------------- */

/* Adds the products of some steps to the four tiles of sums. `next`: two rows a step are asked for, of
 * `next_row` bytes, because tile stores wait for each line of memory. */
AMX static inline __attribute__((always_inline)) void
multiply_steps(const uint16_t *a, const uint16_t *b, int64_t steps, const char *next, size_t next_row)
{
    for (int64_t step = 0; step < steps; step++, a += STEP_ELEMENTS, b += STEP_ELEMENTS) {
        _mm_prefetch(next, _MM_HINT_T1);
        _mm_prefetch(next + LINE, _MM_HINT_T1);
        _tile_loadd(4, a, LINE);
        _tile_loadd(6, b, LINE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + SIDE * STEP, LINE);
        _tile_dpbf16ps(1, 4, 7);
        _mm_prefetch(next + next_row, _MM_HINT_T1);
        _mm_prefetch(next + next_row + LINE, _MM_HINT_T1);
        _tile_loadd(5, a + SIDE * STEP, LINE);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        next += 2 * next_row;
    }
}

/* sums = a panel of A times a panel of B, or with `add` what is added to. Rows of `row` elements. */
AMX static void multiply_tile_panels(float *sums, int64_t row, const uint16_t *a, const uint16_t *b,
                                     int64_t steps, int add)
{
    const size_t row_bytes = (size_t)row * sizeof *sums;
    __asm__ volatile("" ::: "memory"); /* what was packed is in memory before tiles load it */
    begin_tile_sums(sums, row_bytes, add);
    multiply_steps(a, b, steps, (const char *)(sums + PANEL), row_bytes);
    store_tile_sums(sums, row_bytes);
}

/* Writes a panel's sums to rows i … and columns j … of C. */
static void store_tile_panel(const tandem_product_bf16 *p, int64_t i, int64_t j, const float (*sums)[PANEL],
                             int64_t rows, int64_t columns, int add, const float *bias)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t half = 0; half < columns; half += SIDE) {
            const int64_t lanes = columns - half;
            const __mmask16 in = (__mmask16)(lanes >= SIDE ? 0xFFFF : (1u << lanes) - 1);
            float *const to = p->c + (i + r) * p->c_row + j + half;
            __m512 value = _mm512_loadu_ps(sums[r] + half);
            if (bias) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(in, bias + j + half));
            if (add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(in, to), value);
            _mm512_mask_storeu_ps(to, in, value);
        }
}

typedef struct tile_block {
    int64_t j, l, columns, depth; /* of C, and of the terms */
    const uint16_t *b;
} tile_block;

/* Rows i … of C, of a block. The sums of a whole panel are formed in C itself. */
static void multiply_block_rows(const tandem_product_bf16 *p, const tile_block *block, const uint16_t *a,
                                int64_t i, int64_t rows)
{
    const int64_t steps = whole(block->depth, STEP) / STEP;
    const int add = p->accumulate || block->l > 0;
    const float *const bias = block->l + block->depth >= p->k ? p->bias : NULL;
    _Alignas(LINE) float sums[PANEL][PANEL];
    for (int64_t j = 0; j < block->columns; j += PANEL) {
        const uint16_t *const b = block->b + j * steps * STEP;
        const int64_t columns = fewer(block->columns - j, PANEL), at = block->j + j;
        if (rows == PANEL && columns == PANEL && !bias) {
            multiply_tile_panels(p->c + i * p->c_row + at, p->c_row, a, b, steps, add);
        } else {
            multiply_tile_panels(sums[0], PANEL, a, b, steps, 0);
            store_tile_panel(p, i, at, (const float(*)[PANEL])sums, rows, columns, add, bias);
        }
    }
}

AMX void ISA(gemm_bf16_amx)(const tandem_product_bf16 *p)
{
    const tile_blocking by = plan_tile_blocks(p->n, p->k);
    uint16_t *const a = p->workspace, *const b = (uint16_t *)(void *)((char *)p->workspace + by.b);
    tile_block block = {.b = b};
    _tile_loadconfig(&whole_tiles);
    for (block.j = 0; block.j < p->n; block.j += by.columns) {
        block.columns = fewer(p->n - block.j, by.columns);
        block.l = 0;
        do { /* once even where k is 0 */
            block.depth = fewer(p->k - block.l, by.depth);
            pack_tile_columns(b, p, p->b + block.l * p->b_row + block.j * p->b_column, block.columns,
                              block.depth);
            for (int64_t i = 0; i < p->m; i += PANEL) {
                const int64_t rows = fewer(p->m - i, PANEL);
                for (int64_t l = 0; l < block.depth; l += STEP)
                    pack_tile_rows(a + l * PANEL, p, p->a + i * p->a_row + (block.l + l) * p->a_column, rows,
                                   fewer(block.depth - l, STEP));
                multiply_block_rows(p, &block, a, i, rows);
            }
            block.l += by.depth;
        } while (block.l < p->k);
    }
    _tile_release();
}

#endif
