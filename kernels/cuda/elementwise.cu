/* elementwise.cu: operators whose result element depends on the same element of their inputs. CPU reference:
 * kernels/cpu/isa/{elementwise,bias}.c, and oneDNN for gelu and tanh. Memory bandwidth limits all of them; a
 * thread works on octets. */
#include "kernels/cuda/columns.h"
#include "kernels/cuda/octet.h"

/* --- One input ------------------------------------------------------------------------------------------ */

struct relu_one {
    __device__ float operator()(float x) const { return x < 0 ? 0 : x; } /* NaN and −0 pass through */
};
struct gelu_one {
    __device__ float operator()(float x) const { return tandem_gelu(x); }
};
struct tanh_one {
    __device__ float operator()(float x) const { return tanhf(x); }
};

template <typename T, typename Function>
KERNEL map_one(T *y /* [n]; may be x */, const T *x /* [n] */, size_t n, Function function)
{
    const size_t rest = n / OCTET * OCTET + first_item();
    for_octets<IN_PLACE>(x, n, [&](size_t o, float value[OCTET]) {
#pragma unroll
        for (int i = 0; i < OCTET; i++) value[i] = function(value[i]);
        store_octet(y + o * OCTET, value);
    });
    if (rest < n) store_one(y + rest, function(load_one(x + rest)));
}

template <typename Function>
static int launch_one(void *y, const void *x, tandem_cuda_float type, size_t n, Function function,
                      tandem_cuda_stream stream)
{
    RETURN_FOR(type,
               LAUNCH(map_one, grid_of_octets<T>(n), THREADS, stream, (T *)y, (const T *)x, n, function));
}

/* --- Two inputs ----------------------------------------------------------------------------------------- */

struct add_two {
    __device__ float operator()(float a, float b) const { return TANDEM_ADD(a, b); }
};
struct relu_backward_two {
    __device__ float operator()(float g, float y) const { return y > 0 ? g : 0; }
};
struct gelu_backward_two {
    __device__ float operator()(float g, float x) const { return TANDEM_MUL(g, tandem_gelu_slope(x)); }
};
struct tanh_backward_two {
    __device__ float operator()(float g, float y) const
    {
        return TANDEM_MUL(g, TANDEM_SUB(1.0f, TANDEM_MUL(y, y)));
    }
};

template <typename T, typename Function>
KERNEL map_two(T *y /* [n]; may be a or b */, const T *a /* [n] */, const T *b /* [n] */, size_t n,
               Function function)
{
    const size_t rest = n / OCTET * OCTET + first_item();
    for_octets_of_two(a, b, n, [&](size_t o, float left[OCTET], const float right[OCTET]) {
#pragma unroll
        for (int i = 0; i < OCTET; i++) left[i] = function(left[i], right[i]);
        store_octet(y + o * OCTET, left);
    });
    if (rest < n) store_one(y + rest, function(load_one(a + rest), load_one(b + rest)));
}

template <typename Function>
static int launch_two(void *y, const void *a, const void *b, tandem_cuda_float type, size_t n,
                      Function function, tandem_cuda_stream stream)
{
    const unsigned grid = grid_of(n / OCTET);
    RETURN_FOR(type, LAUNCH(map_two, grid, THREADS, stream, (T *)y, (const T *)a, (const T *)b, n, function));
}

extern "C" int tandem_cuda_add(void *y, const void *a, const void *b, tandem_cuda_float type, size_t n,
                               tandem_cuda_stream stream)
{
    return launch_two(y, a, b, type, n, add_two(), stream);
}

extern "C" int tandem_cuda_activate(void *y, const void *x, tandem_cuda_activation activation,
                                    tandem_cuda_float type, size_t n, tandem_cuda_stream stream)
{
    switch (activation) {
    case TANDEM_CUDA_RELU: return launch_one(y, x, type, n, relu_one(), stream);
    case TANDEM_CUDA_GELU: return launch_one(y, x, type, n, gelu_one(), stream);
    case TANDEM_CUDA_TANH: return launch_one(y, x, type, n, tanh_one(), stream);
    }
    return (int)cudaErrorInvalidValue;
}

extern "C" int tandem_cuda_activate_backward(void *gx, const void *g, const void *saved,
                                             tandem_cuda_activation activation, tandem_cuda_float type,
                                             size_t n, tandem_cuda_stream stream)
{
    switch (activation) {
    case TANDEM_CUDA_RELU: return launch_two(gx, g, saved, type, n, relu_backward_two(), stream);
    case TANDEM_CUDA_GELU: return launch_two(gx, g, saved, type, n, gelu_backward_two(), stream);
    case TANDEM_CUDA_TANH: return launch_two(gx, g, saved, type, n, tanh_backward_two(), stream);
    }
    return (int)cudaErrorInvalidValue;
}

/* --- Dropout -------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ tandem_philox_block dropout_draws(const tandem_dropout &mask,
                                                                    uint64_t block)
{
    const uint32_t counter[4] = {(uint32_t)block, mask.stream[0], mask.stream[1],
                                 mask.stream[2] | (uint32_t)(block >> 32) << 8};
    return tandem_philox(counter, mask.seed);
}

static __device__ __forceinline__ float drop_one(float x, const tandem_dropout &mask,
                                                 tandem_philox_block draws, int k)
{
    const uint32_t draw = draws.word[k / 2] >> (16 * (k % 2)) & 0xFFFFu;
    return draw < mask.threshold ? 0 : TANDEM_MUL(mask.scale, x);
}

/* For octets that are blocks of the generator. n: whole octets. */
template <typename T>
KERNEL dropout_octets(T *y /* [n]; may be x */, const T *x /* [n] */, size_t n, tandem_dropout mask,
                      const uint32_t *stream_offset)
{
    if (stream_offset) mask.stream[0] += *stream_offset;
    for_octets<IN_PLACE>(x, n, [&](size_t o, float value[OCTET]) {
        const tandem_philox_block draws = dropout_draws(mask, mask.first / OCTET + o);
#pragma unroll
        for (int k = 0; k < OCTET; k++) value[k] = drop_one(value[k], mask, draws, k);
        store_octet(y + o * OCTET, value);
    });
}

/* A thread works on the elements of x that one block of the generator covers. `skip` elements of the first
 * block lie before x. */
template <typename T>
KERNEL dropout(T *y /* [n]; may be x */, const T *x /* [n] */, size_t n, size_t skip, tandem_dropout mask,
               const uint32_t *stream_offset)
{
    if (stream_offset) mask.stream[0] += *stream_offset;
    const uint64_t first = (mask.first + skip) / OCTET, end = (mask.first + n + OCTET - 1) / OCTET;
    for (uint64_t block = first + first_item(); block < end; block += all_items()) {
        const tandem_philox_block draws = dropout_draws(mask, block);
#pragma unroll
        for (int k = 0; k < OCTET; k++) {
            const uint64_t position = OCTET * block + (uint64_t)k;
            if (position < mask.first || position >= mask.first + n) continue;
            const size_t i = (size_t)(position - mask.first);
            store_one(y + i, drop_one(load_one(x + i), mask, draws, k));
        }
    }
}

template <typename T>
static int launch_dropout(T *y, const T *x, size_t n, const tandem_dropout *mask,
                          const uint32_t *stream_offset, tandem_cuda_stream stream)
{
    const tandem_dropout own = *mask;
    const size_t whole = own.first % OCTET == 0 ? n / OCTET * OCTET : 0;
    int failed = 0;
    if (whole)
        failed = LAUNCH(dropout_octets, grid_of_octets<T>(whole), THREADS, stream, y, x, whole, own,
                        stream_offset);
    if (!failed && whole < n)
        failed = LAUNCH(dropout, grid_of((n - whole) / OCTET + 1), THREADS, stream, y, x, n, whole, own,
                        stream_offset);
    return failed;
}

extern "C" int tandem_cuda_dropout(void *y, const void *x, tandem_cuda_float type, size_t n,
                                   const tandem_dropout *mask, const uint32_t *stream_offset,
                                   tandem_cuda_stream stream)
{
    RETURN_FOR(type, launch_dropout((T *)y, (const T *)x, n, mask, stream_offset, stream));
}

/* --- Bias ----------------------------------------------------------------------------------------------- */

struct identity_one {
    __device__ float operator()(float x) const { return x; }
};

/* y = f(x + own[i % period]) */
template <typename T, typename Function>
KERNEL shift(T *y /* (n / period, period); may be x */, const T *x,
             const float *__restrict__ own /* [period] */, size_t n, size_t period, Function function)
{
    for (size_t i = first_item(); i < n; i += all_items())
        store_one(y + i, function(TANDEM_ADD(load_one(x + i), own[i % period])));
}

template <typename T, typename Load, typename Function>
static __device__ __forceinline__ void shift_all(T *y, const T *x, size_t n, Load load, Function function)
{
    for_octets<IN_PLACE>(x, n, [&](size_t o, float value[OCTET]) {
        float shift[OCTET];
        load(shift, o);
#pragma unroll
        for (int i = 0; i < OCTET; i++) value[i] = function(TANDEM_ADD(value[i], shift[i]));
        store_octet(y + o * OCTET, value);
    });
}

template <typename T, typename Function>
KERNEL shift_octets(T *y, const T *x, const float *__restrict__ own /* [octets_a_period * OCTET] */, size_t n,
                    uint32_t octets_a_period, Function function)
{
    shift_all(
        y, x, n, [&](float shift[OCTET], size_t o) { load_shift(shift, own, o, octets_a_period); }, function);
}

/* Rows with gaps: the last octet of a row that has elements may have fewer of them, and 0 is added after
 * them. */
template <typename T>
KERNEL shift_gapped(T *y, const T *x, const float *__restrict__ own /* [period] */, size_t n,
                    uint32_t octets_a_row, uint32_t period)
{
    shift_all(
        y, x, n,
        [&](float shift[OCTET], size_t o) {
            const uint32_t column =
                (o >> 32 ? (uint32_t)(o % octets_a_row) : (uint32_t)o % octets_a_row) * OCTET;
            if (column + OCTET <= period) {
                load_octet(shift, own + column);
                return;
            }
#pragma unroll
            for (uint32_t i = 0; i < OCTET; i++) shift[i] = column + i < period ? own[column + i] : 0;
        },
        identity_one());
}

static int is_octets(size_t n, size_t period) { return period % OCTET == 0 && n % period == 0; }

template <typename Function>
static int launch_shift(void *y, const void *x, tandem_cuda_float type, const float *own, size_t n,
                        size_t period, Function function, tandem_cuda_stream stream)
{
    const uint32_t octets = (uint32_t)(period / OCTET);
    if (is_octets(n, period)) {
        RETURN_FOR(type, LAUNCH(shift_octets, grid_of_octets<T>(n), THREADS, stream, (T *)y, (const T *)x,
                                own, n, octets, function));
    }
    RETURN_FOR(type,
               LAUNCH(shift, grid_of(n), THREADS, stream, (T *)y, (const T *)x, own, n, period, function));
}

extern "C" int tandem_cuda_bias(void *y, const void *x, tandem_cuda_float type, const float *own, size_t n,
                                size_t period, size_t row, tandem_cuda_stream stream)
{
    if (row == period) return launch_shift(y, x, type, own, n, period, identity_one(), stream);
    if (!is_octets(n, row)) return (int)cudaErrorInvalidValue;
    RETURN_FOR(type, LAUNCH(shift_gapped, grid_of_octets<T>(n), THREADS, stream, (T *)y, (const T *)x, own, n,
                            (uint32_t)(row / OCTET), (uint32_t)period));
}

extern "C" int tandem_cuda_bias_gelu(void *y, const void *x, tandem_cuda_float type, const float *own,
                                     size_t n, size_t period, tandem_cuda_stream stream)
{
    return launch_shift(y, x, type, own, n, period, gelu_one(), stream);
}

extern "C" size_t tandem_cuda_column_sum_workspace(size_t rows, size_t columns)
{
    return part_count(rows, columns) * columns * sizeof(float);
}

template <typename T>
KERNEL column_sum(float *__restrict__ sum /* [columns] */, float *part /* (parts, columns) */,
                  uint32_t *ticket, const T *__restrict__ g /* (rows, columns) of (rows, row) */, size_t rows,
                  size_t columns, size_t row)
{
    __shared__ float of_warp[WARPS][WARP];
    const column_part own = column_part_of_block(rows, columns);
    float some = 0;
    if (own.has_column)
        for_rows_of(g + own.column, own.first + threadIdx.x / WARP, own.end, row,
                    [&](float x) { some += x; });
    finish_column_sum(sum, part, ticket, some, own, columns, of_warp);
}

extern "C" int tandem_cuda_column_sum(float *sum, const void *g, tandem_cuda_float type, size_t rows,
                                      size_t columns, size_t row, void *workspace, uint32_t *tickets,
                                      tandem_cuda_stream stream)
{
    float *part = (float *)workspace;
    RETURN_FOR(type, LAUNCH(column_sum<T>, grid_of_parts(rows, columns), THREADS, stream, sum, part, tickets,
                            (const T *)g, rows, columns, row));
}

template <typename T>
KERNEL bias_gelu_backward(T *gx /* (rows, columns); may be g */, float *__restrict__ sum /* [columns] */,
                          float *part /* (parts, columns) */, uint32_t *ticket, const T *g, const T *x,
                          const float *__restrict__ shift /* [columns] */, size_t rows, size_t columns)
{
    __shared__ float of_warp[WARPS][WARP];
    const column_part own = column_part_of_block(rows, columns);
    const float own_shift = own.has_column ? shift[own.column] : 0;
    struct pair {
        T g, x;
    };
    float some = 0;
    const auto ask = [&](size_t r) {
        const size_t i = r * columns + own.column;
        return pair{g[i], x[i]};
    };
    const auto work = [&](size_t r, pair p) {
        T rounded;
        store_one(&rounded,
                  TANDEM_MUL(as_float(p.g), tandem_gelu_slope(TANDEM_ADD(as_float(p.x), own_shift))));
        gx[r * columns + own.column] = rounded;
        some += as_float(rounded);
    };
    if (own.has_column) for_rows<16 / sizeof(T)>(own.first + threadIdx.x / WARP, own.end, ask, work);
    finish_column_sum(sum, part, ticket, some, own, columns, of_warp);
}

extern "C" int tandem_cuda_bias_gelu_backward(void *gx, float *sum, const void *g, const void *x,
                                              tandem_cuda_float type, const float *own, size_t rows,
                                              size_t columns, void *workspace, uint32_t *tickets,
                                              tandem_cuda_stream stream)
{
    float *part = (float *)workspace;
    RETURN_FOR(type, LAUNCH(bias_gelu_backward<T>, grid_of_parts(rows, columns), THREADS, stream, (T *)gx,
                            sum, part, tickets, (const T *)g, (const T *)x, own, rows, columns));
}
