/* gemm_s8_tile.c: the innermost loops of the int8 product: a tile of C kept in registers over a whole depth. */
#include "backend/cpu/isa/gemm_s8.h"

#include <string.h>

#define UNROLLED _Pragma("GCC unroll 16")

/* Tells the compiler that v is in a register and is to stay there: it would else load an operand again for each use,
 * and the loads, not the multiplications, would then set the pace. */
#define HELD(v) __asm__ volatile("" : "+v"(v))

/* c += term in c's own register, where the compiler would add into another one and copy it back. */
#if defined __AVX__
#define ACCUMULATE(c, term) __asm__ volatile("vpaddd %1, %0, %0" : "+v"(c) : "v"(term))
#else
#define ACCUMULATE(c, term) __asm__ volatile("paddd %1, %0" : "+x"(c) : "x"(term))
#endif

#if defined __AVX512BW__
typedef __m512i vector;
static inline vector zero(void) { return _mm512_setzero_si512(); }
static inline vector load(const void *from) { return _mm512_load_si512(from); }
static inline void keep(void *to, vector v) { _mm512_storeu_si512(to, v); }
static inline vector plus16(vector a, vector b) { return _mm512_add_epi16(a, b); }
static inline vector plus32(vector a, vector b) { return _mm512_add_epi32(a, b); }
static inline vector products(vector a, vector b) { return _mm512_madd_epi16(a, b); }
static inline vector splat(int32_t pair) { return _mm512_set1_epi32(pair); }
#elif defined __AVX2__
typedef __m256i vector;
static inline vector zero(void) { return _mm256_setzero_si256(); }
static inline vector load(const void *from) { return _mm256_load_si256(from); }
static inline void keep(void *to, vector v) { _mm256_storeu_si256(to, v); }
static inline vector plus16(vector a, vector b) { return _mm256_add_epi16(a, b); }
static inline vector plus32(vector a, vector b) { return _mm256_add_epi32(a, b); }
static inline vector products(vector a, vector b) { return _mm256_madd_epi16(a, b); }
static inline vector splat(int32_t pair) { return _mm256_set1_epi32(pair); }
#else
typedef __m128i vector;
static inline vector zero(void) { return _mm_setzero_si128(); }
static inline vector load(const void *from) { return _mm_load_si128(from); }
static inline void keep(void *to, vector v) { _mm_storeu_si128(to, v); }
static inline vector plus16(vector a, vector b) { return _mm_add_epi16(a, b); }
static inline vector plus32(vector a, vector b) { return _mm_add_epi32(a, b); }
static inline vector products(vector a, vector b) { return _mm_madd_epi16(a, b); }
#endif

#if defined __AVX2__

enum { LANES = (int)(sizeof(vector) / sizeof(int32_t)) };

static inline vector broadcast(const int16_t *pair)
{
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return splat(both);
}

static inline __attribute__((always_inline)) void tile(uint32_t *sum, const int16_t *a, const int16_t *b,
                                                       int64_t steps, const int rows, const int vectors, int add)
{
    vector c[TILE_ROWS][2];
    UNROLLED
    for (int i = 0; i < rows; i++) {
        UNROLLED
        for (int j = 0; j < vectors; j++)
            c[i][j] = zero();
    }
    const int64_t half = vectors * LANES * RUN;
    for (int64_t step = 0; step < steps; step++) {
        vector y1[2], y2[2];
        UNROLLED
        for (int j = 0; j < vectors; j++) {
            y1[j] = load(b + j * LANES * RUN);
            y2[j] = load(b + half + j * LANES * RUN);
            HELD(y1[j]);
            HELD(y2[j]);
        }
        UNROLLED
        for (int i = 0; i < rows; i++) {
            vector x1 = broadcast(a + i * RUN), x2 = broadcast(a + (A_SLOTS + i) * RUN);
            HELD(x1);
            HELD(x2);
            UNROLLED
            for (int j = 0; j < vectors; j++) {
                ACCUMULATE(c[i][j], products(plus16(x1, y2[j]), plus16(x2, y1[j])));
            }
        }
        a += 2 * A_SLOTS * RUN;
        b += 2 * half;
    }
    UNROLLED
    for (int i = 0; i < rows; i++) {
        UNROLLED
        for (int j = 0; j < vectors; j++) {
            uint32_t *to = sum + i * TILE_COLUMNS + j * LANES;
            keep(to, add ? plus32(c[i][j], load(to)) : c[i][j]);
        }
    }
}

#define HEIGHT(rows)                                       \
    case rows:                                             \
        if (columns > NARROW_COLUMNS)                      \
            tile(sum, a, b, steps, rows, 2, add);          \
        else                                               \
            tile(sum, a, b, steps, rows, 1, add);          \
        break;

void ISA(gemm_s8_tile)(uint32_t *sum, const int16_t *a, const int16_t *b, int64_t steps, int64_t rows, int64_t columns,
                       int add)
{
    switch (rows) {
        HEIGHT(1)
        HEIGHT(2)
        HEIGHT(3)
#if defined __AVX512BW__
        HEIGHT(4)
        HEIGHT(5)
        HEIGHT(6)
        HEIGHT(7)
#endif
    default:
        HEIGHT(TILE_ROWS)
    }
}

#else

/* The sums of four vectors, side by side. */
static inline vector across(const vector c[4])
{
    return _mm_hadd_epi32(_mm_hadd_epi32(c[0], c[1]), _mm_hadd_epi32(c[2], c[3]));
}

void ISA(gemm_s8_tile)(uint32_t *sum, const int16_t *a, const int16_t *b, int64_t steps, int64_t rows, int64_t columns,
                       int add)
{
    enum { LANES = 8 };
    vector c0[4] = {zero(), zero(), zero(), zero()}, c1[4] = {zero(), zero(), zero(), zero()};
    (void)rows;
    (void)columns;
    for (int64_t step = 0; step < steps; step++) {
        vector x1 = load(a), z1 = load(a + RUN), x2 = load(a + A_SLOTS * RUN), z2 = load(a + (A_SLOTS + 1) * RUN);
        HELD(x1);
        HELD(x2);
        HELD(z1);
        HELD(z2);
        UNROLLED
        for (int j = 0; j < 4; j++) {
            vector y1 = load(b + j * RUN), y2 = load(b + (4 + j) * RUN);
            HELD(y1);
            HELD(y2);
            ACCUMULATE(c0[j], products(plus16(x1, y2), plus16(x2, y1)));
            ACCUMULATE(c1[j], products(plus16(z1, y2), plus16(z2, y1)));
        }
        a += 2 * A_SLOTS * RUN;
        b += 2 * 4 * RUN;
    }
    const vector row0 = across(c0), row1 = across(c1);
    keep(sum, add ? plus32(row0, load(sum)) : row0);
    keep(sum + TILE_COLUMNS, add ? plus32(row1, load(sum + TILE_COLUMNS)) : row1);
}

#endif
