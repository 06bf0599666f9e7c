/* norm.cu: layer and batch normalisation with their gradients, of any float type, in f32.
 * CPU reference: oneDNN, in backend/cpu/op/{layernorm,batchnorm}.c. The variance divides by n and sums
 * differences from the mean: a second pass, which finds its data in the cache. */
#include "kernels/cuda/columns.h"
#include "kernels/cuda/layernorm_rows.h"

/* --- Layer normalisation: short rows are a warp's each, others a block's -------------------------------- */

template <typename Row, typename T>
KERNEL layernorm_by_warps(T *__restrict__ y, const T *__restrict__ x /* (rows, columns) */,
                          const float *__restrict__ scale, const float *__restrict__ shift /* [columns] */,
                          float *__restrict__ mean_of, float *__restrict__ variance_of /* [rows] */,
                          size_t rows, unsigned columns, float epsilon)
{
    const size_t r = row_of_warp(), start = r * columns;
    if (r >= rows) return; /* a whole warp */
    float own[Row::LANE_COLUMNS];
    Row::load(own, x + start, columns, 0);
    normalise_held_row<Row>(own, r, scale, shift, mean_of, variance_of, columns, epsilon);
    Row::store(y + start, own, columns);
}

template <typename Row, typename T>
KERNEL sum_layernorm_by_warps(T *__restrict__ y, T *__restrict__ to_sum, const T *__restrict__ residual,
                              const T *__restrict__ x /* (rows, columns) */, const float *__restrict__ bias,
                              const float *__restrict__ scale,
                              const float *__restrict__ shift /* [columns] */, float *__restrict__ mean_of,
                              float *__restrict__ variance_of /* [rows] */, size_t rows, unsigned columns,
                              float epsilon)
{
    const size_t r = row_of_warp(), start = r * columns;
    if (r >= rows) return; /* a whole warp */
    float own[Row::LANE_COLUMNS];
    Row::load(own, x + start, columns, 0);
    add_to_held_row<Row>(own, to_sum + start, residual + start, bias, columns);
    normalise_held_row<Row>(own, r, scale, shift, mean_of, variance_of, columns, epsilon);
    Row::store(y + start, own, columns);
}

/* The block's row, to `to`. sum: of the thread's columns. */
template <typename T>
static __device__ __forceinline__ void
normalise_row(T *__restrict__ to, const T *row, float sum, const float *__restrict__ scale,
              const float *__restrict__ shift, float *__restrict__ mean_of, float *__restrict__ variance_of,
              size_t columns, float epsilon)
{
    __shared__ float of_warp[2][WARPS];
    const auto own = [&](size_t j) { return row[j]; };
    float square = 0;
    const float mean = block_sum(sum, of_warp[0]) / (float)columns;
    for_columns(columns, own,
                [&](size_t, T value) { square += (as_float(value) - mean) * (as_float(value) - mean); });
    const float variance = block_sum(square, of_warp[1]) / (float)columns;
    const float inverse = 1.0f / sqrtf(variance + epsilon);
    if (threadIdx.x == 0) {
        mean_of[blockIdx.x] = mean;
        variance_of[blockIdx.x] = variance;
    }
    struct norm_element {
        T x;
        float scale, shift;
    };
    for_columns(
        columns,
        [&](size_t j) {
            return norm_element{row[j], scale[j], shift[j]};
        },
        [&](size_t j, norm_element p) {
            store_one(to + j, (as_float(p.x) - mean) * inverse * p.scale + p.shift);
        });
}

template <typename T>
KERNEL layernorm(T *__restrict__ y, const T *__restrict__ x /* (rows, columns) */,
                 const float *__restrict__ scale, const float *__restrict__ shift /* [columns] */,
                 float *__restrict__ mean_of, float *__restrict__ variance_of /* [rows] */, size_t columns,
                 float epsilon)
{
    const size_t start = (size_t)blockIdx.x * columns;
    float sum = 0;
    for_columns(
        columns, [&](size_t j) { return x[start + j]; }, [&](size_t, T value) { sum += as_float(value); });
    normalise_row(y + start, x + start, sum, scale, shift, mean_of, variance_of, columns, epsilon);
}

/* A thread reads of `to_sum` what it wrote itself. */
template <typename T>
KERNEL sum_layernorm(T *__restrict__ y, T *to_sum, const T *__restrict__ residual,
                     const T *__restrict__ x /* (rows, columns) */, const float *__restrict__ bias,
                     const float *__restrict__ scale, const float *__restrict__ shift /* [columns] */,
                     float *__restrict__ mean_of, float *__restrict__ variance_of /* [rows] */,
                     size_t columns, float epsilon)
{
    const size_t start = (size_t)blockIdx.x * columns;
    struct sum_element {
        T residual, x;
        float bias;
    };
    const auto own = [&](size_t j) {
        return sum_element{residual[start + j], x[start + j], bias ? bias[j] : 0.0f};
    };
    float sum = 0;
    for_columns(columns, own, [&](size_t j, sum_element p) {
        T one = p.x;
        if (bias) store_one(&one, TANDEM_ADD(as_float(p.x), p.bias));
        store_one(&one, TANDEM_ADD(as_float(p.residual), as_float(one)));
        to_sum[start + j] = one;
        sum += as_float(one);
    });
    normalise_row(y + start, (const T *)to_sum + start, sum, scale, shift, mean_of, variance_of, columns,
                  epsilon);
}

template <typename T>
static int launch_sum_layernorm(T *y, const tandem_cuda_residual *with, const T *x, const float *scale,
                                const float *shift, float *mean, float *variance, size_t rows, size_t columns,
                                float epsilon, tandem_cuda_stream stream)
{
    const float *bias = with->own;
    const T *residual = (const T *)with->residual;
    T *sum = (T *)with->sum;
    return launch_by_row_length<MAX_LANE_COLUMNS>(
        columns,
        [=](auto row) {
            return LAUNCH((sum_layernorm_by_warps<decltype(row), T>), grid_of_warps(rows), THREADS, stream, y,
                          sum, residual, x, bias, scale, shift, mean, variance, rows, (unsigned)columns,
                          epsilon);
        },
        [=] {
            return LAUNCH(sum_layernorm<T>, (unsigned)rows, THREADS, stream, y, sum, residual, x, bias, scale,
                          shift, mean, variance, columns, epsilon);
        });
}

extern "C" int tandem_cuda_add_layernorm(void *y, const tandem_cuda_residual *with, const void *x,
                                         tandem_cuda_float type, const float *scale, const float *shift,
                                         float *mean, float *variance, size_t rows, size_t columns,
                                         float epsilon, tandem_cuda_stream stream)
{
    RETURN_FOR(type, launch_sum_layernorm((T *)y, with, (const T *)x, scale, shift, mean, variance, rows,
                                          columns, epsilon, stream));
}

template <typename T>
static int launch_layernorm(T *y, const T *x, const float *scale, const float *shift, float *mean,
                            float *variance, size_t rows, size_t columns, float epsilon,
                            tandem_cuda_stream stream)
{
    return launch_by_row_length<MAX_LANE_COLUMNS>(
        columns,
        [=](auto row) {
            return LAUNCH((layernorm_by_warps<decltype(row), T>), grid_of_warps(rows), THREADS, stream, y, x,
                          scale, shift, mean, variance, rows, (unsigned)columns, epsilon);
        },
        [=] {
            return LAUNCH(layernorm<T>, (unsigned)rows, THREADS, stream, y, x, scale, shift, mean, variance,
                          columns, epsilon);
        });
}

extern "C" int tandem_cuda_layernorm(void *y, const void *x, tandem_cuda_float type, const float *scale,
                                     const float *shift, float *mean, float *variance, size_t rows,
                                     size_t columns, float epsilon, tandem_cuda_stream stream)
{
    RETURN_FOR(type, launch_layernorm((T *)y, (const T *)x, scale, shift, mean, variance, rows, columns,
                                      epsilon, stream));
}

/* gx = (scale·g − mean(scale·g) − x̂·mean(scale·g·x̂)) / √(variance + ε) */
template <typename T>
KERNEL
layernorm_input_gradient(T *__restrict__ gx, const T *__restrict__ g,
                         const T *__restrict__ x /* (rows, columns) */,
                         const float *__restrict__ scale /* [columns] */, const float *__restrict__ mean_of,
                         const float *__restrict__ variance_of /* [rows] */, size_t columns, float epsilon)
{
    __shared__ float of_warp[2][WARPS];
    const size_t start = (size_t)blockIdx.x * columns;
    const float mean = mean_of[blockIdx.x], inverse = 1.0f / sqrtf(variance_of[blockIdx.x] + epsilon);
    struct norm_element {
        float scale;
        T g, x;
    };
    const auto own = [&](size_t j) { return norm_element{scale[j], g[start + j], x[start + j]}; };
    float sum = 0, along = 0;
    for_columns(columns, own, [&](size_t, norm_element p) {
        const float scaled = p.scale * as_float(p.g);
        sum += scaled;
        along += scaled * ((as_float(p.x) - mean) * inverse);
    });
    sum = block_sum(sum, of_warp[0]) / (float)columns;
    along = block_sum(along, of_warp[1]) / (float)columns;
    for_columns(columns, own, [&](size_t j, norm_element p) {
        store_one(gx + start + j,
                  inverse * (p.scale * as_float(p.g) - sum - (as_float(p.x) - mean) * inverse * along));
    });
}

/* --- Sums over rows per column: gradients of both norms' parameters ------------------------------------- */

static __device__ __forceinline__ float relu_mask(float g, float y) { return y > 0 ? g : 0; }

/* The part of g that passes the relu after the norm: all of g without one. */
static __device__ __forceinline__ float relu_gradient_of(float g, float normal, const float *scale,
                                                         const float *shift, size_t c)
{
    return shift ? relu_mask(g, normal * scale[c] + shift[c]) : g;
}

static __device__ __forceinline__ void store_as(void *to, tandem_cuda_float type, size_t i, float value)
{
    if (type == TANDEM_CUDA_F32)
        store_one((float *)to + i, value);
    else if (type == TANDEM_CUDA_BF16)
        store_one((bf16 *)to + i, value);
    else
        store_one((f16 *)to + i, value);
}

/* Σ g and Σ g·x̂ over the rows. Mean and inverse deviation belong to rows or to columns. scale and shift are
 * given where a relu follows; y and `residual` where a sum and a relu follow: the residual's gradient is the
 * part of g that passes. */
template <int BY_ROW, typename T>
KERNEL gradient_sums(float *__restrict__ to_scale, float *__restrict__ to_shift /* [columns] */,
                     float *part /* (parts, 2, columns) */, uint32_t *ticket, const T *__restrict__ g,
                     const T *__restrict__ x /* (rows, columns) */, const float *__restrict__ mean_of,
                     const float *__restrict__ variance_of, size_t rows, size_t columns, float epsilon,
                     const float *__restrict__ scale, const float *__restrict__ shift,
                     const T *__restrict__ y, void *__restrict__ residual, tandem_cuda_float residual_type)
{
    __shared__ float of_warp[2][WARPS][WARP];
    const column_part block = column_part_of_block(rows, columns);
    const size_t column = block.column;
    float of_scale = 0, of_shift = 0;
    struct norm_element {
        T g, x, y;
        float mean, variance;
    };
    const float mean = BY_ROW || !block.has_column ? 0 : mean_of[column];
    const float inverse = BY_ROW || !block.has_column ? 0 : 1.0f / sqrtf(variance_of[column] + epsilon);
    const auto ask = [&](size_t r) {
        const size_t i = r * columns + column;
        norm_element own = {g[i], x[i], g[i], mean, 0};
        if (y) own.y = y[i];
        if (BY_ROW) own.mean = mean_of[r], own.variance = variance_of[r];
        return own;
    };
    const auto add = [&](size_t r, norm_element own) {
        const float normal =
            (as_float(own.x) - own.mean) * (BY_ROW ? 1.0f / sqrtf(own.variance + epsilon) : inverse);
        const float gradient = y ? relu_mask(as_float(own.g), as_float(own.y))
                                 : relu_gradient_of(as_float(own.g), normal, scale, shift, column);
        if (residual) store_as(residual, residual_type, r * columns + column, gradient);
        of_shift += gradient;
        of_scale += gradient * normal;
    };
    if (block.has_column) for_rows<16 / sizeof(T)>(block.first + threadIdx.x / WARP, block.end, ask, add);
    of_scale = sum_of_warps(of_scale, of_warp[0]);
    of_shift = sum_of_warps(of_shift, of_warp[1]);
    const int has_result = threadIdx.x < WARP && block.has_column;
    if (has_result) {
        part[block.part * 2 * columns + column] = of_scale;
        part[(block.part * 2 + 1) * columns + column] = of_shift;
    }
    if (!is_last_part(ticket, block)) return;
    const float *const first = block.has_column ? part + column : NULL;
    of_scale = sum_of_parts(first, block.parts, 2 * columns, of_warp[0]);
    of_shift = sum_of_parts(first ? first + columns : NULL, block.parts, 2 * columns, of_warp[1]);
    if (!has_result) return;
    to_scale[column] = of_scale;
    to_shift[column] = of_shift;
}

extern "C" size_t tandem_cuda_norm_workspace(size_t rows, size_t columns)
{
    return part_count(rows, columns) * 2 * columns * sizeof(float);
}

/* gx of rows of any length; the parameters' gradients come from another pass. */
template <typename T>
static int launch_long_layernorm_backward(T *gx, float *gscale, float *gshift, const T *g, const T *x,
                                          const float *scale, const float *mean, const float *variance,
                                          size_t rows, size_t columns, float epsilon, float *part,
                                          uint32_t *tickets, tandem_cuda_stream stream)
{
    const float *none = NULL;
    const T *no_sum = NULL;
    void *no_residual = NULL;
    const int failed = LAUNCH((gradient_sums<1, T>), grid_of_parts(rows, columns), THREADS, stream, gscale,
                              gshift, part, tickets, g, x, mean, variance, rows, columns, epsilon, none, none,
                              no_sum, no_residual, TANDEM_CUDA_F32);
    if (failed) return failed;
    return LAUNCH(layernorm_input_gradient<T>, (unsigned)rows, THREADS, stream, gx, g, x, scale, mean,
                  variance, columns, epsilon);
}

/* All three gradients in one pass. A block has some consecutive rows, one after the other, and sums for its
 * threads' columns over them. Of GROUP blocks the last one adds their sums, in order, and of all groups the
 * last one adds those, so that no block reads more than fits a few µs. */
enum { COLUMNS_A_THREAD = TANDEM_CUDA_LAYERNORM_COLUMNS / THREADS, GROUP = 16, MIN_ROWS = 8 };
static __host__ __device__ __forceinline__ size_t rows_a_block(size_t rows)
{
    const size_t many = n_tile(rows, MAX_PARTS);
    return many > MIN_ROWS ? many : (size_t)MIN_ROWS;
}
static inline unsigned grid_of_row_blocks(size_t rows) { return (unsigned)n_tile(rows, rows_a_block(rows)); }

extern "C" size_t tandem_cuda_layernorm_workspace(size_t rows, size_t columns)
{
    if (columns > TANDEM_CUDA_LAYERNORM_COLUMNS) return tandem_cuda_norm_workspace(rows, columns);
    const size_t blocks = grid_of_row_blocks(rows);
    return (blocks + n_tile(blocks, GROUP)) * 2 * columns * sizeof(float);
}

/* to[c] = Σ from[p][c] of the thread's columns, p in order; parts are `stride` apart. Not __restrict__: other
 * blocks wrote them. */
static __device__ __forceinline__ void add_parts(float *to, const float *from, size_t parts, size_t columns,
                                                 size_t stride)
{
    for (size_t c = threadIdx.x; c < columns; c += THREADS) {
        float sum = 0;
#pragma unroll 4
        for (size_t p = 0; p < parts; p++) sum += from[p * stride + c];
        to[c] = sum;
    }
}

/* From the parts of all blocks, (blocks, 2, columns), to whole sums. */
static __device__ __forceinline__ void add_parts_of_blocks(float *to_scale, float *to_shift, float *part,
                                                           uint32_t *tickets, size_t columns)
{
    const size_t group = blockIdx.x / GROUP, groups = n_tile(gridDim.x, GROUP), width = 2 * columns;
    const size_t members = group + 1 < groups ? (size_t)GROUP : gridDim.x - group * GROUP;
    float *const group_parts = part + gridDim.x * width;
    if (!is_last_block(tickets + 1 + group, members)) return;
    add_parts(group_parts + group * width, part + group * GROUP * width, members, width, width);
    if (!is_last_block(tickets, groups)) return;
    add_parts(to_scale, group_parts, groups, columns, width);
    add_parts(to_shift, group_parts + columns, groups, columns, width);
}

template <typename T>
KERNEL layernorm_backward(T *__restrict__ gx, float *__restrict__ to_scale,
                          float *__restrict__ to_shift /* [columns] */,
                          float *part /* (blocks, 2, columns), then (groups, 2, columns) */,
                          uint32_t *tickets, const T *__restrict__ g,
                          const T *__restrict__ x /* (rows, columns) */,
                          const float *__restrict__ scale /* [columns] */, const float *__restrict__ mean_of,
                          const float *__restrict__ variance_of /* [rows] */, size_t rows, size_t columns,
                          float epsilon)
{
    /* of two rows in turn: a writer of the next row's has passed the barrier after all reads of the last's */
    __shared__ float of_warp[2][2][WARPS];
    const size_t some = rows_a_block(rows), first = blockIdx.x * some,
                 end = first + some < rows ? first + some : rows;
    float own_scale[COLUMNS_A_THREAD] = {}, of_scale[COLUMNS_A_THREAD] = {}, of_shift[COLUMNS_A_THREAD] = {};
#pragma unroll
    for (unsigned k = 0; k < COLUMNS_A_THREAD; k++)
        if (threadIdx.x + k * THREADS < columns) own_scale[k] = scale[threadIdx.x + k * THREADS];
    for (size_t r = first; r < end; r++) {
        const size_t start = r * columns + threadIdx.x;
        const float mean = mean_of[r], inverse = 1.0f / sqrtf(variance_of[r] + epsilon);
        T own_g[COLUMNS_A_THREAD] = {}, own_x[COLUMNS_A_THREAD] = {};
#pragma unroll
        for (unsigned k = 0; k < COLUMNS_A_THREAD; k++)
            if (threadIdx.x + k * THREADS < columns)
                own_g[k] = g[start + k * THREADS], own_x[k] = x[start + k * THREADS];
        float sum = 0, along = 0;
#pragma unroll
        for (unsigned k = 0; k < COLUMNS_A_THREAD; k++) {
            if (threadIdx.x + k * THREADS >= columns) continue;
            const float gradient = as_float(own_g[k]), normal = (as_float(own_x[k]) - mean) * inverse;
            sum += own_scale[k] * gradient;
            along += own_scale[k] * gradient * normal;
            of_shift[k] += gradient;
            of_scale[k] += gradient * normal;
        }
        sum = block_sum(sum, of_warp[r % 2][0]) / (float)columns;
        along = block_sum(along, of_warp[r % 2][1]) / (float)columns;
#pragma unroll
        for (unsigned k = 0; k < COLUMNS_A_THREAD; k++)
            if (threadIdx.x + k * THREADS < columns)
                store_one(gx + start + k * THREADS,
                          inverse * (own_scale[k] * as_float(own_g[k]) - sum -
                                     (as_float(own_x[k]) - mean) * inverse * along));
    }
    float *const own_part = part + blockIdx.x * 2 * columns;
#pragma unroll
    for (unsigned k = 0; k < COLUMNS_A_THREAD; k++)
        if (threadIdx.x + k * THREADS < columns) {
            own_part[threadIdx.x + k * THREADS] = of_scale[k];
            own_part[columns + threadIdx.x + k * THREADS] = of_shift[k];
        }
    add_parts_of_blocks(to_scale, to_shift, part, tickets, columns);
}

/* The same of short rows. The warps of a block take its rows in turns; their sums are added in order. Each
 * lane keeps five arrays of a row's length, so there are at most MAX_BACKWARD_COLUMNS in one: beyond, fewer
 * than 16 warps would fit into an SM. */
enum { MAX_BACKWARD_COLUMNS = 8 };
template <typename Row, typename T>
KERNEL layernorm_backward_by_warps(
    T *__restrict__ gx, float *__restrict__ to_scale, float *__restrict__ to_shift /* [columns] */,
    float *part /* (blocks, 2, columns), then (groups, 2, columns) */, uint32_t *tickets,
    const T *__restrict__ g, const T *__restrict__ x /* (rows, columns) */,
    const float *__restrict__ scale /* [columns] */, const float *__restrict__ mean_of,
    const float *__restrict__ variance_of /* [rows] */, size_t rows, unsigned columns, float epsilon)
{
    enum { N = Row::LANE_COLUMNS };
    __shared__ float of_warp[2][WARPS][N * WARP];
    const size_t some = rows_a_block(rows), first = blockIdx.x * some,
                 end = first + some < rows ? first + some : rows;
    const unsigned warp = threadIdx.x / WARP;
    float own_scale[N], of_scale[N] = {}, of_shift[N] = {};
    Row::load(own_scale, scale, columns, 0);
    for (size_t turn = first; turn < end; turn += WARPS) {
        const int is_there = turn + warp < end;
        const size_t r = is_there ? turn + warp : end - 1;
        float own_g[N], own_x[N], sum = 0, along = 0;
        Row::load(own_g, g + r * columns, columns, 0);
        Row::load(own_x, x + r * columns, columns, 0);
        const float mean = mean_of[r], inverse = 1.0f / sqrtf(variance_of[r] + epsilon);
#pragma unroll
        for (int k = 0; k < N; k++) {
            own_x[k] = (own_x[k] - mean) * inverse;
            sum += own_scale[k] * own_g[k];
            along += own_scale[k] * own_g[k] * own_x[k];
            of_shift[k] += is_there ? own_g[k] : 0;
            of_scale[k] += is_there ? own_g[k] * own_x[k] : 0;
        }
        sum = warp_sum(sum) / (float)columns;
        along = warp_sum(along) / (float)columns;
#pragma unroll
        for (int k = 0; k < N; k++) own_g[k] = inverse * (own_scale[k] * own_g[k] - sum - own_x[k] * along);
        if (is_there) Row::store(gx + r * columns, own_g, columns);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        of_warp[0][warp][Row::column(k)] = of_scale[k];
        of_warp[1][warp][Row::column(k)] = of_shift[k];
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 2 * columns; i += THREADS) {
        const unsigned which = i >= columns, c = i - which * columns;
        float sum = 0;
#pragma unroll
        for (unsigned w = 0; w < WARPS; w++) sum += of_warp[which][w][c];
        part[blockIdx.x * 2 * columns + i] = sum;
    }
    add_parts_of_blocks(to_scale, to_shift, part, tickets, columns);
}

template <typename T>
static int launch_layernorm_backward(T *gx, float *gscale, float *gshift, const T *g, const T *x,
                                     const float *scale, const float *mean, const float *variance,
                                     size_t rows, size_t columns, float epsilon, float *part,
                                     uint32_t *tickets, tandem_cuda_stream stream)
{
    if (columns > TANDEM_CUDA_LAYERNORM_COLUMNS)
        return launch_long_layernorm_backward(gx, gscale, gshift, g, x, scale, mean, variance, rows, columns,
                                              epsilon, part, tickets, stream);
    const unsigned grid = grid_of_row_blocks(rows);
    return launch_by_row_length<MAX_BACKWARD_COLUMNS>(
        columns,
        [=](auto row) {
            return LAUNCH((layernorm_backward_by_warps<decltype(row), T>), grid, THREADS, stream, gx, gscale,
                          gshift, part, tickets, g, x, scale, mean, variance, rows, (unsigned)columns,
                          epsilon);
        },
        [=] {
            return LAUNCH(layernorm_backward<T>, grid, THREADS, stream, gx, gscale, gshift, part, tickets, g,
                          x, scale, mean, variance, rows, columns, epsilon);
        });
}

extern "C" int tandem_cuda_layernorm_backward(void *gx, float *gscale, float *gshift, const void *g,
                                              const void *x, tandem_cuda_float type, const float *scale,
                                              const float *mean, const float *variance, size_t rows,
                                              size_t columns, float epsilon, void *workspace,
                                              uint32_t *tickets, tandem_cuda_stream stream)
{
    RETURN_FOR(type, launch_layernorm_backward((T *)gx, gscale, gshift, (const T *)g, (const T *)x, scale,
                                               mean, variance, rows, columns, epsilon, (float *)workspace,
                                               tickets, stream));
}

/* --- Batch normalisation: rows are pixels of images, columns are channels ------------------------------- */

/* Mean and variance of columns; x is read once. A part subtracts its own first number before it sums numbers
 * and squares, so that a large mean does not take the variance's digits. The moments of all parts are joined
 * as in Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", The American Statistician,
 * volume 37, 1983. */
template <typename T>
KERNEL moments(float *__restrict__ mean, float *__restrict__ variance /* [columns] */,
               float *part /* (parts, 2, columns) */, uint32_t *ticket,
               const T *__restrict__ x /* (rows, columns) */, size_t rows, size_t columns)
{
    __shared__ float of_warp[2][WARPS][WARP], centre[WARP];
    const column_part own = column_part_of_block(rows, columns);
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int has_result = warp == 0 && own.has_column;
    float sum = 0, square = 0, near = 0;
    if (own.has_column) {
        near = load_one(x + own.first * columns + own.column);
        for_rows_of(x + own.column, own.first + warp, own.end, columns, [&](float value) {
            const float off = value - near;
            sum += off;
            square += off * off;
        });
    }
    sum = sum_of_warps(sum, of_warp[0]);
    square = sum_of_warps(square, of_warp[1]);
    if (has_result) {
        const float off = sum / (float)(own.end - own.first);
        part[own.part * 2 * columns + own.column] = near + off;
        part[(own.part * 2 + 1) * columns + own.column] = fmaxf(square - sum * off, 0.0f);
    }
    if (!is_last_part(ticket, own)) return;

    const float *const means = part + own.column, *const squares = means + columns;
    const float of_part = (float)part_rows(rows, columns),
                of_last = (float)(rows - (own.parts - 1) * part_rows(rows, columns));
    const auto rows_of = [&](size_t p) { return p + 1 < own.parts ? of_part : of_last; };
    sum = square = 0;
    if (own.has_column)
        for_rows<4>(
            warp, own.parts, [&](size_t p) { return means[p * 2 * columns]; },
            [&](size_t p, float m) { sum += rows_of(p) * m; });
    sum = sum_of_warps(sum, of_warp[0]) / (float)rows;
    if (warp == 0) centre[lane] = sum;
    __syncthreads();
    struct part_moments {
        float mean, square;
    };
    if (own.has_column)
        for_rows<4>(
            warp, own.parts,
            [&](size_t p) {
                return part_moments{means[p * 2 * columns], squares[p * 2 * columns]};
            },
            [&](size_t p, part_moments m) {
                square += m.square + rows_of(p) * (m.mean - centre[lane]) * (m.mean - centre[lane]);
            });
    square = sum_of_warps(square, of_warp[1]);
    if (!has_result) return;
    mean[own.column] = sum;
    variance[own.column] = square / (float)rows;
}

template <typename T>
KERNEL batchnorm(T *__restrict__ y, const T *__restrict__ x /* (rows, columns) */,
                 const float *__restrict__ scale, const float *__restrict__ shift,
                 const float *__restrict__ mean, const float *__restrict__ variance /* [columns] */, size_t n,
                 size_t columns, float epsilon, int has_relu, const T *__restrict__ residual)
{
    for (size_t i = first_item(); i < n; i += all_items()) {
        const size_t c = i % columns;
        float value =
            (load_one(x + i) - mean[c]) * (1.0f / sqrtf(variance[c] + epsilon)) * scale[c] + shift[c];
        if (residual) value += load_one(residual + i);
        store_one(y + i, has_relu && value < 0 ? 0 : value);
    }
}

/* For octets of channels that recur with each row of a block's threads: a thread keeps one octet. */
static int is_octets_of_block(size_t columns)
{
    return columns % OCTET == 0 && THREADS % (columns / OCTET) == 0;
}

template <typename T>
KERNEL batchnorm_octets(T *__restrict__ y, const T *__restrict__ x, const float *__restrict__ scale,
                        const float *__restrict__ shift, const float *__restrict__ mean,
                        const float *__restrict__ variance, size_t n, size_t columns, float epsilon,
                        int has_relu, const T *__restrict__ residual)
{
    const size_t c = threadIdx.x * OCTET % columns;
    float factor[OCTET], centre[OCTET], offset[OCTET];
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        factor[i] = 1.0f / sqrtf(variance[c + i] + epsilon) * scale[c + i];
        centre[i] = mean[c + i], offset[i] = shift[c + i];
    }
    const auto put = [&](size_t o, float value[OCTET], const float *more) {
#pragma unroll
        for (int i = 0; i < OCTET; i++) {
            const float own = (value[i] - centre[i]) * factor[i] + offset[i] + (more ? more[i] : 0);
            value[i] = has_relu && own < 0 ? 0 : own;
        }
        store_octet(y + o * OCTET, value);
    };
    if (residual)
        for_octets_of_two(x, residual, n, put);
    else
        for_octets<READ_ONLY>(x, n, [&](size_t o, float value[OCTET]) { put(o, value, NULL); });
}

template <typename T>
static int launch_batchnorm(T *y, const T *x, const tandem_cuda_batchnorm *b, float *mean, float *variance,
                            void *workspace, uint32_t *tickets, tandem_cuda_stream stream)
{
    const size_t rows = b->rows, columns = b->columns, n = rows * columns;
    const float *scale = b->scale, *shift = b->shift, *own_mean = mean, *own_variance = variance;
    const float epsilon = b->epsilon;
    const int has_relu = b->has_relu;
    const T *residual = (const T *)b->residual;
    float *part = (float *)workspace;
    int failed = 0;
    if (part)
        failed = LAUNCH(moments<T>, grid_of_parts(rows, columns), THREADS, stream, mean, variance, part,
                        tickets, x, rows, columns);
    if (failed) return failed;
    if (is_octets_of_block(columns))
        return LAUNCH(batchnorm_octets<T>, grid_of_octets<T>(n), THREADS, stream, y, x, scale, shift,
                      own_mean, own_variance, n, columns, epsilon, has_relu, residual);
    return LAUNCH(batchnorm<T>, grid_of(n), THREADS, stream, y, x, scale, shift, own_mean, own_variance, n,
                  columns, epsilon, has_relu, residual);
}

extern "C" int tandem_cuda_batchnorm_forward(void *y, const void *x, tandem_cuda_float type,
                                             const tandem_cuda_batchnorm *b, float *mean, float *variance,
                                             void *workspace, uint32_t *tickets, tandem_cuda_stream stream)
{
    RETURN_FOR(type, launch_batchnorm((T *)y, (const T *)x, b, mean, variance, workspace, tickets, stream));
}

/* gx = scale/√(variance + ε) · (g − (Σ g + x̂·Σ g·x̂)/rows), with the part of g that passes a following
 * relu */
template <typename T>
KERNEL batchnorm_backward(void *__restrict__ gx, tandem_cuda_float gx_type, const T *__restrict__ g,
                          const T *__restrict__ x, const T *__restrict__ y /* (rows, columns) */,
                          const float *__restrict__ gscale, const float *__restrict__ gshift,
                          const float *__restrict__ scale, const float *__restrict__ shift,
                          const float *__restrict__ mean, const float *__restrict__ variance /* [columns] */,
                          size_t rows, size_t columns, float epsilon)
{
    for (size_t i = first_item(); i < rows * columns; i += all_items()) {
        const size_t c = i % columns;
        const float inverse = 1.0f / sqrtf(variance[c] + epsilon),
                    normal = (load_one(x + i) - mean[c]) * inverse;
        const float gradient = y ? relu_mask(load_one(g + i), load_one(y + i))
                                 : relu_gradient_of(load_one(g + i), normal, scale, shift, c);
        store_as(gx, gx_type, i,
                 scale[c] * inverse * (gradient - (gshift[c] + normal * gscale[c]) / (float)rows));
    }
}

static __device__ __forceinline__ void store_octet_as(void *to, tandem_cuda_float type, size_t i,
                                                      const float x[OCTET])
{
    if (type == TANDEM_CUDA_F32)
        store_octet((float *)to + i, x);
    else if (type == TANDEM_CUDA_BF16)
        store_octet((bf16 *)to + i, x);
    else
        store_octet((f16 *)to + i, x);
}

/* The same, with g alone or with a following relu. */
template <typename T>
KERNEL batchnorm_backward_octets(void *__restrict__ gx, tandem_cuda_float gx_type, const T *__restrict__ g,
                                 const T *__restrict__ x /* (rows, columns) */,
                                 const float *__restrict__ gscale, const float *__restrict__ gshift,
                                 const float *__restrict__ scale, const float *__restrict__ shift,
                                 const float *__restrict__ mean,
                                 const float *__restrict__ variance /* [columns] */, size_t rows,
                                 size_t columns, float epsilon)
{
    const size_t c = threadIdx.x * OCTET % columns;
    float inverse[OCTET], centre[OCTET], of_scale[OCTET], of_shift[OCTET], own_scale[OCTET], own_shift[OCTET];
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        inverse[i] = 1.0f / sqrtf(variance[c + i] + epsilon), centre[i] = mean[c + i];
        of_scale[i] = gscale[c + i] / (float)rows, of_shift[i] = gshift[c + i] / (float)rows;
        own_scale[i] = scale[c + i], own_shift[i] = shift ? shift[c + i] : 0;
    }
    for_octets_of_two(g, x, rows * columns, [&](size_t o, float gradient[OCTET], const float value[OCTET]) {
#pragma unroll
        for (int i = 0; i < OCTET; i++) {
            const float normal = (value[i] - centre[i]) * inverse[i];
            const float own =
                shift ? relu_mask(gradient[i], normal * own_scale[i] + own_shift[i]) : gradient[i];
            gradient[i] = own_scale[i] * inverse[i] * (own - (of_shift[i] + normal * of_scale[i]));
        }
        store_octet_as(gx, gx_type, o * OCTET, gradient);
    });
}

/* y: of a norm with a residual, else NULL. The residual's gradient is read again instead of g and y. */
template <typename T>
static int launch_batchnorm_backward(const tandem_cuda_batchnorm_gradients *out, const T *g, const T *x,
                                     const T *y, tandem_cuda_float type, const tandem_cuda_batchnorm *b,
                                     const float *mean, const float *variance, void *workspace,
                                     uint32_t *tickets, tandem_cuda_stream stream)
{
    const size_t rows = b->rows, columns = b->columns;
    const float epsilon = b->epsilon, *scale = b->scale, *shift = b->has_relu && !y ? b->shift : NULL;
    const tandem_cuda_float gx_type = out->x_type, residual_type = out->residual_type;
    float *part = (float *)workspace, *gscale = out->scale, *gshift = out->shift;
    void *gx = out->x, *residual = out->residual;
    const int failed = LAUNCH((gradient_sums<0, T>), grid_of_parts(rows, columns), THREADS, stream, gscale,
                              gshift, part, tickets, g, x, mean, variance, rows, columns, epsilon, scale,
                              shift, y, residual, residual_type);
    if (failed) return failed;
    const float *of_scale = gscale, *of_shift = gshift;
    if (y && residual_type == type) {
        g = (const T *)residual;
        y = NULL;
    }
    if (!y && is_octets_of_block(columns))
        return LAUNCH(batchnorm_backward_octets<T>, grid_of(rows * columns / OCTET), THREADS, stream, gx,
                      gx_type, g, x, of_scale, of_shift, scale, shift, mean, variance, rows, columns,
                      epsilon);
    return LAUNCH(batchnorm_backward<T>, grid_of(rows * columns), THREADS, stream, gx, gx_type, g, x, y,
                  of_scale, of_shift, scale, shift, mean, variance, rows, columns, epsilon);
}

extern "C" int tandem_cuda_batchnorm_backward(void *gx, float *gscale, float *gshift, const void *g,
                                              const void *x, tandem_cuda_float type,
                                              const tandem_cuda_batchnorm *b, const float *mean,
                                              const float *variance, void *workspace, uint32_t *tickets,
                                              tandem_cuda_stream stream)
{
    const tandem_cuda_batchnorm_gradients out = {gx, NULL, type, type, gscale, gshift};
    RETURN_FOR(type, launch_batchnorm_backward(&out, (const T *)g, (const T *)x, (const T *)NULL, type, b,
                                               mean, variance, workspace, tickets, stream));
}

extern "C" int tandem_cuda_batchnorm_add_backward(const tandem_cuda_batchnorm_gradients *out, const void *g,
                                                  const void *x, const void *y, tandem_cuda_float type,
                                                  const tandem_cuda_batchnorm *b, const float *mean,
                                                  const float *variance, void *workspace, uint32_t *tickets,
                                                  tandem_cuda_stream stream)
{
    RETURN_FOR(type, launch_batchnorm_backward(out, (const T *)g, (const T *)x, (const T *)y, type, b, mean,
                                               variance, workspace, tickets, stream));
}

/* --- Running statistics --------------------------------------------------------------------------------- */

KERNEL update_running(float *__restrict__ running, const float *__restrict__ batch, size_t columns,
                      float unbiased, float momentum)
{
    const float kept = 1.0f - momentum;
    for (size_t i = first_item(); i < 2 * columns; i += all_items()) {
        const float own = i < columns ? batch[i] : TANDEM_MUL(unbiased, batch[i]);
        running[i] = TANDEM_ADD(TANDEM_MUL(kept, running[i]), TANDEM_MUL(momentum, own));
    }
}

extern "C" int tandem_cuda_update_running(float *running, const float *batch, size_t columns, float unbiased,
                                          float momentum, tandem_cuda_stream stream)
{
    return LAUNCH(update_running, grid_of(2 * columns), THREADS, stream, running, batch, columns, unbiased,
                  momentum);
}
