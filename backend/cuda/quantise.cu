/* quantise.cu: casts on the GPU: ranges, rounding to one-byte types, and back. CPU reference:
 * backend/cpu/isa/{amax,quantise,cast}.c.
 *
 * Only stochastic rounding computes more than memory latency hides: eight draws cost 20 wide multiplications
 * (docs/cuda.md has the count). */
#include "backend/cuda/octet.h"
#include "backend/cuda/tile.h"

/* --- amax ----------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t octet_largest(const float x[OCTET])
{
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < OCTET; i++) bits = max(bits, tandem_magnitude_bits(x[i]));
    return bits;
}

template <typename T> static __device__ __forceinline__ uint32_t thread_largest(const T *x, size_t n)
{
    uint32_t bits = 0;
    for_octets<READ_ONLY>(x, n,
                          [&](size_t, const float value[OCTET]) { bits = max(bits, octet_largest(value)); });
    const size_t rest = n / OCTET * OCTET + first_item();
    return rest < n ? max(bits, tandem_magnitude_bits(load_one(x + rest))) : bits;
}

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

/* --- Rounding of an octet, element i in byte i ---------------------------------------------------------- */

/* Stochastic: elements 8·block to 8·block + 7 of a tensor use the draws of one block of the generator. Keys
 * are arguments of the launch, so instructions use them directly. Computed on the GPU they would cost 19
 * additions or 18 registers. */
struct to_s8 {
    tandem_philox_keys keys;
    uint32_t first_block, stream[3];
    const uint32_t *stream_offset;
    __device__ __forceinline__ void apply_stream_offset(void)
    {
        if (stream_offset) stream[0] += *stream_offset;
    }
    static __device__ __forceinline__ float max_value(void) { return 127.0f; }
    __device__ __forceinline__ uint2 operator()(const float x[OCTET], size_t block, float inverse) const
    {
        const uint32_t counter[4] = {(uint32_t)block + first_block, stream[0], stream[1], stream[2]};
        const tandem_philox_block draws = tandem_philox_with(counter, &keys);
        uint32_t word[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < OCTET; i++) {
            const uint8_t byte = (uint8_t)tandem_round_s8(x[i], inverse, tandem_draw_float(draws, i));
            word[i / 4] |= (uint32_t)byte << (8 * (i % 4));
        }
        return make_uint2(word[0], word[1]);
    }
};

static to_s8 to_s8_by(const tandem_rounding *rounding, const uint32_t *stream_offset)
{
    return {tandem_philox_expand_key(rounding->seed),
            rounding->block,
            {rounding->stream[0], rounding->stream[1], rounding->stream[2]},
            stream_offset};
}

struct to_nearest_s8 {
    __device__ __forceinline__ void apply_stream_offset(void) {}
    static __device__ __forceinline__ float max_value(void) { return 127.0f; }
    __device__ __forceinline__ uint2 operator()(const float x[OCTET], size_t, float inverse) const
    {
        uint32_t word[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < OCTET; i++)
            word[i / 4] |= (uint32_t)(uint8_t)tandem_nearest_s8(x[i], inverse) << (8 * (i % 4));
        return make_uint2(word[0], word[1]);
    }
};

/* To nearest. GPUs with tensor cores for these types convert two numbers per instruction, with the bits of
 * arithmetic.h. */
struct to_e4m3 {
    __device__ __forceinline__ void apply_stream_offset(void) {}
    static __device__ __forceinline__ float max_value(void) { return 448.0f; }
    static __device__ __forceinline__ uint32_t pack_two(float low, float high)
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        uint16_t codes;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
        return codes;
#else
        return (uint32_t)tandem_e4m3_of(low) | (uint32_t)tandem_e4m3_of(high) << 8;
#endif
    }
    __device__ __forceinline__ uint2 operator()(const float x[OCTET], size_t block, float inverse) const;
};

struct to_e5m2 {
    __device__ __forceinline__ void apply_stream_offset(void) {}
    static __device__ __forceinline__ float max_value(void) { return 57344.0f; }
    static __device__ __forceinline__ uint32_t pack_two(float low, float high)
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        uint16_t codes;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
        return codes;
#else
        return (uint32_t)tandem_e5m2_of(low) | (uint32_t)tandem_e5m2_of(high) << 8;
#endif
    }
    __device__ __forceinline__ uint2 operator()(const float x[OCTET], size_t block, float inverse) const;
};

template <typename To>
static __device__ __forceinline__ uint2 encode_nearest(const float x[OCTET], float inverse)
{
    uint32_t pack_two[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pack_two[i] = To::pack_two(TANDEM_MUL(x[2 * i], inverse), TANDEM_MUL(x[2 * i + 1], inverse));
    return make_uint2(pack_two[0] | pack_two[1] << 16, pack_two[2] | pack_two[3] << 16);
}

__device__ __forceinline__ uint2 to_e4m3::operator()(const float x[OCTET], size_t, float inverse) const
{
    return encode_nearest<to_e4m3>(x, inverse);
}
__device__ __forceinline__ uint2 to_e5m2::operator()(const float x[OCTET], size_t, float inverse) const
{
    return encode_nearest<to_e5m2>(x, inverse);
}

/* Returns launch(rounding functor). s8 without `rounding` rounds to nearest. */
template <typename Launch>
static int with_rounding(tandem_cuda_code code, const tandem_rounding *rounding,
                         const uint32_t *stream_offset, Launch launch)
{
    switch (code) {
    case TANDEM_CUDA_S8:
        return rounding ? launch(to_s8_by(rounding, stream_offset)) : launch(to_nearest_s8());
    case TANDEM_CUDA_E4M3: return launch(to_e4m3());
    case TANDEM_CUDA_E5M2: return launch(to_e5m2());
    }
    return (int)cudaErrorInvalidValue;
}

/* --- Rounding of a tensor ------------------------------------------------------------------------------- */

/* The first n elements of an octet at any position; the rest is 0. */
template <typename T> static __device__ __forceinline__ void load_first(packed<T> &to, const T *at, int n)
{
    T one[OCTET] = {};
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        if (i < n) one[i] = at[i];
    memcpy(&to, one, sizeof one);
}

static __device__ __forceinline__ void store_first(uint8_t *to, uint2 bytes, int n)
{
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        if (i < n) to[i] = (uint8_t)((i < 4 ? bytes.x : bytes.y) >> (8 * (i % 4)));
}

/* From the thread's first octet on. Returns the largest magnitude that this thread has read, if FIND_AMAX. */
template <int FIND_AMAX, typename To, typename T>
static __device__ __forceinline__ uint32_t round_tensor(uint8_t *q /* [n] */, const T *x /* [n] */, size_t n,
                                                        float inverse, To round, size_t first, size_t stride)
{
    uint32_t bits = 0;
    round.apply_stream_offset();
    for_octets<READ_ONLY>(
        x, n,
        [&](size_t o, const float value[OCTET]) {
            if (FIND_AMAX) bits = max(bits, octet_largest(value));
            *(uint2 *)(q + o * OCTET) = round(value, o, inverse);
        },
        first, stride);
    const size_t whole = n / OCTET * OCTET;
    if (first == 0 && whole < n) {
        packed<T> last;
        float value[OCTET];
        load_first(last, x + whole, (int)(n - whole));
        unpack_octet(value, last);
        if (FIND_AMAX) bits = max(bits, octet_largest(value));
        store_first(q + whole, round(value, whole / OCTET, inverse), (int)(n - whole));
    }
    return bits;
}

/* The same for a block's tile. Half of the loaded bytes are stored, and threads wait for each other between
 * loads. So 64 bytes per thread are in flight, twice as many as in for_octets. A warp has two rows of the
 * tile, whose octets do not conflict in a bank. */
template <int FIND_AMAX, typename To, typename T>
static __device__ __forceinline__ uint32_t round_tile(uint4 *tile, const wide_tile &own, const T *x,
                                                      float inverse, To round)
{
    enum { N = 2 * octets_of<T>::N, IN_A_ROW = WIDE / OCTET, ROWS = THREADS / IN_A_ROW };
    const unsigned c = threadIdx.x % IN_A_ROW * OCTET, high = c < own.wide ? own.high : 0;
    const size_t down = ROWS * own.row;
    size_t at = own.first + threadIdx.x / IN_A_ROW * own.row + c;
    uint32_t bits = 0;
    round.apply_stream_offset();
#pragma unroll 1
    for (unsigned first = threadIdx.x / IN_A_ROW; first < WIDE; first += N * ROWS) {
        packed<T> octet[N];
#pragma unroll
        for (unsigned k = 0; k < N; k++)
            if (first + k * ROWS < high) octet[k].template load_packed<READ_ONLY>(x + at + k * down);
#pragma unroll
        for (unsigned k = 0; k < N; k++, at += down) {
            if (first + k * ROWS >= high) continue;
            float value[OCTET];
            unpack_octet(value, octet[k]);
            if (FIND_AMAX) bits = max(bits, octet_largest(value));
            ((uint2 *)tile)[tile_index(first + k * ROWS, c / 4) / 2] = round(value, at / OCTET, inverse);
        }
    }
    return bits;
}

/* One tile, its codes in both orders. Shared memory is free behind it. */
template <int FIND_AMAX, typename To, typename T>
static __device__ __forceinline__ uint32_t round_both(uint8_t *q, uint8_t *transposed_copy, uint4 *tile,
                                                      const wide_tile &own, const T *x, float inverse,
                                                      To round)
{
    const uint32_t bits = round_tile<FIND_AMAX>(tile, own, x, inverse, round);
    __syncthreads();
    for_sixteens(tile, own, [&](size_t at, const uint4 &sixteen) { *(uint4 *)(q + at) = sixteen; });
    store_columns(transposed_copy, tile, own);
    __syncthreads();
    return bits;
}

template <typename To, typename T>
KERNEL quantise(uint8_t *__restrict__ q /* [n] */, float *scale, const T *__restrict__ x /* [n] */, size_t n,
                const uint32_t *__restrict__ amax_bits, To round)
{
    const tandem_quant_scale quant = tandem_quant_scale_of(tandem_float_of(*amax_bits), To::max_value());
    if (first_item() == 0) *scale = quant.scale;
    round_tensor<0>(q, x, n, quant.inverse, round, first_item(), all_items());
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

/* One launch a cast: each block finds the range in the history, and the last block to finish, which knows the
 * amax of x then, updates it. Without a range, the other blocks find the amax alone, and the last one rounds
 * all of x: that is so in the first cast, and behind a window of zeros. words[0]: the ticket, words[1]: bits
 * of the amax; both are 0 before the launch and behind it. */
struct delayed_scale {
    tandem_amax_history *history;
    int reuse_range;
    uint32_t *words;
};

/* Of the history, for all threads of the block; 0: it has none. */
static __device__ __forceinline__ float delayed_range_of(const delayed_scale &of)
{
    __shared__ uint32_t of_warp[WARPS];
    const tandem_amax_history *history = of.history;
    const int n = (int)(history->updates < history->window ? history->updates : history->window);
    uint32_t bits = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        bits = max(bits, tandem_magnitude_bits(history->amax[i]));
    bits = block_largest(bits, of_warp);
    const float range =
        of.reuse_range ? history->before : tandem_delayed_range(tandem_float_of(bits), history->margin);
    return range > 0 ? range : 0;
}

/* Whether this is the last block; then *amax_bits are those of x. bits: the largest that the thread read. */
static __device__ __forceinline__ int is_last_with_amax(uint32_t *amax_bits, const delayed_scale &of,
                                                        uint32_t bits)
{
    __shared__ uint32_t of_warp[WARPS];
    bits = block_largest(bits, of_warp);
    if (threadIdx.x == 0) atomicMax(&of.words[1], bits);
    if (!is_last_block(&of.words[0], gridDim.x)) return 0;
    *amax_bits = atomicMax(&of.words[1], 0u); /* a plain load might see an older value */
    __syncthreads();
    return 1;
}

/* By one thread. An x that is not finite makes the scale NaN, as without a history. The history stays
 * unchanged. */
static __device__ __forceinline__ void update_delayed(float *scale, const delayed_scale &of, float range,
                                                      float own_scale, uint32_t amax_bits)
{
    tandem_amax_history *history = of.history;
    const int is_finite = amax_bits < 0x7F800000u;
    *scale = is_finite ? own_scale : tandem_float_of(0x7FC00000u);
    of.words[1] = 0;
    if (!is_finite || of.reuse_range) return;
    history->before = history->updates ? range : -1.0f;
    history->amax[history->updates % history->window] = tandem_float_of(amax_bits);
    history->updates++;
}

template <typename To, typename T>
KERNEL quantise_delayed(uint8_t *__restrict__ q /* [n] */, float *scale, const T *__restrict__ x /* [n] */,
                        size_t n, delayed_scale of, To round)
{
    const float range = delayed_range_of(of);
    size_t first = first_item(), stride = all_items();
    uint32_t amax_bits = tandem_bits_of(range);
    if (range == 0) {
        if (!is_last_with_amax(&amax_bits, of, thread_largest(x, n))) return;
        first = threadIdx.x, stride = THREADS;
    }
    const tandem_quant_scale quant = tandem_quant_scale_of(tandem_float_of(amax_bits), To::max_value());
    const uint32_t bits = round_tensor<1>(q, x, n, quant.inverse, round, first, stride);
    if (range > 0 && !is_last_with_amax(&amax_bits, of, bits)) return;
    if (threadIdx.x == 0) update_delayed(scale, of, range, quant.scale, amax_bits);
}

template <typename To, typename T>
KERNEL quantise_both_delayed(uint8_t *__restrict__ q /* (batch, rows, columns) */,
                             uint8_t *__restrict__ transposed_copy, float *scale,
                             const T *__restrict__ x /* (batch, rows, columns) */, size_t n, size_t rows,
                             size_t columns, delayed_scale of, To round)
{
    __shared__ tile_bytes tile;
    const float range = delayed_range_of(of);
    unsigned number = blockIdx.x, stride = gridDim.x;
    uint32_t amax_bits = tandem_bits_of(range), bits = 0;
    if (range == 0) {
        if (!is_last_with_amax(&amax_bits, of, thread_largest(x, n))) return;
        number = 0, stride = 1;
    }
    const tandem_quant_scale quant = tandem_quant_scale_of(tandem_float_of(amax_bits), To::max_value());
    for (; number < gridDim.x; number += stride)
        bits = round_both<1>(q, transposed_copy, tile, wide_tile_at(number, rows, columns), x, quant.inverse,
                             round);
    if (range > 0 && !is_last_with_amax(&amax_bits, of, bits)) return;
    if (threadIdx.x == 0) update_delayed(scale, of, range, quant.scale, amax_bits);
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
                                to->scale, (const T *)x, n, rows, columns, of, round));
    }
    if (amax_bits) {
        RETURN_FOR(type, LAUNCH((quantise<To, T>), grid_of_octets<T>(n), THREADS, stream, q, to->scale,
                                (const T *)x, n, amax_bits, round));
    }
    RETURN_FOR(type, LAUNCH((quantise_delayed<To, T>), grid_of_octets<T>(n), THREADS, stream, q, to->scale,
                            (const T *)x, n, of, round));
}

static int quantise_codes(const tandem_cuda_quantised *to, const void *x, tandem_cuda_float type,
                          const uint32_t *amax_bits, const delayed_scale &of, const tandem_rounding *rounding,
                          const uint32_t *stream_offset, tandem_cuda_stream stream)
{
    const int failed = with_rounding(to->code, rounding, stream_offset, [=](auto round) {
        return quantise_to(to, x, type, amax_bits, of, round, stream);
    });
    if (failed || !to->transposed_copy || writes_both_at_once(to)) return failed;
    return tandem_cuda_pad_bytes(to->transposed_copy, to->q, to->batch, to->columns, to->rows, to->columns,
                                 to->rows, 1, stream);
}

extern "C" int tandem_cuda_quantise(const tandem_cuda_quantised *to, const void *x, tandem_cuda_float type,
                                    const uint32_t *amax_bits, const tandem_rounding *rounding,
                                    const uint32_t *stream_offset, tandem_cuda_stream stream)
{
    return quantise_codes(to, x, type, amax_bits, delayed_scale(), rounding, stream_offset, stream);
}

extern "C" int tandem_cuda_quantise_delayed(const tandem_cuda_quantised *to, const void *x,
                                            tandem_cuda_float type, tandem_amax_history *history,
                                            int reuse_range, uint32_t *words, const tandem_rounding *rounding,
                                            const uint32_t *stream_offset, tandem_cuda_stream stream)
{
    const delayed_scale of = {history, reuse_range, words};
    return quantise_codes(to, x, type, NULL, of, rounding, stream_offset, stream);
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

/* y = x, or x·scale. */
template <typename To, typename From>
KERNEL convert(To *__restrict__ y /* [n] */, const From *__restrict__ x /* [n] */, size_t n,
               const float *__restrict__ scale)
{
    const size_t rest = n / OCTET * OCTET + first_item();
    const float factor = scale ? *scale : 1.0f; /* a product with 1 changes no bits of a number */
    for_octets<READ_ONLY>(x, n, [&](size_t o, float value[OCTET]) {
#pragma unroll
        for (int i = 0; i < OCTET; i++) value[i] = TANDEM_MUL(value[i], factor);
        store_octet(y + o * OCTET, value);
    });
    if (rest < n) store_one(y + rest, TANDEM_MUL(load_one(x + rest), factor));
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
