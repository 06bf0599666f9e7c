/* gemm_s8_tile.c: the innermost loops of the int8 product: a tile of C stays in registers over the whole
 * depth of a block, and is dequantised from there. */
#include "kernels/cpu/isa/gemm_s8.h"

#include <string.h>

#include "kernels/cpu/isa/vector.h"

#define UNROLLED _Pragma("GCC unroll 16")

/* Makes the compiler keep v in a register: it would else load an operand again for
 * each use, and the loads, not the multiplications, would then set the pace. */
#define KEEP_IN_REGISTER(v) __asm__ volatile("" : "+v"(v))

/* c += term in c's own register, where the compiler would add into another one and copy it back. */
#if defined __AVX__
#define ACCUMULATE(c, term) __asm__ volatile("vpaddd %1, %0, %0" : "+v"(c) : "v"(term))
#else
#define ACCUMULATE(c, term) __asm__ volatile("paddd %1, %0" : "+x"(c) : "x"(term))
#endif

/* c += the dot products of four unsigned bytes and four signed ones, in c's own register. */
#if defined __AVX512VNNI__
#define ACCUMULATE_DOT(c, a, b) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b))
#elif defined __AVXVNNI__
#define ACCUMULATE_DOT(c, a, b) __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b))
#endif

typedef isa_integers tile_vector;
static inline tile_vector zero_vector(void) { return VECTOR_BITS(setzero)(); }
static inline tile_vector load_vector(const void *from) { return VECTOR_BITS(load)(from); }
static inline void store_vector(void *to, tile_vector v) { VECTOR_BITS(store)(to, v); }
static inline tile_vector add16(tile_vector a, tile_vector b) { return VECTOR(add_epi16)(a, b); }
static inline tile_vector add32(tile_vector a, tile_vector b) { return VECTOR(add_epi32)(a, b); }
static inline tile_vector sub32(tile_vector a, tile_vector b) { return VECTOR(sub_epi32)(a, b); }
static inline tile_vector multiply_add16(tile_vector a, tile_vector b) { return VECTOR(madd_epi16)(a, b); }
static inline tile_vector splat_u32(uint32_t value) { return VECTOR(set1_epi32)((int)value); }
/* In the order of operations of gemm_s8_store_rows. */
static inline void store_scaled(float *to, tile_vector sum, float scale, const float *bias, int accumulate)
{
    isa_floats value = VECTOR(mul_ps)(VECTOR(cvtepi32_ps)(sum), VECTOR(set1_ps)(scale));
    if (bias) value = VECTOR(add_ps)(value, VECTOR(loadu_ps)(bias));
    if (accumulate) value = VECTOR(add_ps)(VECTOR(loadu_ps)(to), value);
    VECTOR(storeu_ps)(to, value);
}

enum {
    LANES = (int)(sizeof(tile_vector) / sizeof(uint32_t)),
    COLUMNS = (int)(sizeof(tile_vector) / (RUN * sizeof(gemm_s8_packed))), /* of B in a vector */
    STEP = (GEMM_S8_DOT ? 1 : 2) * RUN,                                    /* terms */
    FETCH_DEPTH = 192,      /* terms: a tile of fewer is done before C's lines come */
    FIRST_CACHE = 40 << 10, /* bytes that stay in it */
    AHEAD = 6 * A_SLOTS * STEP * (int)sizeof(gemm_s8_packed) /* bytes: six steps */
};

/* The value of a step of a row's integers. */
static inline float scale_of_row(const tandem_product_s8 *product, int64_t i)
{
    return product->row_scale ? product->scale * product->row_scale[i] : product->scale;
}

/* What is in C from place `at` on comes first. */
static void add_previous(float *value, const tandem_product_s8 *product, int64_t at, int64_t columns)
{
    const float *const wide = (const float *)product->c + at;
    const uint16_t *const half = (const uint16_t *)product->c + at;
    for (int64_t l = 0; l < columns; l++)
        value[l] = (product->c_type == TANDEM_F32 ? wide[l] : float_of_bf16(half[l])) + value[l];
}

__attribute__((noinline)) void ISA(gemm_s8_store_rows)(const tandem_product_s8 *product, int64_t i, int64_t j,
                                                       const int32_t (*compute_tile)[TILE_COLUMNS],
                                                       int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = (i + r) * product->c_row + j;
        const float scale = scale_of_row(product, i + r);
        float value[TILE_COLUMNS] = {0};
        uint16_t half[TILE_COLUMNS];
        if (product->c_type == TANDEM_S32) {
            memcpy((int32_t *)product->c + at, compute_tile[r], (size_t)columns * sizeof(int32_t));
            continue;
        }
        for (int64_t l = 0; l < columns; l++) value[l] = (float)compute_tile[r][l] * scale;
        for (int64_t l = 0; product->column_scale && l < columns; l++)
            value[l] *= product->column_scale[j + l];
        for (int64_t l = 0; product->bias && l < columns; l++) value[l] += product->bias[j + l];
        if (product->accumulate) add_previous(value, product, at, columns);
        if (product->c_type == TANDEM_F32) {
            memcpy((float *)product->c + at, value, (size_t)columns * sizeof(float));
            continue;
        }
        for (int64_t l = 0; l < columns; l++) half[l] = bf16_of_float(value[l]);
        memcpy((uint16_t *)product->c + at, half, (size_t)columns * sizeof(uint16_t));
    }
}

/* A tile (rows i …, columns j … of the block) that was summed up in registers: kept in `sums` for the next
 * block of k, or written to C. */
static inline __attribute__((always_inline)) void finish_tile(const gemm_s8_block *of, int64_t i, int64_t j,
                                                              int64_t columns, uint32_t *sums,
                                                              tile_vector c[TILE_ROWS][2], const int rows,
                                                              const int vectors)
{
    const tandem_product_s8 *product = of->product;
    const uint32_t *a_correction = of->a_correction + i;
    const uint32_t *b_correction = GEMM_S8_DOT ? NULL : of->b_correction + j;
    if (!of->is_first) {
        UNROLLED
        for (int at = 0; at < rows * vectors; at++)
            c[at / vectors][at % vectors] =
                add32(c[at / vectors][at % vectors], load_vector(sums + at * LANES));
    }
    if (!of->is_last) {
        UNROLLED
        for (int at = 0; at < rows * vectors; at++)
            store_vector(sums + at * LANES, c[at / vectors][at % vectors]);
        return;
    }
    _Alignas(64) int32_t edge[TILE_ROWS][TILE_COLUMNS];
    const int is_plain =
        product->c_type == TANDEM_F32 && columns == vectors * LANES && !product->column_scale;
    const float *bias = product->bias ? product->bias + of->j + j : NULL;
    float *to = (float *)product->c + (of->i + i) * product->c_row + of->j + j;
    tile_vector correction[2];
    UNROLLED
    for (int v = 0; v < vectors; v++)
        correction[v] = GEMM_S8_DOT ? zero_vector() : load_vector(b_correction + v * LANES);
    UNROLLED
    for (int r = 0; r < rows; r++) {
        const tile_vector a_row = splat_u32(a_correction[r]);
        const float scale = scale_of_row(product, of->i + i + r);
        UNROLLED
        for (int v = 0; v < vectors; v++) {
            const tile_vector sum = sub32(c[r][v], add32(a_row, correction[v]));
            if (is_plain)
                store_scaled(to + r * product->c_row + v * LANES, sum, scale, bias ? bias + v * LANES : NULL,
                             product->accumulate);
            else
                store_vector(edge[r] + v * LANES, sum);
        }
    }
    if (is_plain) return;
    ISA(gemm_s8_store_rows)
    (product, of->i + i, of->j + j, (const int32_t(*)[TILE_COLUMNS])edge, rows, columns);
}

/* RUN terms of a row, for every column of a vector. */
static inline tile_vector broadcast(const gemm_s8_packed *terms)
{
#if defined __AVX2__
    uint32_t both;
    memcpy(&both, terms, sizeof both);
    return splat_u32(both);
#elif defined __AVX__
    float both; /* as a float: that is what this set can broadcast from memory */
    memcpy(&both, terms, sizeof both);
    return _mm_castps_si128(_mm_set1_ps(both));
#else
    int64_t four;
    memcpy(&four, terms, sizeof four);
    return _mm_set1_epi64x(four);
#endif
}

#if GEMM_S8_DOT

/* Rows of A lie `row` apart. */
static inline __attribute__((always_inline)) void multiply_tile_step(tile_vector c[TILE_ROWS][2],
                                                                     const gemm_s8_packed *a, int64_t row,
                                                                     const gemm_s8_packed *b, const int rows,
                                                                     const int vectors)
{
    tile_vector y[2];
    UNROLLED
    for (int j = 0; j < vectors; j++) {
        y[j] = load_vector(b + j * COLUMNS * RUN);
        KEEP_IN_REGISTER(y[j]);
    }
    UNROLLED
    for (int i = 0; i < rows; i++) {
        tile_vector x = broadcast(a + i * row);
        KEEP_IN_REGISTER(x);
        UNROLLED
        for (int j = 0; j < vectors; j++) ACCUMULATE_DOT(c[i][j], y[j], x);
    }
}

#else

static inline __attribute__((always_inline)) void multiply_tile_step(tile_vector c[TILE_ROWS][2],
                                                                     const gemm_s8_packed *a, int64_t row,
                                                                     const gemm_s8_packed *b, const int rows,
                                                                     const int vectors)
{
    const gemm_s8_packed *const second = b + vectors * COLUMNS * RUN;
    tile_vector y1[2], y2[2];
    UNROLLED
    for (int j = 0; j < vectors; j++) {
        y1[j] = load_vector(b + j * COLUMNS * RUN);
        y2[j] = load_vector(second + j * COLUMNS * RUN);
        KEEP_IN_REGISTER(y1[j]);
        KEEP_IN_REGISTER(y2[j]);
    }
    UNROLLED
    for (int i = 0; i < rows; i++) {
        tile_vector x1 = broadcast(a + i * row), x2 = broadcast(a + A_SLOTS * RUN + i * row);
        KEEP_IN_REGISTER(x1);
        KEEP_IN_REGISTER(x2);
        UNROLLED
        for (int j = 0; j < vectors; j++)
            ACCUMULATE(c[i][j], multiply_add16(add16(x1, y2[j]), add16(x2, y1[j])));
    }
}

#endif

/* C's lines come while the tile is summed: it is often not in a cache, and stores would wait for it. */
static inline __attribute__((always_inline)) void fetch_result(const gemm_s8_block *of, int64_t i, int64_t j,
                                                               const int rows, const int vectors)
{
    const tandem_product_s8 *p = of->product;
    const uintptr_t element = p->c_type == TANDEM_BF16 ? sizeof(uint16_t) : sizeof(float),
                    row = (uintptr_t)p->c_row * element;
    uintptr_t at = (uintptr_t)p->c + (uintptr_t)(of->i + i) * row + (uintptr_t)(of->j + j) * element;
    if (!of->is_last) return;
    UNROLLED
    for (int r = 0; r < rows; r++, at += row) {
        UNROLLED
        for (int v = 0; v < vectors; v++)
            _mm_prefetch((const char *)(at + (uintptr_t)v * LANES * element), _MM_HINT_T0);
    }
}

static inline __attribute__((always_inline)) void compute_tile(const gemm_s8_block *of, int64_t i0,
                                                               int64_t j0, int64_t columns, uint32_t *sums,
                                                               const int rows, const int vectors,
                                                               const int is_packed)
{
    const gemm_s8_packed *a = of->a + i0 / A_SLOTS * A_SLOTS * of->depth + i0 % A_SLOTS * RUN;
    const gemm_s8_packed *b = of->b + j0 * of->depth;
    const int64_t width = vectors * COLUMNS;
    tile_vector c[TILE_ROWS][2];
    if (of->depth >= FETCH_DEPTH) fetch_result(of, i0, j0, rows, vectors);
    UNROLLED
    for (int i = 0; i < rows; i++) {
        UNROLLED
        for (int j = 0; j < vectors; j++) c[i][j] = zero_vector();
    }
    if (is_packed) {
        for (const gemm_s8_packed *end = a + of->depth * A_SLOTS; a < end;
             a += A_SLOTS * STEP, b += width * STEP) {
            /* The panels of A pass through the first cache while b stays: fetched ahead, they are never
             * waited for. */
            _mm_prefetch((const char *)((uintptr_t)a + AHEAD), _MM_HINT_T0);
            multiply_tile_step(c, a, RUN, b, rows, vectors);
        }
    }
#if GEMM_S8_DOT
    else {
        const int64_t row = of->product->a_row;
        a = of->a_rows + i0 * row;
        for (const gemm_s8_packed *end = a + of->terms; a < end; a += STEP, b += width * STEP)
            multiply_tile_step(c, a, row, b, rows, vectors);
    }
#endif
#if defined __AVX__
    finish_tile(of, i0, j0, columns, sums, c, rows, vectors);
#else
    UNROLLED
    for (int i = 0; i < rows; i++) c[i][0] = _mm_hadd_epi32(c[i][0], c[i][1]);
    finish_tile(of, i0, j0, columns, sums, c, rows, 1);
#endif
}

#define HEIGHT(rows)                                                                                         \
    case rows:                                                                                               \
        if (NARROW_COLUMNS == TILE_COLUMNS || columns > NARROW_COLUMNS)                                      \
            compute_tile(of, i, j, columns, sums, rows, 2, is_packed);                                       \
        else                                                                                                 \
            compute_tile(of, i, j, columns, sums, rows, 1, is_packed);                                       \
        break;

static inline __attribute__((always_inline)) void compute_tile_of_height(const gemm_s8_block *of, int64_t i,
                                                                         int64_t j, int64_t rows,
                                                                         int64_t columns, uint32_t *sums,
                                                                         const int is_packed)
{
    switch (rows) {
        HEIGHT(1)
        HEIGHT(2)
        HEIGHT(3)
#if defined __AVX512BW__ || GEMM_S8_DOT
        HEIGHT(4)
        HEIGHT(5)
#endif
#if defined __AVX512BW__
        HEIGHT(6)
        HEIGHT(7)
#endif
    default: HEIGHT(TILE_ROWS)
    }
}

#define DEFINE_TILE(name, is_packed)                                                                         \
    static __attribute__((noinline)) void name(const gemm_s8_block *of, int64_t i, int64_t j, int64_t rows,  \
                                               int64_t columns, uint32_t *sums)                              \
    {                                                                                                        \
        compute_tile_of_height(of, i, j, rows, columns, sums, is_packed);                                    \
    }

DEFINE_TILE(compute_packed_tile, 1)
#if GEMM_S8_DOT
DEFINE_TILE(compute_tile_of_rows, 0)
#endif

static void compute_any_tile(const gemm_s8_block *of, int64_t i, int64_t j, int64_t rows, int64_t columns,
                             uint32_t *sums)
{
#if GEMM_S8_DOT
    if (of->a_rows) {
        compute_tile_of_rows(of, i, j, rows, columns, sums);
        return;
    }
#endif
    compute_packed_tile(of, i, j, rows, columns, sums);
}

void ISA(gemm_s8_multiply)(const gemm_s8_block *block)
{
    uint32_t *sums = block->sums;
    if (!block->k_is_cut && block->columns * block->depth * (int64_t)sizeof *block->b <= FIRST_CACHE) {
        for (int64_t i = 0; i < block->rows; i += TILE_ROWS)
            for (int64_t j = 0; j < block->columns; j += TILE_COLUMNS)
                compute_any_tile(block, i, j, smaller_count(block->rows - i, TILE_ROWS),
                                 smaller_count(block->columns - j, TILE_COLUMNS), sums);
        return;
    }
    for (int64_t j = 0; j < block->columns; j += TILE_COLUMNS) {
        const int64_t columns = smaller_count(block->columns - j, TILE_COLUMNS);
        for (int64_t i = 0; i < block->rows; i += TILE_ROWS) {
            compute_any_tile(block, i, j, smaller_count(block->rows - i, TILE_ROWS), columns, sums);
            if (block->k_is_cut) sums += TILE_ROWS * TILE_COLUMNS;
        }
    }
}
