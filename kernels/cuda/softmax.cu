/* softmax.cu: softmax of rows with scale and causal mask, its gradient, and the cross-entropy of logits. They
 * read and write any float type and compute in f32. Short rows of a softmax are a warp's each (warp_rows.h),
 * others a block's. CPU reference: backend/cpu/op/{softmax,cross_entropy}.c. */
#include "kernels/cuda/warp_rows.h"

#include <float.h>

template <typename Row, typename T>
KERNEL softmax_by_warps(T *__restrict__ y, const T *__restrict__ x /* (rows, columns) */, size_t rows,
                        unsigned columns, float scale, int causal)
{
    enum { N = Row::LANE_COLUMNS };
    const size_t r = row_of_warp(), start = r * columns;
    if (r >= rows) return;                                              /* a whole warp */
    const unsigned seen = causal ? (unsigned)r % columns + 1 : columns; /* fewer than 2^32 rows */
    const float factor = scale * LOG2_E;
    float own[N], top = -INFINITY, sum = 0;
    Row::load(own, x + start, columns, 0);
#pragma unroll
    for (int k = 0; k < N; k++) top = fmaxf(top, Row::column(k) < seen ? factor * own[k] : -INFINITY);
    top = warp_largest(top);
    /* what `top` is rounded by is a factor of the whole row, so only the difference is */
#pragma unroll
    for (int k = 0; k < N; k++)
        sum += own[k] = Row::column(k) < seen ? approximate_exp2(fmaf(factor, own[k], -top)) : 0;
    const float inverse = 1.0f / warp_sum(sum);
#pragma unroll
    for (int k = 0; k < N; k++) own[k] *= inverse;
    Row::store(y + start, own, columns);
}

template <typename T>
KERNEL softmax(T *__restrict__ y, const T *__restrict__ x /* (rows, columns) */, size_t columns, float scale,
               int causal)
{
    __shared__ float of_warp[2][WARPS];
    const size_t start = (size_t)blockIdx.x * columns, seen = causal ? blockIdx.x % columns + 1 : columns;
    const auto own = [&](size_t j) { return x[start + j]; };
    float top = -INFINITY, sum = 0;
    for_columns(seen, own, [&](size_t, T value) { top = fmaxf(top, scale * as_float(value)); });
    top = block_largest(top, of_warp[0]);
    for_columns(seen, own, [&](size_t, T value) { sum += expf(scale * as_float(value) - top); });
    const float inverse = 1.0f / block_sum(sum, of_warp[1]);
    for_columns(columns, own, [&](size_t j, T value) {
        store_one(y + start + j, j < seen ? expf(scale * as_float(value) - top) * inverse : 0);
    });
}

template <typename T>
static int launch_softmax(T *y, const T *x, size_t rows, size_t columns, float scale, int causal,
                          tandem_cuda_stream stream)
{
    return launch_by_row_length<MAX_LANE_COLUMNS>(
        columns,
        [=](auto row) {
            return LAUNCH((softmax_by_warps<decltype(row), T>), grid_of_warps(rows), THREADS, stream, y, x,
                          rows, (unsigned)columns, scale, causal);
        },
        [=] { return LAUNCH(softmax<T>, (unsigned)rows, THREADS, stream, y, x, columns, scale, causal); });
}

extern "C" int tandem_cuda_softmax(void *y, const void *x, tandem_cuda_float type, size_t rows,
                                   size_t columns, float scale, int causal, tandem_cuda_stream stream)
{
    RETURN_FOR(type, launch_softmax((T *)y, (const T *)x, rows, columns, scale, causal, stream));
}

template <typename Row, typename T>
KERNEL softmax_backward_by_warps(T *__restrict__ gx, const T *__restrict__ g,
                                 const T *__restrict__ y /* (rows, columns) */, size_t rows, unsigned columns,
                                 float scale)
{
    enum { N = Row::LANE_COLUMNS };
    const size_t r = row_of_warp(), start = r * columns;
    if (r >= rows) return; /* a whole warp */
    float own_g[N], own_y[N], along = 0;
    Row::load(own_g, g + start, columns, 0);
    Row::load(own_y, y + start, columns, 0);
#pragma unroll
    for (int k = 0; k < N; k++) along += own_g[k] * own_y[k];
    along = warp_sum(along);
#pragma unroll
    for (int k = 0; k < N; k++) own_g[k] = scale * (own_y[k] * (own_g[k] - along));
    Row::store(gx + start, own_g, columns);
}

template <typename T>
KERNEL softmax_backward(T *__restrict__ gx, const T *__restrict__ g,
                        const T *__restrict__ y /* (rows, columns) */, size_t columns, float scale)
{
    __shared__ float of_warp[WARPS];
    const size_t start = (size_t)blockIdx.x * columns;
    struct softmax_element {
        T g, y;
    };
    const auto own = [&](size_t j) { return softmax_element{g[start + j], y[start + j]}; };
    float along = 0;
    for_columns(columns, own, [&](size_t, softmax_element p) { along += as_float(p.g) * as_float(p.y); });
    along = block_sum(along, of_warp);
    for_columns(columns, own, [&](size_t j, softmax_element p) {
        store_one(gx + start + j, scale * (as_float(p.y) * (as_float(p.g) - along)));
    });
}

template <typename T>
static int launch_softmax_backward(T *gx, const T *g, const T *y, size_t rows, size_t columns, float scale,
                                   tandem_cuda_stream stream)
{
    return launch_by_row_length<MAX_LANE_COLUMNS>(
        columns,
        [=](auto row) {
            return LAUNCH((softmax_backward_by_warps<decltype(row), T>), grid_of_warps(rows), THREADS, stream,
                          gx, g, y, rows, (unsigned)columns, scale);
        },
        [=] {
            return LAUNCH(softmax_backward<T>, (unsigned)rows, THREADS, stream, gx, g, y, columns, scale);
        });
}

extern "C" int tandem_cuda_softmax_backward(void *gx, const void *g, const void *y, tandem_cuda_float type,
                                            size_t rows, size_t columns, float scale,
                                            tandem_cuda_stream stream)
{
    RETURN_FOR(type,
               launch_softmax_backward((T *)gx, (const T *)g, (const T *)y, rows, columns, scale, stream));
}

/* --- Cross-entropy -------------------------------------------------------------------------------------- */

/* A row of x, from element `start` on: of_octet(i, value) for the octets that begin at multiples of
 * eight elements of x, of_one(i, value) for what is left at both ends; i: elements of x. Rows of an odd
 * number of classes begin anywhere. */
template <typename T, typename OfOctet, typename OfOne>
static __device__ __forceinline__ void for_row_octets(const T *x, size_t start, size_t columns,
                                                      OfOctet of_octet, OfOne of_one)
{
    enum { N = octets_of<T>::N };
    const size_t end = start + columns, first = n_tile(start, OCTET), last = end / OCTET;
    const size_t head_end = first * OCTET < end ? first * OCTET : end,
                 tail = last * OCTET > head_end ? last * OCTET : head_end, ends = head_end - start;
    if (threadIdx.x < ends) of_one(start + threadIdx.x, load_one(x + start + threadIdx.x));
    if (threadIdx.x >= OCTET && tail + threadIdx.x - OCTET < end)
        of_one(tail + threadIdx.x - OCTET, load_one(x + tail + threadIdx.x - OCTET));
    for (size_t o = first + threadIdx.x; o < last; o += N * THREADS) {
        packed<T> own[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            if (o + k * THREADS < last) own[k].template load_packed<IN_PLACE>(x + (o + k * THREADS) * OCTET);
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (o + k * THREADS >= last) continue;
            float value[OCTET];
            unpack_octet(value, own[k]);
            of_octet((o + k * THREADS) * OCTET, value);
        }
    }
}

static __device__ __forceinline__ float exponential(float x) { return approximate_exp2(x * LOG2_E); }

/* The largest value so far, Σ e^(value − top), and Σ value: one pass over a row (Milakov and Gimelshein,
 * arXiv:1805.02867, 2018). */
struct online_exponentials {
    float top, sum, plain;
};
template <int N> static __device__ __forceinline__ void add_online(online_exponentials *own, const float *x)
{
    float top = own->top;
#pragma unroll
    for (int i = 0; i < N; i++) top = fmaxf(top, x[i]);
    own->sum *= exponential(own->top - top);
    own->top = top;
#pragma unroll
    for (int i = 0; i < N; i++) {
        own->sum += exponential(x[i] - top);
        own->plain += x[i];
    }
}

/* A label that is neither −1 nor a class sets *bad from its row; of several, the first row wins. */
template <typename T>
KERNEL cross_entropy(float *__restrict__ loss_of /* [rows] */, float *__restrict__ saved /* [2·rows] */,
                     float *__restrict__ p, const T *__restrict__ x /* (rows, classes) of (rows, row) */,
                     const int32_t *__restrict__ label /* [rows] */, size_t rows, size_t classes, size_t row,
                     float smoothing, uint32_t *bad)
{
    __shared__ float of_warp[3][WARPS];
    const size_t start = blockIdx.x * row;
    const int32_t own = label[blockIdx.x];
    online_exponentials part = {-FLT_MAX, 0, 0};
    for_row_octets(
        x, start, classes, [&](size_t, const float value[OCTET]) { add_online<OCTET>(&part, value); },
        [&](size_t, float value) { add_online<1>(&part, &value); });
    const float top = block_largest(part.top, of_warp[0]);
    const float sum = block_sum(part.sum * exponential(part.top - top), of_warp[1]);
    const float mean = block_sum(part.plain, of_warp[2]) / (float)classes;
    for (size_t j = threadIdx.x; p && j < classes; j += THREADS)
        p[blockIdx.x * classes + j] = expf(load_one(x + start + j) - top) / sum;
    if (threadIdx.x != 0) return;
    const int is_class = own >= 0 && (size_t)own < classes;
    if (!is_class && own != -1) atomicMax(bad, 0xFFFFFFFFu - blockIdx.x);
    if (saved) {
        saved[blockIdx.x] = top;
        saved[rows + blockIdx.x] = sum;
    }
    loss_of[blockIdx.x] =
        is_class ? (1 - smoothing) * (top - load_one(x + start + own)) + smoothing * (top - mean) + logf(sum)
                 : 0;
}

/* One block sums the rows' losses in a fixed order. */
KERNEL sum_losses(float *loss, const float *__restrict__ loss_of /* [rows] */, size_t rows, float row_weight)
{
    __shared__ float of_warp[WARPS];
    float sum = 0;
    for_columns(
        rows, [&](size_t r) { return loss_of[r]; }, [&](size_t, float loss_of_row) { sum += loss_of_row; });
    sum = block_sum(sum, of_warp);
    if (threadIdx.x == 0) *loss = sum * row_weight;
}

extern "C" int tandem_cuda_cross_entropy(const tandem_cuda_cross_entropy_out *out, const void *x,
                                         tandem_cuda_float type, const int32_t *label, size_t rows,
                                         size_t classes, size_t row, float row_weight, float smoothing,
                                         uint32_t *bad, void *workspace, tandem_cuda_stream stream)
{
    float *loss_of = (float *)workspace, *saved = out->saved, *p = out->p;
    const auto launch_rows = [=]() -> int {
        RETURN_FOR(type, LAUNCH(cross_entropy<T>, (unsigned)rows, THREADS, stream, loss_of, saved, p,
                                (const T *)x, label, rows, classes, row, smoothing, bad));
    };
    const int failed = launch_rows();
    if (failed) return failed;
    return LAUNCH(sum_losses, 1u, THREADS, stream, out->loss, loss_of, rows, row_weight);
}

/* x and gx may be one array: who reads an element writes it. saved NULL: x are probabilities. */
template <typename T>
KERNEL cross_entropy_backward(T *gx, const T *x /* (rows, classes) of (rows, row) */,
                              const float *__restrict__ saved /* [2·rows] */,
                              const int32_t *__restrict__ label /* [rows] */, size_t rows, size_t classes,
                              size_t row, float row_weight, const float *factor, float smoothing)
{
    const float weight = factor ? TANDEM_MUL(row_weight, *factor) : row_weight;
    const float wrong = TANDEM_DIV(smoothing, (float)classes);
    const size_t start = blockIdx.x * row;
    const int32_t own = label[blockIdx.x];
    const size_t hit = own < 0 ? SIZE_MAX : start + (size_t)own; /* the label's element */
    const float top = saved ? saved[blockIdx.x] : 0, inverse = saved ? 1.0f / saved[rows + blockIdx.x] : 1;
    const auto gradient = [&](float value, int is_hit) {
        const float likely = saved ? exponential(value - top) * inverse : value,
                    target = is_hit ? 1 - smoothing : 0.0f;
        return own < 0 ? 0 : TANDEM_MUL(TANDEM_SUB(TANDEM_SUB(likely, wrong), target), weight);
    };
    for_row_octets(
        x, start, classes,
        [&](size_t i, float value[OCTET]) {
            if (i / OCTET == hit / OCTET) { /* one octet of the row */
#pragma unroll
                for (int k = 0; k < OCTET; k++) value[k] = gradient(value[k], i + k == hit);
            } else {
#pragma unroll
                for (int k = 0; k < OCTET; k++) value[k] = gradient(value[k], 0);
            }
            store_octet(gx + i, value);
        },
        [&](size_t i, float value) { store_one(gx + i, gradient(value, i == hit)); });
    for (size_t j = classes + threadIdx.x; j < row; j += THREADS) store_one(gx + start + j, 0);
}

extern "C" int tandem_cuda_cross_entropy_backward(void *gx, const void *x, tandem_cuda_float type,
                                                  const float *saved, const int32_t *label, size_t rows,
                                                  size_t classes, size_t row, float row_weight,
                                                  const float *factor, float smoothing,
                                                  tandem_cuda_stream stream)
{
    RETURN_FOR(type, LAUNCH(cross_entropy_backward<T>, (unsigned)rows, THREADS, stream, (T *)gx, (const T *)x,
                            saved, label, rows, classes, row, row_weight, factor, smoothing));
}
