/* quantise.cu: casts on the GPU: ranges, rounding to one-byte types, and back. CPU reference:
 * kernels/cpu/isa/{amax,quantise,cast}.c.
 *
 * Only stochastic rounding computes more than memory latency hides: eight draws cost 20 wide multiplications
 * (docs/cuda.md has the count). */
#include "kernels/cuda/rounding.h"

/* --- amax ----------------------------------------------------------------------------------------------- */

template <typename T> KERNEL amax(uint32_t *amax_bits, const T *__restrict__ x /* [n] */, size_t n)
{
    __shared__ uint32_t of_warp[WARPS];
    const uint32_t bits = block_largest(thread_largest(x, n), of_warp);
    if (threadIdx.x == 0) atomicMax(amax_bits, bits);
}

extern "C" int tandem_cuda_amax(uint32_t *amax_bits, const void *x, tandem_cuda_float type, size_t n,
                                tandem_cuda_stream stream)
{
    const cudaError_t cleared = cudaMemsetAsync(amax_bits, 0, sizeof *amax_bits, stream);
    if (cleared != cudaSuccess || n == 0) return (int)cleared;
    RETURN_FOR(type, LAUNCH(amax, grid_of_octets<T>(n), THREADS, stream, amax_bits, (const T *)x, n));
}

static __global__ void set_word(uint32_t *word, uint32_t value) { *word = value; }

extern "C" const char *tandem_cuda_error_text(int failed) { return cudaGetErrorString((cudaError_t)failed); }

extern "C" int tandem_cuda_clear_words(uint32_t *words, size_t n, tandem_cuda_stream stream)
{
    return (int)cudaMemsetAsync(words, 0, n * sizeof *words, stream);
}

extern "C" int tandem_cuda_set_word(uint32_t *word, uint32_t value, tandem_cuda_stream stream)
{
    return LAUNCH(set_word, 1u, 1u, stream, word, value);
}

/* --- Rounding of a tensor ------------------------------------------------------------------------------- */

template <typename To, typename T>
KERNEL quantise(uint8_t *__restrict__ q /* [n] */, float *scale, const T *__restrict__ x /* [n] */, size_t n,
                const uint32_t *__restrict__ amax_bits, To round)
{
    const tandem_quant_scale quant = tandem_quant_scale_of(tandem_float_of(*amax_bits), To::max_value());
    if (first_item() == 0) *scale = quant.scale;
    round_tensor<0>(q, x, n, quant.inverse, round);
}

template <typename To, typename T>
KERNEL quantise_both(uint8_t *__restrict__ q /* (batch, rows, columns) */,
                     uint8_t *__restrict__ transposed_copy, float *scale,
                     const T *__restrict__ x /* (batch, rows, columns) */, size_t rows, size_t columns,
                     const uint32_t *__restrict__ amax_bits, To round)
{
    __shared__ tile_bytes tile;
    const tandem_quant_scale quant = tandem_quant_scale_of(tandem_float_of(*amax_bits), To::max_value());
    if (first_item() == 0) *scale = quant.scale;
    round_both<0>(q, transposed_copy, tile, wide_tile_of_block(rows, columns), x, quant.inverse, round);
}

/* --- Rounding with the range of a history --------------------------------------------------------------- */

template <typename To, typename T>
KERNEL quantise_delayed(uint8_t *__restrict__ q /* [n] */, float *scale, const T *__restrict__ x /* [n] */,
                        size_t n, delayed_scale of, To round)
{
    round_delayed<To>(
        scale, of, [&](float inverse) { return round_tensor<1>(q, x, n, inverse, round); },
        [&](float inverse) { round_tensor<0, ALONE>(q, x, n, inverse, round); });
}

template <typename To, typename T>
static __global__ void __launch_bounds__(THREADS, 4)
    quantise_both_delayed(uint8_t *__restrict__ q /* (batch, rows, columns) */,
                          uint8_t *__restrict__ transposed_copy, float *scale,
                          const T *__restrict__ x /* (batch, rows, columns) */, size_t rows, size_t columns,
                          delayed_scale of, To round)
{
    __shared__ tile_bytes tile;
    round_delayed<To>(
        scale, of,
        [&](float inverse) {
            return round_both<1>(q, transposed_copy, tile, wide_tile_of_block(rows, columns), x, inverse,
                                 round);
        },
        [&](float inverse) {
#pragma unroll 1
            for (unsigned number = 0; number < gridDim.x; number++)
                round_both<0, ALONE>(q, transposed_copy, tile, wide_tile_at(number, rows, columns), x,
                                     inverse, round);
        });
}

/* --- Launches ------------------------------------------------------------------------------------------- */

static int writes_both_at_once(const tandem_cuda_quantised *to)
{
    return to->transposed_copy && fits_tiles(to->rows, to->columns);
}

/* amax_bits NULL: with the range of a history. */
template <typename To>
static int quantise_to(const tandem_cuda_quantised *to, const void *x, tandem_cuda_float type,
                       const uint32_t *amax_bits, const delayed_scale &of, To round,
                       tandem_cuda_stream stream)
{
    const size_t rows = to->rows, columns = to->columns, n = to->batch * rows * columns;
    const unsigned tiles = grid_of_tiles(to->batch, rows, columns);
    uint8_t *const q = (uint8_t *)to->q, *const transposed_copy = (uint8_t *)to->transposed_copy;
    if (writes_both_at_once(to) && amax_bits) {
        RETURN_FOR(type, LAUNCH((quantise_both<To, T>), tiles, THREADS, stream, q, transposed_copy, to->scale,
                                (const T *)x, rows, columns, amax_bits, round));
    }
    if (writes_both_at_once(to)) {
        RETURN_FOR(type, LAUNCH((quantise_both_delayed<To, T>), tiles, THREADS, stream, q, transposed_copy,
                                to->scale, (const T *)x, rows, columns, of, round));
    }
    if (amax_bits) {
        RETURN_FOR(type, LAUNCH((quantise<To, T>), grid_of_octets<T>(n), THREADS, stream, q, to->scale,
                                (const T *)x, n, amax_bits, round));
    }
    RETURN_FOR(type, LAUNCH((quantise_delayed<To, T>), grid_of_octets<T>(n), THREADS, stream, q, to->scale,
                            (const T *)x, n, of, round));
}

/* The transposed copy, where the kernel that has rounded did not write it. */
static int copy_transposed(const tandem_cuda_quantised *to, tandem_cuda_stream stream)
{
    if (!to->transposed_copy || writes_both_at_once(to)) return 0;
    return tandem_cuda_pad_bytes(to->transposed_copy, to->q, to->batch, to->columns, to->rows, to->columns,
                                 to->rows, 1, stream);
}

extern "C" int tandem_cuda_quantise(const tandem_cuda_quantised *to, const void *x, tandem_cuda_float type,
                                    const uint32_t *amax_bits, const tandem_rounding *rounding,
                                    const uint32_t *stream_offset, tandem_cuda_stream stream)
{
    const int failed = with_rounding(to->code, rounding, stream_offset, [=](auto round) {
        return quantise_to(to, x, type, amax_bits, delayed_scale(), round, stream);
    });
    return failed ? failed : copy_transposed(to, stream);
}

extern "C" int tandem_cuda_quantise_delayed(const tandem_cuda_delayed_cast *cast, const void *x,
                                            tandem_cuda_float type, tandem_cuda_stream stream)
{
    const tandem_cuda_quantised *const to = &cast->to;
    const int failed = with_rounding(to->code, cast->rounding, cast->stream_offset, [=](auto round) {
        return launch_delayed(
            cast, [=](const delayed_scale &of) { return quantise_to(to, x, type, NULL, of, round, stream); });
    });
    return failed ? failed : copy_transposed(to, stream);
}

/* y = value, or y + value. */
template <typename T> static __device__ __forceinline__ void store_or_add(T *y, float value, int accumulate)
{
    store_one(y, accumulate ? TANDEM_ADD(load_one(y), value) : value);
}

/* --- Rows, each with its scale -------------------------------------------------------------------------- */

/* A team of 2^shift threads, from a warp to a block, has one row. Each thread keeps some octets packed, so
 * WHOLE rows are read once up to 8192 columns. Of longer rows the team keeps the last part and reads the
 * others again, the last one first, because it is still in the cache. */
enum { RAGGED = 1, WHOLE = 4, SHIFT_OF_WARP = 5, SHIFT_OF_BLOCK = 8 };

static unsigned team_shift(size_t columns)
{
    unsigned shift = SHIFT_OF_WARP;
    while (shift < SHIFT_OF_BLOCK && ((size_t)WHOLE * OCTET << shift) < columns) shift++;
    return shift;
}

static unsigned grid_of_teams(size_t rows, unsigned shift)
{
    const size_t in_a_block = THREADS >> shift;
    return (unsigned)((rows + in_a_block - 1) / in_a_block);
}

/* A thread's position in rows of this many octets; `octets` is 0 beyond the last row. */
typedef struct row_slice {
    size_t row, octets;
    unsigned self;
} row_slice;

static __device__ __forceinline__ row_slice row_of_thread(size_t rows, size_t columns, unsigned shift)
{
    row_slice own;
    own.row = (size_t)blockIdx.x * (THREADS >> shift) + (threadIdx.x >> shift);
    own.octets = own.row < rows ? (columns + OCTET - 1) / OCTET : 0;
    own.self = threadIdx.x & ((1u << shift) - 1);
    return own;
}

static __device__ __forceinline__ uint32_t team_largest(uint32_t x, unsigned shift, uint32_t *of_warp)
{
    x = warp_largest(x);
    if (shift == SHIFT_OF_WARP) return x;
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    const unsigned first = (threadIdx.x >> shift) << (shift - SHIFT_OF_WARP);
    for (unsigned w = 0; w < 1u << (shift - SHIFT_OF_WARP); w++) x = max(x, of_warp[first + w]);
    return x;
}

/* The elements of a row's octet o. */
static __device__ __forceinline__ int elements_in_octet(size_t columns, size_t o)
{
    return o < columns / OCTET ? (int)OCTET : (int)(columns % OCTET);
}

/* Octets `first`, `first` + 2^shift … of a row. RAGGED ones begin anywhere, and the last may be shorter. */
template <int KEPT, typename T>
static __device__ __forceinline__ void load_kept(packed<T> kept[KEPT], const T *row, size_t columns,
                                                 size_t octets, size_t first, unsigned shift)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const size_t o = first + ((size_t)k << shift);
        if (o >= octets) continue;
        if (KEPT == WHOLE)
            kept[k].template load_packed<READ_ONLY>(row + o * OCTET);
        else
            load_first(kept[k], row + o * OCTET, elements_in_octet(columns, o));
    }
}

template <int KEPT, typename To, typename T>
static __global__ void __launch_bounds__(THREADS, KEPT == WHOLE ? 4 : 3)
    quantise_rows(uint8_t *__restrict__ q /* (rows, columns) */, float *__restrict__ scale /* [rows] */,
                  const T *__restrict__ x /* (rows, columns) */, size_t rows, size_t columns, unsigned shift,
                  To round)
{
    __shared__ uint32_t of_warp[WARPS];
    const row_slice own = row_of_thread(rows, columns, shift);
    const size_t part = (size_t)KEPT << shift, start = own.row * columns;
    packed<T> kept[KEPT];
    uint32_t bits = 0;
    size_t apply_stream_offset = 0;
    for (;; apply_stream_offset += part) {
        load_kept<KEPT>(kept, x + start, columns, own.octets, apply_stream_offset + own.self, shift);
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            if (apply_stream_offset + own.self + ((size_t)k << shift) >= own.octets) continue;
            float value[OCTET];
            unpack_octet(value, kept[k]);
            bits = max(bits, octet_largest(value));
        }
        if (apply_stream_offset + part >= own.octets) break;
    }
    bits = team_largest(bits, shift, of_warp);
    const tandem_quant_scale quant = tandem_quant_scale_of(tandem_float_of(bits), To::max_value());
    if (own.self == 0 && own.row < rows) scale[own.row] = quant.scale;
    round.apply_stream_offset();
    for (;;) {
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            const size_t o = apply_stream_offset + own.self + ((size_t)k << shift);
            if (o >= own.octets) continue;
            float value[OCTET];
            unpack_octet(value, kept[k]);
            const uint2 bytes = round(value, own.row * own.octets + o, quant.inverse);
            uint8_t *const to = q + start + o * OCTET;
            if (KEPT == WHOLE)
                *(uint2 *)to = bytes;
            else
                store_first(to, bytes, elements_in_octet(columns, o));
        }
        if (apply_stream_offset == 0) break;
        apply_stream_offset -= part;
        load_kept<KEPT>(kept, x + start, columns, own.octets, apply_stream_offset + own.self, shift);
    }
}

template <typename To>
static int quantise_rows_to(uint8_t *q, float *scale, const void *x, tandem_cuda_float type, size_t rows,
                            size_t columns, To round, tandem_cuda_stream stream)
{
    const unsigned shift = team_shift(columns), grid = grid_of_teams(rows, shift);
    if (columns % OCTET == 0) {
        RETURN_FOR(type, LAUNCH((quantise_rows<WHOLE, To, T>), grid, THREADS, stream, q, scale, (const T *)x,
                                rows, columns, shift, round));
    }
    RETURN_FOR(type, LAUNCH((quantise_rows<RAGGED, To, T>), grid, THREADS, stream, q, scale, (const T *)x,
                            rows, columns, shift, round));
}

extern "C" int tandem_cuda_quantise_rows(void *q, tandem_cuda_code code, float *scale, const void *x,
                                         tandem_cuda_float type, size_t rows, size_t columns,
                                         const tandem_rounding *rounding, const uint32_t *stream_offset,
                                         tandem_cuda_stream stream)
{
    return with_rounding(code, rounding, stream_offset, [=](auto round) {
        return quantise_rows_to((uint8_t *)q, scale, x, type, rows, columns, round, stream);
    });
}

/* scale: of all rows, NULL: 1. ADDS: adds to x. */
template <int KEPT, int ADDS, typename T, typename From>
KERNEL dequantise_rows(T *__restrict__ x /* (rows, columns) */,
                       const From *__restrict__ q /* (rows, columns) */, size_t rows, size_t columns,
                       const float *__restrict__ row_scale /* [rows] */, const float *__restrict__ scale,
                       unsigned shift)
{
    const row_slice own = row_of_thread(rows, columns, shift);
    const float factor = own.octets ? TANDEM_MUL(row_scale[own.row], scale ? *scale : 1.0f) : 0.0f;
    const size_t start = own.row * columns;
    packed<From> kept[KEPT];
    for (size_t first = own.self; first < own.octets; first += (size_t)KEPT << shift) {
        load_kept<KEPT>(kept, q + start, columns, own.octets, first, shift);
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            const size_t o = first + ((size_t)k << shift);
            if (o >= own.octets) continue;
            T *const to = x + start + o * OCTET;
            float value[OCTET];
            unpack_octet(value, kept[k]);
#pragma unroll
            for (int i = 0; i < OCTET; i++) value[i] = TANDEM_MUL(value[i], factor);
            if (KEPT == WHOLE && ADDS) {
                float before[OCTET];
                load_octet(before, to);
#pragma unroll
                for (int i = 0; i < OCTET; i++) value[i] = TANDEM_ADD(before[i], value[i]);
            }
            if (KEPT == WHOLE) store_octet(to, value);
#pragma unroll
            for (int i = 0; i < OCTET; i++)
                if (KEPT == RAGGED && i < elements_in_octet(columns, o)) store_or_add(to + i, value[i], ADDS);
        }
    }
}

template <int ADDS, typename From>
static int dequantise_rows_from(void *x, tandem_cuda_float type, const From *q, size_t rows, size_t columns,
                                const float *row_scale, const float *scale, tandem_cuda_stream stream)
{
    const unsigned shift = team_shift(columns), grid = grid_of_teams(rows, shift);
    if (columns % OCTET == 0) {
        RETURN_FOR(type, LAUNCH((dequantise_rows<WHOLE, ADDS, T, From>), grid, THREADS, stream, (T *)x, q,
                                rows, columns, row_scale, scale, shift));
    }
    RETURN_FOR(type, LAUNCH((dequantise_rows<RAGGED, ADDS, T, From>), grid, THREADS, stream, (T *)x, q, rows,
                            columns, row_scale, scale, shift));
}

extern "C" int tandem_cuda_scale_rows_s32(void *y, tandem_cuda_float type, const int32_t *x, size_t rows,
                                          size_t columns, const float *row_scale, const float *scale,
                                          int accumulate, tandem_cuda_stream stream)
{
    return accumulate ? dequantise_rows_from<1>(y, type, x, rows, columns, row_scale, scale, stream)
                      : dequantise_rows_from<0>(y, type, x, rows, columns, row_scale, scale, stream);
}

extern "C" int tandem_cuda_dequantise_rows(void *x, tandem_cuda_float type, const void *q,
                                           tandem_cuda_code code, size_t rows, size_t columns,
                                           const float *scale, tandem_cuda_stream stream)
{
    switch (code) {
    case TANDEM_CUDA_S8:
        return dequantise_rows_from<0>(x, type, (const s8 *)q, rows, columns, scale, NULL, stream);
    case TANDEM_CUDA_E4M3:
        return dequantise_rows_from<0>(x, type, (const e4m3 *)q, rows, columns, scale, NULL, stream);
    case TANDEM_CUDA_E5M2:
        return dequantise_rows_from<0>(x, type, (const e5m2 *)q, rows, columns, scale, NULL, stream);
    }
    return (int)cudaErrorInvalidValue;
}

/* --- Back, and between floats --------------------------------------------------------------------------- */

/* x·factor of a code; a float as it is: a GPU makes of a NaN times 1 another NaN. */
template <typename From> static __device__ __forceinline__ float value_of_number(float x, float factor)
{
    return sizeof(From) == 1 ? TANDEM_MUL(x, factor) : x;
}

/* y = x·scale of codes; of floats, y = x, and scale is NULL. */
template <typename To, typename From>
KERNEL convert(To *__restrict__ y /* [n] */, const From *__restrict__ x /* [n] */, size_t n,
               const float *__restrict__ scale)
{
    const size_t rest = n / OCTET * OCTET + first_item();
    const float factor = sizeof(From) == 1 ? *scale : 0;
    for_octets<READ_ONLY>(x, n, [&](size_t o, float value[OCTET]) {
#pragma unroll
        for (int i = 0; i < OCTET; i++) value[i] = value_of_number<From>(value[i], factor);
        store_octet(y + o * OCTET, value);
    });
    if (rest < n) store_one(y + rest, value_of_number<From>(load_one(x + rest), factor));
}

template <typename From>
static int convert_from(void *y, tandem_cuda_float to, const From *x, size_t n, const float *scale,
                        tandem_cuda_stream stream)
{
    RETURN_FOR(to, LAUNCH(convert, grid_of_octets<From>(n), THREADS, stream, (T *)y, x, n, scale));
}

extern "C" int tandem_cuda_dequantise(void *x, tandem_cuda_float type, const void *q, tandem_cuda_code code,
                                      size_t n, const float *scale, tandem_cuda_stream stream)
{
    switch (code) {
    case TANDEM_CUDA_S8: return convert_from(x, type, (const s8 *)q, n, scale, stream);
    case TANDEM_CUDA_E4M3: return convert_from(x, type, (const e4m3 *)q, n, scale, stream);
    case TANDEM_CUDA_E5M2: return convert_from(x, type, (const e5m2 *)q, n, scale, stream);
    }
    return (int)cudaErrorInvalidValue;
}

extern "C" int tandem_cuda_convert(void *y, tandem_cuda_float to, const void *x, tandem_cuda_float from,
                                   size_t n, tandem_cuda_stream stream)
{
    RETURN_FOR(from, convert_from(y, to, (const T *)x, n, NULL, stream));
}

/* --- Results of int8 products --------------------------------------------------------------------------- */

/* One warp per row: a division per element would take longer than its load. */
static unsigned grid_of_rows(size_t rows) { return grid_of(rows * WARP); }
static __device__ __forceinline__ size_t first_row(void) { return first_item() / WARP; }
static __device__ __forceinline__ size_t all_rows(void) { return all_items() / WARP; }

/* By octets, for rows without a gap. */
template <typename T>
KERNEL scale_s32(T *__restrict__ y /* [n] */, const int32_t *__restrict__ x /* [n] */, size_t n,
                 const float *__restrict__ scale_a, const float *__restrict__ scale_b, int accumulate)
{
    const float scale = TANDEM_MUL(*scale_a, *scale_b);
    const size_t rest = n / OCTET * OCTET + first_item();
    for_octets<READ_ONLY>(x, n, [&](size_t o, float value[OCTET]) {
#pragma unroll
        for (int i = 0; i < OCTET; i++) value[i] = TANDEM_MUL(value[i], scale);
        if (accumulate) {
            float before[OCTET];
            load_octet(before, y + o * OCTET);
#pragma unroll
            for (int i = 0; i < OCTET; i++) value[i] = TANDEM_ADD(before[i], value[i]);
        }
        store_octet(y + o * OCTET, value);
    });
    if (rest < n) store_or_add(y + rest, TANDEM_MUL((float)x[rest], scale), accumulate);
}

template <typename T>
KERNEL scale_rows_s32(T *__restrict__ y /* (batch, rows, columns) */,
                      const int32_t *__restrict__ x /* (batch, x_rows, x_columns) */, size_t batch,
                      size_t rows, size_t columns, size_t x_rows, size_t x_columns,
                      const float *__restrict__ scale_a, const float *__restrict__ scale_b, int accumulate)
{
    const float scale = TANDEM_MUL(*scale_a, *scale_b);
    for (size_t r = first_row(); r < batch * rows; r += all_rows()) {
        const int32_t *const row = x + (r / rows * x_rows + r % rows) * x_columns;
        for (size_t c = threadIdx.x % WARP; c < columns; c += WARP)
            store_or_add(y + r * columns + c, TANDEM_MUL((float)row[c], scale), accumulate);
    }
}

extern "C" int tandem_cuda_scale_s32(void *y, tandem_cuda_float type, const int32_t *x, size_t batch,
                                     size_t rows, size_t columns, size_t x_rows, size_t x_columns,
                                     const float *scale_a, const float *scale_b, int accumulate,
                                     tandem_cuda_stream stream)
{
    const size_t n = batch * rows * columns;
    if (x_columns == columns && (x_rows == rows || batch == 1)) {
        RETURN_FOR(type, LAUNCH(scale_s32, grid_of_octets<int32_t>(n), THREADS, stream, (T *)y, x, n, scale_a,
                                scale_b, accumulate));
    }
    RETURN_FOR(type, LAUNCH(scale_rows_s32, grid_of_rows(batch * rows), THREADS, stream, (T *)y, x, batch,
                            rows, columns, x_rows, x_columns, scale_a, scale_b, accumulate));
}

/* --- Results of padded products ------------------------------------------------------------------------- */

template <typename T>
KERNEL crop(T *__restrict__ y /* (batch, rows, columns) */,
            const float *__restrict__ x /* (batch, x_rows, x_columns) */, size_t batch, size_t rows,
            size_t columns, size_t x_rows, size_t x_columns, int accumulate)
{
    for (size_t r = first_row(); r < batch * rows; r += all_rows()) {
        const float *const row = x + (r / rows * x_rows + r % rows) * x_columns;
        for (size_t c = threadIdx.x % WARP; c < columns; c += WARP)
            store_or_add(y + r * columns + c, row[c], accumulate);
    }
}

extern "C" int tandem_cuda_crop(void *y, tandem_cuda_float type, const float *x, size_t batch, size_t rows,
                                size_t columns, size_t x_rows, size_t x_columns, int accumulate,
                                tandem_cuda_stream stream)
{
    RETURN_FOR(type, LAUNCH(crop, grid_of_rows(batch * rows), THREADS, stream, (T *)y, x, batch, rows,
                            columns, x_rows, x_columns, accumulate));
}
