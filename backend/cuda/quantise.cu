/* quantise.cu: changes of type on the card: ranges, stochastic rounding to int8, and back. CPU reference:
 * backend/cpu/isa/{amax,quantise,cast}.c.
 *
 * A thread works on 8 consecutive elements: one block of the generator, two 16-byte loads (one of bf16), one 8-byte store. A
 * draw of 8 costs 20 wide multiplications and some 60 other instructions, about 18 issue slots an element with the rounding:
 * two thirds of what an SM can issue while memory brings the next 5 bytes (H200: 132 SMs, 4.8 TB/s). */
#include "backend/cuda/octet.h"

enum { TILE = 64 };

/* --- amax --------------------------------------------------------------------------------------------------------------- */

template <typename T> static __device__ __forceinline__ uint32_t octet_largest(const T *x)
{
    float value[OCTET];
    load_octet(value, x);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < OCTET; i++) bits = max(bits, tandem_magnitude_bits(value[i]));
    return bits;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    amax(uint32_t *amax_bits, const T *__restrict__ x /* [n] */, size_t n)
{
    __shared__ uint32_t of_warp[WARPS];
    const size_t first = first_item(), stride = all_items();
    const size_t n_octet = n / OCTET, rest = n_octet * OCTET + first;
    uint32_t bits = 0;
    for (size_t o = first; o < n_octet; o += stride) bits = max(bits, octet_largest(x + o * OCTET));
    if (rest < n) bits = max(bits, tandem_magnitude_bits(load_one(x + rest)));
    bits = block_largest(bits, of_warp);
    if (threadIdx.x == 0) atomicMax(amax_bits, bits);
}

extern "C" int tandem_cuda_amax(uint32_t *amax_bits, const void *x, tandem_cuda_float type, size_t n,
                                tandem_cuda_stream stream)
{
    const cudaError_t cleared = cudaMemsetAsync(amax_bits, 0, sizeof *amax_bits, stream);
    if (cleared != cudaSuccess || n == 0) return (int)cleared;
    const unsigned grid = grid_of(n / OCTET);
    if (type == TANDEM_CUDA_F32) return LAUNCH(amax, grid, THREADS, stream, amax_bits, (const float *)x, n);
    return LAUNCH(amax, grid, THREADS, stream, amax_bits, (const uint16_t *)x, n);
}

static __global__ void set_word(uint32_t *word, uint32_t value) { *word = value; }

extern "C" int tandem_cuda_set_word(uint32_t *word, uint32_t value, tandem_cuda_stream stream)
{
    return LAUNCH(set_word, 1u, 1u, stream, word, value);
}

/* --- Stochastic rounding ------------------------------------------------------------------------------------------------ */

/* Elements 8·block to 8·block + 7 of a tensor, rounded; element i in byte i. */
static __device__ __forceinline__ uint2 round_octet(const float x[OCTET], size_t block, float inverse,
                                                    tandem_rounding rounding)
{
    const uint32_t counter[4] = {(uint32_t)block + rounding.block, rounding.stream[0], rounding.stream[1], rounding.stream[2]};
    const tandem_philox_block draws = tandem_philox(counter, rounding.seed);
    uint32_t word[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        const uint8_t byte = (uint8_t)tandem_round_s8(x[i], inverse, tandem_draw_of(draws, i));
        word[i / 4] |= (uint32_t)byte << (8 * (i % 4));
    }
    return make_uint2(word[0], word[1]);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    quantise(int8_t *__restrict__ q /* [n] */, float *scale, const T *__restrict__ x /* [n] */, size_t n,
             const uint32_t *__restrict__ amax_bits, tandem_rounding rounding)
{
    const tandem_quantum quantum = tandem_quantum_of(tandem_float_of(*amax_bits));
    const size_t first = first_item(), stride = all_items();
    const size_t n_octet = n / OCTET;
    if (first == 0) *scale = quantum.scale;
    for (size_t o = first; o < n_octet; o += stride) {
        float value[OCTET];
        load_octet(value, x + o * OCTET);
        *(uint2 *)(q + o * OCTET) = round_octet(value, o, quantum.inverse, rounding);
    }
    if (first == 0 && n_octet * OCTET < n) {
        float value[OCTET] = {0, 0, 0, 0, 0, 0, 0, 0};
        const int rest = (int)(n - n_octet * OCTET);
        for (int i = 0; i < rest; i++) value[i] = load_one(x + n_octet * OCTET + i);
        const uint2 bytes = round_octet(value, n_octet, quantum.inverse, rounding);
        for (int i = 0; i < rest; i++)
            q[n_octet * OCTET + i] = (int8_t)((i < 4 ? bytes.x : bytes.y) >> (8 * (i % 4)));
    }
}

extern "C" int tandem_cuda_quantise(int8_t *q, float *scale, const void *x, tandem_cuda_float type, size_t n,
                                    const uint32_t *amax_bits, const tandem_rounding *rounding,
                                    tandem_cuda_stream stream)
{
    const unsigned grid = grid_of(n / OCTET);
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(quantise, grid, THREADS, stream, q, scale, (const float *)x, n, amax_bits, *rounding);
    return LAUNCH(quantise, grid, THREADS, stream, q, scale, (const uint16_t *)x, n, amax_bits, *rounding);
}

/* --- … of a matrix and its transpose ------------------------------------------------------------------------------------ */

/* A block works on a tile of TILE rows and columns. Its rounded rows go out as they are made and into shared memory, from where
 * each thread gathers 16 bytes of a column of the tile: a row of the transpose is written in pieces of 64 bytes. A row in
 * shared memory has TILE + 4 bytes, so that the words of a column lie in different banks. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    quantise_both(int8_t *__restrict__ q /* (rows, columns) or NULL */,
                  int8_t *__restrict__ transposed /* (columns, rows) */, float *scale,
                  const T *__restrict__ x /* (rows, columns) */, size_t rows, size_t columns,
                  const uint32_t *__restrict__ amax_bits, tandem_rounding rounding)
{
    __shared__ uint32_t tile[TILE][TILE / 4 + 1];
    const tandem_quantum quantum = tandem_quantum_of(tandem_float_of(*amax_bits));
    const size_t row0 = (size_t)blockIdx.y * TILE, column0 = (size_t)blockIdx.x * TILE;
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *scale = quantum.scale;
    for (int o = (int)threadIdx.x; o < TILE * TILE / OCTET; o += THREADS) {
        const int r = o / (TILE / OCTET), c = o % (TILE / OCTET) * OCTET;
        if (row0 + (size_t)r >= rows || column0 + (size_t)c >= columns) continue;
        const size_t at = (row0 + (size_t)r) * columns + column0 + (size_t)c;
        float value[OCTET];
        load_octet(value, x + at);
        const uint2 bytes = round_octet(value, at / OCTET, quantum.inverse, rounding);
        if (q) *(uint2 *)(q + at) = bytes;
        tile[r][c / 4] = bytes.x;
        tile[r][c / 4 + 1] = bytes.y;
    }
    __syncthreads();
    for (int piece = (int)threadIdx.x; piece < TILE * TILE / 4; piece += THREADS) {
        const int c = piece / (TILE / 4), r = piece % (TILE / 4) * 4;
        const size_t row = row0 + (size_t)r, column = column0 + (size_t)c;
        if (column >= columns || row >= rows) continue;
        uint32_t bytes = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) bytes |= (tile[r + i][c / 4] >> (8 * (c % 4)) & 0xFFu) << (8 * i);
        int8_t *out = transposed + column * rows + row;
        if (rows % 4 == 0)
            *(uint32_t *)out = bytes;
        else
            for (int i = 0; i < 4 && row + (size_t)i < rows; i++) out[i] = (int8_t)(bytes >> (8 * i));
    }
}

extern "C" int tandem_cuda_quantise_both(int8_t *q, int8_t *transposed, float *scale, const void *x,
                                         tandem_cuda_float type, size_t rows, size_t columns, const uint32_t *amax_bits,
                                         const tandem_rounding *rounding, tandem_cuda_stream stream)
{
    if (!transposed)
        return tandem_cuda_quantise(q, scale, x, type, rows * columns, amax_bits, rounding, stream);
    if (columns % OCTET != 0) return TANDEM_CUDA_UNALIGNED;
    const dim3 grid((unsigned)((columns + TILE - 1) / TILE), (unsigned)((rows + TILE - 1) / TILE));
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(quantise_both, grid, THREADS, stream, q, transposed, scale, (const float *)x, rows,
                      columns, amax_bits, *rounding);
    return LAUNCH(quantise_both, grid, THREADS, stream, q, transposed, scale, (const uint16_t *)x, rows,
                  columns, amax_bits, *rounding);
}

/* --- … of each row, with its range, in one pass ------------------------------------------------------------------------- */

/* A block a row; a thread keeps OCTETS times 8 elements of it in registers while the block finds the range. */
template <typename T, int OCTETS>
static __global__ void __launch_bounds__(THREADS)
    quantise_rows(int8_t *__restrict__ q /* (rows, columns) */, float *__restrict__ scale /* [rows] */,
                  const T *__restrict__ x /* (rows, columns) */, size_t columns, tandem_rounding rounding)
{
    __shared__ uint32_t of_warp[WARPS];
    const size_t start = (size_t)blockIdx.x * columns, n_octet = columns / OCTET;
    float value[OCTETS][OCTET];
    uint32_t bits = 0;
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        const size_t o = (size_t)k * THREADS + threadIdx.x;
        if (o >= n_octet) continue;
        load_octet(value[k], x + start + o * OCTET);
#pragma unroll
        for (int i = 0; i < OCTET; i++) bits = max(bits, tandem_magnitude_bits(value[k][i]));
    }
    const tandem_quantum quantum = tandem_quantum_of(tandem_float_of(block_largest(bits, of_warp)));
    if (threadIdx.x == 0) scale[blockIdx.x] = quantum.scale;
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        const size_t o = (size_t)k * THREADS + threadIdx.x;
        if (o >= n_octet) continue;
        *(uint2 *)(q + start + o * OCTET) = round_octet(value[k], start / OCTET + o, quantum.inverse, rounding);
    }
}

template <typename T>
static int rows_of(int8_t *q, float *scale, const T *x, size_t rows, size_t columns, tandem_rounding rounding,
                   tandem_cuda_stream stream)
{
    const unsigned grid = (unsigned)rows;
    const size_t a_thread = (columns / OCTET + THREADS - 1) / THREADS;
    if (a_thread <= 1)
        return LAUNCH((quantise_rows<T, 1>), grid, THREADS, stream, q, scale, x, columns, rounding);
    if (a_thread <= 2)
        return LAUNCH((quantise_rows<T, 2>), grid, THREADS, stream, q, scale, x, columns, rounding);
    if (a_thread <= 4)
        return LAUNCH((quantise_rows<T, 4>), grid, THREADS, stream, q, scale, x, columns, rounding);
    return LAUNCH((quantise_rows<T, 8>), grid, THREADS, stream, q, scale, x, columns, rounding);
}

extern "C" int tandem_cuda_quantise_rows(int8_t *q, float *scale, const void *x, tandem_cuda_float type,
                                         size_t rows, size_t columns, const tandem_rounding *rounding,
                                         tandem_cuda_stream stream)
{
    if (columns % OCTET != 0) return TANDEM_CUDA_UNALIGNED;
    if (columns > TANDEM_CUDA_ROW_MOST || rows > 0x7FFFFFFFu) return (int)cudaErrorInvalidValue;
    if (rows == 0) return 0;
    return type == TANDEM_CUDA_F32 ? rows_of(q, scale, (const float *)x, rows, columns, *rounding, stream)
                                   : rows_of(q, scale, (const uint16_t *)x, rows, columns, *rounding, stream);
}

/* --- Back, and between floats ------------------------------------------------------------------------------------------- */

/* y = x, or x·scale. */
template <typename To, typename From>
static __global__ void __launch_bounds__(THREADS)
    convert(To *__restrict__ y /* [n] */, const From *__restrict__ x /* [n] */, size_t n, const float *__restrict__ scale)
{
    const size_t first = first_item(), stride = all_items();
    const size_t n_octet = n / OCTET, rest = n_octet * OCTET + first;
    const float factor = scale ? *scale : 1.0f;
    for (size_t o = first; o < n_octet; o += stride) {
        float value[OCTET];
        load_octet(value, x + o * OCTET);
        if (scale) {
#pragma unroll
            for (int i = 0; i < OCTET; i++) value[i] = TANDEM_MUL(value[i], factor);
        }
        store_octet(y + o * OCTET, value);
    }
    if (rest < n) store_one(y + rest, scale ? TANDEM_MUL(load_one(x + rest), factor) : load_one(x + rest));
}

extern "C" int tandem_cuda_dequantise(void *x, tandem_cuda_float type, const int8_t *q, size_t n,
                                      const float *scale, tandem_cuda_stream stream)
{
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(convert, grid_of(n / OCTET), THREADS, stream, (float *)x, q, n, scale);
    return LAUNCH(convert, grid_of(n / OCTET), THREADS, stream, (uint16_t *)x, q, n, scale);
}

extern "C" int tandem_cuda_narrow(uint16_t *y, const float *x, size_t n, tandem_cuda_stream stream)
{
    return LAUNCH(convert, grid_of(n / OCTET), THREADS, stream, y, x, n, (const float *)NULL);
}

extern "C" int tandem_cuda_widen(float *y, const uint16_t *x, size_t n, tandem_cuda_stream stream)
{
    return LAUNCH(convert, grid_of(n / OCTET), THREADS, stream, y, x, n, (const float *)NULL);
}

/* --- What an int8 product leaves behind ----------------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    scale_s32(T *__restrict__ y /* (rows, columns) */, const int32_t *__restrict__ x /* (rows, stride) */, size_t n,
              size_t columns, size_t stride, const float *__restrict__ scale_a, const float *__restrict__ scale_b)
{
    const float scale = TANDEM_MUL(*scale_a, *scale_b);
    for (size_t i = first_item(); i < n; i += all_items())
        store_one(y + i, TANDEM_MUL((float)x[i / columns * stride + i % columns], scale));
}

extern "C" int tandem_cuda_scale_s32(void *y, tandem_cuda_float type, const int32_t *x, size_t rows, size_t columns,
                                     size_t stride, const float *scale_a, const float *scale_b, tandem_cuda_stream stream)
{
    const size_t n = rows * columns;
    if (type == TANDEM_CUDA_F32)
        return LAUNCH(scale_s32, grid_of(n), THREADS, stream, (float *)y, x, n, columns, stride, scale_a, scale_b);
    return LAUNCH(scale_s32, grid_of(n), THREADS, stream, (uint16_t *)y, x, n, columns, stride, scale_a, scale_b);
}
