/* rounding.h: how kernels on the GPU write codes of one byte: the rounding of octets and tiles, and the range
 * of an amax history. For casts (quantise.cu), and for operators that write the codes of their result
 * themselves (coded_results.cu). CPU reference: kernels/cpu/isa/{amax,quantise}.c. */
#pragma once

#include "kernels/cuda/octet.h"
#include "kernels/cuda/tile.h"

/* --- Largest magnitudes --------------------------------------------------------------------------------- */

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
    /* Elements 4·quad to 4·quad + 3, which have one half of a block's draws. */
    __device__ __forceinline__ uint32_t round_quad(const float x[4], size_t quad, float inverse) const
    {
        const uint32_t counter[4] = {(uint32_t)(quad / 2) + first_block, stream[0], stream[1], stream[2]};
        const tandem_philox_block all = tandem_philox_with(counter, &keys);
        const int is_second = quad % 2;
        tandem_philox_block draws = all;
        draws.word[0] = is_second ? all.word[2] : all.word[0];
        draws.word[1] = is_second ? all.word[3] : all.word[1];
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            word |= (uint32_t)(uint8_t)tandem_round_s8(x[i], inverse, tandem_draw_float(draws, i)) << (8 * i);
        return word;
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
    __device__ __forceinline__ uint32_t round_quad(const float x[4], size_t, float inverse) const
    {
        return pack_two(TANDEM_MUL(x[0], inverse), TANDEM_MUL(x[1], inverse)) |
               pack_two(TANDEM_MUL(x[2], inverse), TANDEM_MUL(x[3], inverse)) << 16;
    }
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

/* Where one block rounds all, which is seldom, a thread loads one octet at a time. So that part needs no more
 * registers than the one before it in the kernel. */
enum { WITH_OTHERS, ALONE };
template <typename T, typename Work>
static __device__ __forceinline__ void for_octets_alone(const T *x, size_t n, Work work)
{
#pragma unroll 1
    for (size_t o = threadIdx.x; o < n / OCTET; o += THREADS) {
        packed<T> own;
        float value[OCTET];
        own.template load_packed<READ_ONLY>(x + o * OCTET);
        unpack_octet(value, own);
        work(o, value);
    }
}
template <int IS_ALONE, typename T, typename Work>
static __device__ __forceinline__ void for_octets_of_part(const T *x, size_t n, Work work)
{
    if (IS_ALONE)
        for_octets_alone(x, n, work);
    else
        for_octets<READ_ONLY>(x, n, work);
}

/* The thread's octets. Returns the largest magnitude that this thread has read, if FIND_AMAX. */
template <int FIND_AMAX, int IS_ALONE = WITH_OTHERS, typename To, typename T>
static __device__ __forceinline__ uint32_t round_tensor(uint8_t *q /* [n] */, const T *x /* [n] */, size_t n,
                                                        float inverse, To round)
{
    uint32_t bits = 0;
    round.apply_stream_offset();
    for_octets_of_part<IS_ALONE>(x, n, [&](size_t o, const float value[OCTET]) {
        if (FIND_AMAX) bits = max(bits, octet_largest(value));
        *(uint2 *)(q + o * OCTET) = round(value, o, inverse);
    });
    const size_t whole = n / OCTET * OCTET;
    if ((IS_ALONE ? threadIdx.x : first_item()) == 0 && whole < n) {
        packed<T> last;
        float value[OCTET];
        load_first(last, x + whole, (int)(n - whole));
        unpack_octet(value, last);
        if (FIND_AMAX) bits = max(bits, octet_largest(value));
        store_first(q + whole, round(value, whole / OCTET, inverse), (int)(n - whole));
    }
    return bits;
}

/* What a tile's octet o becomes before it is rounded. */
struct as_it_is {
    __device__ __forceinline__ void operator()(float[OCTET], size_t) const {}
};

/* The same for a block's tile. Half of the loaded bytes are stored, and threads wait for each other between
 * loads. So 64 bytes per thread are in flight, twice as many as in for_octets. A warp has two rows of the
 * tile, whose octets do not conflict in a bank. */
template <int FIND_AMAX, int IS_ALONE, typename To, typename T, typename Make>
static __device__ __forceinline__ uint32_t round_tile(uint4 *tile, const wide_tile &own, const T *x,
                                                      float inverse, To round, Make make)
{
    enum { N = IS_ALONE ? 1 : 2 * octets_of<T>::N, IN_A_ROW = WIDE / OCTET, ROWS = THREADS / IN_A_ROW };
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
            make(value, at / OCTET);
            if (FIND_AMAX) bits = max(bits, octet_largest(value));
            ((uint2 *)tile)[tile_index(first + k * ROWS, c / 4) / 2] = round(value, at / OCTET, inverse);
        }
    }
    return bits;
}

/* One tile, its codes in both orders. Shared memory is free after it. */
template <int FIND_AMAX, int IS_ALONE = WITH_OTHERS, typename To, typename T, typename Make = as_it_is>
static __device__ __forceinline__ uint32_t round_both(uint8_t *q, uint8_t *transposed_copy, uint4 *tile,
                                                      const wide_tile &own, const T *x, float inverse,
                                                      To round, Make make = Make())
{
    const uint32_t bits = round_tile<FIND_AMAX, IS_ALONE>(tile, own, x, inverse, round, make);
    __syncthreads();
    for_sixteens(tile, own, [&](size_t at, const uint4 &sixteen) { *(uint4 *)(q + at) = sixteen; });
    store_columns(transposed_copy, tile, own);
    __syncthreads();
    return bits;
}

/* --- Rounding with the range of a history --------------------------------------------------------------- */

/* A cast is one launch: each block finds the range in the history, and the last block to finish, which knows
 * the amax of x then, updates it. words[0]: the ticket, words[1]: bits of the amax; both are 0 before the
 * cast and after it.
 *
 * In the first cast, and after a window of zeros, the history has no range, and the amax of x is the range.
 * All blocks then round as if it were 0, which is right where x is all 0. Elsewhere the last block rounds all
 * of x again. One block has 2048 numbers on their way, so it takes some 0.5 ns per number. Where a missing
 * range is expected, there are two launches instead: the first one finds the amax, and all blocks of the
 * second one round with it. */
enum delayed_launch { ONLY_LAUNCH, FINDS_AMAX, HAS_AMAX };
struct delayed_scale {
    tandem_amax_history *history;
    int reuse_range;
    uint32_t *words;
    delayed_launch launch;
};

/* Returns launch(of), once or twice. */
template <typename Launch> static int launch_delayed(const tandem_cuda_delayed_cast *cast, Launch launch)
{
    delayed_scale of = {cast->history, cast->reuse_range, cast->words, ONLY_LAUNCH};
    if (!cast->may_lack_range) return launch(of);
    of.launch = FINDS_AMAX;
    const int failed = launch(of);
    of.launch = HAS_AMAX;
    return failed ? failed : launch(of);
}

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

/* Whether this is the last block; then *amax_bits are those of x. bits: the largest that the thread read.
 * is_known: words[1] is right, and other blocks read it. */
static __device__ __forceinline__ int is_last_with_amax(uint32_t *amax_bits, const delayed_scale &of,
                                                        int is_known, uint32_t bits)
{
    __shared__ uint32_t of_warp[WARPS];
    bits = block_largest(bits, of_warp);
    if (threadIdx.x == 0 && !is_known) atomicMax(&of.words[1], bits);
    if (of.launch == FINDS_AMAX || !is_last_block(&of.words[0], gridDim.x)) return 0;
    *amax_bits = atomicMax(&of.words[1], 0u); /* a plain load might see an older value */
    __syncthreads();
    return 1;
}

template <typename To> static __device__ __forceinline__ tandem_quant_scale quant_scale_of_bits(uint32_t bits)
{
    return tandem_quant_scale_of(tandem_float_of(bits), To::max_value());
}

/* The body of a kernel that rounds: round_part(inverse) rounds the block's part of x, and returns the largest
 * magnitude that the thread has read; round_all(inverse) rounds all of x. */
template <typename To, typename Part, typename All>
static __device__ __forceinline__ void round_delayed(float *scale, const delayed_scale &of, Part round_part,
                                                     All round_all)
{
    const float range = delayed_range_of(of);
    const int is_known = range == 0 && of.launch == HAS_AMAX;
    if (range > 0 && of.launch == FINDS_AMAX) return;
    uint32_t amax_bits = is_known ? of.words[1] : tandem_bits_of(range);
    const uint32_t bits = round_part(quant_scale_of_bits<To>(amax_bits).inverse);
    if (!is_last_with_amax(&amax_bits, of, is_known, bits)) return;
    const uint32_t range_bits = range > 0 ? tandem_bits_of(range) : amax_bits;
    if (range == 0 && !is_known && amax_bits > 0) round_all(quant_scale_of_bits<To>(range_bits).inverse);
    if (threadIdx.x == 0)
        update_delayed(scale, of, range, quant_scale_of_bits<To>(range_bits).scale, amax_bits);
}
