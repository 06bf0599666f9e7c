/* simt.h: runs a CUDA kernel's threads on the host, so that its indexing and its barriers are tested where
 * there is no card.
 *
 * Put before a .cu file by -include; then g++ compiles it. Blocks run one after the other, in rising or
 * falling order. The threads of a block are coroutines on stacks of their own: one runs until it comes to a
 * barrier or a shuffle, then the next. They are resumed in an order that changes from launch to launch, since
 * a kernel that lacks a barrier may be right in one order and wrong in another. A kernel whose threads wait
 * for one another for ever is an error.
 *
 * What it cannot show: speed, bank conflicts, shared memory that is read before it is written, memory order
 * between blocks, how a card rounds exp, log and rsqrt. */
#ifndef TANDEM_TESTS_CUDA_SIMT_H
#define TANDEM_TESTS_CUDA_SIMT_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __shared__ static /* one block runs at a time */

struct alignas(16) float4 { /* aligned as on a card: the Makefile has these files trap where they are not */
    float x, y, z, w;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
template <typename T> static inline T __ldg(const T *at) { return *at; }
static inline void __stwb(uint4 *at, uint4 value) { *at = value; }
static inline uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

extern "C" void stand_in_enter(void), stand_in_leave(void); /* tests/cuda/stand_in.h */
extern "C" int stand_in_next_error(void), stand_in_blocks;
extern "C" void stand_in_clear_later(void *memory, int value, uint64_t bytes), stand_in_clear_now(void);
extern "C" int stand_in_submit(struct CUstream_st *stream, void (*run_grid)(void *what),
                               void (*drop)(void *what), void *what);

typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9 };

namespace simt
{

enum { STACK = 64 << 10, WARP_SIZE = 32, MAX_THREADS = 1024 };
enum fiber_state { READY, AT_BARRIER, AT_SHUFFLE, DONE };

struct fiber {
    void *top = nullptr; /* of its stack, while another runs */
    std::vector<unsigned char> stack;
    fiber_state at = DONE;
    dim3 index;
    uint64_t shuffled = 0; /* to a shuffle */
};

inline fiber fibers[MAX_THREADS];
inline void *scheduler_top;
inline int current, n_thread;
inline dim3 block_index, grid_size, block_size;
inline const std::function<void()> *body;
inline uint64_t resume_order = 0; /* which order threads are resumed in; any number */

/* Leaves this stack, whose top goes to *from, for another one that was left so: x86-64 of System V keeps
 * these six registers. swapcontext would ask the kernel for signal masks each time, and sanitizers look into
 * longjmp. */
__attribute__((naked, noinline)) inline void switch_stack(void ** /* from */, void * /* to */)
{
    __asm__("push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; mov %rsp, (%rdi);"
            "mov %rsi, %rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret");
}

inline void yield_fiber(fiber_state at)
{
    fibers[current].at = at;
    switch_stack(&fibers[current].top, scheduler_top);
}

inline void fiber_main(void)
{
    for (;;) {
        (*body)();
        yield_fiber(DONE); /* until the next block */
    }
}

/* From one to the next that is resumed: a permutation, since n and the step have no common divisor. */
inline int resume_step(void)
{
    static const int steps[] = {1, 7, 11, 13, 31, 61, 127, 251};
    const int step = steps[resume_order % 8];
    return n_thread % step || n_thread < step ? step % n_thread : 1 % n_thread;
}

/* Which of n blocks is run x-th: forwards or backwards, and in most launches so many at a time are passed
 * over that blocks of several columns, parts and arrays come between one another. A permutation, as above. */
inline unsigned block_in_turn(unsigned x, unsigned n)
{
    static const unsigned steps[] = {1, 7, 11, 13};
    const unsigned step = steps[resume_order / 2 % 4];
    const unsigned place = n % step ? (unsigned)((uint64_t)x * step % n) : x;
    return resume_order % 2 ? n - 1 - place : place;
}

inline void make_stack(fiber *f)
{
    f->stack.resize(STACK);
    void **const top = (void **)(((uintptr_t)f->stack.data() + STACK) & ~(uintptr_t)15) - 2;
    *top = (void *)fiber_main; /* where the first `leave` to it returns to */
    f->top = top - 6;
}

inline void simt_fail(const char *what)
{
    std::fprintf(stderr, "simt: %s\n", what);
    std::abort();
}

/* Lanes of a warp that wait at a shuffle go on once every lane that is not done has come to it. */
inline bool release_shuffles(void)
{
    bool any = false;
    for (int w = 0; w < n_thread; w += WARP_SIZE) {
        bool all = true, some = false;
        for (int t = w; t < w + WARP_SIZE && t < n_thread; t++) {
            all = all && fibers[t].at == AT_SHUFFLE;
            some = some || fibers[t].at == AT_SHUFFLE;
        }
        for (int t = w; all && some && t < w + WARP_SIZE && t < n_thread; t++) fibers[t].at = READY;
        any = any || (all && some);
    }
    return any;
}

inline bool release_barrier(void)
{
    for (int t = 0; t < n_thread; t++)
        if (fibers[t].at != AT_BARRIER) return false;
    for (int t = 0; t < n_thread; t++) fibers[t].at = READY;
    return true;
}

inline bool all_fibers_done(void)
{
    for (int t = 0; t < n_thread; t++)
        if (fibers[t].at != DONE) return false;
    return true;
}

/* Each thread that can go on does, until it waits or is done; whether there was one. */
inline bool resume_all(int first, int step)
{
    bool ran = false;
    for (int k = 0, t = first; k < n_thread; k++) {
        if (fibers[t].at == READY) {
            current = t;
            switch_stack(&scheduler_top, fibers[t].top);
            ran = true;
        }
        t += step;
        if (t >= n_thread) t -= n_thread;
    }
    return ran;
}

inline void run_block(void)
{
    const int first = (int)(resume_order / 8 % (uint64_t)n_thread), step = resume_step();
    for (int t = 0; t < n_thread; t++) fibers[t].at = READY;
    for (;;) {
        const bool ran = resume_all(first, step);
        if (all_fibers_done()) return;
        if (!release_shuffles() && !release_barrier() && !ran)
            simt_fail("threads of a block wait for one another");
    }
}

inline void begin_threads(void)
{
    for (int t = 0; t < n_thread; t++) {
        fiber &f = fibers[t];
        const unsigned u = (unsigned)t;
        if (f.stack.empty()) make_stack(&f);
        f.index = dim3(u % block_size.x, u / block_size.x % block_size.y, u / (block_size.x * block_size.y));
    }
}

/* Now, or when the graph runs that the stream is captured for. */
inline int submit_work(struct CUstream_st *stream, const std::function<void()> &work)
{
    const int lost = stand_in_next_error();
    if (lost) return lost;
    stand_in_clear_now();
    return stand_in_submit(
        stream,
        [](void *what) {
            stand_in_enter();
            (*(std::function<void()> *)what)();
            stand_in_leave();
        },
        [](void *what) { delete (std::function<void()> *)what; }, new std::function<void()>(work));
}

inline void run_grid(dim3 grid, dim3 threads, const std::function<void()> &kernel)
{
    n_thread = (int)(threads.x * threads.y * threads.z);
    if (grid.y != 1 || grid.z != 1) simt_fail("a grid of more than one dimension: the others end at 65535");
    grid_size = grid;
    stand_in_blocks = (int)grid.x;
    block_size = threads;
    body = &kernel;
    begin_threads();
    resume_order++; /* each launch in another one than the last */
    for (unsigned x = 0; x < grid.x; x++) {
        block_index = dim3(block_in_turn(x, grid.x));
        run_block();
    }
    body = nullptr;
}

/* With its arguments as they are now. */
template <typename Kernel, typename... Argument>
int launch_kernel(dim3 grid, dim3 threads, struct CUstream_st *stream, Kernel kernel, Argument... argument)
{
    const unsigned n = threads.x * threads.y * threads.z;
    if (grid.x < 1 || grid.x > INT32_MAX || n < 1 || n > MAX_THREADS) return cudaErrorInvalidConfiguration;
    return submit_work(stream, [=]() { run_grid(grid, threads, [=]() { kernel(argument...); }); });
}

} // namespace simt

#define threadIdx (simt::fibers[simt::current].index)
#define blockIdx (simt::block_index)
#define blockDim (simt::block_size)
#define gridDim (simt::grid_size)
#define LAUNCH(kernel, grid, threads, stream, ...)                                                           \
    simt::launch_kernel(                                                                                     \
        dim3(grid), dim3(threads), stream, [](auto... argument) { kernel(argument...); }, __VA_ARGS__)

static inline void __syncthreads(void) { simt::yield_fiber(simt::AT_BARRIER); }

template <typename T> static inline T __shfl_xor_sync(uint32_t, T value, int distance)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle of at most 8 bytes");
    const int self = simt::current, other = self ^ distance;
    std::memcpy(&simt::fibers[self].shuffled, &value, sizeof value);
    simt::yield_fiber(simt::AT_SHUFFLE);
    T result;
    std::memcpy(&result, &simt::fibers[other].shuffled, sizeof result);
    simt::yield_fiber(simt::AT_SHUFFLE); /* so that no thread gives again before all have taken */
    return result;
}

static inline void __threadfence(void) {}
static inline uint32_t atomicAdd(uint32_t *at, uint32_t value)
{
    const uint32_t before = *at;
    *at += value;
    return before;
}

/* ldmatrix.x4 of a warp (PTX ISA): lanes 8·m … 8·m + 7 name the rows of matrix m, 16 bytes each, at multiples
 * of 16; lane 4·g + t gets of each matrix numbers 2t and 2t + 1 of row g, or, turned, of column g. */
static inline void simt_load_matrices(uint32_t to[4], const uint16_t *row, bool turned)
{
    static const uint16_t *rows[simt::MAX_THREADS];
    const int g = simt::current % 32 / 4, t = simt::current % 4;
    if ((uintptr_t)row % 16 != 0) __builtin_trap();
    rows[simt::current] = row;
    simt::yield_fiber(simt::AT_SHUFFLE);
    for (int m = 0; m < 4; m++) {
        const uint16_t *const *const of = rows + simt::current / 32 * 32 + 8 * m;
        const uint16_t low = turned ? of[2 * t][g] : of[g][2 * t];
        const uint16_t high = turned ? of[2 * t + 1][g] : of[g][2 * t + 1];
        to[m] = low | (uint32_t)high << 16;
    }
    simt::yield_fiber(simt::AT_SHUFFLE); /* so that no thread names a row again before all have taken */
}

/* mma.m16n8k16 of a warp (PTX ISA): lane 4·g + t gives a, rows g and g + 8 in columns 2t, 2t + 1 and 2t + 8,
 * 2t + 9 (a[0] and a[2] of row g), and of the right operand's column g the rows of the same numbers; it gets
 * rows g and g + 8 of the sums in columns 2t and 2t + 1. */
static inline void simt_multiply(float c[4], const uint32_t a[4], uint32_t low, uint32_t high,
                                 float (*as_float)(uint16_t))
{
    static float left[simt::MAX_THREADS / 32][16][16], right[simt::MAX_THREADS / 32][16][8];
    const int warp = simt::current / 32, g = simt::current % 32 / 4, t = simt::current % 4;
    for (int k = 0; k < 4; k++)
        for (int half = 0; half < 2; half++)
            left[warp][g + k % 2 * 8][2 * t + half + k / 2 * 8] = as_float((uint16_t)(a[k] >> (16 * half)));
    for (int half = 0; half < 2; half++) {
        right[warp][2 * t + half][g] = as_float((uint16_t)(low >> (16 * half)));
        right[warp][2 * t + half + 8][g] = as_float((uint16_t)(high >> (16 * half)));
    }
    simt::yield_fiber(simt::AT_SHUFFLE);
    for (int e = 0; e < 4; e++) {
        float sum = 0;
        for (int k = 0; k < 16; k++) sum += left[warp][g + e / 2 * 8][k] * right[warp][k][2 * t + e % 2];
        c[e] += sum;
    }
    simt::yield_fiber(simt::AT_SHUFFLE); /* so that no thread gives again before all have taken */
}

static inline uint32_t atomicMax(uint32_t *at, uint32_t value)
{
    const uint32_t before = *at;
    if (value > before) *at = value;
    return before;
}

static inline uint32_t atomicOr(uint32_t *at, uint32_t value)
{
    const uint32_t before = *at;
    *at |= value;
    return before;
}

static inline int __ffs(int value) { return __builtin_ffs(value); }
static inline int __popc(uint32_t value) { return __builtin_popcount(value); }

static inline const char *cudaGetErrorString(cudaError_t failed)
{
    return failed == cudaSuccess ? "no error" : "the card is lost";
}

/* "Asynchronous with respect to the host" (CUDA Runtime API, API synchronization behavior): on the stream
 * that has no name it is done when something follows there, or somebody waits. */
static inline cudaError_t cudaMemsetAsync(void *at, int value, size_t n, struct CUstream_st *stream)
{
    if (stream) return simt::submit_work(stream, [=]() { std::memset(at, value, n); });
    stand_in_clear_later(at, value, n);
    return stand_in_next_error();
}

#endif
