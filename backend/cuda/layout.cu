/* layout.cu: operators that put rows elsewhere: embedding, labelled, transpose, slice, prepend, and the pools. CPU reference:
 * backend/cpu/op/{embedding,labelled,transpose,slice,prepend,maxpool,avgpool}.c. */
#include "backend/cuda/launch.h"

/* --- Embedding ------------------------------------------------------------------------------------------------------------ */

/* A block a token. A token that the table lacks is told by *bad, as in cross_entropy; its row is 0. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    embedding(T *__restrict__ y /* (n, width) */, const float *__restrict__ table /* (vocabulary, width) */,
              const int32_t *__restrict__ token /* [n] */, size_t vocabulary, size_t width, uint32_t *bad)
{
    const int32_t own = token[blockIdx.x];
    const int known = own >= 0 && (size_t)own < vocabulary;
    if (!known && threadIdx.x == 0) atomicMax(bad, 0xFFFFFFFFu - blockIdx.x);
    for (size_t j = threadIdx.x; j < width; j += THREADS)
        store_one(y + (size_t)blockIdx.x * width + j, known ? table[(size_t)own * width + j] : 0.0f);
}

extern "C" int tandem_cuda_embedding(void *y, const float *table, tandem_cuda_float type, const int32_t *token, size_t n,
                                     size_t vocabulary, size_t width, uint32_t *bad, tandem_cuda_stream stream)
{
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(embedding, (unsigned)n, THREADS, stream, (float *)y, table, token, vocabulary, width, bad);
    return LAUNCH(embedding, (unsigned)n, THREADS, stream, (uint16_t *)y, table, token, vocabulary, width, bad);
}

/* A block a token: the first place of a token adds up the rows of all its places, in order; the other places have nothing to do.
 * No atomic sums, so that the bits are always the same. Tokens are read n times, from the cache: at n = 16,384 one GB of it. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    embedding_gradient(float *__restrict__ gradient /* (vocabulary, width), added to */,
                       const int32_t *__restrict__ token /* [n] */, const T *__restrict__ g /* (n, width) */, size_t n,
                       size_t vocabulary, size_t width)
{
    __shared__ uint32_t of_warp[WARPS];
    const size_t place = blockIdx.x;
    const int32_t own = token[place];
    uint32_t seen_before = 0;
    for (size_t i = threadIdx.x; i < place; i += THREADS) seen_before |= (uint32_t)(token[i] == own);
    if (block_largest(seen_before, of_warp) || own < 0 || (size_t)own >= vocabulary) return;
    for (size_t j = threadIdx.x; j < width; j += THREADS) {
        float sum = gradient[(size_t)own * width + j];
        for (size_t i = place; i < n; i++)
            if (token[i] == own) sum = TANDEM_ADD(sum, load_one(g + i * width + j));
        gradient[(size_t)own * width + j] = sum;
    }
}

extern "C" int tandem_cuda_embedding_gradient(float *gradient, const int32_t *token, const void *g, tandem_cuda_float type,
                                              size_t n, size_t vocabulary, size_t width, int adds,
                                              tandem_cuda_stream stream)
{
    if (!adds) {
        const cudaError_t cleared = cudaMemsetAsync(gradient, 0, vocabulary * width * sizeof *gradient, stream);
        if (cleared != cudaSuccess) return (int)cleared;
    }
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(embedding_gradient, (unsigned)n, THREADS, stream, gradient, token, (const float *)g, n, vocabulary, width);
    return LAUNCH(embedding_gradient, (unsigned)n, THREADS, stream, gradient, token, (const uint16_t *)g, n, vocabulary, width);
}

/* --- Labelled rows --------------------------------------------------------------------------------------------------------- */

/* A thread a sample: its labels are few, and read once. */
static __global__ void __launch_bounds__(THREADS)
    label_places(int32_t *__restrict__ place /* (batch, n) */, const int32_t *__restrict__ label /* (batch, length) */,
                 size_t batch, size_t length, size_t n, uint32_t *bad)
{
    for (size_t b = first_item(); b < batch; b += all_items()) {
        size_t found = 0;
        for (size_t i = b * length; i < (b + 1) * length && found < n; i++)
            if (label[i] != -1) place[b * n + found++] = (int32_t)i;
        if (found < n) atomicMax(bad, 0xFFFFFFFFu - (uint32_t)(b * length));
        for (; found < n; found++) place[b * n + found] = (int32_t)(b * length);
    }
}

extern "C" int tandem_cuda_label_places(int32_t *place, const int32_t *label, size_t batch, size_t length, size_t n,
                                        uint32_t *bad, tandem_cuda_stream stream)
{
    return LAUNCH(label_places, grid_of(batch), THREADS, stream, place, label, batch, length, n, bad);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    move_rows(T *__restrict__ y, const T *__restrict__ x, const int32_t *__restrict__ place /* [rows] */, size_t rows,
              size_t width, int puts)
{
    for (size_t i = first_item(); i < rows * width; i += all_items()) {
        const size_t there = (size_t)place[i / width] * width + i % width;
        if (puts)
            y[there] = x[i];
        else
            y[i] = x[there];
    }
}

static int move(void *y, const void *x, tandem_cuda_float type, const int32_t *place, size_t n, size_t width, int puts,
                tandem_cuda_stream stream)
{
    const unsigned grid = grid_of(n * width);
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(move_rows, grid, THREADS, stream, (float *)y, (const float *)x, place, n, width, puts);
    return LAUNCH(move_rows, grid, THREADS, stream, (uint16_t *)y, (const uint16_t *)x, place, n, width, puts);
}

extern "C" int tandem_cuda_take_rows(void *y, const void *x, tandem_cuda_float type, const int32_t *place, size_t n,
                                     size_t width, tandem_cuda_stream stream)
{
    return move(y, x, type, place, n, width, 0, stream);
}

extern "C" int tandem_cuda_put_rows(void *gx, const void *g, tandem_cuda_float type, const int32_t *place, size_t n,
                                    size_t all, size_t width, tandem_cuda_stream stream)
{
    const cudaError_t cleared =
        cudaMemsetAsync(gx, 0, all * width * (type == TANDEM_CUDA_F32 ? sizeof(float) : sizeof(uint16_t)), stream);
    return cleared != cudaSuccess ? (int)cleared : move(gx, g, type, place, n, width, 1, stream);
}

/* --- Transpose ------------------------------------------------------------------------------------------------------------ */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    transpose(T *__restrict__ y, const T *__restrict__ x, tandem_cuda_permutation p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        size_t rest = i, from = 0;
#pragma unroll
        for (int d = 3; d >= 0; d--) {
            from += rest % p.dim[d] * p.stride[d];
            rest /= p.dim[d];
        }
        y[i] = x[from];
    }
}

extern "C" int tandem_cuda_transpose(void *y, const void *x, tandem_cuda_float type,
                                     const tandem_cuda_permutation *permutation, tandem_cuda_stream stream)
{
    const tandem_cuda_permutation p = *permutation;
    const size_t n = p.dim[0] * p.dim[1] * p.dim[2] * p.dim[3];
    if (type == TANDEM_CUDA_F32) return LAUNCH(transpose, grid_of(n), THREADS, stream, (float *)y, (const float *)x, p, n);
    return LAUNCH(transpose, grid_of(n), THREADS, stream, (uint16_t *)y, (const uint16_t *)x, p, n);
}

enum { TILE = 32 };

/* Through shared memory where it transposes, so that both sides are read and written along their rows. */
static __global__ void __launch_bounds__(THREADS)
    pad_s8(int8_t *__restrict__ y /* (batch, rows, columns) */, const int8_t *__restrict__ x, size_t rows, size_t columns,
           size_t x_rows, size_t x_columns, int transposed)
{
    __shared__ int8_t tile[TILE][TILE + 4];
    const size_t row0 = (size_t)blockIdx.y * TILE, column0 = (size_t)blockIdx.x * TILE;
    const int8_t *in = x + (size_t)blockIdx.z * x_rows * x_columns;
    for (unsigned i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const unsigned fast = i % TILE, slow = i / TILE; /* along and across the rows of x */
        const size_t r = row0 + (transposed ? fast : slow), c = column0 + (transposed ? slow : fast);
        const int inside = r < x_rows && c < x_columns;
        tile[r - row0][c - column0] = inside ? in[transposed ? c * x_rows + r : r * x_columns + c] : (int8_t)0;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const size_t r = row0 + i / TILE, c = column0 + i % TILE;
        if (r < rows && c < columns) y[((size_t)blockIdx.z * rows + r) * columns + c] = tile[i / TILE][i % TILE];
    }
}

extern "C" int tandem_cuda_pad_s8(int8_t *y, const int8_t *x, size_t batch, size_t rows, size_t columns, size_t x_rows,
                                  size_t x_columns, int transposed, tandem_cuda_stream stream)
{
    const dim3 grid((unsigned)((columns + TILE - 1) / TILE), (unsigned)((rows + TILE - 1) / TILE), (unsigned)batch);
    if (grid.y > 65535 || grid.z > 65535) return (int)cudaErrorInvalidValue;
    return LAUNCH(pad_s8, grid, THREADS, stream, y, x, rows, columns, x_rows, x_columns, transposed);
}

/* --- Rows of dimension 1 ---------------------------------------------------------------------------------------------------- */

/* The copies behind slice, prepend and their gradients. Row r of y is row r + shift of x; beyond x it is `row`, or 0. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    shift_rows(T *__restrict__ y /* (batch, to, width) */, const T *__restrict__ x /* (batch, from, width) */,
               const float *__restrict__ row /* [width] or NULL */, size_t n, size_t to, size_t from, size_t width, long shift)
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

extern "C" int tandem_cuda_shift_rows(void *y, const void *x, tandem_cuda_float type, const float *row, size_t batch,
                                      size_t to, size_t from, size_t width, long shift, tandem_cuda_stream stream)
{
    const size_t n = batch * to * width;
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(shift_rows, grid_of(n), THREADS, stream, (float *)y, (const float *)x, row, n, to, from, width, shift);
    return LAUNCH(shift_rows, grid_of(n), THREADS, stream, (uint16_t *)y, (const uint16_t *)x, row, n, to, from, width, shift);
}

/* --- Pools -------------------------------------------------------------------------------------------------------------------- */

/* An output of a pool, or an input, by its index. */
typedef struct pixel {
    size_t image;
    int h, w, c;
} pixel;

static __device__ __forceinline__ pixel pixel_at(size_t i, int height, int width, int channels)
{
    pixel p;
    p.c = (int)(i % (size_t)channels);
    i /= (size_t)channels;
    p.w = (int)(i % (size_t)width);
    i /= (size_t)width;
    p.h = (int)(i % (size_t)height);
    p.image = i / (size_t)height;
    return p;
}

static __device__ __forceinline__ size_t index_of(size_t image, int h, int w, int c, int height, int width, int channels)
{
    return ((image * (size_t)height + (size_t)h) * (size_t)width + (size_t)w) * (size_t)channels + (size_t)c;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    maxpool(T *__restrict__ y, uint8_t *__restrict__ place /* like y: of the largest within its window */,
            const T *__restrict__ x, tandem_cuda_pool p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        const pixel out = pixel_at(i, p.out_h, p.out_w, p.channels);
        float top = -INFINITY;
        int best = -1;
        for (int k = 0; k < p.kernel_h * p.kernel_w; k++) {
            const int h = out.h * p.stride + k / p.kernel_w - p.pad, w = out.w * p.stride + k % p.kernel_w - p.pad;
            if (h < 0 || h >= p.in_h || w < 0 || w >= p.in_w) continue;
            const float value = load_one(x + index_of(out.image, h, w, out.c, p.in_h, p.in_w, p.channels));
            if (best < 0 || value > top) top = value, best = k;
        }
        store_one(y + i, top);
        place[i] = (uint8_t)best;
    }
}

/* Gathered, so that no two threads add to the same place: each input looks at the windows that it lies in. `place` NULL: a mean. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    pool_backward(T *__restrict__ gx, const T *__restrict__ g, const uint8_t *__restrict__ place, tandem_cuda_pool p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        const pixel in = pixel_at(i, p.in_h, p.in_w, p.channels);
        float sum = 0;
        for (int oy = tandem_cuda_first_window(in.h, p.kernel_h, &p); oy < p.out_h && oy * p.stride - p.pad <= in.h; oy++)
            for (int ox = tandem_cuda_first_window(in.w, p.kernel_w, &p); ox < p.out_w && ox * p.stride - p.pad <= in.w; ox++) {
                const size_t at = index_of(in.image, oy, ox, in.c, p.out_h, p.out_w, p.channels);
                const int own = (in.h - oy * p.stride + p.pad) * p.kernel_w + in.w - ox * p.stride + p.pad;
                if (!place || place[at] == own) sum += load_one(g + at);
            }
        store_one(gx + i, place ? sum : sum / (float)(p.kernel_h * p.kernel_w));
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    average(T *__restrict__ y, const T *__restrict__ x, tandem_cuda_pool p, size_t n)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        const pixel out = pixel_at(i, p.out_h, p.out_w, p.channels);
        float sum = 0;
        for (int k = 0; k < p.kernel_h * p.kernel_w; k++)
            sum += load_one(x + index_of(out.image, out.h * p.stride + k / p.kernel_w, out.w * p.stride + k % p.kernel_w, out.c,
                                         p.in_h, p.in_w, p.channels));
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

extern "C" int tandem_cuda_maxpool(void *y, uint8_t *place, const void *x, tandem_cuda_float type,
                                   const tandem_cuda_pool *pool, tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_output(pool);
    if (p.kernel_h * p.kernel_w > 256) return (int)cudaErrorInvalidValue;
    if (type == TANDEM_CUDA_F32) return LAUNCH(maxpool, grid_of(n), THREADS, stream, (float *)y, place, (const float *)x, p, n);
    return LAUNCH(maxpool, grid_of(n), THREADS, stream, (uint16_t *)y, place, (const uint16_t *)x, p, n);
}

extern "C" int tandem_cuda_average(void *y, const void *x, tandem_cuda_float type, const tandem_cuda_pool *pool,
                                   tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_output(pool);
    if (p.pad != 0) return (int)cudaErrorInvalidValue;
    if (type == TANDEM_CUDA_F32) return LAUNCH(average, grid_of(n), THREADS, stream, (float *)y, (const float *)x, p, n);
    return LAUNCH(average, grid_of(n), THREADS, stream, (uint16_t *)y, (const uint16_t *)x, p, n);
}

extern "C" int tandem_cuda_pool_backward(void *gx, const void *g, const uint8_t *place, tandem_cuda_float type,
                                         const tandem_cuda_pool *pool, tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_input(pool);
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(pool_backward, grid_of(n), THREADS, stream, (float *)gx, (const float *)g, place, p, n);
    return LAUNCH(pool_backward, grid_of(n), THREADS, stream, (uint16_t *)gx, (const uint16_t *)g, place, p, n);
}

static __global__ void __launch_bounds__(THREADS)
    im2col_s8(int8_t *__restrict__ columns, const int8_t *__restrict__ x, tandem_cuda_pool p, size_t n)
{
    const size_t a_row = (size_t)(p.kernel_h * p.kernel_w * p.channels);
    for (size_t i = first_item(); i < n; i += all_items()) {
        const int k = (int)(i % a_row), c = k % p.channels, kx = k / p.channels % p.kernel_w, ky = k / p.channels / p.kernel_w;
        const pixel out = pixel_at(i / a_row, p.out_h, p.out_w, 1);
        const int h = out.h * p.stride + ky - p.pad, w = out.w * p.stride + kx - p.pad;
        const int inside = h >= 0 && h < p.in_h && w >= 0 && w < p.in_w;
        columns[i] = inside ? x[index_of(out.image, h, w, c, p.in_h, p.in_w, p.channels)] : (int8_t)0;
    }
}

extern "C" int tandem_cuda_im2col_s8(int8_t *columns, const int8_t *x, const tandem_cuda_pool *pool, tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_output(pool) / (size_t)p.channels * (size_t)(p.kernel_h * p.kernel_w * p.channels);
    return LAUNCH(im2col_s8, grid_of(n), THREADS, stream, columns, x, p, n);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    col2im(T *__restrict__ gx, const int32_t *__restrict__ columns, size_t stride, tandem_cuda_pool p, size_t n,
           const float *__restrict__ scale_a, const float *__restrict__ scale_b)
{
    const float scale = TANDEM_MUL(*scale_a, *scale_b);
    for (size_t i = first_item(); i < n; i += all_items()) {
        const pixel in = pixel_at(i, p.in_h, p.in_w, p.channels);
        int32_t sum = 0;
        for (int oy = tandem_cuda_first_window(in.h, p.kernel_h, &p); oy < p.out_h && oy * p.stride - p.pad <= in.h; oy++)
            for (int ox = tandem_cuda_first_window(in.w, p.kernel_w, &p); ox < p.out_w && ox * p.stride - p.pad <= in.w; ox++) {
                const int ky = in.h - oy * p.stride + p.pad, kx = in.w - ox * p.stride + p.pad;
                sum += columns[index_of(in.image, oy, ox, 0, p.out_h, p.out_w, 1) * stride +
                               (size_t)((ky * p.kernel_w + kx) * p.channels + in.c)];
            }
        store_one(gx + i, TANDEM_MUL((float)sum, scale));
    }
}

extern "C" int tandem_cuda_col2im_s32(void *gx, tandem_cuda_float type, const int32_t *columns, size_t stride,
                                      const tandem_cuda_pool *pool, const float *scale_a, const float *scale_b,
                                      tandem_cuda_stream stream)
{
    const tandem_cuda_pool p = *pool;
    const size_t n = n_input(pool);
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(col2im, grid_of(n), THREADS, stream, (float *)gx, columns, stride, p, n, scale_a, scale_b);
    return LAUNCH(col2im, grid_of(n), THREADS, stream, (uint16_t *)gx, columns, stride, p, n, scale_a, scale_b);
}
