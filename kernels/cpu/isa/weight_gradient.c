/* weight_gradient.c: the gradient of a convolution's weight as one product over places: (places,
 * columns)ᵀ·(places, channels).
 *
 * Places are taken in blocks, columns in slices of whole taps. A block of a slice's columns is copied, unless
 * the images are their own columns (1x1 without stride, f32); 32 channels of the result's gradient are copied
 * to where they stay in the first-level cache, and those to come are fetched while they are multiplied. In
 * bf16 two places lie beside each other, as the dot products want them. Sums are added place by place: the
 * same bits in every run. */
#include <string.h>

#include "kernels/cpu/isa/isa.h"

#if defined __AVX512BW__

enum {
    LANES = 16,
    CHUNK = 32,            /* channels of the result: two vectors */
    ROWS = 8,              /* columns of a product, in registers */
    BLOCK_POSITIONS = 400, /* of a block; even */
    COLUMNS = 512,         /* of a slice, unless one tap has more */
    AHEAD = 16,            /* places: how far columns are fetched before they are multiplied */
};

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")
#define BF16 __attribute__((target("avx512bf16")))

typedef tandem_weight_gradient wgrad_call;

static int64_t smaller_wgrad(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t wgrad_element_bytes(const wgrad_call *g) { return g->is_bf16 ? 2 : 4; }

static int64_t taps_per_slice(const wgrad_call *g)
{
    const int64_t taps = COLUMNS / g->from;
    return smaller_wgrad(taps > 0 ? taps : 1, g->kernel_h * g->kernel_w);
}

static int is_pointwise_wgrad(const wgrad_call *g)
{
    return g->kernel_h == 1 && g->kernel_w == 1 && g->stride == 1 && g->pad == 0;
}

size_t ISA(weight_gradient_workspace)(const wgrad_call *g)
{
    const int64_t columns = is_pointwise_wgrad(g) && !g->is_bf16 ? 0 : taps_per_slice(g) * g->from;
    return (size_t)(BLOCK_POSITIONS * (CHUNK + columns)) * sizeof(float);
}

/* --- Columns -------------------------------------------------------------------------------------------- */

/* What tap `tap` sees at a place of the result: channels of a pixel, or NULL outside the image. */
static const char *pixel_of_tap(const wgrad_call *g, int64_t position, int64_t tap)
{
    const int64_t image = position / (g->out_height * g->out_width),
                  at = position % (g->out_height * g->out_width);
    const int64_t y = at / g->out_width * g->stride + tap / g->kernel_w - g->pad;
    const int64_t x = at % g->out_width * g->stride + tap % g->kernel_w - g->pad;
    if (y < 0 || y >= g->height || x < 0 || x >= g->width) return NULL;
    return (const char *)g->x + ((image * g->height + y) * g->width + x) * g->from * wgrad_element_bytes(g);
}

/* Halves a and b of two places as pairs; NULL is zeros. n is a multiple of 32. */
static void interleave_bf16(float *to, const char *a, const char *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const __m256i low = a ? _mm256_loadu_si256((const __m256i *)(a + 2 * i)) : _mm256_setzero_si256();
        const __m256i high = b ? _mm256_loadu_si256((const __m256i *)(b + 2 * i)) : _mm256_setzero_si256();
        const __m512i both =
            _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
        _mm512_storeu_si512(to + i, both);
    }
}

/* Columns of taps `tap` … tap + taps at n places from `first` on: rows of taps·from numbers, or pairs. */
static void copy_wgrad_columns(float *to, const wgrad_call *g, int64_t first, int64_t n, int64_t tap,
                               int64_t taps)
{
    const int64_t step = g->is_bf16 ? 2 : 1;
    for (int64_t i = 0; i < n; i += step)
        for (int64_t t = tap; t < tap + taps; t++, to += g->from) {
            const char *const a = pixel_of_tap(g, first + i, t);
            if (g->is_bf16)
                interleave_bf16(to, a, i + 1 < n ? pixel_of_tap(g, first + i + 1, t) : NULL, g->from);
            else if (a)
                memcpy(to, a, (size_t)g->from * sizeof(float));
            else
                memset(to, 0, (size_t)g->from * sizeof(float));
        }
}

/* 32 channels of n places, rows of `row` bytes apart. */
static void copy_gradient_chunk(float *to, const char *from, int64_t row, int64_t n, int is_bf16)
{
    const int64_t step = is_bf16 ? 2 : 1;
    for (int64_t i = 0; i < n; i += step, from += step * row, to += CHUNK) {
        if (is_bf16)
            interleave_bf16(to, from, i + 1 < n ? from + row : NULL, CHUNK);
        else
            memcpy(to, from, CHUNK * sizeof(float));
    }
}

/* --- Products ------------------------------------------------------------------------------------------- */

typedef struct wgrad_operands {
    float *c; /* rows of `width` */
    int64_t width;
    const float *a, *b; /* k rows of `row`, of 32; numbers, or pairs */
    int64_t row, k;
    const char *next; /* is fetched: a line every next_row bytes */
    int64_t next_row;
    int accumulate;
} wgrad_operands;

typedef __m512 vector_multiply_add(__m512 sum, __m512 a, __m512 b);

INLINE __m512 fma_f32(__m512 sum, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, sum); }

BF16 INLINE __m512 dot_bf16(__m512 sum, __m512 a, __m512 b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

#define DEFINE_MULTIPLY(name, attribute, add)                                                                \
    attribute static void name(const wgrad_operands *p)                                                      \
    {                                                                                                        \
        const float *a = p->a, *b = p->b;                                                                    \
        const char *next = p->next;                                                                          \
        __m512 sum[ROWS][2];                                                                                 \
        UNROLLED                                                                                             \
        for (int r = 0; r < ROWS; r++) {                                                                     \
            sum[r][0] = p->accumulate ? _mm512_loadu_ps(p->c + r * p->width) : _mm512_setzero_ps();          \
            sum[r][1] = p->accumulate ? _mm512_loadu_ps(p->c + r * p->width + LANES) : _mm512_setzero_ps();  \
        }                                                                                                    \
        for (int64_t i = 0; i < p->k; i++, a += p->row, b += CHUNK, next += p->next_row) {                   \
            const __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + LANES);                           \
            __builtin_prefetch(next, 0, 2);                                                                  \
            __builtin_prefetch(a + AHEAD * p->row, 0, 3);                                                    \
            UNROLLED                                                                                         \
            for (int r = 0; r < ROWS; r++) {                                                                 \
                const __m512 factor = _mm512_set1_ps(a[r]);                                                  \
                sum[r][0] = add(sum[r][0], factor, b0);                                                      \
                sum[r][1] = add(sum[r][1], factor, b1);                                                      \
            }                                                                                                \
        }                                                                                                    \
        UNROLLED                                                                                             \
        for (int r = 0; r < ROWS; r++) {                                                                     \
            _mm512_storeu_ps(p->c + r * p->width, sum[r][0]);                                                \
            _mm512_storeu_ps(p->c + r * p->width + LANES, sum[r][1]);                                        \
        }                                                                                                    \
    }

DEFINE_MULTIPLY(multiply_f32, , fma_f32)
DEFINE_MULTIPLY(multiply_bf16, BF16, dot_bf16)

/* `columns` of a slice that begins at column `from` of the weight, at n places from `first` on. */
static void add_wgrad_block(const wgrad_call *g, const float *a, int64_t from, int64_t columns, int64_t first,
                            int64_t n)
{
    float *const copy = g->workspace;
    const int64_t row = g->to * wgrad_element_bytes(g), line = 64, step = g->is_bf16 ? 2 : 1;
    const char *const gradient = (const char *)g->gradient + first * row;
    const int64_t end = g->to_end > 0 ? g->to_end : g->to;
    for (int64_t chunk = g->to_begin; chunk < end; chunk += CHUNK) {
        const int is_last = chunk + CHUNK == end;
        const char *const next = is_last ? gradient + n * row + g->to_begin * wgrad_element_bytes(g)
                                         : gradient + (chunk + CHUNK) * wgrad_element_bytes(g);
        copy_gradient_chunk(copy, gradient + chunk * wgrad_element_bytes(g), row, n, g->is_bf16);
        for (int64_t k = 0; k < columns; k += ROWS) {
            const int64_t odd = k / ROWS % 2; /* the second line of 32 floats, or the second of two places */
            const wgrad_operands p = {
                .c = g->y + (from + k) * g->to + chunk,
                .width = g->to,
                .a = a + k,
                .b = copy,
                .row = columns,
                .k = (n + step - 1) / step,
                .next = (const char *)((uintptr_t)next + (uintptr_t)(odd * (g->is_bf16 ? row : line))),
                .next_row = step * row,
                .accumulate = first > 0};
            if (g->is_bf16)
                multiply_bf16(&p);
            else
                multiply_f32(&p);
        }
    }
}

void ISA(weight_gradient)(const wgrad_call *g)
{
    const int64_t positions = g->n * g->out_height * g->out_width, taps = g->kernel_h * g->kernel_w;
    float *const copy = g->workspace + BLOCK_POSITIONS * CHUNK;
    for (int64_t tap = 0; tap < taps; tap += taps_per_slice(g)) {
        const int64_t some = smaller_wgrad(taps_per_slice(g), taps - tap);
        for (int64_t first = 0; first < positions; first += BLOCK_POSITIONS) {
            const int64_t n = smaller_wgrad(BLOCK_POSITIONS, positions - first);
            const int must_copy = !is_pointwise_wgrad(g) || g->is_bf16;
            if (must_copy) copy_wgrad_columns(copy, g, first, n, tap, some);
            add_wgrad_block(g, must_copy ? copy : (const float *)g->x + first * g->from, tap * g->from,
                            some * g->from, first, n);
        }
    }
}

#endif
