/* gemm_s8_amx.c: the int8 product in the tile registers of AMX, for the table avx512_amx.
 *
 * A tile holds 16 rows of A with 64 terms, or 16 columns of B with 64 terms in quads, and one instruction
 * multiplies two of them into 16 × 16 sums. Two tiles of each operand make four of sums, which stay in
 * registers over the whole depth. Operands are packed first, filled up with zeros:
 *
 *     int8_t a[step][32 rows][64 terms]        int8_t b[step][16 quads][32 columns][4 terms] */
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/gemm_s8.h"

#if defined __AVX512VNNI__

#include <string.h>

#define AMX __attribute__((target("amx-tile,amx-int8")))

enum {
    SIDE = 16,            /* rows of a tile of A, columns of one of B */
    DEPTH = 64,           /* terms of a tile */
    PANEL = TILE_COLUMNS, /* rows, and columns, that are multiplied together */
    B_BYTES = 1 << 20,    /* of a packed block of B, which stays in the second cache */
    PANEL_STEP = PANEL * DEPTH
};
_Static_assert(PANEL == 2 * SIDE, "a panel is two tiles wide");

/* How a product is divided, and the offsets in its workspace in bytes. */
typedef struct amx_blocking {
    int64_t steps;   /* of DEPTH terms */
    int64_t columns; /* of a block of B */
    size_t b, bytes; /* the panel of A comes first */
} amx_blocking;

static amx_blocking plan_tiles(int64_t n, int64_t k)
{
    amx_blocking by = {.steps = k > DEPTH ? (k + DEPTH - 1) / DEPTH : 1};
    const int64_t panels = B_BYTES / (by.steps * PANEL_STEP);
    by.columns = smaller_count(round_up_to(n, PANEL), panels > 1 ? panels * PANEL : PANEL);
    by.b = (size_t)(by.steps * PANEL_STEP);
    by.bytes = by.b + (size_t)(by.steps * DEPTH * by.columns);
    return by;
}

size_t ISA(gemm_s8_amx_workspace)(int64_t m, int64_t n, int64_t k) { return plan_tiles(n, k).bytes; }

/* Columns j … of B, DEPTH terms from `term` on. */
static void pack_columns_step(int8_t *to, const tandem_product_s8 *p, int64_t j, int64_t term,
                              int64_t columns)
{
    _Alignas(64) uint32_t correction[PANEL] = {0}; /* not wanted; without it, signs would be flipped */
    const int64_t terms = smaller_count(p->k - term, DEPTH), filled = round_up_to(terms, PACK_DEPTH);
    if (filled < DEPTH) memset(to + filled * PANEL, 0, (size_t)((DEPTH - filled) * PANEL));
    ISA(gemm_s8_pack)
    (to, correction, PANEL, p->b + term * p->b_row + j * p->b_column, columns, terms, p->b_column, p->b_row);
}

/* Columns `first` to `end` of B, in the order of B's memory. */
static void pack_columns(int8_t *to, const tandem_product_s8 *p, int64_t first, int64_t end, int64_t steps)
{
    const int64_t panels = (end - first + PANEL - 1) / PANEL;
    for (int64_t block = 0; block < panels * steps; block++) {
        const int64_t panel = p->b_row == 1 ? block / steps : block % panels;
        const int64_t step = p->b_row == 1 ? block % steps : block / panels, j = first + panel * PANEL;
        pack_columns_step(to + (panel * steps + step) * PANEL_STEP, p, j, step * DEPTH,
                          smaller_count(end - j, PANEL));
    }
}

/* Rows i … of A, DEPTH terms from `term` on. */
static void pack_rows_step(int8_t *to, const tandem_product_s8 *p, int64_t i, int64_t term, int64_t rows)
{
    const int8_t *from = p->a + i * p->a_row + term * p->a_column;
    const int64_t terms = smaller_count(p->k - term, DEPTH);
    if (rows < PANEL || terms < DEPTH) memset(to, 0, PANEL_STEP);
    if (p->a_column == 1) {
        for (int64_t r = 0; r < rows; r++) memcpy(to + r * DEPTH, from + r * p->a_row, (size_t)terms);
    } else if (p->a_row == 1) {
        ISA(transpose_s8)(to, DEPTH, from, p->a_column, terms, rows);
    } else {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t l = 0; l < terms; l++) to[r * DEPTH + l] = from[r * p->a_row + l * p->a_column];
    }
}

/* sums = a panel of A times a panel of B. */
AMX static void multiply_panels(int32_t sums[PANEL][PANEL], const int8_t *a, const int8_t *b, int64_t steps)
{
    __asm__ volatile("" ::: "memory"); /* what was packed is in memory before tiles load it */
    begin_tile_sums(sums, sizeof *sums, 0);
    for (const int8_t *end = a + steps * PANEL_STEP; a < end; a += PANEL_STEP, b += PANEL_STEP) {
        _tile_loadd(4, a, DEPTH);
        _tile_loadd(6, b, PANEL * RUN);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, b + SIDE * RUN, PANEL * RUN);
        _tile_dpbssd(1, 4, 7);
        _tile_loadd(5, a + SIDE * DEPTH, DEPTH);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    store_tile_sums(sums, sizeof *sums);
}

/* Rows i … of C, columns j …; in the order of operations of gemm_s8_store_rows. */
static void store_panel(const tandem_product_s8 *p, int64_t i, int64_t j, const int32_t (*sums)[PANEL],
                        int64_t rows, int64_t columns)
{
    if (p->c_type != TANDEM_F32 || p->column_scale || columns < PANEL) {
        ISA(gemm_s8_store_rows)(p, i, j, sums, rows, columns);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        float *const to = (float *)p->c + (i + r) * p->c_row + j;
        const __m512 scale = _mm512_set1_ps(p->row_scale ? p->scale * p->row_scale[i + r] : p->scale);
        for (int64_t half = 0; half < PANEL; half += SIDE) {
            __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[r] + half)), scale);
            if (p->bias) value = _mm512_add_ps(value, _mm512_loadu_ps(p->bias + j + half));
            if (p->accumulate) value = _mm512_add_ps(_mm512_loadu_ps(to + half), value);
            _mm512_storeu_ps(to + half, value);
        }
    }
}

AMX void ISA(gemm_s8_amx)(const tandem_product_s8 *p)
{
    const amx_blocking by = plan_tiles(p->n, p->k);
    int8_t *const a = p->workspace, *const b = a + by.b;
    _Alignas(64) int32_t sums[PANEL][PANEL];
    _tile_loadconfig(&whole_tiles);
    for (int64_t first = 0; first < p->n; first += by.columns) {
        const int64_t end = smaller_count(p->n, first + by.columns), panel_bytes = by.steps * PANEL_STEP;
        pack_columns(b, p, first, end, by.steps);
        for (int64_t i = 0; i < p->m; i += PANEL) {
            const int64_t rows = smaller_count(p->m - i, PANEL);
            for (int64_t step = 0; step < by.steps; step++)
                pack_rows_step(a + step * PANEL_STEP, p, i, step * DEPTH, rows);
            for (int64_t j = first; j < end; j += PANEL) {
                multiply_panels(sums, a, b + (j - first) / PANEL * panel_bytes, by.steps);
                store_panel(p, i, j, (const int32_t(*)[PANEL])sums, rows, smaller_count(end - j, PANEL));
            }
        }
    }
    _tile_release();
}

#endif
