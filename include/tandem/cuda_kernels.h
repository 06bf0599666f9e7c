/* cuda_kernels.h: quantised kernels on NVIDIA GPUs for programs with their own tensors. They take device
 * pointers, sizes and a stream.
 *
 * libtandem_cuda_kernels.so needs libcudart, libcublasLt, libstdc++, libm and libc, and a GPU of compute
 * capability 7.5 or more. Results of casts have the same bits as those of kernels.h on the CPU, where both do
 * the same; so have products of int8. So far only a stand-in for the GPU has tested this (docs/cuda.md): no
 * GPU has run these kernels yet.
 *
 * A call puts its work on a stream of the calling thread's current GPU and returns at once. But for products,
 * which have a handle, no call allocates, waits or keeps state, so a CUDA graph can capture all of them. Any
 * number of threads may call.
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

/* q represents scale·q. Let range be the largest magnitude and max 127, 448 or 57344. Then scale = range/max,
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
    int64_t batch, rows, columns; /* x (batch, rows, columns); batch 0 means 1 */
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

/* --- Products
 * ---------------------------------------------------------------------------------------------------- */

/* The products of one GPU: cuBLASLt's handle, how each kind of product is multiplied, and the workspace of
 * all. One for each GPU is enough. */
typedef struct tandem_cuda_products tandem_cuda_products;

/* `index` counts the GPUs that CUDA shows. It becomes the calling thread's current GPU. The caller owns
 * *products. Errors leave it unchanged:
 *     TANDEM_UNKNOWN_NAME   a negative index
 *     TANDEM_NO_DEVICE      no such GPU, an older one than 7.5, no driver, or one that is too old
 *     TANDEM_NO_MEMORY      on the host, or on the GPU */
tandem_status tandem_cuda_products_open(tandem_cuda_products **products, int index, tandem_error *error);
/* Waits for what they still do. NULL does nothing. */
void tandem_cuda_products_close(tandem_cuda_products *products);

/* C = A·B, `batch` times, row-major without gaps. Operands are of one type, or of both 8-bit floats:
 *     TANDEM_F32 (with tf32: 10 bits of mantissa are read), TANDEM_BF16, TANDEM_F16   summed in f32
 *     TANDEM_S8                                    exact sums in int32, then times both scales in f32
 *     TANDEM_E4M3, TANDEM_E5M2, not twice E5M2     summed in the tensor cores' precision, times both scales
 * Compute capability: 7.5; tf32 and bf16 8.0; 8-bit floats 8.9. The order of sums is the library's, and the
 * same in every call. So a linear layer y (m, n) = x (m, k)·Wᵀ, W (n, k), needs no copy:
 *     forward  y  = x·Wᵀ    a = x, b = W, b_transposed            m, n, k
 *     dgrad    gx = g·W     a = g, b = W                          m, k, n
 *     wgrad    gW = gᵀ·x    a = g, b = x, a_transposed            n, k, m
 * In one byte, what does not lie as the tensor cores want it is turned and padded in the workspace. C in bf16
 * or f16 is rounded once, to nearest.  B: all three matrices; what is turned or padded is read twice more. */
typedef struct tandem_cuda_product_call {
    int64_t batch, m, n, k; /* batch 0 means 1. Sides ≤ 2^31 − 1, of s8 k ≤ TANDEM_PRODUCT_MAX_K */
    const void *a, *b;      /* (batch, m, k) and (batch, k, n), ≤ 2^34 elements, at multiples of 64 */
    tandem_dtype a_type, b_type;
    int a_transposed, b_transposed; /* 1: stored (batch, k, m), (batch, n, k) */
    const float *a_scale, *b_scale; /* in GPU memory, one each; of one-byte types alone */
    void *c;                        /* (batch, m, n), ≤ 2^34 elements, at a multiple of 64 */
    tandem_dtype c_type;            /* TANDEM_F32, TANDEM_BF16 or TANDEM_F16 */
    int tf32;                       /* of f32 */
    int accumulate;                 /* 1: C += A·B */
} tandem_cuda_product_call;

/* Runs after all earlier work of `stream`, and after all calls with the same handle before: they share its
 * workspace, which grows to the largest need. Any number of threads may call. The handle's GPU becomes the
 * calling thread's current one. The first call of each kind (sizes, types, order) asks the library on the
 * host for an algorithm. The last 256 kinds are kept. The host waits for the GPU where the workspace grows,
 * or where the library does not run its algorithm: another one is then tried in memory of its own. A CUDA
 * graph cannot capture these calls: they are refused, and the capture goes on.
 *     TANDEM_USAGE       an argument is not allowed; it is named. The stream is being captured
 *     TANDEM_NO_KERNEL   this GPU, or the library, has no such product
 *     TANDEM_NO_MEMORY   on the host, or for the workspace on the GPU
 *     TANDEM_NO_DEVICE   a launch failed
 * After TANDEM_NO_DEVICE C is undefined, after other errors unchanged. */
tandem_status tandem_cuda_products_run(tandem_cuda_products *products, const tandem_cuda_product_call *call,
                                       tandem_cuda_stream stream, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
