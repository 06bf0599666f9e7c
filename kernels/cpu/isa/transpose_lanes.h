/* transpose_lanes.h: a square of 16 vectors of 16 lanes, transposed in registers. */
#pragma once

#include <immintrin.h>

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
