/* layout.cu: operators that move rows: embedding, gather_labelled, transpose, slice, concat_token, and the
 * pools. CPU reference:
 * backend/cpu/op/{embedding,gather_labelled,transpose,slice,concat_token,maxpool,avgpool}.c. */
#include "kernels/cuda/columns.h"
#include "kernels/cuda/octet.h"
#include "kernels/cuda/tile.h"

/* --- Embedding ------------------------------------------------------------------------------------------ */

/* One block per token. A token outside the table sets *bad, as in cross_entropy; its row is 0. */
template <typename T>
KERNEL embedding(T *__restrict__ y /* (n, width) */,
                 const float *__restrict__ table /* (vocabulary, width) */,
                 const int32_t *__restrict__ token /* [n] */, size_t vocabulary, size_t width, uint32_t *bad)
{
    const int32_t own = token[blockIdx.x];
    const int known = own >= 0 && (size_t)own < vocabulary;
    if (!known && threadIdx.x == 0) atomicMax(bad, 0xFFFFFFFFu - blockIdx.x);
    for (size_t j = threadIdx.x; j < width; j += THREADS)
        store_one(y + (size_t)blockIdx.x * width + j, known ? table[(size_t)own * width + j] : 0.0f);
}

extern "C" int tandem_cuda_embedding(void *y, const float *table, tandem_cuda_float type,
                                     const int32_t *token, size_t n, size_t vocabulary, size_t width,
                                     uint32_t *bad, tandem_cuda_stream stream)
{
    RETURN_FOR(type,
               LAUNCH(embedding, (unsigned)n, THREADS, stream, (T *)y, table, token, vocabulary, width, bad));
}

/* One block per token position. The block of a token's first position sums the rows of all its positions, in
 * order; the other blocks return. There are no atomic sums, so the bits are always the same. Each block scans
 * all tokens, PLACES at a time, from the cache: half a GB in total at n = 16,384. It lists its positions
 * first, so that several rows are in flight. */
enum { TOKENS_A_PASS = 4096 };
template <typename T>
KERNEL embedding_gradient(float *__restrict__ gradient /* (vocabulary, width), added to */,
                          const int32_t *__restrict__ token /* [n] */,
                          const T *__restrict__ g /* (n, width) */, size_t n, size_t vocabulary, size_t width)
{
    __shared__ uint32_t of_warp[WARPS], is_own[TOKENS_A_PASS / 32];
    __shared__ uint16_t found[TOKENS_A_PASS];
    const size_t first = blockIdx.x;
    const int32_t own = token[first];
    uint32_t is_repeated = 0;
    for (size_t i = threadIdx.x; i < first; i += THREADS) is_repeated |= (uint32_t)(token[i] == own);
    if (block_largest(is_repeated, of_warp) || own < 0 || (size_t)own >= vocabulary) return;
    for (size_t begin = first; begin < n; begin += TOKENS_A_PASS) {
        for (unsigned w = threadIdx.x; w < TOKENS_A_PASS / 32; w += THREADS) is_own[w] = 0;
        __syncthreads();
        for (unsigned i = threadIdx.x; i < TOKENS_A_PASS && begin + i < n; i += THREADS)
            if (token[begin + i] == own) atomicOr(&is_own[i / 32], 1u << i % 32);
        __syncthreads();
        unsigned n_found = 0;
        for (unsigned w = 0; w < TOKENS_A_PASS / 32; w++) {
            unsigned at = n_found;
            for (uint32_t left = is_own[w]; left && threadIdx.x == w; left &= left - 1)
                found[at++] = (uint16_t)(w * 32 + (unsigned)__ffs((int)left) - 1);
            n_found += (unsigned)__popc(is_own[w]);
        }
        __syncthreads();
        for (size_t j = threadIdx.x; j < width && n_found; j += THREADS) {
            float sum = gradient[(size_t)own * width + j];
#pragma unroll 8
            for (unsigned k = 0; k < n_found; k++)
                sum = TANDEM_ADD(sum, load_one(g + (begin + found[k]) * width + j));
            gradient[(size_t)own * width + j] = sum;
        }
        __syncthreads();
    }
}

extern "C" int tandem_cuda_embedding_gradient(float *gradient, const int32_t *token, const void *g,
                                              tandem_cuda_float type, size_t n, size_t vocabulary,
                                              size_t width, int accumulate, tandem_cuda_stream stream)
{
    if (!accumulate) {
        const cudaError_t cleared =
            cudaMemsetAsync(gradient, 0, vocabulary * width * sizeof *gradient, stream);
        if (cleared != cudaSuccess) return (int)cleared;
    }
    RETURN_FOR(type, LAUNCH(embedding_gradient, (unsigned)n, THREADS, stream, gradient, token, (const T *)g,
                            n, vocabulary, width));
}

/* --- Labelled rows -------------------------------------------------------------------------------------- */

/* One thread per sample: a sample has few labels, which are read once. */
KERNEL find_label_rows(int32_t *__restrict__ row_index /* (batch, n) */,
                       const int32_t *__restrict__ label /* (batch, length) */, size_t batch, size_t length,
                       size_t n, uint32_t *bad)
{
    for (size_t b = first_item(); b < batch; b += all_items()) {
        size_t found = 0;
        for (size_t i = b * length; i < (b + 1) * length && found < n; i++)
            if (label[i] != -1) row_index[b * n + found++] = (int32_t)i;
        if (found < n) atomicMax(bad, 0xFFFFFFFFu - (uint32_t)(b * length));
        for (; found < n; found++) row_index[b * n + found] = (int32_t)(b * length);
    }
}

extern "C" int tandem_cuda_label_indices(int32_t *row_index, const int32_t *label, size_t batch,
                                         size_t length, size_t n, uint32_t *bad, tandem_cuda_stream stream)
{
    return LAUNCH(find_label_rows, grid_of(batch), THREADS, stream, row_index, label, batch, length, n, bad);
}

template <typename T>
KERNEL move_rows(T *__restrict__ y, const T *__restrict__ x,
                 const int32_t *__restrict__ row_index /* [rows] */, size_t rows, size_t width, int scatter)
{
    for (size_t i = first_item(); i < rows * width; i += all_items()) {
        const size_t there = (size_t)row_index[i / width] * width + i % width;
        if (scatter)
            y[there] = x[i];
        else
            y[i] = x[there];
    }
}

static int launch_move_rows(void *y, const void *x, tandem_cuda_float type, const int32_t *row_index,
                            size_t n, size_t width, int scatter, tandem_cuda_stream stream)
{
    const unsigned grid = grid_of(n * width);
    RETURN_FOR(type,
               LAUNCH(move_rows, grid, THREADS, stream, (T *)y, (const T *)x, row_index, n, width, scatter));
}

extern "C" int tandem_cuda_gather_rows(void *y, const void *x, tandem_cuda_float type,
                                       const int32_t *row_index, size_t n, size_t width,
                                       tandem_cuda_stream stream)
{
    return launch_move_rows(y, x, type, row_index, n, width, 0, stream);
}

extern "C" int tandem_cuda_scatter_rows(void *gx, const void *g, tandem_cuda_float type,
                                        const int32_t *row_index, size_t n, size_t all, size_t width,
                                        tandem_cuda_stream stream)
{
    const cudaError_t cleared = cudaMemsetAsync(
        gx, 0, all * width * (type == TANDEM_CUDA_F32 ? sizeof(float) : sizeof(uint16_t)), stream);
    return cleared != cudaSuccess ? (int)cleared
                                  : launch_move_rows(gx, g, type, row_index, n, width, 1, stream);
}

/* --- Transpose ------------------------------------------------------------------------------------------ */

/* Fewer elements are indexed with 32 bits. Tests lower it: no test has 2^32 elements. */
#ifndef NARROW_ELEMENTS
#define NARROW_ELEMENTS UINT32_MAX
#endif

/* U: the unit of a copy. Index has 32 bits where that is enough: a 64-bit division takes four times as
 * long. */
template <typename Index, typename U>
KERNEL transpose(U *__restrict__ y, const U *__restrict__ x, tandem_cuda_permutation p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        Index rest = (Index)i, from = 0;
#pragma unroll
        for (int d = 3; d >= 0; d--) {
            const Index dim = (Index)p.dim[d], above = rest / dim;
            from += (rest - above * dim) * (Index)p.stride[d];
            rest = above;
        }
        y[i] = x[from];
    }
}

template <typename U>
static int transpose_by(void *y, const void *x, const tandem_cuda_permutation *permutation, size_t a_unit,
                        tandem_cuda_stream stream)
{
    tandem_cuda_permutation p = *permutation;
    size_t last = 0;
    p.dim[3] /= a_unit;
    for (int d = 0; d < 3; d++) p.stride[d] /= a_unit;
    for (int d = 0; d < 4; d++) last += (p.dim[d] - 1) * p.stride[d];
    const size_t n = p.dim[0] * p.dim[1] * p.dim[2] * p.dim[3];
    if (n < NARROW_ELEMENTS && last < NARROW_ELEMENTS)
        return LAUNCH((transpose<uint32_t, U>), grid_of(n), THREADS, stream, (U *)y, (const U *)x, p, n);
    return LAUNCH((transpose<uint64_t, U>), grid_of(n), THREADS, stream, (U *)y, (const U *)x, p, n);
}

/* A matrix, by tiles of SIDE × SIDE in shared memory. Their rows are an odd number of words apart, so columns
 * do not conflict in a bank. A thread issues all of its loads before it uses the first. */
enum { SIDE = 64, STEP = THREADS / SIDE, STEPS = SIDE / STEP };
template <typename T> static __device__ __forceinline__ void copy_one(T *to, T x) { *to = x; }
static __device__ __forceinline__ void copy_one(float *to, bf16 x) { *to = as_float(x); }
static __device__ __forceinline__ void copy_one(float *to, f16 x) { *to = as_float(x); }

template <typename To, typename T>
KERNEL transpose_matrix(To *__restrict__ y /* (rows, columns) */,
                        const T *__restrict__ x /* (columns, rows) */, size_t rows, size_t columns)
{
    __shared__ T tile[SIDE][SIDE + 4 / sizeof(T)];
    const tile_position own = tile_of_block(n_tile(columns, SIDE), n_tile(rows, SIDE));
    const size_t row = own.row * SIDE, column = own.column * SIDE;
    const unsigned high = rows - row < SIDE ? (unsigned)(rows - row) : (unsigned)SIDE;
    const unsigned wide = columns - column < SIDE ? (unsigned)(columns - column) : (unsigned)SIDE;
    const unsigned fast = threadIdx.x % SIDE, slow = threadIdx.x / SIDE;
    const T *from = x + (column + slow) * rows + row + fast;
    To *to = y + (row + slow) * columns + column + fast;
    T numbers[STEPS] = {}; /* stored without a condition, which would separate the loads */
#pragma unroll
    for (unsigned k = 0; k < STEPS; k++, from += STEP * rows)
        if (fast < high && slow + k * STEP < wide) numbers[k] = *from;
#pragma unroll
    for (unsigned k = 0; k < STEPS; k++) tile[slow + k * STEP][fast] = numbers[k];
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < STEPS; k++, to += STEP * columns)
        if (fast < wide && slow + k * STEP < high) copy_one(to, tile[fast][slow + k * STEP]);
}

template <typename To, typename T>
static int launch_transpose_matrix(To *y, const T *x, size_t rows, size_t columns, tandem_cuda_stream stream)
{
    const unsigned grid = (unsigned)(n_tile(rows, SIDE) * n_tile(columns, SIDE));
    return LAUNCH((transpose_matrix<To, T>), grid, THREADS, stream, y, x, rows, columns);
}

template <typename T>
static int transpose_of(void *y, const void *x, const tandem_cuda_permutation *p, tandem_cuda_stream stream)
{
    const size_t rows = p->dim[2], columns = p->dim[3], in_16 = 16 / sizeof(T);
    const int is_matrix = p->dim[0] == 1 && p->dim[1] == 1 && p->stride[2] == 1 && p->stride[3] == rows;
    if (is_matrix) return launch_transpose_matrix((T *)y, (const T *)x, rows, columns, stream);
    const int in_rows = p->stride[3] == 1 && columns % in_16 == 0 && p->stride[0] % in_16 == 0 &&
                        p->stride[1] % in_16 == 0 && p->stride[2] % in_16 == 0;
    return in_rows ? transpose_by<uint4>(y, x, p, in_16, stream) : transpose_by<T>(y, x, p, 1, stream);
}

extern "C" int tandem_cuda_transpose(void *y, const void *x, tandem_cuda_float type,
                                     const tandem_cuda_permutation *permutation, tandem_cuda_stream stream)
{
    RETURN_FOR(type, transpose_of<T>(y, x, permutation, stream));
}

/* Of several arrays of one shape. */
template <typename T> struct biased_parts {
    T *y[TANDEM_CUDA_PARTS];
    const T *x[TANDEM_CUDA_PARTS];
    const float *own[TANDEM_CUDA_PARTS];
};
template <typename T> struct summed_parts {
    T *y[TANDEM_CUDA_PARTS];
    float *sum[TANDEM_CUDA_PARTS];
    const T *x[TANDEM_CUDA_PARTS];
};

template <typename P> static __device__ __forceinline__ P choose_part(P const part[], unsigned which)
{
    return which == 0 ? part[0] : which == 1 ? part[1] : part[2];
}

/* Octets, with the bias added on their way; one array after the other. */
template <typename Index, typename T>
KERNEL bias_transpose(biased_parts<T> parts, uint32_t octets_a_period,
                      tandem_cuda_permutation p /* of octets */, size_t n_octet, size_t n_all)
{
    for (size_t o = first_item(); o < n_all; o += all_items()) {
        Index rest = (Index)o, from = 0;
#pragma unroll
        for (int d = 3; d >= 0; d--) {
            const Index dim = (Index)p.dim[d], above = rest / dim;
            from += (rest - above * dim) * (Index)p.stride[d];
            rest = above;
        }
        const unsigned which = (unsigned)rest;
        float value[OCTET], shift[OCTET];
        load_octet(value, choose_part(parts.x, which) + (size_t)from * OCTET);
        load_octet(shift, choose_part(parts.own, which) + from % octets_a_period * OCTET);
#pragma unroll
        for (int i = 0; i < OCTET; i++) value[i] = TANDEM_ADD(value[i], shift[i]);
        store_octet(choose_part(parts.y, which) + (o - which * n_octet) * OCTET, value);
    }
}

template <typename T>
static int launch_bias_transpose(const tandem_cuda_bias_part *part, size_t n_part, uint32_t octets,
                                 const tandem_cuda_permutation &p, tandem_cuda_stream stream)
{
    const size_t n = p.dim[0] * p.dim[1] * p.dim[2] * p.dim[3], all = n * n_part;
    biased_parts<T> parts = {};
    for (size_t k = 0; k < n_part; k++) {
        parts.y[k] = (T *)part[k].y;
        parts.x[k] = (const T *)part[k].x;
        parts.own[k] = part[k].own;
    }
    if (all < NARROW_ELEMENTS)
        return LAUNCH((bias_transpose<uint32_t, T>), grid_of(all), THREADS, stream, parts, octets, p, n, all);
    return LAUNCH((bias_transpose<uint64_t, T>), grid_of(all), THREADS, stream, parts, octets, p, n, all);
}

extern "C" int tandem_cuda_bias_transpose(const tandem_cuda_bias_part *part, size_t n_part,
                                          tandem_cuda_float type, size_t period,
                                          const tandem_cuda_permutation *permutation,
                                          tandem_cuda_stream stream)
{
    tandem_cuda_permutation p = *permutation;
    const uint32_t octets = (uint32_t)(period / OCTET);
    if (p.stride[3] != 1 || p.dim[3] % OCTET != 0 || period % OCTET != 0 || n_part > TANDEM_CUDA_PARTS)
        return (int)cudaErrorInvalidValue;
    p.dim[3] /= OCTET;
    for (int d = 0; d < 3; d++) p.stride[d] /= OCTET;
    RETURN_FOR(type, launch_bias_transpose<T>(part, n_part, octets, p, stream));
}

template <typename T>
KERNEL transpose_sum(summed_parts<T> parts /* y: (rows, columns), sum: [columns] */,
                     float *part /* of each array (parts, columns) */, uint32_t *ticket,
                     tandem_cuda_permutation p, size_t rows, size_t columns)
{
    __shared__ float of_warp[WARPS][WARP];
    const column_part own = column_part_of_block(rows, columns);
    const unsigned which =
        (unsigned)tile_of_block(n_tile(columns, WARP), own.parts).matrix; /* of the arrays */
    const T *const x = choose_part(parts.x, which);
    T *const y = choose_part(parts.y, which);
    const size_t from = own.column / p.dim[3] * p.stride[2] + own.column % p.dim[3] * p.stride[3];
    const uint32_t down = (uint32_t)p.dim[1];
    float some = 0;
    if (own.has_column)
        for_rows<16 / sizeof(T)>(
            own.first + threadIdx.x / WARP, own.end,
            [&](size_t r) {
                const uint32_t a = (uint32_t)r / down, b = (uint32_t)r % down;
                return x[from + a * p.stride[0] + b * p.stride[1]];
            },
            [&](size_t r, T one) {
                y[r * columns + own.column] = one;
                some += as_float(one);
            });
    finish_column_sum(choose_part(parts.sum, which), part + which * own.parts * columns,
                      ticket + which * n_tile(columns, WARP), some, own, columns, of_warp);
}

template <typename T>
static int launch_transpose_sum(const tandem_cuda_sum_part *part, size_t n_part,
                                const tandem_cuda_permutation &p, float *workspace, uint32_t *tickets,
                                tandem_cuda_stream stream)
{
    const size_t rows = p.dim[0] * p.dim[1], columns = p.dim[2] * p.dim[3];
    const unsigned grid = grid_of_parts(rows, columns) * (unsigned)n_part;
    summed_parts<T> parts = {};
    for (size_t k = 0; k < n_part; k++) {
        parts.y[k] = (T *)part[k].y;
        parts.sum[k] = part[k].sum;
        parts.x[k] = (const T *)part[k].x;
    }
    return LAUNCH(transpose_sum<T>, grid, THREADS, stream, parts, workspace, tickets, p, rows, columns);
}

extern "C" int tandem_cuda_transpose_sum(const tandem_cuda_sum_part *part, size_t n_part,
                                         tandem_cuda_float type, const tandem_cuda_permutation *permutation,
                                         void *workspace, uint32_t *tickets, tandem_cuda_stream stream)
{
    const tandem_cuda_permutation p = *permutation;
    const size_t rows = p.dim[0] * p.dim[1], columns = p.dim[2] * p.dim[3];
    if (rows > UINT32_MAX || n_part > TANDEM_CUDA_PARTS) return (int)cudaErrorInvalidValue;
    if (n_part > 1 && n_part * n_tile(columns, WARP) > TANDEM_CUDA_TICKETS) { /* one by one */
        int failed = 0;
        for (size_t k = 0; k < n_part && !failed; k++)
            failed = tandem_cuda_transpose_sum(&part[k], 1, type, permutation, workspace, tickets, stream);
        return failed;
    }
    RETURN_FOR(type, launch_transpose_sum<T>(part, n_part, p, (float *)workspace, tickets, stream));
}

extern "C" int tandem_cuda_transpose_to_f32(float *y, const void *x, tandem_cuda_float type, size_t rows,
                                            size_t columns, tandem_cuda_stream stream)
{
    RETURN_FOR(type, launch_transpose_matrix(y, (const T *)x, rows, columns, stream));
}

/* --- Rows of dimension 1 -------------------------------------------------------------------------------- */

/* The copies of slice, concat_token and their gradients. Row r of y is row r + shift of x; outside x it is
 * `row`, or 0. */
template <typename T>
KERNEL shift_rows(T *__restrict__ y /* (batch, to, width) */,
                  const T *__restrict__ x /* (batch, from, width) */,
                  const float *__restrict__ row /* [width] or NULL */, size_t n, size_t to, size_t from,
                  size_t width, long shift)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        const size_t j = i % width, r = i / width % to, b = i / width / to;
        const long at = (long)r + shift;
        if (at >= 0 && at < (long)from)
            y[i] = x[(b * from + (size_t)at) * width + j];
        else
            store_one(y + i, row ? row[j] : 0);
    }
}

extern "C" int tandem_cuda_shift_rows(void *y, const void *x, tandem_cuda_float type, const float *row,
                                      size_t batch, size_t to, size_t from, size_t width, long shift,
                                      tandem_cuda_stream stream)
{
    const size_t n = batch * to * width;
    RETURN_FOR(type, LAUNCH(shift_rows, grid_of(n), THREADS, stream, (T *)y, (const T *)x, row, n, to, from,
                            width, shift));
}

/* --- Pools ---------------------------------------------------------------------------------------------- */

/* The coordinates of an output or input of a pool, from its index. */
typedef struct pixel {
    size_t image;
    int h, w, c;
} pixel;

/* *i /= n; returns the remainder. A 64-bit division takes four times as long as a 32-bit one. */
static __device__ __forceinline__ int divide_by(size_t *i, int n)
{
    const size_t all = *i;
    if (all >> 32) {
        *i = all / (size_t)n;
        return (int)(all % (size_t)n);
    }
    *i = (uint32_t)all / (uint32_t)n;
    return (int)((uint32_t)all % (uint32_t)n);
}

static __device__ __forceinline__ pixel pixel_at(size_t i, int height, int width, int channels)
{
    pixel p;
    p.c = divide_by(&i, channels);
    p.w = divide_by(&i, width);
    p.h = divide_by(&i, height);
    p.image = i;
    return p;
}

static __device__ __forceinline__ size_t pixel_index(size_t image, int h, int w, int c, int height, int width,
                                                     int channels)
{
    return ((image * (size_t)height + (size_t)h) * (size_t)width + (size_t)w) * (size_t)channels + (size_t)c;
}

template <typename T>
KERNEL maxpool(T *__restrict__ y,
               uint8_t *__restrict__ row_index /* like y: of the maximum within its window */,
               const T *__restrict__ x, tandem_cuda_pool p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        const pixel out = pixel_at(i, p.out_h, p.out_w, p.channels);
        float top = -INFINITY;
        int best = -1;
        for (int k = 0; k < p.kernel_h * p.kernel_w; k++) {
            const int h = out.h * p.stride + k / p.kernel_w - p.pad,
                      w = out.w * p.stride + k % p.kernel_w - p.pad;
            if (h < 0 || h >= p.in_h || w < 0 || w >= p.in_w) continue;
            const float value = load_one(x + pixel_index(out.image, h, w, out.c, p.in_h, p.in_w, p.channels));
            if (best < 0 || value > top) top = value, best = k;
        }
        store_one(y + i, top);
        row_index[i] = (uint8_t)best;
    }
}

/* For channels that are whole octets. */
template <typename T>
KERNEL maxpool_octets(T *__restrict__ y, uint8_t *__restrict__ row_index, const T *__restrict__ x,
                      tandem_cuda_pool p, size_t n)
{
    for (size_t o = first_item(); o < n / OCTET; o += all_items()) {
        const pixel out = pixel_at(o, p.out_h, p.out_w, p.channels / OCTET);
        float top[OCTET] = {0, 0, 0, 0, 0, 0, 0, 0};
        uint32_t best[OCTET] = {0, 0, 0, 0, 0, 0, 0, 0};
        int any = 0;
        for (int k = 0; k < p.kernel_h * p.kernel_w; k++) {
            const int h = out.h * p.stride + k / p.kernel_w - p.pad,
                      w = out.w * p.stride + k % p.kernel_w - p.pad;
            if (h < 0 || h >= p.in_h || w < 0 || w >= p.in_w) continue;
            float value[OCTET];
            load_octet(value, x + pixel_index(out.image, h, w, out.c * OCTET, p.in_h, p.in_w, p.channels));
#pragma unroll
            for (int i = 0; i < OCTET; i++)
                if (!any || value[i] > top[i]) top[i] = value[i], best[i] = (uint32_t)k;
            any = 1;
        }
        store_octet(y + o * OCTET, top);
        ((uint2 *)row_index)[o] = make_uint2(best[0] | best[1] << 8 | best[2] << 16 | best[3] << 24,
                                             best[4] | best[5] << 8 | best[6] << 16 | best[7] << 24);
    }
}

/* Each input gathers from the windows that contain it, so no two threads add to the same element. index NULL:
 * a mean. */
template <typename T>
KERNEL pool_backward(T *__restrict__ gx, const T *__restrict__ g, const uint8_t *__restrict__ row_index,
                     tandem_cuda_pool p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        const pixel in = pixel_at(i, p.in_h, p.in_w, p.channels);
        float sum = 0;
        for (int oy = tandem_cuda_first_window(in.h, p.kernel_h, &p);
             oy < p.out_h && oy * p.stride - p.pad <= in.h; oy++)
            for (int ox = tandem_cuda_first_window(in.w, p.kernel_w, &p);
                 ox < p.out_w && ox * p.stride - p.pad <= in.w; ox++) {
                const size_t at = pixel_index(in.image, oy, ox, in.c, p.out_h, p.out_w, p.channels);
                const int own = (in.h - oy * p.stride + p.pad) * p.kernel_w + in.w - ox * p.stride + p.pad;
                if (!row_index || row_index[at] == own) sum += load_one(g + at);
            }
        store_one(gx + i, row_index ? sum : sum / (float)(p.kernel_h * p.kernel_w));
    }
}

template <typename T>
KERNEL pool_backward_octets(T *__restrict__ gx, const T *__restrict__ g,
                            const uint8_t *__restrict__ row_index, tandem_cuda_pool p, size_t n)
{
    for (size_t o = first_item(); o < n / OCTET; o += all_items()) {
        const pixel in = pixel_at(o, p.in_h, p.in_w, p.channels / OCTET);
        float sum[OCTET] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (int oy = tandem_cuda_first_window(in.h, p.kernel_h, &p);
             oy < p.out_h && oy * p.stride - p.pad <= in.h; oy++)
            for (int ox = tandem_cuda_first_window(in.w, p.kernel_w, &p);
                 ox < p.out_w && ox * p.stride - p.pad <= in.w; ox++) {
                const size_t at = pixel_index(in.image, oy, ox, in.c * OCTET, p.out_h, p.out_w, p.channels);
                const int own = (in.h - oy * p.stride + p.pad) * p.kernel_w + in.w - ox * p.stride + p.pad;
                const uint2 best = row_index ? *(const uint2 *)(row_index + at) : make_uint2(0, 0);
                float value[OCTET];
                load_octet(value, g + at);
#pragma unroll
                for (int i = 0; i < OCTET; i++)
                    if (!row_index || ((i < 4 ? best.x : best.y) >> (8 * (i % 4)) & 0xFFu) == (uint32_t)own)
                        sum[i] += value[i];
            }
#pragma unroll
        for (int i = 0; i < OCTET && !row_index; i++) sum[i] /= (float)(p.kernel_h * p.kernel_w);
        store_octet(gx + o * OCTET, sum);
    }
}

template <typename T> KERNEL avgpool(T *__restrict__ y, const T *__restrict__ x, tandem_cuda_pool p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        const pixel out = pixel_at(i, p.out_h, p.out_w, p.channels);
        float sum = 0;
        for (int k = 0; k < p.kernel_h * p.kernel_w; k++)
            sum += load_one(x + pixel_index(out.image, out.h * p.stride + k / p.kernel_w,
                                            out.w * p.stride + k % p.kernel_w, out.c, p.in_h, p.in_w,
                                            p.channels));
        store_one(y + i, sum / (float)(p.kernel_h * p.kernel_w));
    }
}

static size_t n_output(const tandem_cuda_pool *p)
{
    return (size_t)p->batch * (size_t)p->out_h * (size_t)p->out_w * (size_t)p->channels;
}

static size_t n_input(const tandem_cuda_pool *p)
{
    return (size_t)p->batch * (size_t)p->in_h * (size_t)p->in_w * (size_t)p->channels;
}

extern "C" int tandem_cuda_maxpool(void *y, uint8_t *row_index, const void *x, tandem_cuda_float type,
                                   const tandem_cuda_pool *pool, tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_output(pool);
    if (p.kernel_h * p.kernel_w > 256) return (int)cudaErrorInvalidValue;
    if (p.channels % OCTET == 0) {
        RETURN_FOR(type, LAUNCH(maxpool_octets, grid_of(n / OCTET), THREADS, stream, (T *)y, row_index,
                                (const T *)x, p, n));
    }
    RETURN_FOR(type, LAUNCH(maxpool, grid_of(n), THREADS, stream, (T *)y, row_index, (const T *)x, p, n));
}

extern "C" int tandem_cuda_avgpool(void *y, const void *x, tandem_cuda_float type,
                                   const tandem_cuda_pool *pool, tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_output(pool);
    if (p.pad != 0) return (int)cudaErrorInvalidValue;
    RETURN_FOR(type, LAUNCH(avgpool, grid_of(n), THREADS, stream, (T *)y, (const T *)x, p, n));
}

extern "C" int tandem_cuda_pool_backward(void *gx, const void *g, const uint8_t *row_index,
                                         tandem_cuda_float type, const tandem_cuda_pool *pool,
                                         tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_input(pool);
    if (p.channels % OCTET == 0) {
        RETURN_FOR(type, LAUNCH(pool_backward_octets, grid_of(n / OCTET), THREADS, stream, (T *)gx,
                                (const T *)g, row_index, p, n));
    }
    RETURN_FOR(type,
               LAUNCH(pool_backward, grid_of(n), THREADS, stream, (T *)gx, (const T *)g, row_index, p, n));
}

/* U: the unit of a copy; the pool's channels count such units. */
template <typename U>
KERNEL im2col(U *__restrict__ columns, const U *__restrict__ x, tandem_cuda_pool p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        size_t rest = i;
        const int c = divide_by(&rest, p.channels), kx = divide_by(&rest, p.kernel_w),
                  ky = divide_by(&rest, p.kernel_h);
        const pixel out = pixel_at(rest, p.out_h, p.out_w, 1);
        const int h = out.h * p.stride + ky - p.pad, w = out.w * p.stride + kx - p.pad;
        const int inside = h >= 0 && h < p.in_h && w >= 0 && w < p.in_w;
        columns[i] = inside ? x[pixel_index(out.image, h, w, c, p.in_h, p.in_w, p.channels)] : U();
    }
}

template <typename U>
static int im2col_by(void *columns, const void *x, tandem_cuda_pool p, int unit, tandem_cuda_stream stream)
{
    p.channels /= unit;
    const size_t n = n_output(&p) * (size_t)(p.kernel_h * p.kernel_w);
    return LAUNCH(im2col<U>, grid_of(n), THREADS, stream, (U *)columns, (const U *)x, p, n);
}

extern "C" int tandem_cuda_im2col(void *columns, const void *x, size_t element_bytes,
                                  const tandem_cuda_pool *pool, tandem_cuda_stream stream)
{
    const int unit = SIXTEEN / (int)element_bytes;
    if (pool->channels % unit == 0) return im2col_by<uint4>(columns, x, *pool, unit, stream);
    return element_bytes == 1   ? im2col_by<uint8_t>(columns, x, *pool, 1, stream)
           : element_bytes == 2 ? im2col_by<uint16_t>(columns, x, *pool, 1, stream)
                                : im2col_by<uint32_t>(columns, x, *pool, 1, stream);
}

/* Sum: int32_t, with scales, or float. */
template <typename T, typename Sum>
KERNEL col2im(T *__restrict__ gx, const Sum *__restrict__ columns, size_t stride, tandem_cuda_pool p,
              size_t n, const float *__restrict__ scale_a, const float *__restrict__ scale_b)
{
    const float scale = scale_a ? TANDEM_MUL(*scale_a, *scale_b) : 1.0f;
    for (size_t i = first_item(); i < n; i += all_items()) {
        const pixel in = pixel_at(i, p.in_h, p.in_w, p.channels);
        Sum sum = 0;
        for (int oy = tandem_cuda_first_window(in.h, p.kernel_h, &p);
             oy < p.out_h && oy * p.stride - p.pad <= in.h; oy++)
            for (int ox = tandem_cuda_first_window(in.w, p.kernel_w, &p);
                 ox < p.out_w && ox * p.stride - p.pad <= in.w; ox++) {
                const int ky = in.h - oy * p.stride + p.pad, kx = in.w - ox * p.stride + p.pad;
                sum += columns[pixel_index(in.image, oy, ox, 0, p.out_h, p.out_w, 1) * stride +
                               (size_t)((ky * p.kernel_w + kx) * p.channels + in.c)];
            }
        store_one(gx + i, TANDEM_MUL((float)sum, scale));
    }
}

extern "C" int tandem_cuda_col2im_s32(void *gx, tandem_cuda_float type, const int32_t *columns, size_t stride,
                                      const tandem_cuda_pool *pool, const float *scale_a,
                                      const float *scale_b, tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_input(pool);
    RETURN_FOR(type, LAUNCH((col2im<T, int32_t>), grid_of(n), THREADS, stream, (T *)gx, columns, stride, p, n,
                            scale_a, scale_b));
}

extern "C" int tandem_cuda_col2im_f32(void *gx, tandem_cuda_float type, const float *columns, size_t stride,
                                      const tandem_cuda_pool *pool, tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_input(pool);
    const float *none = NULL;
    RETURN_FOR(type, LAUNCH((col2im<T, float>), grid_of(n), THREADS, stream, (T *)gx, columns, stride, p, n,
                            none, none));
}
