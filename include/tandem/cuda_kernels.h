/* cuda_kernels.h: quantised kernels on NVIDIA's cards for those who bring their own tensors: device pointers,
 * sizes and a stream.
 *
 * libtandem_cuda_kernels.so needs libcudart, libstdc++, libm and libc, and cards of compute capability 7.5 or
 * more. What it writes has the bits of kernels.h on the CPU, where that does the same. So far that is tested
 * on a stand-in for the card alone (docs/cuda.md): no card has run it yet.
 *
 * Each call puts its work on a stream of the calling thread's current card and returns at once. Nothing is
 * allocated or kept between two calls, nothing waits; all of it can be captured in a CUDA graph. Any number
 * of threads may call.
 *
 * Arrays lie on the card without gaps, in the order of their shapes, the last index fastest: of elements at
 * an address that is a multiple of 16, of scales and other single values of 4. Outputs overlap neither inputs
 * nor each other. Empty arrays are fine. "B" is what must be moved, n elements of `size` bytes: over the
 * card's bandwidth it is the least time.
 *
 * Bad arguments are TANDEM_USAGE, with the argument's name, and nothing is launched then. A launch that fails
 * is TANDEM_NO_DEVICE; so is, as the CUDA runtime has it, one behind which an earlier failure comes to light.
 * What the card finds out later, no call tells. */
#ifndef TANDEM_CUDA_KERNELS_H
#define TANDEM_CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/amax_history.h"
#include "tandem/dtype.h"
#include "tandem/kernels.h" /* tandem_rounding, tandem_scale_mode */
#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct CUstream_st *tandem_cuda_stream; /* cudaStream_t; NULL: the first stream */

/* *amax = the largest magnitude of x [n], a NaN where one is in it, 0 of nothing. from: TANDEM_F32,
 * TANDEM_BF16 or TANDEM_F16. B: n·size.  CPU: tandem_kernels_amax. */
tandem_status tandem_cuda_kernels_amax(float *amax, const void *x, tandem_dtype from, int64_t n,
                                       tandem_cuda_stream stream, tandem_error *error);

/* --- To types of a byte --------------------------------------------------------------------------------- */

enum { TANDEM_CUDA_QUANTISE_WORDS = 2 };

/* q stands for scale·q. With range the largest magnitude, and `most` 127, 448 or 57344, scale = range/most,
 * and x·(most/range) is rounded:
 *   TANDEM_S8                  at random or to nearest, as kernels.h says of tandem_quantise_call
 *   TANDEM_E4M3, TANDEM_E5M2   to nearest, ties to even; beyond the largest number that one, a NaN 0x7F
 * range is
 *   TANDEM_SCALE_TENSOR        found here                                         B: n·(2·size + 1)
 *   TANDEM_SCALE_ROW           found here for each of the batch·rows rows         B: n·(size + 1) where
 *                              columns are a multiple
 *                                                                                 of 8 and at most 8192;
 *                                                                                 longer rows are read twice,
 *                                                                                 mostly from the cache
 *   TANDEM_SCALE_KNOWN         `range`; or, with `history`, what that gives.      B: n·(size + 1)
 *                              The history goes on with the amax of x, found in the same pass; where it gives
 *                              no range, that is found as with TENSOR
 * A transposed copy is 1 byte more for each element where rows and columns are multiples of 16, else 2.
 *
 * Where what a range is found in is not finite, its scale is NaN and its q undefined, where kernels.h
 * refuses; so it is with a history, which then stays as it is. With `range` a NaN becomes −127, in types of
 * floats 0x7F, and infinities the largest number.
 *
 * Draws: with ROW element (i, j) has those of kernels.h, i counted through the batch; else element i of all n
 * those of one row. CPU: tandem_kernels_quantise so; with a history tandem_amax_history_range before it,
 * tandem_amax_history_add behind it. */
typedef struct tandem_cuda_quantise_call {
    const void *x;
    tandem_dtype from;            /* TANDEM_F32, TANDEM_BF16 or TANDEM_F16 */
    int64_t batch, rows, columns; /* x (batch, rows, columns); batch 0 stands for 1 */
    void *q;                      /* (batch, rows, columns) */
    tandem_dtype to;              /* TANDEM_S8, TANDEM_E4M3 or TANDEM_E5M2 */
    void *transposed; /* (batch, columns, rows), the same numbers; NULL = not wanted. Not with ROW */
    tandem_scale_mode scale_mode;
    float range; /* KNOWN without a history: at least 0 and finite */
    /* of KNOWN, on the card: copied there from one that tandem_amax_history_init made; NULL = none */
    tandem_amax_history *history;
    /* 1: with the range of the history's last cast, for one that is done again; the history stays */
    int reuse_range;
    const tandem_rounding *rounding; /* of the host; NULL = to nearest */
    /* on the card: what is added to rounding->stream[0], for graphs; NULL = 0 */
    const uint32_t *stream_offset;
    float *scale; /* result: one; of ROW batch·rows */
    /* TANDEM_CUDA_QUANTISE_WORDS words, of nobody else's until the work is done. Not needed with ROW */
    uint32_t *workspace;
} tandem_cuda_quantise_call;
tandem_status tandem_cuda_kernels_quantise(const tandem_cuda_quantise_call *call, tandem_cuda_stream stream,
                                           tandem_error *error);

/* --- Back, and between floats --------------------------------------------------------------------------- */

/* x = scale·q, to nearest; scale: one, or, with TANDEM_SCALE_ROW, [rows].  B: n·(1 + size).  CPU:
 * tandem_kernels_dequantise. */
typedef struct tandem_cuda_dequantise_call {
    const void *q;
    tandem_dtype from; /* TANDEM_S8, TANDEM_E4M3 or TANDEM_E5M2 */
    int64_t rows, columns;
    void *x;
    tandem_dtype to; /* TANDEM_F32, TANDEM_BF16 or TANDEM_F16 */
    tandem_scale_mode scale_mode;
    const float *scale;
} tandem_cuda_dequantise_call;
tandem_status tandem_cuda_kernels_dequantise(const tandem_cuda_dequantise_call *call,
                                             tandem_cuda_stream stream, tandem_error *error);

/* y [n] = x [n], of two distinct types among TANDEM_F32, TANDEM_BF16 and TANDEM_F16: to nearest, ties to
 * even; to f16 infinite from 65520 on. B: n·(both sizes).  CPU: tandem_kernels_cast. */
tandem_status tandem_cuda_kernels_cast(void *y, tandem_dtype to, const void *x, tandem_dtype from, int64_t n,
                                       tandem_cuda_stream stream, tandem_error *error);

/* --- Behind an int8 product ----------------------------------------------------------------------------- */

/* y = sum·(a's scale · b's scale) of the sums in int32 that a product of int8 leaves, in f32, then rounded to
 * nearest; adds: y + that, added in f32.  B: n·(4 + size), with `adds` n·(4 + 2·size).  CPU: the scales of
 * tandem_kernels_product. */
typedef struct tandem_cuda_sums_call {
    const int32_t *sums; /* (rows, columns) */
    int64_t rows, columns;
    void *y;                      /* (rows, columns) */
    tandem_dtype to;              /* TANDEM_F32, TANDEM_BF16 or TANDEM_F16 */
    tandem_scale_mode scale_mode; /* of a: TANDEM_SCALE_ROW: [rows], else one */
    const float *a_scale, *b_scale;
    int accumulate;
} tandem_cuda_sums_call;
tandem_status tandem_cuda_kernels_scale_sums(const tandem_cuda_sums_call *call, tandem_cuda_stream stream,
                                             tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
