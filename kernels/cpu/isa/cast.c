/* cast.c: changes of precision that draw no random numbers.
 *
 * Floats are narrowed to bf16 two vectors at a time: their upper halves h in one vector, their lower halves l
 * in another, so that the rest is done on 16 bits. h becomes h + 1 where l + (h & 1), without overflow, is
 * above ½ = 0x8000: to nearest, ties to even. A NaN keeps its sign and upper payload and becomes quiet, so
 * that the cut cannot make it an infinity. */
#include "kernels/cpu/isa/vector.h"

typedef isa_integers cast_words;

static inline cast_words load_cast_words(const void *x) { return VECTOR_BITS(loadu)((const cast_words *)x); }
static inline void store_cast_words(void *y, cast_words v) { VECTOR_BITS(storeu)((cast_words *)y, v); }

#if defined __AVX512BW__

enum { WIDTH = 16, TABLE_PAYS = 512 };

static inline cast_words scale_s8(const int8_t *q, float scale)
{
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)q));
    return _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(wide), _mm512_set1_ps(scale)));
}

/* 0, 2, 4 … of two vectors of 32 halves each. */
static inline cast_words even_halves(void)
{
    const cast_words low = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const cast_words pairs = _mm512_or_si512(_mm512_slli_epi32(low, 2), _mm512_slli_epi32(low, 18));
    return _mm512_or_si512(pairs, _mm512_set1_epi32(2 << 16));
}

static inline cast_words narrow_to_bf16(cast_words a, cast_words b)
{
    const cast_words even = even_halves(), one = _mm512_set1_epi16(1);
    const cast_words l = _mm512_permutex2var_epi16(a, even, b);
    const cast_words h = _mm512_permutex2var_epi16(a, _mm512_or_si512(even, one), b);
    const cast_words biased = _mm512_adds_epu16(l, _mm512_and_si512(h, one));
    const __mmask32 up = _mm512_cmpgt_epu16_mask(biased, _mm512_set1_epi16(INT16_MIN));
    const cast_words magnitude = _mm512_and_si512(h, _mm512_set1_epi16(INT16_MAX));
    const cast_words nonzero_magnitude =
        _mm512_mask_add_epi16(magnitude, _mm512_test_epi16_mask(l, l), magnitude, one);
    const __mmask32 nan = _mm512_cmpgt_epu16_mask(nonzero_magnitude, _mm512_set1_epi16(0x7F80));
    const cast_words rounded = _mm512_mask_add_epi16(h, up, h, one);
    return _mm512_mask_mov_epi16(rounded, nan, _mm512_or_si512(h, _mm512_set1_epi16(0x40)));
}

/* 64 elements at a time, by a table of the results for 0 to 127: q and −q differ in the sign of the result
 * alone. Stops before a −128, which has no opposite, and returns how many are done. */
static size_t dequantise_by_table(uint16_t *x, const int8_t *q, size_t n, float scale)
{
    uint16_t result[128];
    cast_words table[4];
    for (int i = 0; i < 128; i++) result[i] = bf16_of_float((float)i * scale);
    for (int i = 0; i < 4; i++) table[i] = _mm512_loadu_si512(result + 32 * i);
    const cast_words sign = _mm512_set1_epi16(INT16_MIN), above_63 = _mm512_set1_epi16(64);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        const cast_words both = _mm512_loadu_si512(q + i);
        if (_mm512_cmpeq_epi8_mask(both, _mm512_set1_epi8(INT8_MIN))) break;
        for (int half = 0; half < 2; half++) {
            const cast_words wide =
                _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(q + i + 32 * half)));
            const cast_words index = _mm512_abs_epi16(wide);
            const cast_words low = _mm512_permutex2var_epi16(table[0], index, table[1]);
            const cast_words high = _mm512_permutex2var_epi16(table[2], index, table[3]);
            const cast_words magnitude =
                _mm512_mask_mov_epi16(low, _mm512_test_epi16_mask(index, above_63), high);
            _mm512_storeu_si512(x + i + 32 * half, _mm512_ternarylogic_epi32(magnitude, wide, sign, 0x78));
        }
    }
    return i;
}

#elif defined __AVX2__

enum { WIDTH = 8 };

static inline cast_words scale_s8(const int8_t *q, float scale)
{
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)q));
    return _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(scale)));
}

#else

enum { WIDTH = 4 };

static inline cast_words scale_s8(const int8_t *q, float scale)
{
    int32_t four;
    __builtin_memcpy(&four, q, sizeof four);
    const __m128 wide = _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four)));
    return _mm_castps_si128(_mm_mul_ps(wide, _mm_set1_ps(scale)));
}

#endif

#if !defined __AVX512BW__
static inline cast_words narrow_to_bf16(cast_words a, cast_words b)
{
    const cast_words one = VECTOR(set1_epi16)(1), low = VECTOR(set1_epi32)(0xFFFF);
    const cast_words h = VECTOR(packus_epi32)(VECTOR(srli_epi32)(a, 16), VECTOR(srli_epi32)(b, 16));
    const cast_words l = VECTOR(packus_epi32)(VECTOR_BITS(and)(a, low), VECTOR_BITS(and)(b, low));
    const cast_words biased = VECTOR(adds_epu16)(l, VECTOR_BITS(and)(h, one));
    const cast_words up = VECTOR(min_epu16)(VECTOR(subs_epu16)(biased, VECTOR(set1_epi16)(INT16_MIN)), one);
    const cast_words magnitude = VECTOR_BITS(and)(h, VECTOR(set1_epi16)(INT16_MAX));
    const cast_words nan = VECTOR(cmpgt_epi16)(VECTOR(adds_epi16)(magnitude, VECTOR(min_epu16)(l, one)),
                                               VECTOR(set1_epi16)(0x7F80));
    const cast_words quiet = VECTOR_BITS(or)(h, VECTOR(set1_epi16)(0x40));
    const cast_words narrow = VECTOR(blendv_epi8)(VECTOR(add_epi16)(h, up), quiet, nan);
#if defined __AVX2__
    return _mm256_permute4x64_epi64(narrow, 0xD8);
#else
    return narrow;
#endif
}
#endif

void ISA(dequantise_f32)(float *restrict x, const int8_t *restrict q, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)q[i] * scale;
}

void ISA(dequantise_bf16)(uint16_t *restrict x, const int8_t *restrict q, size_t n, float scale)
{
    size_t i = 0;
#if defined __AVX512BW__
    if (n >= TABLE_PAYS && scale == scale) i = dequantise_by_table(x, q, n, scale); /* a NaN keeps its sign */
#endif
    for (; n - i >= 2 * WIDTH; i += 2 * WIDTH)
        store_cast_words(x + i, narrow_to_bf16(scale_s8(q + i, scale), scale_s8(q + i + WIDTH, scale)));
    for (; i < n; i++) x[i] = bf16_of_float((float)q[i] * scale);
}

void ISA(bf16_from_f32)(uint16_t *restrict y, const float *restrict x, size_t n)
{
    size_t i = 0;
    for (; n - i >= 2 * WIDTH; i += 2 * WIDTH)
        store_cast_words(y + i, narrow_to_bf16(load_cast_words(x + i), load_cast_words(x + i + WIDTH)));
    for (; i < n; i++) y[i] = bf16_of_float(x[i]);
}

void ISA(f32_from_bf16)(float *restrict y, const uint16_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = float_of_bf16(x[i]);
}
