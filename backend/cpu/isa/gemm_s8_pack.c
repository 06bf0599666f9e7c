/* gemm_s8_pack.c: int8 operands of the int8 product, in any strides, into panels of int16 (layout in gemm_s8.h). */
#include "backend/cpu/isa/gemm_s8.h"

#include <string.h>

static inline __m128i load_16(const int8_t *from) { return _mm_loadu_si128((const __m128i *)(const void *)from); }


#if defined __AVX2__

enum { PLACE_ROWS = 8 };

static inline __m128i load_8(const int8_t *from) { return _mm_loadl_epi64((const __m128i *)(const void *)from); }

/* Eight rows' pairs of terms, widened: one half step. */
static inline void put(int16_t *to, __m128i pairs)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_cvtepi8_epi16(pairs));
}

/* 8 rows × 16 terms, the terms of a row side by side: an 8 × 8 transpose of pairs. */
static inline void place_along(int16_t *to, int64_t half_stride, const int8_t *from, int64_t row_stride)
{
    __m128i r[8], s[8];
    for (int i = 0; i < 8; i++)
        r[i] = load_16(from + i * row_stride);
    for (int i = 0; i < 4; i++) {
        s[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        s[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        r[4 * i] = _mm_unpacklo_epi32(s[4 * i], s[4 * i + 2]);
        r[4 * i + 1] = _mm_unpackhi_epi32(s[4 * i], s[4 * i + 2]);
        r[4 * i + 2] = _mm_unpacklo_epi32(s[4 * i + 1], s[4 * i + 3]);
        r[4 * i + 3] = _mm_unpackhi_epi32(s[4 * i + 1], s[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        put(to + (2 * i) * half_stride, _mm_unpacklo_epi64(r[i], r[i + 4]));
        put(to + (2 * i + 1) * half_stride, _mm_unpackhi_epi64(r[i], r[i + 4]));
    }
}

/* 8 rows × 16 terms, a term of all rows side by side. */
static inline void place_across(int16_t *to, int64_t half_stride, const int8_t *from, int64_t term_stride)
{
    for (int half = 0; half < 8; half++) {
        const int8_t *term = from + 2 * half * term_stride;
        put(to + half * half_stride, _mm_unpacklo_epi8(load_8(term), load_8(term + term_stride)));
    }
}

#else

enum { PLACE_ROWS = 4 };

static inline __m128i load_4(const int8_t *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return _mm_cvtsi32_si128(four);
}

static inline void put(int16_t *to, __m128i terms)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm_cvtepi8_epi16(terms));
}

/* 4 rows × 16 terms, the terms of a row side by side. */
static inline void place_along(int16_t *to, int64_t half_stride, const int8_t *from, int64_t row_stride)
{
    for (int row = 0; row < 4; row++) {
        const __m128i terms = load_16(from + row * row_stride);
        put(to + row * RUN, terms);
        put(to + half_stride + row * RUN, _mm_unpackhi_epi64(terms, terms));
    }
}

/* 4 rows × 16 terms, a term of all rows side by side: two transposes of 8 × 4 bytes. */
static inline void place_across(int16_t *to, int64_t half_stride, const int8_t *from, int64_t term_stride)
{
    for (int half = 0; half < 2; half++) {
        __m128i pair[4], quad[2];
        for (int i = 0; i < 4; i++) {
            const int8_t *term = from + (8 * half + 2 * i) * term_stride;
            pair[i] = _mm_unpacklo_epi8(load_4(term), load_4(term + term_stride));
        }
        for (int i = 0; i < 2; i++)
            quad[i] = _mm_unpacklo_epi16(pair[2 * i], pair[2 * i + 1]);
        const __m128i row01 = _mm_unpacklo_epi32(quad[0], quad[1]), row23 = _mm_unpackhi_epi32(quad[0], quad[1]);
        put(to, row01);
        put(to + RUN, _mm_unpackhi_epi64(row01, row01));
        put(to + 2 * RUN, row23);
        put(to + 3 * RUN, _mm_unpackhi_epi64(row23, row23));
        to += half_stride;
    }
}

#endif

/* One PLACE_ROWS × PACK_DEPTH block, of which `rows` and `terms` lie inside the operand. */
static void place(int16_t *to, int64_t half_stride, const int8_t *from, int64_t rows, int64_t terms,
                  int64_t row_stride, int64_t term_stride)
{
    if (rows >= PLACE_ROWS && terms >= PACK_DEPTH && term_stride == 1) {
        place_along(to, half_stride, from, row_stride);
    } else if (rows >= PLACE_ROWS && terms >= PACK_DEPTH && row_stride == 1) {
        place_across(to, half_stride, from, term_stride);
    } else {
        int8_t block[PLACE_ROWS][PACK_DEPTH] = {{0}};
        for (int64_t i = 0; i < smaller(rows, PLACE_ROWS); i++) {
            for (int64_t l = 0; l < smaller(terms, PACK_DEPTH); l++)
                block[i][l] = from[i * row_stride + l * term_stride];
        }
        place_along(to, half_stride, block[0], PACK_DEPTH);
    }
}

/* correction[slot] += Σ x1·x2 of a packed panel. */
static void correct(uint32_t *correction, const int16_t *panel, int64_t slots, int64_t depth)
{
    const int64_t half_stride = slots * RUN;
#if defined __AVX2__
    for (int64_t slot = 0; slot < slots; slot += 8) {
        const int16_t *at = panel + slot * RUN;
        __m256i *out = (__m256i *)(void *)(correction + slot);
        __m256i sum = _mm256_loadu_si256(out);
        for (int64_t l = 0; l < depth; l += 2 * RUN, at += 2 * half_stride) {
            const __m256i x1 = _mm256_loadu_si256((const __m256i *)(const void *)at);
            const __m256i x2 = _mm256_loadu_si256((const __m256i *)(const void *)(at + half_stride));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x1, x2));
        }
        _mm256_storeu_si256(out, sum);
    }
#else
    __m128i sum[4] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
    for (int64_t l = 0; l < depth; l += 2 * RUN, panel += 2 * half_stride) {
        for (int slot = 0; slot < 4; slot++) {
            const __m128i x1 = _mm_loadu_si128((const __m128i *)(const void *)(panel + slot * RUN));
            const __m128i x2 = _mm_loadu_si128((const __m128i *)(const void *)(panel + half_stride + slot * RUN));
            sum[slot] = _mm_add_epi32(sum[slot], _mm_madd_epi16(x1, x2));
        }
    }
    __m128i *out = (__m128i *)(void *)correction;
    const __m128i four = _mm_hadd_epi32(_mm_hadd_epi32(sum[0], sum[1]), _mm_hadd_epi32(sum[2], sum[3]));
    _mm_storeu_si128(out, _mm_add_epi32(_mm_loadu_si128(out), four));
#endif
}

void ISA(gemm_s8_pack)(int16_t *panels, uint32_t *correction, int64_t slots, const int8_t *from, int64_t rows,
                       int64_t depth, int64_t row_stride, int64_t term_stride)
{
    const int64_t filled_rows = filled_up(rows, slots), filled_depth = filled_up(depth, PACK_DEPTH);
    /* Along the operand's own order of memory: a few rows at a time, or a few terms of all rows. */
    const int64_t row_unit = term_stride == 1 ? slots : filled_rows;
    const int64_t term_unit = term_stride == 1 ? filled_depth : PACK_DEPTH;
    for (int64_t row0 = 0; row0 < filled_rows; row0 += row_unit) {
        for (int64_t term0 = 0; term0 < filled_depth; term0 += term_unit) {
            for (int64_t i = row0; i < row0 + row_unit; i += PLACE_ROWS) {
                for (int64_t l = term0; l < term0 + term_unit; l += PACK_DEPTH) {
                    int16_t *to = panels + i / slots * slots * filled_depth + l * slots + i % slots * RUN;
                    place(to, slots * RUN, from + i * row_stride + l * term_stride, rows - i, depth - l, row_stride,
                          term_stride);
                }
            }
        }
    }
    for (int64_t row = 0; row < filled_rows; row += slots)
        correct(correction + row, panels + row * filled_depth, slots, filled_depth);
}
