/* cuda_kernels.h: quantised kernels on NVIDIA GPUs for programs with their own tensors. They take device
 * pointers, sizes and a stream.
 *
 * libtandem_cuda_kernels.so needs libcudart, libstdc++, libm and libc, and a GPU of compute capability 7.5 or
 * more. Results have the same bits as those of kernels.h on the CPU, where both do the same. So far only a
 * stand-in for the GPU has tested this (docs/cuda.md): no GPU has run these kernels yet.
 *
 * A call puts its work on a stream of the calling thread's current GPU and returns at once. No call
 * allocates, waits or keeps state, so a CUDA graph can capture all of them. Any number of threads may call.
 *
 * Arrays lie in GPU memory without gaps, in the order of their shapes, the last index fastest. Arrays of
 * elements begin at multiples of 16, scales and other single values at multiples of 4. Outputs overlap
 * neither inputs nor each other. Arrays may be empty. "B" is the number of bytes that a call must move, for n
 * elements of `size` bytes; divided by the GPU's bandwidth it is the least time.
 *
 * Errors: a bad argument gives TANDEM_USAGE with the argument's name, and nothing is launched. A failed
 * launch gives TANDEM_NO_DEVICE. The CUDA runtime may also report an earlier failure there. No call reports
 * what the GPU finds later. */
#ifndef TANDEM_CUDA_KERNELS_H
#define TANDEM_CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/amax_history.h"
#include "tandem/dtype.h"
#include "tandem/kernels.h" /* tandem_rounding, tandem_scale_mode */
#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct CUstream_st *tandem_cuda_stream; /* cudaStream_t; NULL: the first stream */

/* *amax = the largest magnitude of x [n]; NaN if x has one; 0 if x is empty. from: TANDEM_F32, TANDEM_BF16 or
 * TANDEM_F16. B: n·size.  CPU: tandem_kernels_amax. */
tandem_status tandem_cuda_kernels_amax(float *amax, const void *x, tandem_dtype from, int64_t n,
                                       tandem_cuda_stream stream, tandem_error *error);

/* --- To 8-bit types
 * ---------------------------------------------------------------------------------------- */

enum { TANDEM_CUDA_QUANTISE_WORDS = 2 };

/* q stands for scale·q. Let range be the largest magnitude and max 127, 448 or 57344. Then scale = range/max,
 * and x·(max/range) is rounded:
 *     TANDEM_S8                  stochastically or to nearest, as in tandem_quantise_call (kernels.h)
 *     TANDEM_E4M3, TANDEM_E5M2   to nearest, ties to even; saturating; a NaN becomes 0x7F
 * The range comes from
 *     TANDEM_SCALE_TENSOR   all of x.                                  B: n·(2·size + 1)
 *     TANDEM_SCALE_ROW      each of the batch·rows rows.               B: n·(size + 1)
 *                           Columns should be a multiple of 8 and at most 8192. Longer rows are read
 *                           twice, mostly from the cache.
 *     TANDEM_SCALE_KNOWN    `range`, or `history` where it is given.   B: n·(size + 1)
 *                           The amax of x, found in the same pass, is added to the history. If the
 *                           history gives no range yet, all of x gives it, as with TENSOR.
 * A transposed copy adds 1 byte per element if rows and columns are multiples of 16, else 2.
 *
 * If the range is not finite, its scale is NaN and its q undefined, where kernels.h returns an error. The
 * history then stays unchanged. With `range`, a NaN becomes −127 (0x7F in float types) and an infinity the
 * largest number.
 *
 * Random numbers: with ROW, element (i, j) has those of kernels.h, with i counted through the batch.
 * Otherwise element i of all n has those of one row. CPU: tandem_kernels_quantise; with a history also
 * tandem_amax_history_range before and tandem_amax_history_add after. */
typedef struct tandem_cuda_quantise_call {
    const void *x;
    tandem_dtype from;            /* TANDEM_F32, TANDEM_BF16 or TANDEM_F16 */
    int64_t batch, rows, columns; /* x (batch, rows, columns); batch 0 stands for 1 */
    void *q;                      /* (batch, rows, columns) */
    tandem_dtype to;              /* TANDEM_S8, TANDEM_E4M3 or TANDEM_E5M2 */
    void *transposed; /* (batch, columns, rows), the same numbers; NULL = not wanted. Not with ROW */
    tandem_scale_mode scale_mode;
    float range; /* KNOWN without a history: at least 0 and finite */
    /* of KNOWN, in GPU memory: a copy of one that tandem_amax_history_init made; NULL = none */
    tandem_amax_history *history;
    /* 1: use the range of the history's last cast, to repeat that cast; the history stays unchanged */
    int reuse_range;
    const tandem_rounding *rounding; /* in host memory; NULL = to nearest */
    /* in GPU memory: added to rounding->stream[0], for graphs; NULL = 0 */
    const uint32_t *stream_offset;
    float *scale; /* result: one; with ROW batch·rows */
    /* TANDEM_CUDA_QUANTISE_WORDS words, for this call alone until its work is done. Not needed with ROW */
    uint32_t *workspace;
} tandem_cuda_quantise_call;
tandem_status tandem_cuda_kernels_quantise(const tandem_cuda_quantise_call *call, tandem_cuda_stream stream,
                                           tandem_error *error);

/* --- From 8-bit types, and between floats
 * ------------------------------------------------------------------ */

/* x = scale·q, to nearest. There is one scale, or one per row with TANDEM_SCALE_ROW.  B: n·(1 + size).  CPU:
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

/* y [n] = x [n]. The two types differ and are TANDEM_F32, TANDEM_BF16 or TANDEM_F16. Rounded to nearest, ties
 * to even; f16 is infinite from 65520 on. B: n·(both sizes).  CPU: tandem_kernels_cast. */
tandem_status tandem_cuda_kernels_cast(void *y, tandem_dtype to, const void *x, tandem_dtype from, int64_t n,
                                       tandem_cuda_stream stream, tandem_error *error);

/* --- After an int8 product
 * --------------------------------------------------------------------------------- */

/* y = sum·(scale of a · scale of b), where the int32 sums come from an int8 product. Computed in f32 and
 * rounded to nearest. With `accumulate` the result is added to y in f32.  B: n·(4 + size), with `accumulate`
 * n·(4 + 2·size).  CPU: the scales of tandem_kernels_product. */
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

TANDEM_END_DECLARATIONS
#endif
