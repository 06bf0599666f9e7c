/* quantise.c: rounding to int8, stochastically and to nearest.
 *
 * The random words come from Philox4x32-10 computed for 2, 4 or 8 blocks at once. One vector holds one
 * counter word of every block, each in a 64-bit lane of its own, because the multiplication that makes up the
 * generator (32 × 32 → 64) reads the lower half of a lane and ignores the upper: so no word is ever moved to
 * where it can be multiplied, and the upper halves may hold anything. Only the last round makes them tidy.
 *
 * Three of the four counter words are the same for all blocks of a call. One product of the first round and
 * one of the second are therefore constants, and the other product of the first round, M0 · block, grows by a
 * constant.
 *
 * A draw becomes a float without a conversion: 0x4300 over the 16 bits of r is the float 128 + r/65536, from
 * which 128 − 2^−17 is subtracted exactly. */
#include "kernels/cpu/isa/vector.h"

#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define KEY_STEP_0 0x9E3779B9u
#define KEY_STEP_1 0xBB67AE85u
#define DRAW_EXPONENT 0x4300
#define DRAW_OFFSET 0x1.fffffep+6f /* 128 − 2^−17 */

typedef isa_integers quant_words;
typedef isa_floats quant_floats;

static inline quant_words add64(quant_words a, quant_words b) { return VECTOR(add_epi64)(a, b); }
static inline quant_words multiply_low(quant_words a, quant_words b) { return VECTOR(mul_epu32)(a, b); }
static inline quant_words upper_half(quant_words a) { return VECTOR(srli_epi64)(a, 32); }
static inline quant_words xor_two(quant_words a, quant_words b) { return VECTOR_BITS(xor)(a, b); }
static inline quant_words xor_three(quant_words a, quant_words b, quant_words c)
{
#if defined __AVX512BW__
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
#else
    return xor_two(a, xor_two(b, c));
#endif
}

static inline quant_floats splat_float(float value) { return VECTOR(set1_ps)(value); }
static inline quant_floats load_quant_f32(const float *x) { return VECTOR(loadu_ps)(x); }

/* clamp(floor(x · inv_scale + u)) as int32, its lower bound left to `store`; below the range and NaN:
 * INT32_MIN. */
static inline quant_words round_with_draw(quant_floats x, quant_floats inv_scale, quant_floats u)
{
    const quant_floats sum = VECTOR(add_ps)(VECTOR(mul_ps)(x, inv_scale), u),
                       below = VECTOR(min_ps)(VECTOR(set1_ps)(127.0f), sum);
#if defined __AVX512BW__
    return _mm512_cvt_roundps_epi32(below, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    return VECTOR(cvttps_epi32)(VECTOR(floor_ps)(below));
#endif
}

/* The larger of bits of magnitudes. */
static inline quant_words max_magnitude(quant_words bits, quant_floats x)
{
    const quant_words magnitude = VECTOR_BITS(and)(VECTOR_BITS(castps)(x), VECTOR(set1_epi32)(0x7FFFFFFF));
    return VECTOR(max_epi32)(bits, magnitude);
}

static inline quant_words round_to_nearest(quant_floats x, quant_floats inv_scale)
{
    return VECTOR(cvtps_epi32)(VECTOR(min_ps)(VECTOR(set1_ps)(127.0f), VECTOR(mul_ps)(x, inv_scale)));
}

/* BLOCKS blocks of 8 elements are rounded at a time; vector q of a group holds its elements q·WIDTH to
 * q·WIDTH+WIDTH−1. */
#if defined __AVX512BW__

enum { BLOCKS = 8, WIDTH = 16 };

static inline quant_words splat_u64(uint64_t value) { return _mm512_set1_epi64((long long)value); }
/* Block 0, 4, 1, 5, …: so that interleaving quads puts blocks 0 to 3 in order into one vector, 4 to 7 into
 * another. */
static inline quant_words first_block_counters(void) { return _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0); }

/* Words 2i, 2i+1 of the result from the last product: upper(product) ^ a ^ key below, lower(product) above.
 * */
static inline quant_words join_words(quant_words last, quant_words a, quant_words key)
{
    const quant_words swapped = _mm512_rol_epi64(last, 32);
    return _mm512_mask_ternarylogic_epi32(swapped, 0x5555, a, key, 0x96);
}

/* The group's draws in the order of its elements, each a float in (0, 1). */
static inline void draws_to_floats(quant_floats u[4], quant_words w01, quant_words w23)
{
    const quant_words exponent = _mm512_set1_epi16(DRAW_EXPONENT);
    const quant_words low = _mm512_and_si512(
        _mm512_set1_epi32(0xFFFF), _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    const quant_words high = _mm512_add_epi32(low, _mm512_set1_epi32(16));
    const quant_words b0 = _mm512_unpacklo_epi64(w01, w23), b4 = _mm512_unpackhi_epi64(w01, w23);
    const quant_floats offset = _mm512_set1_ps(DRAW_OFFSET);
    const __mmask32 even = 0x55555555u;
    u[0] = _mm512_sub_ps(_mm512_castsi512_ps(_mm512_mask_permutexvar_epi16(exponent, even, low, b0)), offset);
    u[1] =
        _mm512_sub_ps(_mm512_castsi512_ps(_mm512_mask_permutexvar_epi16(exponent, even, high, b0)), offset);
    u[2] = _mm512_sub_ps(_mm512_castsi512_ps(_mm512_mask_permutexvar_epi16(exponent, even, low, b4)), offset);
    u[3] =
        _mm512_sub_ps(_mm512_castsi512_ps(_mm512_mask_permutexvar_epi16(exponent, even, high, b4)), offset);
}

static inline quant_floats load_quant_bf16(const uint16_t *x)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline void store_s8(int8_t *q, quant_words v[4])
{
    const quant_words quads =
        _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
    const quant_words order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const quant_words bytes = _mm512_permutexvar_epi32(order, quads);
    _mm512_storeu_si512(q, _mm512_max_epi8(bytes, _mm512_set1_epi8(-127)));
}

#elif defined __AVX2__

enum { BLOCKS = 4, WIDTH = 8 };

static inline quant_words splat_u64(uint64_t value) { return _mm256_set1_epi64x((long long)value); }
static inline quant_words first_block_counters(void) { return _mm256_set_epi64x(3, 2, 1, 0); }

static inline quant_words join_words(quant_words last, quant_words a, quant_words key)
{
    const quant_words swapped = _mm256_shuffle_epi32(last, 0xB1);
    return _mm256_blend_epi32(swapped, xor_three(swapped, a, key), 0x55);
}

static inline void draws_to_floats(quant_floats u[4], quant_words w01, quant_words w23)
{
    const quant_words exponent = _mm256_set1_epi16(DRAW_EXPONENT);
    const quant_floats offset = _mm256_set1_ps(DRAW_OFFSET);
    /* Blocks 0, 1 and 2, 3: the first four draws of each in the lower half, the others in the upper. */
    const quant_words b0 = _mm256_permute2x128_si256(w01, w23, 0x20),
                      b2 = _mm256_permute2x128_si256(w01, w23, 0x31);
    u[0] = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(b0, exponent)), offset);
    u[1] = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(b0, exponent)), offset);
    u[2] = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(b2, exponent)), offset);
    u[3] = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(b2, exponent)), offset);
}

static inline quant_floats load_quant_bf16(const uint16_t *x)
{
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline void store_s8(int8_t *q, quant_words v[4])
{
    const quant_words quads =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    const quant_words bytes = _mm256_permutevar8x32_epi32(quads, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
    _mm256_storeu_si256((__m256i *)(void *)q, _mm256_max_epi8(bytes, _mm256_set1_epi8(-127)));
}

#else

enum { BLOCKS = 2, WIDTH = 4 };

static inline quant_words splat_u64(uint64_t value) { return _mm_set1_epi64x((long long)value); }
static inline quant_words first_block_counters(void) { return _mm_set_epi64x(1, 0); }

static inline quant_words join_words(quant_words last, quant_words a, quant_words key)
{
    const quant_words swapped = _mm_shuffle_epi32(last, 0xB1);
    return _mm_blend_epi16(swapped, xor_three(swapped, a, key), 0x33);
}

static inline void draws_to_floats(quant_floats u[4], quant_words w01, quant_words w23)
{
    const quant_words exponent = _mm_set1_epi16(DRAW_EXPONENT);
    const quant_floats offset = _mm_set1_ps(DRAW_OFFSET);
    u[0] = _mm_sub_ps(_mm_castsi128_ps(_mm_unpacklo_epi16(w01, exponent)), offset);
    u[1] = _mm_sub_ps(_mm_castsi128_ps(_mm_unpacklo_epi16(w23, exponent)), offset);
    u[2] = _mm_sub_ps(_mm_castsi128_ps(_mm_unpackhi_epi16(w01, exponent)), offset);
    u[3] = _mm_sub_ps(_mm_castsi128_ps(_mm_unpackhi_epi16(w23, exponent)), offset);
}

static inline quant_floats load_quant_bf16(const uint16_t *x)
{
    const __m128i half = _mm_loadl_epi64((const __m128i *)(const void *)x);
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), half));
}

static inline void store_s8(int8_t *q, quant_words v[4])
{
    const quant_words bytes = _mm_packs_epi16(_mm_packs_epi32(v[0], v[1]), _mm_packs_epi32(v[2], v[3]));
    _mm_storeu_si128((__m128i *)(void *)q, _mm_max_epi8(bytes, _mm_set1_epi8(-127)));
}

#endif

/* A round waits for the one before it; a single group's blocks would leave the multipliers idle most of the
 * time. */
enum { CHAINS = 4, GROUP = 8 * BLOCKS * CHAINS, FULL_ROUNDS = 7 };

/* What a call's blocks share. Round numbers count from 1; k0, k1 are the keys of a round. */
typedef struct philox_state {
    quant_words upper_1;                 /* counter word 3 ^ k1 of round 1 */
    quant_words upper_2;                 /* lower product of the constant word 2 in round 1 ^ k0 of round 2 */
    quant_words word_2;                  /* upper product of the constant word 0 in round 2 ^ k1 of round 2 */
    quant_words upper_3;                 /* lower product of it ^ k1 of round 3 */
    quant_words key[FULL_ROUNDS + 1][2]; /* of rounds 3 to 10 */
} philox_state;

static philox_state prepare_philox(const tandem_rounding *rounding)
{
    const uint32_t *stream = rounding->stream;
    uint32_t k0 = (uint32_t)rounding->seed, k1 = (uint32_t)(rounding->seed >> 32);
    philox_state g;
    const uint64_t round_1 = (uint64_t)MULTIPLIER_1 * stream[1];
    const uint32_t word_0 = (uint32_t)(round_1 >> 32) ^ stream[0] ^ k0;
    g.upper_1 = splat_u64(stream[2] ^ k1);
    k0 += KEY_STEP_0;
    k1 += KEY_STEP_1;
    const uint64_t round_2 = (uint64_t)MULTIPLIER_0 * word_0;
    g.upper_2 = splat_u64((uint32_t)round_1 ^ k0);
    g.word_2 = splat_u64((uint32_t)(round_2 >> 32) ^ k1);
    for (int round = 0; round <= FULL_ROUNDS; round++) {
        k0 += KEY_STEP_0;
        k1 += KEY_STEP_1;
        g.key[round][0] = splat_u64(k0);
        g.key[round][1] = splat_u64(k1);
    }
    g.upper_3 = splat_u64((uint32_t)round_2 ^ (uint32_t)(k1 - FULL_ROUNDS * KEY_STEP_1));
    return g;
}

/* The four counter words of CHAINS times BLOCKS blocks. */
typedef struct philox_chains {
    quant_words w0[CHAINS], w1[CHAINS], w2[CHAINS], w3[CHAINS];
} philox_chains;

/* Rounds 1 to 3 for the blocks whose first products, MULTIPLIER_0 · block, are `first`. */
static inline philox_chains begin_rounds(const quant_words first[CHAINS], const philox_state *g)
{
    const quant_words m0 = splat_u64(MULTIPLIER_0), m1 = splat_u64(MULTIPLIER_1);
    philox_chains s;
    for (int c = 0; c < CHAINS; c++) {
        const quant_words round_2 = multiply_low(xor_two(upper_half(first[c]), g->upper_1), m1);
        const quant_words p0 = multiply_low(xor_two(upper_half(round_2), g->upper_2), m0);
        const quant_words p1 = multiply_low(xor_two(first[c], g->word_2), m1);
        s.w0[c] = xor_three(upper_half(p1), round_2, g->key[0][0]);
        s.w1[c] = p1;
        s.w2[c] = xor_two(upper_half(p0), g->upper_3);
        s.w3[c] = p0;
    }
    return s;
}

/* Rounds 4 to 10: the words 0 and 1 of each block, and its words 2 and 3, side by side in a lane. */
static inline void end_rounds(quant_words w01[CHAINS], quant_words w23[CHAINS], philox_chains s,
                              const philox_state *g)
{
    const quant_words m0 = splat_u64(MULTIPLIER_0), m1 = splat_u64(MULTIPLIER_1);
    for (int round = 1; round < FULL_ROUNDS; round++) {
        for (int c = 0; c < CHAINS; c++) {
            const quant_words p0 = multiply_low(s.w0[c], m0), p1 = multiply_low(s.w2[c], m1);
            s.w0[c] = xor_three(upper_half(p1), s.w1[c], g->key[round][0]);
            s.w2[c] = xor_three(upper_half(p0), s.w3[c], g->key[round][1]);
            s.w1[c] = p1;
            s.w3[c] = p0;
            /* Nothing of one chain's round is to be moved into another's: their values would not fit the
             * registers. */
            __asm__("" : "+v"(s.w0[c]), "+v"(s.w1[c]), "+v"(s.w2[c]), "+v"(s.w3[c]));
        }
    }
    for (int c = 0; c < CHAINS; c++) {
        const quant_words p0 = multiply_low(s.w0[c], m0), p1 = multiply_low(s.w2[c], m1);
        w01[c] = join_words(p1, s.w1[c], g->key[FULL_ROUNDS][0]);
        w23[c] = join_words(p0, s.w3[c], g->key[FULL_ROUNDS][1]);
    }
}

/* For calls that need no amax. */
static inline quant_words keep_magnitude(quant_words bits, quant_floats x)
{
    (void)x;
    return bits;
}

static inline float largest_magnitude(quant_words bits)
{
    union {
        quant_words all;
        int32_t of[WIDTH];
    } each = {bits};
    int32_t largest = 0;
    for (int k = 0; k < WIDTH; k++) largest = each.of[k] > largest ? each.of[k] : largest;
    return float_of_bits((uint32_t)largest);
}

/* Rounds GROUP elements and moves on by as many; `find` is larger or keep_magnitude. */
#define QUANTISE_GROUP(q, x, load, find)                                                                     \
    do {                                                                                                     \
        quant_words w01[CHAINS], w23[CHAINS];                                                                \
        end_rounds(w01, w23, begin_rounds(p0, &g), &g);                                                      \
        for (int c = 0; c < CHAINS; c++) {                                                                   \
            quant_floats u[4];                                                                               \
            quant_words v[4];                                                                                \
            draws_to_floats(u, w01[c], w23[c]);                                                              \
            for (int part = 0; part < 4; part++) {                                                           \
                const quant_floats value = load((x) + (4 * c + part) * WIDTH);                               \
                largest = find(largest, value);                                                              \
                v[part] = round_with_draw(value, factor, u[part]);                                           \
            }                                                                                                \
            store_s8((q) + 4 * c * WIDTH, v);                                                                \
            p0[c] = add64(p0[c], step);                                                                      \
        }                                                                                                    \
    } while (0)

#define QUANTISE(type, load, find)                                                                           \
    const philox_state g = prepare_philox(rounding);                                                         \
    const quant_words step = splat_u64((uint64_t)MULTIPLIER_0 * BLOCKS * CHAINS);                            \
    const quant_floats factor = splat_float(inv_scale);                                                      \
    quant_words largest = splat_u64(0);                                                                      \
    quant_words p0[CHAINS];                                                                                  \
    for (int c = 0; c < CHAINS; c++)                                                                         \
        p0[c] =                                                                                              \
            multiply_low(add64(first_block_counters(), splat_u64(rounding->block + (uint64_t)(c * BLOCKS))), \
                         splat_u64(MULTIPLIER_0));                                                           \
    size_t i = 0;                                                                                            \
    for (; n - i >= GROUP; i += GROUP) QUANTISE_GROUP(q + i, x + i, load, find);                             \
    if (i < n) {                                                                                             \
        type padded[GROUP] = {0};                                                                            \
        int8_t rest[GROUP];                                                                                  \
        for (size_t j = 0; j < n - i; j++) padded[j] = x[i + j];                                             \
        QUANTISE_GROUP(rest, padded, load, find);                                                            \
        for (size_t j = 0; j < n - i; j++) q[i + j] = rest[j];                                               \
    }

void ISA(quantise_f32)(int8_t *q, const float *x, size_t n, float inv_scale, const tandem_rounding *rounding)
{
    QUANTISE(float, load_quant_f32, keep_magnitude)
    (void)largest;
}

float ISA(quantise_amax_f32)(int8_t *q, const float *x, size_t n, float inv_scale,
                             const tandem_rounding *rounding)
{
    QUANTISE(float, load_quant_f32, max_magnitude)
    return largest_magnitude(largest);
}

void ISA(quantise_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale,
                        const tandem_rounding *rounding)
{
    QUANTISE(uint16_t, load_quant_bf16, keep_magnitude)
    (void)largest;
}

float ISA(quantise_amax_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale,
                              const tandem_rounding *rounding)
{
    QUANTISE(uint16_t, load_quant_bf16, max_magnitude)
    return largest_magnitude(largest);
}

/* 4 · WIDTH elements. */
#define NEAREST_GROUP(q, x, load, find)                                                                      \
    do {                                                                                                     \
        quant_words v[4];                                                                                    \
        for (int part = 0; part < 4; part++) {                                                               \
            const quant_floats value = load((x) + part * WIDTH);                                             \
            largest = find(largest, value);                                                                  \
            v[part] = round_to_nearest(value, factor);                                                       \
        }                                                                                                    \
        store_s8((q), v);                                                                                    \
    } while (0)

#define NEAREST(type, load, find)                                                                            \
    const quant_floats factor = splat_float(inv_scale);                                                      \
    quant_words largest = splat_u64(0);                                                                      \
    size_t i = 0;                                                                                            \
    for (; n - i >= 4 * WIDTH; i += 4 * WIDTH) NEAREST_GROUP(q + i, x + i, load, find);                      \
    if (i < n) {                                                                                             \
        type padded[4 * WIDTH] = {0};                                                                        \
        int8_t rest[4 * WIDTH];                                                                              \
        for (size_t j = 0; j < n - i; j++) padded[j] = x[i + j];                                             \
        NEAREST_GROUP(rest, padded, load, find);                                                             \
        for (size_t j = 0; j < n - i; j++) q[i + j] = rest[j];                                               \
    }

void ISA(quantise_nearest_f32)(int8_t *q, const float *x, size_t n, float inv_scale)
{
    NEAREST(float, load_quant_f32, keep_magnitude)
    (void)largest;
}

float ISA(quantise_nearest_amax_f32)(int8_t *q, const float *x, size_t n, float inv_scale)
{
    NEAREST(float, load_quant_f32, max_magnitude)
    return largest_magnitude(largest);
}

void ISA(quantise_nearest_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale)
{
    NEAREST(uint16_t, load_quant_bf16, keep_magnitude)
    (void)largest;
}

float ISA(quantise_nearest_amax_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale)
{
    NEAREST(uint16_t, load_quant_bf16, max_magnitude)
    return largest_magnitude(largest);
}
