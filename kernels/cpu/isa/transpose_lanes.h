/* transpose_lanes.h: squares of vectors, transposed in registers: 16 of 16 lanes, 32 of 32 words. */
#pragma once

#include <immintrin.h>
#include <stdint.h>

/* rows[i] of 16 becomes column i. */
static inline __attribute__((always_inline)) void transpose_16x16(__m512 rows[16])
{
    __m512 a[16], b[16];
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i += 2)
    {
        a[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i += 4)
    {
        b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xEE);
        b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 4; i++)
    {
        a[i] = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xDD);
        a[i + 8] = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xDD);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 8; i++)
    {
        rows[i] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0xDD);
    }
}

/* A permutation: words `from` … `from` + 16 of two vectors in turns. */
static inline __m512i words_in_turns(int from)
{
    uint16_t word[32];
    for (int i = 0; i < 16; i++) {
        word[2 * i] = (uint16_t)(from + i);
        word[2 * i + 1] = (uint16_t)(32 + from + i);
    }
    return _mm512_loadu_si512(word);
}

/* rows[i] of 32 becomes column i; row i of the result lies at to + i·row. */
static inline void transpose_words_32x32(uint16_t *to, int64_t row, const __m512i rows[32])
{
    for (int half = 0; half < 2; half++) {
        const __m512i turns = words_in_turns(16 * half);
        __m512 pairs[16];
        for (int i = 0; i < 16; i++)
            pairs[i] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(rows[2 * i], turns, rows[2 * i + 1]));
        transpose_16x16(pairs);
        for (int i = 0; i < 16; i++) _mm512_storeu_ps(to + (16 * half + i) * row, pairs[i]);
    }
}
