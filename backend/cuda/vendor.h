/* vendor.h: the functions of NVIDIA's libraries that tandem uses, as a table: memory, streams and events
 * (cudart), products (cuBLASLt), convolutions (cuDNN). The rest of the backend calls them through the table
 * only, so its logic also runs in tests without a GPU.
 *
 * Functions return 0, or the library's error number; error_text gives its text. A later call does not report
 * the same error again. Work is put on a stream. The host waits only in stream_sync, event_sync, alloc, free,
 * lock, unlock, and in copies of host memory that is not page-locked. */
#pragma once

#include <stdint.h>

#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUevent_st *tandem_cuda_event;     /* cudaEvent_t */
typedef struct CUgraphExec_st *tandem_cuda_graph; /* cudaGraphExec_t */

/* Errors of cuBLASLt and cuDNN come after those of cudart, which are below 1000. Those of cuDNN are
 * categories of a thousand each. */
enum {
    CUDA_OUT_OF_MEMORY = 2, /* cudaErrorMemoryAllocation */
    CUDA_FROM_CUBLASLT = 10000,
    CUBLASLT_INVALID_VALUE = CUDA_FROM_CUBLASLT + 7,
    CUBLASLT_ARCH_MISMATCH = CUDA_FROM_CUBLASLT + 8,
    CUBLASLT_NOT_SUPPORTED = CUDA_FROM_CUBLASLT + 15,
    CUDA_FROM_CUDNN = 20000,
    CUDNN_BAD_PARAM = CUDA_FROM_CUDNN + 2000,
    CUDNN_NOT_SUPPORTED = CUDA_FROM_CUDNN + 3000
};
/* Whether the error, when work is described, checked or given candidates, means that the library cannot do it
 * on this GPU. A combination that a library dislikes may be "an invalid value" there. Of a run it is a fault.
 */
static inline int cuda_error_is_unsupported(int error)
{
    if (error >= CUDA_FROM_CUDNN)
        return error / 1000 * 1000 == CUDNN_BAD_PARAM || error / 1000 * 1000 == CUDNN_NOT_SUPPORTED;
    return error == CUBLASLT_INVALID_VALUE || error == CUBLASLT_ARCH_MISMATCH ||
           error == CUBLASLT_NOT_SUPPORTED;
}

typedef struct cuda_gpu {
    char name[128];
    int major, minor;                   /* compute capability */
    uint64_t memory_bytes, cache_bytes; /* cache: the last level */
    int driver, runtime;                /* versions, 13000 = 13.0 */
} cuda_gpu;

typedef enum cuda_type {
    CUDA_TYPE_F32,
    CUDA_TYPE_BF16,
    CUDA_TYPE_F16,
    CUDA_TYPE_E4M3,
    CUDA_TYPE_E5M2,
    CUDA_TYPE_S8,
    CUDA_TYPE_S32,
    CUDA_N_TYPE
} cuda_type;

/* C (m, n) = A·B, `batch` times, row-major, and contiguous unless rows lie apart. One-byte types need A as
 * (m, k) and B as (n, k): transpose_a 0, transpose_b 1. s8 gives s32; k and n are multiples of 4, m of 32.
 * e4m3 and e5m2 (not both e5m2) give floats, multiplied by both scales, and all sides are multiples of 16.
 * Floats give their own type, or f32. Source: NVIDIA, cuBLAS documentation, cublasLtMatmul, tables 1, 3. */
typedef struct cuda_product_spec {
    int64_t batch, m, n, k;
    int transpose_a; /* A is stored (k, m) */
    int transpose_b; /* B is stored (n, k) */
    cuda_type a, b, to;
    int tf32;       /* f32 operands lose 13 bits before they are multiplied */
    int accumulate; /* C += A·B, rounded once; floats */
    /* Of a batch of floats: there is one A for all; elements from one B, one C to the next, 0: contiguous. */
    int has_one_a;
    int64_t b_apart, c_apart;
    /* Of one product of floats: elements from one row to the next of A as it is stored, and of C; 0: there
     * are no gaps. Gaps are not read, and not written. */
    int64_t a_row, c_row;
    uint64_t max_workspace; /* with has_one_a: no algorithm with a larger workspace is chosen */
    /* fp8: more terms are summed in the tensor cores' own precision of about 14 bits; for results that are
     * not summed again */
    int fast_sums;
} cuda_product_spec;

/* The three passes of a convolution, channels last; weights are (c_out, kernel_h, kernel_w, c_in). All
 * tensors have one type; sums are in f32. */
typedef enum cuda_convolution_pass {
    CUDA_CONVOLUTION,
    CUDA_CONVOLUTION_DGRAD,
    CUDA_CONVOLUTION_WGRAD
} cuda_convolution_pass;
typedef struct cuda_convolution_spec {
    cuda_convolution_pass pass;
    int batch, in_h, in_w, c_in, out_h, out_w, c_out, kernel_h, kernel_w, stride, pad;
    cuda_type type;
    int tf32;
} cuda_convolution_spec;

/* One algorithm of a library for a piece of work, in the library's encoding. It is valid for one GPU type and
 * one version only. */
enum { CUDA_ALGORITHM_WORDS = 8, CUDA_CANDIDATES = 16 };
typedef struct cuda_algorithm {
    uint64_t word[CUDA_ALGORITHM_WORDS];
    uint64_t workspace_bytes;
} cuda_algorithm;

/* Arrays are 64-byte aligned. Of a product: A, B and C. Of a convolution: the two inputs in the order x
 * (images), w (weights), y (results), then the output: (x, w) gives y, (w, y) gives x, (x, y) gives w. */
typedef struct cuda_operands {
    const void *a, *b;
    void *c;
    const float *scale_a, *scale_b; /* on the GPU, of fp8 */
} cuda_operands;

typedef struct cuda_work cuda_work;           /* a product or a convolution, described to its library */
typedef struct cuda_libraries cuda_libraries; /* the libraries' handles for one GPU */

typedef struct cuda_vendor {
#define VENDOR_CALL(result, name, ...) result (*name)(__VA_ARGS__);
#include "backend/cuda/vendor.def"
} cuda_vendor;

extern const cuda_vendor
    tandem_cuda_vendor; /* the real one: runtime.c, cublaslt.c, cudnn.c */

#ifdef __cplusplus
}
#endif
