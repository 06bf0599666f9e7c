/* attention.cu: o = dropout(softmax(scale·q·kᵀ))·v of every head, and the gradients of q, k and v. Scores
 * stay in registers. Forward keeps the logarithm of each row's sum, from which backward makes the row's
 * probabilities again. Nothing is added by atomics: a block has rows of its own, so bits repeat.
 *
 * A block has OWN rows (of q, or of k and v) in shared memory, 16 a warp, and goes through tiles of the other
 * side. Products are of 16x16 by 16x8 (PTX ISA, mma.m16n8k16): lane 4·g + t holds of the left operand rows
 * g and g + 8, of the right one column g, of the result rows g and g + 8 in columns 2t and 2t + 1. So two
 * neighbouring results are a left operand of the next product. Online maximum and sum: Milakov, Gimelshein,
 * arXiv:1805.02867, 2018; tiles and what backward keeps: Dao, "FlashAttention-2", arXiv:2307.08691, 2023. */
#include "kernels/cuda/launch.h"

#include <math.h>

enum { OWN = 64, ATTENTION_THREADS = OWN / 16 * WARP, OCTET = 8 };
#ifdef TANDEM_TESTS_CUDA_SIMT_H
#define NOT_INLINE
#else
#define NOT_INLINE __noinline__ /* inlined, draws would be most of the code */
#endif
#define ATTENTION_KERNEL static __global__ void __launch_bounds__(ATTENTION_THREADS)

/* D: the depth, rounded up; tiles are zero past the real one. Rows are apart so that lanes meet different
 * banks. */
template <int D> struct attention_tile {
    enum { STRIDE = D + 8, N = D > 64 ? 16 : 32 };
};

struct attention_sizes {
    int rows, columns, depth, causal;
    float scale;
};

struct attention_dropout {
    tandem_dropout mask;
    const uint32_t *stream_offset;
    int is_used;
};

/* --- Elements ------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ int lane_row(void) { return (int)(threadIdx.x % WARP / 4); }
static __device__ __forceinline__ int lane_pair(void) { return (int)(threadIdx.x % 4 * 2); }
static __device__ __forceinline__ int warp_row(void) { return (int)(threadIdx.x / WARP * 16); }

static __device__ __forceinline__ tandem_cuda_float type_of(bf16) { return TANDEM_CUDA_BF16; }
static __device__ __forceinline__ tandem_cuda_float type_of(f16) { return TANDEM_CUDA_F16; }

/* --- Products ------------------------------------------------------------------------------------------- */

/* c += a·b */
template <typename T>
static __device__ __forceinline__ void multiply(float c[4], const uint32_t a[4], uint32_t low, uint32_t high);

#ifdef TANDEM_TESTS_CUDA_SIMT_H
template <> void multiply<bf16>(float c[4], const uint32_t a[4], uint32_t low, uint32_t high)
{
    simt_multiply(c, a, low, high, tandem_f32_of_bf16);
}
template <> void multiply<f16>(float c[4], const uint32_t a[4], uint32_t low, uint32_t high)
{
    simt_multiply(c, a, low, high, tandem_f32_of_f16);
}
#else
template <>
__device__ __forceinline__ void multiply<bf16>(float c[4], const uint32_t a[4], uint32_t low, uint32_t high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 /* the host launches it on no older card */
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
#endif
}
template <>
__device__ __forceinline__ void multiply<f16>(float c[4], const uint32_t a[4], uint32_t low, uint32_t high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
#elif defined(__CUDA_ARCH__) /* two halves of its depth */
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(low));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(high));
#endif
}
#endif

/* Four matrices (8, 8) of shared memory: lanes 8·m … 8·m + 7 name the rows of matrix m, and lane 4·g + t gets
 * of each row g's numbers 2t and 2t + 1, or (TURNED) column g's (PTX ISA, ldmatrix). */
template <bool TURNED>
static __device__ __forceinline__ void load_matrices(uint32_t to[4], const uint16_t *row)
{
#ifdef __CUDA_ARCH__
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
#elif defined(TANDEM_TESTS_CUDA_SIMT_H)
    simt_load_matrices(to, row, TURNED);
#endif
}

/* Where this lane's row lies of four matrices that are a square of 16: down, then to the right; or to the
 * right, then down. */
template <int STRIDE> static __device__ __forceinline__ int down_first(void)
{
    return (int)(threadIdx.x % 16 * STRIDE + threadIdx.x % WARP / 16 * 8);
}
template <int STRIDE> static __device__ __forceinline__ int across_first(void)
{
    return (int)((threadIdx.x % 8 + threadIdx.x % WARP / 16 * 8) * STRIDE + threadIdx.x / 8 % 2 * 8);
}

/* Rows first … first + ROWS of x (rows, depth) into tile (ROWS, D), with zeros where x has none. */
template <int D, int ROWS, typename T>
static __device__ __forceinline__ void stage_rows(uint16_t *tile, const T *x, int first, int rows, int depth)
{
    enum {
        STRIDE = attention_tile<D>::STRIDE,
        OCTETS = D / OCTET,
        TURNS = ROWS * OCTETS / ATTENTION_THREADS
    };
    const int is_octets = depth % OCTET == 0;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        const int at = (int)threadIdx.x + turn * ATTENTION_THREADS, r = first + at / OCTETS,
                  c = at % OCTETS * OCTET;
        uint16_t *const to = tile + at / OCTETS * STRIDE + c;
        const T *const from = x + (size_t)r * (size_t)depth + c;
        if (is_octets) {
            *(uint4 *)to = r < rows && c < depth ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
            continue;
        }
#pragma unroll 1
        for (int k = 0; k < OCTET; k++) to[k] = r < rows && c + k < depth ? from[k].bits : (uint16_t)0;
    }
}

/* result (16, N) of this warp = its rows of own (OWN, D) · tileᵀ, tile (N, D) */
template <int D, typename T>
static __device__ __forceinline__ void multiply_tile(float result[attention_tile<D>::N / 8][4],
                                                     const uint16_t *own, const uint16_t *tile)
{
    enum { STRIDE = attention_tile<D>::STRIDE, N = attention_tile<D>::N };
    const uint16_t *const left = own + warp_row() * STRIDE + down_first<STRIDE>();
    const uint16_t *const right = tile + across_first<STRIDE>();
#pragma unroll
    for (int n = 0; n < N / 8; n++) result[n][0] = result[n][1] = result[n][2] = result[n][3] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t a[4], b[4];
        load_matrices<false>(a, left + k);
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            load_matrices<false>(b, right + 8 * n * STRIDE + k);
            multiply<T>(result[n], a, b[0], b[1]);
            multiply<T>(result[n + 1], a, b[2], b[3]);
        }
    }
}

/* sum (16, D) += p (16, N), rounded to T, · tile (N, D) */
template <int D, typename T>
static __device__ __forceinline__ void
add_weighted_tile(float sum[D / 8][4], const float p[attention_tile<D>::N / 8][4], const uint16_t *tile)
{
    enum { STRIDE = attention_tile<D>::STRIDE, N = attention_tile<D>::N };
    const uint16_t *const right = tile + down_first<STRIDE>();
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const float *const near = p[2 * k], *const far = p[2 * k + 1];
        const uint32_t a[4] = {pack_pair<T>(near[0], near[1]), pack_pair<T>(near[2], near[3]),
                               pack_pair<T>(far[0], far[1]), pack_pair<T>(far[2], far[3])};
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            load_matrices<true>(b, right + 16 * k * STRIDE + 8 * n);
            multiply<T>(sum[n], a, b[0], b[1]);
            multiply<T>(sum[n + 1], a, b[2], b[3]);
        }
    }
}

/* --- Dropout, with the bits of tandem_cuda_dropout ------------------------------------------------------ */

/* Two draws of 16 bits: those of elements 2·pair and 2·pair + 1. All arguments stay in registers. */
static __device__ NOT_INLINE uint32_t draws_of_pair(uint64_t pair, uint64_t seed, uint32_t stream0,
                                                    uint32_t stream1, uint32_t stream2)
{
    const uint64_t block = pair / 4;
    const uint32_t counter[4] = {(uint32_t)block, stream0, stream1, stream2 | (uint32_t)(block >> 32) << 8};
    const tandem_philox_block drawn = tandem_philox(counter, seed);
    const uint32_t even = pair % 4 ? drawn.word[2] : drawn.word[0];
    const uint32_t odd = pair % 4 > 1 ? drawn.word[3] : drawn.word[1];
    return pair % 2 ? odd : even;
}

static __device__ __forceinline__ uint32_t find_draws(const attention_dropout &drop, uint64_t pair)
{
    const uint32_t *const stream = drop.mask.stream;
    return draws_of_pair(pair, drop.mask.seed, stream[0], stream[1], stream[2]);
}

static __device__ __forceinline__ float drop_factor(const attention_dropout &drop, uint32_t draw)
{
    return (draw & 0xFFFFu) < drop.mask.threshold ? 0 : drop.mask.scale;
}

/* Of element (i, j) of a head's probabilities, among all draws. */
static __device__ __forceinline__ uint64_t draw_at(const attention_dropout &drop, const attention_sizes &s,
                                                   size_t head, int i, int j)
{
    return drop.mask.first + (head * (uint64_t)s.rows + (uint64_t)i) * (uint64_t)s.columns + (uint64_t)j;
}

/* What the element at `at` is multiplied by; of a row's two neighbours, which mostly are one pair, both. */
static __device__ __forceinline__ float factor_at(const attention_dropout &drop, uint64_t at)
{
    return drop_factor(drop, find_draws(drop, at / 2) >> (at % 2 ? 16 : 0));
}
static __device__ __forceinline__ void two_factors_at(float factor[2], const attention_dropout &drop,
                                                      uint64_t at)
{
    const uint32_t here = find_draws(drop, at / 2);
    const uint32_t next = at % 2 ? find_draws(drop, at / 2 + 1) : here >> 16;
    factor[0] = drop_factor(drop, at % 2 ? here >> 16 : here);
    factor[1] = drop_factor(drop, next);
}

/* --- Results -------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void store_float(void *to, tandem_cuda_float type, size_t at, float x)
{
    if (type == TANDEM_CUDA_F32)
        store_one((float *)to + at, x);
    else if (type == TANDEM_CUDA_BF16)
        store_one((bf16 *)to + at, x);
    else
        store_one((f16 *)to + at, x);
}

/* This warp's rows of a head's result: sum·by[0] and, 8 rows below, sum·by[1]. */
template <int D>
static __device__ __forceinline__ void store_rows(void *to, tandem_cuda_float type, size_t start, int first,
                                                  int rows, int depth, const float sum[D / 8][4],
                                                  const float by[2])
{
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = first + warp_row() + lane_row() + e / 2 * 8, c = 8 * n + lane_pair() + e % 2;
            if (r < rows && c < depth)
                store_float(to, type, start + (size_t)r * (size_t)depth + (size_t)c, sum[n][e] * by[e / 2]);
        }
}

/* Over the four lanes that share a row. */
static __device__ __forceinline__ float row_largest(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
static __device__ __forceinline__ float row_sum(float x)
{
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

/* --- Forward -------------------------------------------------------------------------------------------- */


/* Whether a lane's rows, i and i + 8, see all of the columns first … first + N. */
template <int N> static __device__ __forceinline__ bool sees_all(const attention_sizes &s, int i, int first)
{
    return first + N <= s.columns && (!s.causal || first + N - 1 <= i);
}

/* From scores to probabilities that are relative to the largest score so far, for columns first … of the
 * tile; returns in `less` what earlier sums are multiplied by. */
template <int N>
static __device__ __forceinline__ void online_softmax(float p[N / 8][4], float less[2], float top[2],
                                                      float sum[2], const attention_sizes &s, int i,
                                                      int first)
{
    float largest[2] = {top[0], top[1]};
    const float scale = s.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) p[n][e] *= scale;
    if (!sees_all<N>(s, i, first))
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int j = first + 8 * n + lane_pair() + e % 2;
                if (j >= s.columns || (s.causal && j > i + e / 2 * 8)) p[n][e] = -INFINITY;
            }
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) largest[e / 2] = fmaxf(largest[e / 2], p[n][e]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        largest[h] = row_largest(largest[h]);
        less[h] = approximate_exp2(top[h] - largest[h]);
        top[h] = largest[h];
        sum[h] *= less[h];
    }
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            p[n][e] = approximate_exp2(p[n][e] - top[e / 2]);
            sum[e / 2] += p[n][e];
        }
}

template <int N>
static __device__ __forceinline__ void drop_probabilities(float p[N / 8][4], const attention_dropout &drop,
                                                          const attention_sizes &s, size_t head, int i,
                                                          int first)
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float factor[2];
            two_factors_at(factor, drop, draw_at(drop, s, head, i + 8 * h, first + 8 * n + lane_pair()));
            p[n][2 * h] *= factor[0], p[n][2 * h + 1] *= factor[1];
        }
}

template <int D, typename T>
ATTENTION_KERNEL attention_forward(T *o, float *statistics, const T *q, const T *k, const T *v,
                                   attention_sizes s, attention_dropout drop)
{
    enum { STRIDE = attention_tile<D>::STRIDE, N = attention_tile<D>::N };
    alignas(16) __shared__ uint16_t own[OWN * STRIDE], tile[2 * N * STRIDE];
    const int blocks = (s.rows + OWN - 1) / OWN, first = (int)(blockIdx.x % (unsigned)blocks) * OWN,
              i = first + warp_row() + lane_row();
    const size_t head = blockIdx.x / (unsigned)blocks, own_start = head * (size_t)s.rows * (size_t)s.depth,
                 start = head * (size_t)s.columns * (size_t)s.depth;
    const int end = s.causal && first + OWN < s.columns ? first + OWN : s.columns;
    float sum[D / 8][4] = {}, p[N / 8][4], top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, less[2];
    if (drop.stream_offset) drop.mask.stream[0] += *drop.stream_offset;
    stage_rows<D, OWN>(own, q + own_start, first, s.rows, s.depth);
    for (int j = 0; j < end; j += N) {
        __syncthreads();
        stage_rows<D, N>(tile, k + start, j, s.columns, s.depth);
        stage_rows<D, N>(tile + N * STRIDE, v + start, j, s.columns, s.depth);
        __syncthreads();
        multiply_tile<D, T>(p, own, tile);
        online_softmax<N>(p, less, top, total, s, i, j);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[n][e] *= less[e / 2];
        if (drop.is_used) drop_probabilities<N>(p, drop, s, head, i, j);
        add_weighted_tile<D, T>(sum, p, tile + N * STRIDE);
    }
    total[0] = row_sum(total[0]), total[1] = row_sum(total[1]);
    const float by[2] = {1 / total[0], 1 / total[1]};
    store_rows<D>(o, type_of(T()), own_start, first, s.rows, s.depth, sum, by);
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (lane_pair() == 0 && i + 8 * h < s.rows)
            statistics[head * (size_t)s.rows + (size_t)(i + 8 * h)] = top[h] + log2f(total[h]);
}

/* --- Backward ------------------------------------------------------------------------------------------- */

struct attention_gradient_operands {
    void *result, *second; /* the gradient of q; of k, and of v */
    tandem_cuda_float result_type, v_type;
    const void *own[2], *other[2]; /* q and g, k and v; of k and v the other way round */
    const void *o;
    const float *statistics;
    float *along; /* made with the gradient of q, read for those of k and v */
};

/* Of two neighbours in a row of the result: of one row of the probabilities, or (KEYS) of one column. */
template <bool KEYS>
static __device__ __forceinline__ void find_factors(float factor[2], const attention_dropout &drop,
                                                    const attention_sizes &s, size_t head, int row,
                                                    int column)
{
    factor[0] = factor[1] = 1;
    if (!drop.is_used) return;
    if (!KEYS) return two_factors_at(factor, drop, draw_at(drop, s, head, row, column));
    factor[0] = factor_at(drop, draw_at(drop, s, head, column, row));
    factor[1] = factor_at(drop, draw_at(drop, s, head, column + 1, row));
}

/* What backward knows of a row of the probabilities: the statistics, and Σ g·o, which softmax's gradient
 * subtracts. A row that is none has zeros, as it has in the tiles. */
struct row_numbers {
    float statistics, along;
};
static __device__ __forceinline__ row_numbers load_row_numbers(const attention_gradient_operands &a,
                                                               const attention_sizes &s, size_t head, int i)
{
    if (i >= s.rows) return {0, 0};
    const size_t at = head * (size_t)s.rows + (size_t)i;
    return {a.statistics[at], a.along[at]};
}

/* The same for a row of this lane's, which four lanes share. They store the sum, too. */
template <typename T>
static __device__ __forceinline__ row_numbers find_row_numbers(const attention_gradient_operands &a,
                                                               const attention_sizes &s, size_t head, int i)
{
    const size_t row = head * (size_t)s.rows + (size_t)i, start = row * (size_t)s.depth;
    const int depth = i < s.rows ? s.depth : 0;
    float sum = 0;
    for (int c = lane_pair() / 2; c < depth; c += 4)
        sum += load_one((const T *)a.own[1] + start + c) * load_one((const T *)a.o + start + c);
    sum = row_sum(sum);
    if (i < s.rows && lane_pair() == 0) a.along[row] = sum;
    return {i < s.rows ? a.statistics[row] : 0, sum};
}

/* Probabilities and gradients of scores, from scores `p` and gradients of (dropped) probabilities `gp`. Row
 * of the result: i (KEYS: j). rows: of this lane's rows; of the tile's (KEYS). */
template <int N, bool KEYS, bool MASKED>
static __device__ __forceinline__ void
score_gradients(float p[N / 8][4], float gp[N / 8][4], const attention_sizes &s,
                const attention_dropout &drop, const row_numbers *rows, size_t head, int own, int other)
{
    const float scale = s.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = own + 8 * h, pair = 8 * n + lane_pair();
            float factor[2];
            find_factors<KEYS>(factor, drop, s, head, row, other + pair);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int column = other + pair + e, i = KEYS ? column : row, j = KEYS ? row : column;
                const bool is_seen = !MASKED || (j < s.columns && (!s.causal || j <= i));
                const row_numbers of_row = rows[KEYS ? pair + e : h];
                float *const score = &p[n][2 * h + e], *const gradient = &gp[n][2 * h + e];
                const float value = is_seen ? approximate_exp2(*score * scale - of_row.statistics) : 0;
                *gradient = is_seen ? value * (*gradient * factor[e] - of_row.along) : 0;
                *score = value * factor[e];
            }
        }
}

/* KEYS 0: a block has rows of q, and makes their gradient. 1: it has rows of k and v, and makes both. */
template <int D, typename T, bool KEYS>
ATTENTION_KERNEL attention_backward(attention_gradient_operands a, attention_sizes s, attention_dropout drop)
{
    enum { STRIDE = attention_tile<D>::STRIDE, N = attention_tile<D>::N };
    alignas(16) __shared__ uint16_t own[2][OWN * STRIDE], tile[2 * N * STRIDE];
    __shared__ row_numbers tile_rows[N];
    const int own_rows = KEYS ? s.columns : s.rows, other_rows = KEYS ? s.rows : s.columns,
              blocks = (own_rows + OWN - 1) / OWN, first = (int)(blockIdx.x % (unsigned)blocks) * OWN,
              row = first + warp_row() + lane_row();
    const size_t head = blockIdx.x / (unsigned)blocks, own_start = head * (size_t)own_rows * (size_t)s.depth,
                 start = head * (size_t)other_rows * (size_t)s.depth;
    const int begin = KEYS && s.causal ? first / N * N : 0,
              end = !KEYS && s.causal && first + OWN < other_rows ? first + OWN : other_rows;
    float sum[D / 8][4] = {}, second[KEYS ? D / 8 : 1][4] = {}, p[N / 8][4], gp[N / 8][4];
    row_numbers own_numbers[2];
    if (drop.stream_offset) drop.mask.stream[0] += *drop.stream_offset;
    for (int h = 0; h < 2 && !KEYS; h++) own_numbers[h] = find_row_numbers<T>(a, s, head, row + 8 * h);
    stage_rows<D, OWN>(own[0], (const T *)a.own[0] + own_start, first, own_rows, s.depth);
    stage_rows<D, OWN>(own[1], (const T *)a.own[1] + own_start, first, own_rows, s.depth);
    for (int r = begin; r < end; r += N) {
        __syncthreads();
        stage_rows<D, N>(tile, (const T *)a.other[0] + start, r, other_rows, s.depth);
        stage_rows<D, N>(tile + N * STRIDE, (const T *)a.other[1] + start, r, other_rows, s.depth);
        if (KEYS && threadIdx.x < N)
            tile_rows[threadIdx.x] = load_row_numbers(a, s, head, r + (int)threadIdx.x);
        __syncthreads();
        multiply_tile<D, T>(p, own[0], tile);
        multiply_tile<D, T>(gp, own[1], tile + N * STRIDE);
        const row_numbers *const rows = KEYS ? tile_rows : own_numbers;
        const bool is_whole =
            KEYS ? row + 8 < s.columns && (!s.causal || row + 8 <= r) : sees_all<N>(s, row, r);
        if (is_whole)
            score_gradients<N, KEYS, false>(p, gp, s, drop, rows, head, row, r);
        else
            score_gradients<N, KEYS, true>(p, gp, s, drop, rows, head, row, r);
        add_weighted_tile<D, T>(sum, gp, tile);
        if constexpr (KEYS) add_weighted_tile<D, T>(second, p, tile + N * STRIDE);
    }
    const float by[2] = {s.scale, s.scale}, one[2] = {1, 1};
    store_rows<D>(a.result, a.result_type, own_start, first, own_rows, s.depth, sum, by);
    if constexpr (KEYS) store_rows<D>(a.second, a.v_type, own_start, first, own_rows, s.depth, second, one);
}

/* --- Launches ------------------------------------------------------------------------------------------- */

static attention_sizes attention_sizes_of(const tandem_cuda_attention_spec *spec)
{
    return {(int)spec->rows, (int)spec->columns, (int)spec->depth, spec->causal, spec->scale};
}

static attention_dropout dropout_of(const tandem_cuda_attention_spec *spec)
{
    attention_dropout drop = {};
    if (spec->dropout) drop = {*spec->dropout, spec->stream_offset, 1};
    return drop;
}

static unsigned attention_grid(size_t heads, size_t rows)
{
    return (unsigned)(heads * ((rows + OWN - 1) / OWN));
}

/* launch(depth as a type of its own, …) for the smallest D that holds the depth. */
#define RETURN_FOR_DEPTH(depth, ...)                                                                         \
    if ((depth) <= 64) {                                                                                     \
        enum { D = 64 };                                                                                     \
        return __VA_ARGS__;                                                                                  \
    }                                                                                                        \
    if ((depth) <= 128) {                                                                                    \
        enum { D = 128 };                                                                                    \
        return __VA_ARGS__;                                                                                  \
    }                                                                                                        \
    return (int)cudaErrorInvalidValue

template <typename T>
static int launch_attention(T *o, float *statistics, const T *q, const T *k, const T *v,
                            const tandem_cuda_attention_spec *spec, tandem_cuda_stream stream)
{
    const unsigned grid = attention_grid(spec->heads, spec->rows);
    const attention_sizes s = attention_sizes_of(spec);
    const attention_dropout drop = dropout_of(spec);
    RETURN_FOR_DEPTH(spec->depth, LAUNCH((attention_forward<D, T>), grid, ATTENTION_THREADS, stream, o,
                                         statistics, q, k, v, s, drop));
}

template <typename T, bool KEYS>
static int launch_gradient(const attention_gradient_operands &a, const tandem_cuda_attention_spec *spec,
                           tandem_cuda_stream stream)
{
    const unsigned grid = attention_grid(spec->heads, KEYS ? spec->columns : spec->rows);
    const attention_sizes s = attention_sizes_of(spec);
    const attention_dropout drop = dropout_of(spec);
    RETURN_FOR_DEPTH(spec->depth,
                     LAUNCH((attention_backward<D, T, KEYS>), grid, ATTENTION_THREADS, stream, a, s, drop));
}

template <typename T>
static int launch_attention_backward(const tandem_cuda_attention_gradient *x,
                                     const tandem_cuda_attention_spec *spec, tandem_cuda_stream stream)
{
    attention_gradient_operands a = {};
    a.o = x->o, a.statistics = x->statistics, a.along = x->along;
    a.result = x->gradient[0], a.result_type = x->type[0];
    a.own[0] = x->q, a.own[1] = x->g, a.other[0] = x->k, a.other[1] = x->v;
    const int failed = launch_gradient<T, false>(a, spec, stream);
    if (failed) return failed;
    a.result = x->gradient[1], a.result_type = x->type[1], a.second = x->gradient[2];
    a.v_type = x->type[2];
    a.own[0] = x->k, a.own[1] = x->v, a.other[0] = x->q, a.other[1] = x->g;
    return launch_gradient<T, true>(a, spec, stream);
}

extern "C" int tandem_cuda_attention(void *o, float *statistics, const void *q, const void *k, const void *v,
                                     tandem_cuda_float type, const tandem_cuda_attention_spec *spec,
                                     tandem_cuda_stream stream)
{
    if (type == TANDEM_CUDA_BF16)
        return launch_attention((bf16 *)o, statistics, (const bf16 *)q, (const bf16 *)k, (const bf16 *)v,
                                spec, stream);
    if (type == TANDEM_CUDA_F16)
        return launch_attention((f16 *)o, statistics, (const f16 *)q, (const f16 *)k, (const f16 *)v, spec,
                                stream);
    return (int)cudaErrorInvalidValue;
}

extern "C" int tandem_cuda_attention_backward(const tandem_cuda_attention_gradient *gradient,
                                              tandem_cuda_float type, const tandem_cuda_attention_spec *spec,
                                              tandem_cuda_stream stream)
{
    if (type == TANDEM_CUDA_BF16) return launch_attention_backward<bf16>(gradient, spec, stream);
    if (type == TANDEM_CUDA_F16) return launch_attention_backward<f16>(gradient, spec, stream);
    return (int)cudaErrorInvalidValue;
}
