/* gemm_s8_pack.c: int8 operands of the int8 product, in any strides, into panels (layouts in gemm_s8.h). */
#include "kernels/cpu/isa/gemm_s8.h"

#include <string.h>

static inline __m128i load_16(const int8_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

#if defined __AVX__

enum { PACK_ROWS = 8 };

static inline __m128i load_8(const int8_t *from)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)from);
}

#if GEMM_S8_DOT

static inline void store_packed(gemm_s8_packed *to, __m128i quads, __m128i flip)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm_xor_si128(quads, flip));
}

/* 8 rows × 16 terms, a term of all rows side by side. */
static inline void pack_terms(gemm_s8_packed *to, int64_t step_stride, const int8_t *from,
                              int64_t term_stride, __m128i flip)
{
    for (int step = 0; step < PACK_DEPTH / RUN; step++, to += step_stride, from += RUN * term_stride) {
        const __m128i pair01 = _mm_unpacklo_epi8(load_8(from), load_8(from + term_stride));
        const __m128i pair23 =
            _mm_unpacklo_epi8(load_8(from + 2 * term_stride), load_8(from + 3 * term_stride));
        store_packed(to, _mm_unpacklo_epi16(pair01, pair23), flip);
        store_packed(to + 4 * RUN, _mm_unpackhi_epi16(pair01, pair23), flip);
    }
}

/* 32 rows × 16 terms, a term of all rows side by side: a vector's halves are its first and its last
 * 16 rows until they are put in order. */
static inline void pack_wide_terms(gemm_s8_packed *to, int64_t step_stride, const int8_t *from,
                                   int64_t term_stride, __m128i flip_half)
{
    const __m256i flip = _mm256_broadcastsi128_si256(flip_half);
    for (int step = 0; step < PACK_DEPTH / RUN; step++, to += step_stride, from += RUN * term_stride) {
        __m256i term[RUN], quads[4];
        for (int l = 0; l < RUN; l++)
            term[l] = _mm256_loadu_si256((const __m256i *)(const void *)(from + l * term_stride));
        const __m256i low01 = _mm256_unpacklo_epi8(term[0], term[1]),
                      high01 = _mm256_unpackhi_epi8(term[0], term[1]),
                      low23 = _mm256_unpacklo_epi8(term[2], term[3]),
                      high23 = _mm256_unpackhi_epi8(term[2], term[3]);
        quads[0] = _mm256_xor_si256(flip, _mm256_unpacklo_epi16(low01, low23)); /* rows 0 to 3, 16 to 19 */
        quads[1] = _mm256_xor_si256(flip, _mm256_unpackhi_epi16(low01, low23)); /* 4 to 7, 20 to 23 */
        quads[2] = _mm256_xor_si256(flip, _mm256_unpacklo_epi16(high01, high23));
        quads[3] = _mm256_xor_si256(flip, _mm256_unpackhi_epi16(high01, high23));
        for (int four = 0; four < 4; four++) {
            _mm_storeu_si128((__m128i *)(void *)(to + 4 * RUN * four), _mm256_castsi256_si128(quads[four]));
            _mm_storeu_si128((__m128i *)(void *)(to + 4 * RUN * (four + 4)),
                             _mm256_extracti128_si256(quads[four], 1));
        }
    }
}

#else

/* Eight rows' pairs of terms, widened: one half step. */
static inline void store_packed(gemm_s8_packed *to, __m128i pairs, __m128i flip)
{
    (void)flip;
#if defined __AVX2__
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_cvtepi8_epi16(pairs));
#else
    _mm_storeu_si128((__m128i *)(void *)to, _mm_cvtepi8_epi16(pairs));
    _mm_storeu_si128((__m128i *)(void *)(to + 8), _mm_cvtepi8_epi16(_mm_unpackhi_epi64(pairs, pairs)));
#endif
}

/* 8 rows × 16 terms, the terms of a row side by side: an 8 × 8 transpose of pairs. */
static inline void pack_rows(gemm_s8_packed *to, int64_t half_stride, const int8_t *from, int64_t row_stride,
                             __m128i flip)
{
    __m128i r[8], s[8];
    for (int i = 0; i < 8; i++) r[i] = load_16(from + i * row_stride);
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
        store_packed(to + (2 * i) * half_stride, _mm_unpacklo_epi64(r[i], r[i + 4]), flip);
        store_packed(to + (2 * i + 1) * half_stride, _mm_unpackhi_epi64(r[i], r[i + 4]), flip);
    }
}

/* 8 rows × 16 terms, a term of all rows side by side. */
static inline void pack_terms(gemm_s8_packed *to, int64_t half_stride, const int8_t *from,
                              int64_t term_stride, __m128i flip)
{
    for (int half = 0; half < 8; half++) {
        const int8_t *term = from + 2 * half * term_stride;
        store_packed(to + half * half_stride, _mm_unpacklo_epi8(load_8(term), load_8(term + term_stride)),
                     flip);
    }
}

#endif

#else

enum { PACK_ROWS = 4 };

static inline __m128i load_4(const int8_t *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return _mm_cvtsi32_si128(four);
}

/* Four rows' quads of terms, widened: one half step. */
static inline void store_packed(gemm_s8_packed *to, __m128i quads, __m128i flip)
{
    (void)flip;
    _mm_storeu_si128((__m128i *)(void *)to, _mm_cvtepi8_epi16(quads));
    _mm_storeu_si128((__m128i *)(void *)(to + 8), _mm_cvtepi8_epi16(_mm_unpackhi_epi64(quads, quads)));
}

/* 4 rows × 16 terms, a term of all rows side by side. */
static inline void pack_terms(gemm_s8_packed *to, int64_t half_stride, const int8_t *from,
                              int64_t term_stride, __m128i flip)
{
    for (int half = 0; half < 4; half++) {
        const int8_t *term = from + 4 * half * term_stride;
        const __m128i pair01 = _mm_unpacklo_epi8(load_4(term), load_4(term + term_stride));
        const __m128i pair23 =
            _mm_unpacklo_epi8(load_4(term + 2 * term_stride), load_4(term + 3 * term_stride));
        store_packed(to + half * half_stride, _mm_unpacklo_epi16(pair01, pair23), flip);
    }
}

#endif

#if GEMM_S8_DOT || !defined __AVX__
/* PACK_ROWS rows × 16 terms, the terms of a row side by side: 4 × 4 transposes of quads. */
static inline void pack_rows(gemm_s8_packed *to, int64_t step_stride, const int8_t *from, int64_t row_stride,
                             __m128i flip)
{
    for (int row = 0; row < PACK_ROWS; row += 4, to += 4 * RUN, from += 4 * row_stride) {
        const __m128i r0 = load_16(from), r1 = load_16(from + row_stride);
        const __m128i r2 = load_16(from + 2 * row_stride), r3 = load_16(from + 3 * row_stride);
        const __m128i low01 = _mm_unpacklo_epi32(r0, r1), high01 = _mm_unpackhi_epi32(r0, r1);
        const __m128i low23 = _mm_unpacklo_epi32(r2, r3), high23 = _mm_unpackhi_epi32(r2, r3);
        store_packed(to, _mm_unpacklo_epi64(low01, low23), flip);
        store_packed(to + step_stride, _mm_unpackhi_epi64(low01, low23), flip);
        store_packed(to + 2 * step_stride, _mm_unpacklo_epi64(high01, high23), flip);
        store_packed(to + 3 * step_stride, _mm_unpackhi_epi64(high01, high23), flip);
    }
}
#endif

/* A block that the operand's edge cuts, or whose elements lie apart both ways. */
static __attribute__((noinline)) void pack_partial(gemm_s8_packed *to, int64_t half_stride,
                                                   const int8_t *from, int64_t rows, int64_t terms,
                                                   int64_t row_stride, int64_t term_stride, __m128i flip)
{
    int8_t block[PACK_ROWS][PACK_DEPTH] = {{0}};
    for (int64_t i = 0; i < smaller_count(rows, PACK_ROWS); i++) {
        for (int64_t l = 0; l < smaller_count(terms, PACK_DEPTH); l++)
            block[i][l] = from[i * row_stride + l * term_stride];
    }
    pack_rows(to, half_stride, block[0], PACK_DEPTH, flip);
}

/* An operand to be packed, and where to. */
typedef struct pack_task {
    gemm_s8_packed *panels;
    int64_t slots, filled_depth;
    const int8_t *from;
    int64_t rows, depth, row_stride, term_stride;
    __m128i flip; /* bits of every element that are flipped; none without dot products */
} pack_task;

/* The PACK_ROWS × PACK_DEPTH block at row `slot` of the panel that begins with `row`, and at `term`. */
static inline void pack_block(const pack_task *p, int64_t row, int64_t slot, int64_t term)
{
    gemm_s8_packed *to = p->panels + row * p->filled_depth + term * p->slots + slot * RUN;
    const int8_t *from = p->from + (row + slot) * p->row_stride + term * p->term_stride;
    const int64_t rows = p->rows - row - slot, terms = p->depth - term, half_stride = p->slots * RUN;
    if (rows < PACK_ROWS || terms < PACK_DEPTH || (p->row_stride != 1 && p->term_stride != 1))
        pack_partial(to, half_stride, from, rows, terms, p->row_stride, p->term_stride, p->flip);
    else if (p->term_stride == 1)
        pack_rows(to, half_stride, from, p->row_stride, p->flip);
    else
        pack_terms(to, half_stride, from, p->term_stride, p->flip);
}

/* All slots of the panel that begins with `row`, at `term`. */
static inline void pack_slots(const pack_task *p, int64_t row, int64_t term)
{
#if GEMM_S8_DOT
    enum { WIDE_ROWS = 32 };
    if (p->slots == WIDE_ROWS && p->row_stride == 1 && p->rows - row >= WIDE_ROWS &&
        p->depth - term >= PACK_DEPTH) {
        pack_wide_terms(p->panels + row * p->filled_depth + term * p->slots, p->slots * RUN,
                        p->from + row + term * p->term_stride, p->term_stride, p->flip);
        return;
    }
#endif
    for (int64_t slot = 0; slot < p->slots; slot += PACK_ROWS) pack_block(p, row, slot, term);
}

#if GEMM_S8_DOT

/* correction[slot] += 128·Σ x of a packed panel. */
static void add_correction(uint32_t *correction, const gemm_s8_packed *panel, int64_t slots, int64_t depth)
{
    for (int64_t slot = 0; slot < slots; slot += 8) {
        __m256i sum = _mm256_load_si256((const __m256i *)(const void *)(correction + slot));
        for (const gemm_s8_packed *at = panel + slot * RUN; at < panel + slots * depth; at += slots * RUN)
            sum = dot_u8_s8(sum, _mm256_set1_epi8(INT8_MIN),
                            _mm256_loadu_si256((const __m256i *)(const void *)at));
        _mm256_store_si256((__m256i *)(void *)(correction + slot), sum);
    }
}

static uint32_t sum_lanes(__m256i lanes)
{
    uint32_t each[8], sum = 0;
    _mm256_storeu_si256((__m256i *)(void *)each, lanes);
    for (int i = 0; i < 8; i++) sum += each[i];
    return sum;
}

void ISA(gemm_s8_sum_rows)(uint32_t *correction, const int8_t *from, int64_t rows, int64_t depth,
                           int64_t row_stride)
{
    enum { BYTES = sizeof(__m256i) };
    const __m256i flip = _mm256_set1_epi8(INT8_MIN); /* unsigned, it is 128 */
    for (int64_t i = 0; i < rows; i++, from += row_stride) {
        __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        int64_t l = 0;
        int32_t rest = 0;
        for (; l + 2 * BYTES <= depth; l += 2 * BYTES)
            for (int half = 0; half < 2; half++)
                sum[half] =
                    dot_u8_s8(sum[half], flip,
                              _mm256_loadu_si256((const __m256i *)(const void *)(from + l + half * BYTES)));
        for (; l < depth; l++) rest += from[l];
        correction[i] += sum_lanes(_mm256_add_epi32(sum[0], sum[1])) + ((uint32_t)rest << 7);
    }
}

#else

#if defined __AVX2__
typedef __m256i pack_vector;
static inline pack_vector load_pack_vector(const void *from) { return _mm256_load_si256(from); }
static inline void store_pack_vector(void *to, pack_vector v) { _mm256_store_si256(to, v); }
static inline pack_vector add_products(pack_vector sum, pack_vector a, pack_vector b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
#else
typedef __m128i pack_vector;
static inline pack_vector load_pack_vector(const void *from) { return _mm_load_si128(from); }
static inline void store_pack_vector(void *to, pack_vector v) { _mm_store_si128(to, v); }
static inline pack_vector add_products(pack_vector sum, pack_vector a, pack_vector b)
{
    return _mm_add_epi32(sum, _mm_madd_epi16(a, b));
}
#endif

/* correction[slot] += Σ x1·x2 of a packed panel. */
static void add_correction(uint32_t *correction, const gemm_s8_packed *panel, int64_t slots, int64_t depth)
{
    enum { SLOTS = (int)(sizeof(pack_vector) / sizeof(uint32_t)) };
    const int64_t half_stride = slots * RUN;
    for (int64_t slot = 0; slot < slots; slot += SLOTS) {
        const gemm_s8_packed *at = panel + slot * RUN;
#if defined __AVX__
        pack_vector sum = load_pack_vector(correction + slot);
        for (int64_t l = 0; l < depth; l += 2 * RUN, at += 2 * half_stride)
            sum = add_products(sum, load_pack_vector(at), load_pack_vector(at + half_stride));
#else
        pack_vector slot01 = _mm_setzero_si128(), slot23 = slot01;
        for (int64_t l = 0; l < depth; l += 2 * RUN, at += 2 * half_stride) {
            slot01 = add_products(slot01, load_pack_vector(at), load_pack_vector(at + half_stride));
            slot23 = add_products(slot23, load_pack_vector(at + 2 * RUN),
                                  load_pack_vector(at + half_stride + 2 * RUN));
        }
        const pack_vector sum =
            _mm_add_epi32(load_pack_vector(correction + slot), _mm_hadd_epi32(slot01, slot23));
#endif
        store_pack_vector(correction + slot, sum);
    }
}

#endif

void ISA(gemm_s8_pack)(gemm_s8_packed *panels, uint32_t *correction, int64_t slots, const int8_t *from,
                       int64_t rows, int64_t depth, int64_t row_stride, int64_t term_stride)
{
    const int64_t filled_rows = round_up_to(rows, slots), filled_depth = round_up_to(depth, PACK_DEPTH);
    const int is_flipped = GEMM_S8_DOT && !correction;
    const pack_task p = {panels,     slots,       filled_depth,
                         from,       rows,        depth,
                         row_stride, term_stride, _mm_set1_epi8(is_flipped ? INT8_MIN : 0)};
    /* In the order of the operand's memory: a few rows over all terms, or a few terms of all rows. */
    if (term_stride == 1) {
        for (int64_t row = 0; row < filled_rows; row += slots)
            for (int64_t slot = 0; slot < slots; slot += PACK_ROWS)
                for (int64_t term = 0; term < filled_depth; term += PACK_DEPTH)
                    pack_block(&p, row, slot, term);
    } else {
        for (int64_t term = 0; term < filled_depth; term += PACK_DEPTH)
            for (int64_t row = 0; row < filled_rows; row += slots) pack_slots(&p, row, term);
    }
    for (int64_t row = 0; row < filled_rows && !is_flipped; row += slots)
        add_correction(correction + row, panels + row * filled_depth, slots, filled_depth);
}
