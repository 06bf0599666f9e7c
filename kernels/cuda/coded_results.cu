/* coded_results.cu: operators that write the codes of their result, and its amax, themselves: a layernorm,
 * also of a sum, and a bias with its gelu, each with the cast after it. The range is that of a history
 * (rounding.h), so it is known beforehand. The bits are those of the operator and the cast alone: the result
 * is rounded to its float type first, as if it were stored; it is stored only where a later task reads it. */
#include "kernels/cuda/layernorm_rows.h"
#include "kernels/cuda/rounding.h"

/* Codes in both orders, or in one: then transposed_copy is NULL. */
struct coded_output {
    uint8_t *q, *transposed_copy;
    float *scale;
    delayed_scale of;
};

/* --- Layernorm ------------------------------------------------------------------------------------------ */

/* Rows of a block, taken by its warps in turns: 32 bytes of a column of the transposed copy, a sector. */
enum { CODED_ROWS = 32 };

template <typename T> struct norm_of_rows {
    T *y, *sum; /* NULL: not stored; no residual */
    const T *x, *residual;
    const float *bias, *scale, *shift; /* [columns]; bias NULL: none */
    float *mean, *variance;            /* [rows] */
    size_t rows;
    unsigned columns;
    float epsilon;
};

/* own = row r of the result, rounded to T. */
template <typename Row, typename T>
static __device__ __forceinline__ void make_row(float *own, const norm_of_rows<T> &a, size_t r,
                                                unsigned columns)
{
    const size_t start = r * columns;
    Row::load(own, a.x + start, columns, 0);
    if (a.residual) add_to_held_row<Row>(own, a.sum + start, a.residual + start, a.bias, columns);
    normalise_held_row<Row>(own, r, a.scale, a.shift, a.mean, a.variance, columns, a.epsilon);
#pragma unroll
    for (int k = 0; k < Row::LANE_COLUMNS; k++) own[k] = rounded_to<T>(own[k]);
    if (a.y) Row::store(a.y + start, own, columns);
}

/* x, which the compiler takes for another number in each turn of a loop. It would keep a row's bias, scale
 * and shift in registers from row to row, and their places: 60 registers more. */
static __device__ __forceinline__ unsigned made_again(unsigned x)
{
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(x) : : "memory");
#endif
    return x;
}

/* Calls work(row in the tile, the row of the result, row) for the warp's rows of the tile that begins with
 * row `first`. Returns the largest magnitude that the thread has seen. */
template <typename Row, typename T, typename Work>
static __device__ __forceinline__ uint32_t for_rows_of_tile(const norm_of_rows<T> &a, size_t first, Work work)
{
    uint32_t bits = 0;
#pragma unroll 1
    for (unsigned i = threadIdx.x / WARP; i < CODED_ROWS && first + i < a.rows; i += WARPS) {
        float own[Row::LANE_COLUMNS];
        make_row<Row>(own, a, first + i, made_again(a.columns));
#pragma unroll
        for (int k = 0; k < Row::LANE_COLUMNS; k++) /* 0 past the row's end */
            bits = max(bits, tandem_magnitude_bits(own[k]));
        work(i, own, first + i);
    }
    return bits;
}

/* A word is 4 codes of a row. The tile's second half is shifted by 16 words, so that two lanes of one column
 * and both halves do not conflict in a bank. `width`, the words of a row, is a multiple of 32. */
static __device__ __forceinline__ unsigned coded_word(unsigned row, unsigned word, unsigned width)
{
    return row * width + (word ^ (row / SIXTEEN * SIXTEEN));
}

static __device__ __forceinline__ void store_coded_columns(uint8_t *to /* (columns, rows) */,
                                                           const uint32_t *tile, size_t first, size_t rows,
                                                           unsigned columns, unsigned width)
{
    for (unsigned i = threadIdx.x; i < columns / 2; i += THREADS) {
        const unsigned row = i % 2 * SIXTEEN, word = i / 2;
        if (first + row >= rows) continue;
        uint32_t own[SIXTEEN];
#pragma unroll
        for (unsigned r = 0; r < SIXTEEN; r++) own[r] = tile[coded_word(row + r, word, width)];
#pragma unroll
        for (int k = 0; k < 4; k++)
            *(uint4 *)(to + (4 * word + (unsigned)k) * rows + first + row) =
                make_uint4(gather_bytes(own, k), gather_bytes(own + 4, k), gather_bytes(own + 8, k),
                           gather_bytes(own + 12, k));
    }
}

/* As quantise_both_delayed. A block that rounds all makes all rows again. */
template <typename Row, typename To, typename T>
static __global__ void __launch_bounds__(THREADS, Row::LANE_COLUMNS > 24 ? 1 : 2)
    layernorm_coded(coded_output out, norm_of_rows<T> a, To round)
{
    enum { WIDTH = Row::LANE_COLUMNS * WARP / 4 };
    __shared__ uint32_t tile[CODED_ROWS * WIDTH];
    round.apply_stream_offset();
    const auto round_rows = [&](unsigned number, float inverse) {
        const size_t first = (size_t)number * CODED_ROWS;
        const uint32_t bits = for_rows_of_tile<Row>(a, first, [&](unsigned i, const float *own, size_t r) {
#pragma unroll
            for (int k = 0; k < Row::LANE_COLUMNS; k += QUAD) {
                if (!Row::has(k, a.columns)) continue;
                const size_t at = r * a.columns + Row::column(k);
                const uint32_t codes = round.round_quad(own + k, at / QUAD, inverse);
                *(uint32_t *)(out.q + at) = codes;
                tile[coded_word(i, Row::column(k) / QUAD, WIDTH)] = codes;
            }
        });
        if (!out.transposed_copy) return bits;
        __syncthreads();
        store_coded_columns(out.transposed_copy, tile, first, a.rows, a.columns, WIDTH);
        __syncthreads();
        return bits;
    };
    round_delayed<To>(
        out.scale, out.of, [&](float inverse) { return round_rows(blockIdx.x, inverse); },
        [&](float inverse) {
#pragma unroll 1
            for (unsigned number = 0; number < gridDim.x; number++) round_rows(number, inverse);
        });
}

template <typename To, typename T>
static int launch_layernorm_coded(const coded_output &out, const norm_of_rows<T> &a, To round,
                                  tandem_cuda_stream stream)
{
    const unsigned grid = (unsigned)n_tile(a.rows, CODED_ROWS);
    switch (lane_columns(a.columns, MAX_LANE_COLUMNS)) {
    case 4: return LAUNCH((layernorm_coded<held_row<4, 1>, To, T>), grid, THREADS, stream, out, a, round);
    case 8: return LAUNCH((layernorm_coded<held_row<8, 1>, To, T>), grid, THREADS, stream, out, a, round);
    case 24: return LAUNCH((layernorm_coded<held_row<24, 1>, To, T>), grid, THREADS, stream, out, a, round);
    case 32: return LAUNCH((layernorm_coded<held_row<32, 1>, To, T>), grid, THREADS, stream, out, a, round);
    }
    return (int)cudaErrorInvalidValue;
}

/* --- Bias and gelu -------------------------------------------------------------------------------------- */

template <typename T> struct bias_gelu_octet {
    T *y; /* NULL: not stored */
    const float *bias;
    uint32_t octets_a_period;
    __device__ __forceinline__ void operator()(float value[OCTET], size_t o) const
    {
        float shift[OCTET];
        load_shift(shift, bias, o, octets_a_period);
#pragma unroll
        for (int i = 0; i < OCTET; i++) value[i] = rounded_to<T>(tandem_gelu(TANDEM_ADD(value[i], shift[i])));
        if (y) store_octet(y + o * OCTET, value);
    }
};

/* Rounds what the thread makes of x[n], whole octets; the largest magnitude of that. */
template <int IS_ALONE, typename T, typename Work>
static __device__ __forceinline__ uint32_t for_gelu_octets(const T *x, size_t n,
                                                           const bias_gelu_octet<T> &make, Work work)
{
    uint32_t bits = 0;
    for_octets_of_part<IS_ALONE>(x, n, [&](size_t o, float value[OCTET]) {
        make(value, o);
        bits = max(bits, octet_largest(value));
        work(o, value);
    });
    return bits;
}

template <typename To, typename T>
KERNEL bias_gelu_coded(coded_output out, const T *__restrict__ x /* [n] */, size_t n, bias_gelu_octet<T> make,
                       To round)
{
    round.apply_stream_offset();
    const auto round_octet = [&](float inverse) {
        return [&, inverse](size_t o, const float *value) {
            *(uint2 *)(out.q + o * OCTET) = round(value, o, inverse);
        };
    };
    round_delayed<To>(
        out.scale, out.of,
        [&](float inverse) { return for_gelu_octets<WITH_OTHERS>(x, n, make, round_octet(inverse)); },
        [&](float inverse) { for_gelu_octets<ALONE>(x, n, make, round_octet(inverse)); });
}

template <typename To, typename T>
static __global__ void __launch_bounds__(THREADS, 4)
    bias_gelu_coded_both(coded_output out, const T *__restrict__ x /* (batch, rows, columns) */, size_t rows,
                         size_t columns, bias_gelu_octet<T> make, To round)
{
    __shared__ tile_bytes tile;
    round_delayed<To>(
        out.scale, out.of,
        [&](float inverse) {
            return round_both<1>(out.q, out.transposed_copy, tile, wide_tile_of_block(rows, columns), x,
                                 inverse, round, make);
        },
        [&](float inverse) {
#pragma unroll 1
            for (unsigned number = 0; number < gridDim.x; number++)
                round_both<0, ALONE>(out.q, out.transposed_copy, tile, wide_tile_at(number, rows, columns), x,
                                     inverse, round, make);
        });
}

template <typename To, typename T>
static int launch_bias_gelu_coded(const coded_output &out, const tandem_cuda_quantised *to, const T *x,
                                  size_t n, const bias_gelu_octet<T> &make, To round,
                                  tandem_cuda_stream stream)
{
    if (to->transposed_copy)
        return LAUNCH((bias_gelu_coded_both<To, T>), grid_of_tiles(to->batch, to->rows, to->columns), THREADS,
                      stream, out, x, to->rows, to->columns, make, round);
    return LAUNCH((bias_gelu_coded<To, T>), grid_of_octets<T>(n), THREADS, stream, out, x, n, make, round);
}

/* --- Calls ---------------------------------------------------------------------------------------------- */

static coded_output coded_output_of(const tandem_cuda_delayed_cast *cast, const delayed_scale &of)
{
    return {(uint8_t *)cast->to.q, (uint8_t *)cast->to.transposed_copy, cast->to.scale, of};
}

/* Returns the launches for T, f32 or bf16, the cast's rounding `round`, s8 or e4m3, and its output `out`. */
#define RETURN_FOR_CODES(type, cast, ...)                                                                    \
    const auto launch_codes = [&](auto round) {                                                              \
        return launch_delayed((cast), [&](const delayed_scale &of) -> int {                                  \
            const coded_output out = coded_output_of((cast), of);                                            \
            if ((type) == TANDEM_CUDA_F32) {                                                                 \
                typedef float T;                                                                             \
                return __VA_ARGS__;                                                                          \
            }                                                                                                \
            typedef bf16 T;                                                                                  \
            return __VA_ARGS__;                                                                              \
        });                                                                                                  \
    };                                                                                                       \
    if ((type) == TANDEM_CUDA_F16) return (int)cudaErrorInvalidValue;                                        \
    if ((cast)->to.code == TANDEM_CUDA_E4M3) return launch_codes(to_e4m3());                                 \
    if ((cast)->to.code == TANDEM_CUDA_S8 && (cast)->rounding)                                               \
        return launch_codes(to_s8_by((cast)->rounding, (cast)->stream_offset));                              \
    return (int)cudaErrorInvalidValue

extern "C" int tandem_cuda_layernorm_coded(const tandem_cuda_delayed_cast *cast, void *y,
                                           const tandem_cuda_residual *with, const void *x,
                                           tandem_cuda_float type, const float *scale, const float *shift,
                                           float *mean, float *variance, size_t rows, size_t columns,
                                           float epsilon, tandem_cuda_stream stream)
{
    if (columns % OCTET || columns > TANDEM_CUDA_CODED_COLUMNS) return (int)cudaErrorInvalidValue;
    RETURN_FOR_CODES(
        type, cast,
        launch_layernorm_coded(out,
                               norm_of_rows<T>{(T *)y, (T *)with->sum, (const T *)x,
                                               (const T *)with->residual, with->own, scale, shift, mean,
                                               variance, rows, (unsigned)columns, epsilon},
                               round, stream));
}

extern "C" int tandem_cuda_bias_gelu_coded(const tandem_cuda_delayed_cast *cast, void *y, const void *x,
                                           tandem_cuda_float type, const float *own, size_t n, size_t period,
                                           tandem_cuda_stream stream)
{
    if (period % OCTET || n % period) return (int)cudaErrorInvalidValue;
    RETURN_FOR_CODES(type, cast,
                     launch_bias_gelu_coded(out, &cast->to, (const T *)x, n,
                                            bias_gelu_octet<T>{(T *)y, own, (uint32_t)(period / OCTET)},
                                            round, stream));
}
