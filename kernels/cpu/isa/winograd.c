/* winograd.c: convolutions of 3x3 without stride by Winograd's algorithm F(4x4, 3x3): a quarter of the
 * multiplications.
 *
 * The image is cut into tiles of 6x6 that overlap by two and give 4x4 results each; where a side is no
 * multiple of four, the last tiles give 3 in its direction, by F(3, 3) at the same points but one (-2). A
 * tile becomes 36 numbers a channel (V), a weight 36 numbers (U), so do gradients of results (Y); 36 products
 * of matrices (tiles by channels, channels by channels) replace the convolution; 36 numbers a result become
 * 4x4 results, or 3x3 of a weight's gradient. For the passes:
 *     forward, dgrad   y = Aᵀ[(G w Gᵀ)·(Bᵀ x B)]A        wgrad   Gᵀ[(A y Aᵀ)·(Bᵀ x B)]G
 * Transformed tiles do not leave the second-level cache, or the third where there are more weights than
 * tiles: tiles are taken in blocks, results in chunks of 32 channels, and a chunk is transformed back as soon
 * as it is multiplied. Everything is f32, for operands of any type. Sums are added in the order of channels,
 * or tiles, block by block: the same bits in every run.
 *
 * Source: Lavin, Gray, "Fast algorithms for convolutional neural networks", CVPR 2016. */
#include "kernels/cpu/isa/isa.h"

#if defined __AVX512BW__

#include "kernels/cpu/isa/transpose_lanes.h"

enum {
    LANES = 16,
    LINE = 64,   /* bytes */
    POINTS = 36, /* of a tile, transformed */
    MISSING = 4, /* of 6 in a direction, where a tile gives 3 results */
    CHUNK = 32,  /* channels of the result: two vectors */
    ROWS = 8,    /* of a product, in registers */
    PAD = 16,    /* keeps rows and planes out of the same cache lines */
    SLICE = 128, /* channels of a weight gradient that are multiplied before they are transformed back */
    BLOCK_BYTES = 576 << 10,
};

typedef __m512 wino_vector;

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

/* --- Numbers in memory ---------------------------------------------------------------------------------- */

INLINE wino_vector wino_load(const void *x, int64_t i, int narrow)
{
    if (!narrow) return _mm512_loadu_ps((const float *)x + i);
    const __m256i halves = _mm256_loadu_si256((const __m256i *)((const uint16_t *)x + i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* As bf16_of_float. */
INLINE __m256i wino_to_bf16(wino_vector value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, is_nan, quiet), 16));
}

INLINE void wino_store(void *y, int64_t i, wino_vector value, int narrow)
{
    if (narrow)
        _mm256_storeu_si256((__m256i *)((uint16_t *)y + i), wino_to_bf16(value));
    else
        _mm512_storeu_ps((float *)y + i, value);
}

INLINE wino_vector wino_add(wino_vector a, wino_vector b) { return _mm512_add_ps(a, b); }
INLINE wino_vector wino_sub(wino_vector a, wino_vector b) { return _mm512_sub_ps(a, b); }
INLINE wino_vector wino_scale(float f, wino_vector a) { return _mm512_mul_ps(_mm512_set1_ps(f), a); }
/* f·a + b */
INLINE wino_vector wino_fma(float f, wino_vector a, wino_vector b)
{
    return _mm512_fmadd_ps(_mm512_set1_ps(f), a, b);
}

/* --- Transformations, in one direction ------------------------------------------------------------------ */

/* Of tiles that give `size` results, 4 or 3. Those of 3 are scaled so that weights are transformed as for 4.
 * */
typedef void wino_transform(wino_vector r[6], const wino_vector d[6], int size);

INLINE void transform_image_of_3(wino_vector r[6], const wino_vector d[6])
{
    const wino_vector a = wino_sub(d[3], d[1]), b = wino_sub(d[3], d[2]);
    r[0] = wino_fma(2, a, wino_scale(4, wino_sub(d[0], d[2])));
    r[1] = wino_scale(3, wino_fma(-2, d[1], b));
    r[2] = wino_fma(-2, wino_sub(d[2], d[1]), b);
    r[3] = wino_scale(4, a);
    r[4] = _mm512_setzero_ps();
    r[5] = wino_fma(-2, a, wino_sub(d[4], d[2]));
}

/* Bᵀ d */
INLINE void transform_image(wino_vector r[6], const wino_vector d[6], int size)
{
    if (size == 3) {
        transform_image_of_3(r, d);
        return;
    }
    const wino_vector a = wino_fma(-4, d[2], d[4]), b = wino_fma(-4, d[1], d[3]);
    const wino_vector c = wino_sub(d[4], d[2]), e = wino_sub(d[3], d[1]);
    r[0] = wino_fma(4, d[0], wino_fma(-5, d[2], d[4]));
    r[1] = wino_add(a, b);
    r[2] = wino_sub(a, b);
    r[3] = wino_fma(2, e, c);
    r[4] = wino_fma(-2, e, c);
    r[5] = wino_fma(4, d[1], wino_fma(-5, d[3], d[5]));
}

/* G g */
INLINE void transform_weight(wino_vector r[6], const wino_vector g[6], int size)
{
    const wino_vector even = wino_scale(-1.0f / 6, wino_add(g[0], g[2])), odd = wino_scale(1.0f / 6, g[1]);
    const wino_vector even2 = wino_fma(1.0f / 6, g[2], wino_scale(1.0f / 24, g[0])),
                      odd2 = wino_scale(1.0f / 12, g[1]);
    r[0] = wino_scale(0.25f, g[0]);
    r[1] = wino_sub(even, odd);
    r[2] = wino_add(even, odd);
    r[3] = wino_add(even2, odd2);
    r[4] = wino_sub(even2, odd2);
    r[5] = g[2];
}

/* A g */
INLINE void transform_gradient(wino_vector r[6], const wino_vector g[6], int size)
{
    const wino_vector last = size == 3 ? _mm512_setzero_ps() : g[3];
    const wino_vector even = wino_add(g[0], g[2]), odd = wino_add(g[1], last);
    const wino_vector even2 = wino_fma(4, g[2], g[0]), odd2 = wino_fma(4, last, g[1]);
    r[0] = g[0];
    r[1] = wino_add(even, odd);
    r[2] = wino_sub(even, odd);
    r[3] = wino_fma(2, odd2, even2);
    r[4] = wino_fma(-2, odd2, even2);
    r[5] = size == 3 ? g[2] : last;
}

/* Aᵀ m */
INLINE void to_result(wino_vector r[6], const wino_vector m[6], int size)
{
    const wino_vector sum = wino_add(m[1], m[2]), difference = wino_sub(m[1], m[2]);
    if (size == 3) {
        r[0] = wino_add(wino_add(m[0], sum), m[3]);
        r[1] = wino_fma(2, m[3], difference);
        r[2] = wino_add(wino_fma(4, m[3], sum), m[5]);
        r[3] = _mm512_setzero_ps();
        return;
    }
    const wino_vector sum2 = wino_add(m[3], m[4]), difference2 = wino_sub(m[3], m[4]);
    r[0] = wino_add(wino_add(m[0], sum), sum2);
    r[1] = wino_fma(2, difference2, difference);
    r[2] = wino_fma(4, sum2, sum);
    r[3] = wino_add(wino_fma(8, difference2, difference), m[5]);
}

/* Gᵀ m */
INLINE void to_weight(wino_vector r[6], const wino_vector m[6], int size)
{
    const wino_vector sum = wino_add(m[1], m[2]), sum2 = wino_add(m[3], m[4]);
    const wino_vector difference = wino_sub(m[2], m[1]), difference2 = wino_sub(m[3], m[4]);
    r[0] = wino_fma(1.0f / 24, sum2, wino_fma(-1.0f / 6, sum, wino_scale(0.25f, m[0])));
    r[1] = wino_fma(1.0f / 12, difference2, wino_scale(1.0f / 6, difference));
    r[2] = wino_add(wino_fma(1.0f / 6, wino_sub(sum2, sum), m[5]), _mm512_setzero_ps());
}

/* --- In both directions --------------------------------------------------------------------------------- */

/* to[6·i + j] of planes `plane` apart = T d Tᵀ, d of n x n, of a tile of high x wide results. */
INLINE void wino_expand(float *to, int64_t plane, wino_vector d[6][6], int n, int high, int wide,
                        wino_transform *transform)
{
    wino_vector half[6][6]; /* [j][i]: columns are done */
    UNROLLED
    for (int j = 0; j < n; j++) {
        wino_vector column[6], done[6];
        UNROLLED
        for (int i = 0; i < n; i++) column[i] = d[i][j];
        transform(done, column, high);
        UNROLLED
        for (int i = 0; i < 6; i++) half[i][j] = done[i];
    }
    UNROLLED
    for (int i = 0; i < 6; i++) {
        wino_vector done[6];
        transform(done, half[i], wide);
        UNROLLED
        for (int j = 0; j < 6; j++) _mm512_storeu_ps(to + (6 * i + j) * plane, done[j]);
    }
}

/* d of n x n = T m Tᵀ, m[6·i + j] in planes. */
INLINE void wino_contract(wino_vector d[6][6], const float *from, int64_t plane, int n, int high, int wide,
                          wino_transform *transform)
{
    wino_vector half[6][6];
    UNROLLED
    for (int i = 0; i < 6; i++) {
        wino_vector row[6], done[6];
        UNROLLED
        for (int j = 0; j < 6; j++) row[j] = _mm512_loadu_ps(from + (6 * i + j) * plane);
        transform(done, row, wide);
        UNROLLED
        for (int j = 0; j < n; j++) half[j][i] = done[j];
    }
    UNROLLED
    for (int j = 0; j < n; j++) {
        wino_vector done[6];
        transform(done, half[j], high);
        UNROLLED
        for (int i = 0; i < n; i++) d[i][j] = done[i];
    }
}

/* --- Tiles ---------------------------------------------------------------------------------------------- */

/* The tiles of a size, image by image. */
typedef struct tile_region {
    int64_t begin;        /* of all tiles */
    int64_t across, down; /* tiles of an image */
    int64_t top, left;    /* pixels */
    int high, wide;       /* results a tile gives */
} tile_region;

/* In this order the tiles that have a point lie together. */
enum { RIGHT, MIDDLE, BOTTOM, CORNER, REGIONS };

typedef struct winograd_plan {
    tile_region tile_region[REGIONS];
    int64_t tiles; /* of all images */
    int64_t block; /* tiles that are multiplied at once */
    /* the transformed weights, or the sums, of all chunks, for there are several blocks */
    int keep_chunks;
    int64_t to_begin, to_end; /* channels of the result */
    int64_t row, plane;       /* of V: floats from a tile to the next, from a point to the next */
    int64_t chunk_plane;      /* of M or Y: 32 channels of a block's tiles */
    int64_t chunk_floats;     /* of U, or of the sums of a weight gradient, 32 channels */
    int64_t v_floats, m_floats, u_floats;
} winograd_plan;

static int64_t smaller_dim(int64_t a, int64_t b) { return a < b ? a : b; }

/* Of the tiles a side is cut into, those that give 3 results. */
static int64_t small_tiles(int64_t side, int64_t tiles) { return smaller_dim(4 * tiles - side, tiles); }

static void cut_regions(winograd_plan *p, const tandem_winograd *w)
{
    const int64_t across = (w->width + 3) / 4, down = (w->height + 3) / 4;
    const int64_t narrow = small_tiles(w->width, across), low = small_tiles(w->height, down);
    for (int k = 0; k < REGIONS; k++) {
        const int is_narrow = k == RIGHT || k == CORNER, is_low = k == BOTTOM || k == CORNER;
        p->tile_region[k] = (tile_region){.begin = p->tiles,
                                          .across = is_narrow ? narrow : across - narrow,
                                          .down = is_low ? low : down - low,
                                          .top = is_low ? 4 * (down - low) : 0,
                                          .left = is_narrow ? 4 * (across - narrow) : 0,
                                          .high = is_low ? 3 : 4,
                                          .wide = is_narrow ? 3 : 4};
        p->tiles += w->n * p->tile_region[k].across * p->tile_region[k].down;
    }
}

static winograd_plan make_winograd_plan(const tandem_winograd *w)
{
    winograd_plan p = {.row = w->from + PAD};
    cut_regions(&p, w);
    p.chunk_floats = POINTS * (w->from * CHUNK + PAD);
    p.to_begin = w->to_begin;
    p.to_end = w->to_end > 0 ? w->to_end : w->to;
    p.keep_chunks = w->to < p.tiles;
    const int64_t fitting = BLOCK_BYTES / ((int64_t)sizeof(float) * POINTS * p.row) / ROWS * ROWS;
    p.block = p.keep_chunks ? smaller_dim(p.tiles, fitting > 4 * ROWS ? fitting : 4 * ROWS) : p.tiles;
    p.plane = p.block * p.row + PAD;
    p.chunk_plane = p.block * CHUNK + PAD;
    p.v_floats = POINTS * p.plane;
    p.m_floats = POINTS * p.chunk_plane;
    p.u_floats = p.chunk_floats * (p.keep_chunks ? (p.to_end - p.to_begin) / CHUNK : 1);
    return p;
}

size_t ISA(winograd_workspace)(const tandem_winograd *w)
{
    const winograd_plan p = make_winograd_plan(w);
    return (size_t)(p.v_floats + p.m_floats + p.u_floats) * sizeof(float);
}

typedef struct wino_tile {
    int64_t image, top, left; /* its frame of one not counted */
    int high, wide;
} wino_tile;

static wino_tile wino_tile_at(const winograd_plan *p, int64_t t)
{
    int k = REGIONS - 1;
    while (t < p->tile_region[k].begin) k--;
    const tile_region *r = &p->tile_region[k];
    const int64_t at = t - r->begin, an_image = r->across * r->down;
    return (wino_tile){.image = at / an_image,
                       .top = r->top + at % an_image / r->across * r->high,
                       .left = r->left + at % r->across * r->wide,
                       .high = r->high,
                       .wide = r->wide};
}

/* n x n pixels from (top, left) on; zero outside the image. `inside`: all are in it. */
INLINE void load_tile_pixels(wino_vector d[6][6], const void *x, int64_t image, int64_t top, int64_t left,
                             int64_t height, int64_t width, int64_t channels, int64_t c, int n, int narrow,
                             int inside)
{
    UNROLLED
    for (int i = 0; i < n; i++) {
        UNROLLED
        for (int j = 0; j < n; j++) {
            const int64_t y = top + i, z = left + j;
            const int is_in = inside || (y >= 0 && y < height && z >= 0 && z < width);
            d[i][j] = is_in ? wino_load(x, ((image * height + y) * width + z) * channels + c, narrow)
                            : _mm512_setzero_ps();
        }
    }
}

/* Asks memory for `count` channels of a pixel, which may lie anywhere; `writes`: to write them. */
INLINE void prefetch_pixel(const void *x, int64_t pixel, int64_t channels, int64_t first, int64_t count,
                           int narrow, int for_writing)
{
    const int64_t size = narrow ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    const uintptr_t from = (uintptr_t)x + (uintptr_t)((pixel * channels + first) * size);
    for (int64_t byte = 0; byte < count * size; byte += LINE) {
        if (for_writing)
            __builtin_prefetch((const void *)(from + (uintptr_t)byte), 1, 2);
        else
            __builtin_prefetch((const void *)(from + (uintptr_t)byte), 0, 2);
    }
}

/* The 4x4 pixels of tile t, if there is one: it is transformed when they have come. */
INLINE void prefetch_tile(const void *x, const tandem_winograd *w, const winograd_plan *p, int64_t t,
                          int64_t channels, int64_t first, int64_t count, int narrow, int for_writing)
{
    if (t == p->tiles) return;
    const wino_tile next = wino_tile_at(p, t);
    for (int64_t i = 0; i < next.high; i++)
        for (int64_t j = 0; j < next.wide; j++)
            prefetch_pixel(x, (next.image * w->height + next.top + i) * w->width + next.left + j, channels,
                           first, count, narrow, for_writing);
}

/* Channels first … first + count of tiles from … from + n of an image: to[point][tile][channel]. */
INLINE void expand_tiles(float *to, int64_t plane, int64_t row, const void *x, const tandem_winograd *w,
                         const winograd_plan *p, int64_t from, int64_t n, int64_t channels, int64_t first,
                         int64_t count, int frame, int size, int narrow, wino_transform *transform)
{
    for (int64_t t = 0; t < n; t++, to += row) {
        const wino_tile at = wino_tile_at(p, from + t);
        const int64_t top = at.top - frame, left = at.left - frame;
        prefetch_tile(x, w, p, from + t + 1, channels, first, count, narrow, 0);
        const int inside = top >= 0 && left >= 0 && top + size <= w->height && left + size <= w->width;
        for (int64_t c = 0; c < count; c += LANES) {
            wino_vector d[6][6];
            if (inside)
                load_tile_pixels(d, x, at.image, top, left, w->height, w->width, channels, first + c, size,
                                 narrow, 1);
            else
                load_tile_pixels(d, x, at.image, top, left, w->height, w->width, channels, first + c, size,
                                 narrow, 0);
            wino_expand(to + c, plane, d, size, at.high, at.wide, transform);
        }
    }
}

static void expand_image(float *v, const tandem_winograd *w, const winograd_plan *p, int64_t from, int64_t n)
{
    if (w->from_bf16)
        expand_tiles(v, p->plane, p->row, w->x, w, p, from, n, w->from, 0, w->from, 1, 6, 1, transform_image);
    else
        expand_tiles(v, p->plane, p->row, w->x, w, p, from, n, w->from, 0, w->from, 1, 6, 0, transform_image);
}

static void expand_gradient(float *y, const tandem_winograd *w, const winograd_plan *p, int64_t from,
                            int64_t n, int64_t first)
{
    if (w->from_bf16)
        expand_tiles(y, p->chunk_plane, CHUNK, w->w, w, p, from, n, w->to, first, CHUNK, 0, 4, 1,
                     transform_gradient);
    else
        expand_tiles(y, p->chunk_plane, CHUNK, w->w, w, p, from, n, w->to, first, CHUNK, 0, 4, 0,
                     transform_gradient);
}

INLINE void contract_results(const float *m, const tandem_winograd *w, const winograd_plan *p, int64_t from,
                             int64_t n, int64_t first, int narrow)
{
    for (int64_t t = 0; t < n; t++, m += CHUNK) {
        const wino_tile at = wino_tile_at(p, from + t);
        prefetch_tile(w->y, w, p, from + t + 1, w->to, first, CHUNK, narrow, 1);
        const int64_t down = smaller_dim(at.high, w->height - at.top),
                      across = smaller_dim(at.wide, w->width - at.left);
        for (int64_t c = 0; c < CHUNK; c += LANES) {
            wino_vector d[6][6];
            wino_contract(d, m + c, p->chunk_plane, 4, at.high, at.wide, to_result);
            UNROLLED
            for (int i = 0; i < 4; i++) {
                UNROLLED
                for (int j = 0; j < 4; j++)
                    if (i < down && j < across)
                        wino_store(w->y,
                                   ((at.image * w->height + at.top + i) * w->width + at.left + j) * w->to +
                                       first + c,
                                   d[i][j], narrow);
            }
        }
    }
}

/* --- Weights -------------------------------------------------------------------------------------------- */

/* 3x3 taps of 16 channels read (k …) by 16 written (n …): tap[9][16 of k], a vector is of 16 n. Backward the
 * weight is turned by 180 degrees and its channels change places. */
INLINE void load_weight_taps(wino_vector tap[9][LANES], const tandem_winograd *w, int64_t k, int64_t n,
                             int narrow)
{
    const int reads_lie_together = w->is_dgrad != w->out_first; /* channels read, else those written */
    const int64_t line = reads_lie_together ? w->from : w->to;
    const int64_t row = w->out_first ? 9 * line : line, of_tap = w->out_first ? line : w->from * w->to;
    const int64_t first = reads_lie_together ? n * row + k : k * row + n;
    for (int at = 0; at < 9; at++) {
        wino_vector *const of = tap[w->is_dgrad ? 8 - at : at];
        for (int i = 0; i < LANES; i++) of[i] = wino_load(w->w, at * of_tap + i * row + first, narrow);
        if (reads_lie_together) transpose_16x16(of);
    }
}

/* u[point][k][32] of a chunk that begins at channel `first`. */
INLINE void expand_weights(float *u, const tandem_winograd *w, int64_t first, int narrow)
{
    const int64_t plane = w->from * CHUNK + PAD;
    for (int64_t k = 0; k < w->from; k += LANES)
        for (int64_t n = 0; n < CHUNK; n += LANES) {
            wino_vector tap[9][LANES];
            load_weight_taps(tap, w, k, first + n, narrow);
            for (int i = 0; i < LANES; i++) {
                wino_vector d[6][6];
                UNROLLED
                for (int at = 0; at < 9; at++) d[at / 3][at % 3] = tap[at][i];
                wino_expand(u + (k + i) * CHUNK + n, plane, d, 3, 4, 4, transform_weight);
            }
        }
}

/* Stores tap[9][16 of k], a vector is of 16 n, of a weight's gradient. */
INLINE void store_weight_taps(wino_vector tap[9][LANES], const tandem_winograd *w, int64_t k, int64_t n)
{
    for (int at = 0; at < 9; at++) {
        if (w->out_first) transpose_16x16(tap[at]);
        for (int i = 0; i < LANES; i++)
            wino_store(w->y,
                       w->out_first ? ((n + i) * 9 + at) * w->from + k : (at * w->from + k + i) * w->to + n,
                       tap[at][i], 0);
    }
}

/* The gradient of weights from channels k … k + count to those of a chunk. */
INLINE void contract_weights(const float *m, int64_t plane, const tandem_winograd *w, int64_t k,
                             int64_t count, int64_t first)
{
    for (int64_t i = 0; i < count; i += LANES)
        for (int64_t n = 0; n < CHUNK; n += LANES) {
            wino_vector tap[9][LANES];
            for (int l = 0; l < LANES; l++) {
                wino_vector d[6][6];
                wino_contract(d, m + (i + l) * CHUNK + n, plane, 3, 4, 4, to_weight);
                UNROLLED
                for (int at = 0; at < 9; at++) tap[at][l] = d[at / 3][at % 3];
            }
            store_weight_taps(tap, w, k + i, first + n);
        }
}

/* --- Products ------------------------------------------------------------------------------------------- */

/* c[rows][32] (+)= Σ over k of a[r·row + k·step]·b[k][32] */
INLINE void multiply_rows(float *c, const float *a, int64_t row, int64_t step, const float *b, int64_t k,
                          const int rows, int accumulate)
{
    wino_vector sum[ROWS][2];
    UNROLLED
    for (int r = 0; r < rows; r++) {
        sum[r][0] = accumulate ? _mm512_loadu_ps(c + r * CHUNK) : _mm512_setzero_ps();
        sum[r][1] = accumulate ? _mm512_loadu_ps(c + r * CHUNK + LANES) : _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < k; i++, a += step, b += CHUNK) {
        const wino_vector b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + LANES);
        UNROLLED
        for (int r = 0; r < rows; r++) {
            const wino_vector factor = _mm512_set1_ps(a[r * row]);
            sum[r][0] = _mm512_fmadd_ps(factor, b0, sum[r][0]);
            sum[r][1] = _mm512_fmadd_ps(factor, b1, sum[r][1]);
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_ps(c + r * CHUNK, sum[r][0]);
        _mm512_storeu_ps(c + r * CHUNK + LANES, sum[r][1]);
    }
}

static void multiply_chunk(float *c, const float *a, int64_t m, int64_t row, int64_t step, const float *b,
                           int64_t k, int accumulate)
{
    int64_t r = 0;
    for (; r + ROWS <= m; r += ROWS)
        multiply_rows(c + r * CHUNK, a + r * row, row, step, b, k, ROWS, accumulate);
    for (; r + ROWS / 2 <= m; r += ROWS / 2)
        multiply_rows(c + r * CHUNK, a + r * row, row, step, b, k, ROWS / 2, accumulate);
    for (; r < m; r++) multiply_rows(c + r * CHUNK, a + r * row, row, step, b, k, 1, accumulate);
}

/* --- The passes ----------------------------------------------------------------------------------------- */

/* Of the block of n tiles that begins at `from`, those that have a point: begin … end. */
static void tiles_with_point(const winograd_plan *p, int point, int64_t from, int64_t n, int64_t *begin,
                             int64_t *end)
{
    const int needs_high = point / 6 == MISSING, needs_wide = point % 6 == MISSING;
    const int64_t first = needs_wide ? p->tile_region[MIDDLE].begin : 0;
    const int64_t last = needs_high   ? p->tile_region[BOTTOM].begin
                         : needs_wide ? p->tile_region[CORNER].begin
                                      : p->tiles;
    *begin = first > from ? smaller_dim(first - from, n) : 0;
    *end = last > from ? smaller_dim(last - from, n) : 0;
}

/* Forward, and dgrad, which is the same of a turned weight. */
static void winograd_convolve(const tandem_winograd *w, const winograd_plan *p)
{
    float *const v = w->workspace, *const m = v + p->v_floats, *const u = m + p->m_floats;
    const int64_t u_plane = w->from * CHUNK + PAD;
    for (int64_t from = 0; from < p->tiles; from += p->block) {
        const int64_t n = smaller_dim(p->block, p->tiles - from);
        expand_image(v, w, p, from, n);
        for (int64_t first = p->to_begin; first < p->to_end; first += CHUNK) {
            float *const weights = u + (p->keep_chunks ? (first - p->to_begin) / CHUNK * p->chunk_floats : 0);
            if (from == 0 && w->from_bf16) expand_weights(weights, w, first, 1);
            if (from == 0 && !w->from_bf16) expand_weights(weights, w, first, 0);
            for (int at = 0; at < POINTS; at++) {
                int64_t begin, end;
                tiles_with_point(p, at, from, n, &begin, &end);
                multiply_chunk(m + at * p->chunk_plane + begin * CHUNK, v + at * p->plane + begin * p->row,
                               end - begin, p->row, 1, weights + at * u_plane, w->from, 0);
            }
            if (w->to_bf16)
                contract_results(m, w, p, from, n, first, 1);
            else
                contract_results(m, w, p, from, n, first, 0);
        }
    }
}

static void winograd_weight_gradient(const tandem_winograd *w, const winograd_plan *p)
{
    float *const v = w->workspace, *const y = v + p->v_floats, *const sums = y + p->m_floats;
    const int64_t plane = w->from * CHUNK + PAD;
    for (int64_t from = 0; from < p->tiles; from += p->block) {
        const int64_t n = smaller_dim(p->block, p->tiles - from);
        expand_image(v, w, p, from, n);
        for (int64_t first = p->to_begin; first < p->to_end; first += CHUNK) {
            float *const m = sums + (p->keep_chunks ? (first - p->to_begin) / CHUNK * p->chunk_floats : 0);
            expand_gradient(y, w, p, from, n, first);
            for (int64_t k = 0; k < w->from; k += SLICE) {
                const int64_t count = smaller_dim(SLICE, w->from - k);
                for (int at = 0; at < POINTS; at++) {
                    int64_t begin, end;
                    tiles_with_point(p, at, from, n, &begin, &end);
                    multiply_chunk(m + at * plane + k * CHUNK, v + at * p->plane + begin * p->row + k, count,
                                   1, p->row, y + at * p->chunk_plane + begin * CHUNK, end - begin, from > 0);
                }
                if (from + n == p->tiles) contract_weights(m + k * CHUNK, plane, w, k, count, first);
            }
        }
    }
}

void ISA(winograd)(const tandem_winograd *w)
{
    const winograd_plan p = make_winograd_plan(w);
    if (w->is_wgrad)
        winograd_weight_gradient(w, &p);
    else
        winograd_convolve(w, &p);
}

#endif
