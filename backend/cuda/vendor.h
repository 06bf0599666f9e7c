/* vendor.h: what tandem takes from NVIDIA's libraries, as a table: memory, streams and events (cudart),
 * products (cuBLASLt), convolutions (cuDNN). Everything else of the backend reaches them through it, so that
 * its logic also runs where they are not.
 *
 * Functions return 0, or the library's error number, which `text` puts into words; what they have returned is
 * not told again by a later call. Work is put on a stream; only wait, reach, take, give, lock and unlock make
 * the host wait, and copies of memory of the host that is not page-locked. */
#ifndef TANDEM_BACKEND_CUDA_VENDOR_H
#define TANDEM_BACKEND_CUDA_VENDOR_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUevent_st *tandem_cuda_event;     /* cudaEvent_t */
typedef struct CUgraphExec_st *tandem_cuda_graph; /* cudaGraphExec_t */

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

/* C (m, n) = A·B, `batch` times, row-major and packed. Types of a byte take A as (m, k) and B as (n, k) only:
 * transpose_a 0, transpose_b 1. s8 gives s32, k and n multiples of 4. e4m3 and e5m2, not both e5m2, give
 * floats, multiplied by both scales; all sides are multiples of 16. Floats give their own type, or f32.
 * Source: NVIDIA, cuBLAS documentation, cublasLtMatmul, tables 1 and 3. */
typedef struct cuda_product_spec {
    int64_t batch, m, n, k;
    int transpose_a; /* A is stored (k, m) */
    int transpose_b; /* B is stored (n, k) */
    cuda_type a, b, to;
    int tf32;       /* f32 operands lose 13 bits on their way into the products */
    int accumulate; /* C += A·B, rounded once; floats */
    /* fp8: sums stay in the tensor cores' own width, some 14 bits, for longer; for results that are not
     * summed again */
    int fast_sums;
} cuda_product_spec;

/* The three passes of a convolution, channels last; weights are (c_out, kernel_h, kernel_w, c_in). One type
 * throughout, sums in f32. */
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

/* One way in which a library can do a piece of work, in its own words: of no meaning for another card or
 * version. */
enum { CUDA_ALGORITHM_WORDS = 8, CUDA_CANDIDATES = 16 };
typedef struct cuda_algorithm {
    uint64_t word[CUDA_ALGORITHM_WORDS];
    uint64_t workspace_bytes;
} cuda_algorithm;

/* Arrays begin at multiples of 64. Of a product: A, B and C. Of a convolution: the operands in the order of
 * their names, x (images), w (weights), y (results), and what the pass makes: from x and w, y; from y and w,
 * x; from x and y, w. */
typedef struct cuda_operands {
    const void *a, *b;
    void *c;
    const float *scale_a, *scale_b; /* on the card, of fp8 */
} cuda_operands;

typedef struct cuda_work cuda_work; /* a product or a convolution that was described to its library */
typedef struct cuda_libraries cuda_libraries; /* handles of the libraries, for one card */

typedef struct cuda_vendor {
    int (*gpu_count)(int *n_gpu);
    int (*describe)(cuda_gpu *gpu, int index); /* opens nothing on it */
    int (*free_bytes)(uint64_t *bytes);        /* of the card that is open */
    const char *(*error_text)(int error);
    /* whether it says that a library has no way to do a piece of work on this card */
    int (*is_unsupported)(int error);
    int (*versions)(char *text, size_t size); /* "CUDA 13.0, cuBLASLt 13.0.2, cuDNN 9.13" */
    /* at this moment; an error where nobody tells them */
    int (*read_clocks)(int *compute_mhz, int *memory_mhz, int index);

    int (*open)(cuda_libraries **libraries, int index);
    int (*set_device)(int index); /* by a thread beside the one that opened it: its calls are for this card */
    void (*close)(cuda_libraries *libraries);

    /* on the card; pinned: on the host, page-locked. Not cleared */
    int (*alloc)(void **memory, uint64_t bytes, int pinned);
    void (*free)(void *memory, int pinned);
    /* Page-locks memory of the host that others have mapped; where that fails, nothing is locked. CUDA
     * Runtime API 13.0: cudaHostRegister, cudaHostUnregister. */
    int (*lock)(void *memory, uint64_t bytes);
    void (*unlock)(void *memory); /* all that was locked there, behind all that the card does */
    int (*clear)(void *memory, uint64_t bytes, tandem_cuda_stream stream);
    int (*copy)(void *to, const void *from, uint64_t bytes, tandem_cuda_stream stream); /* in any direction */

    int (*stream_open)(tandem_cuda_stream *stream);
    void (*stream_close)(tandem_cuda_stream stream);
    /* the host, for all that is on it */
    int (*stream_sync)(tandem_cuda_stream stream);
    /* the stream, for an event of another */
    int (*stream_wait_event)(tandem_cuda_stream stream, tandem_cuda_event event);
    /* once all before is done */
    int (*call_host)(tandem_cuda_stream stream, void (*function)(void *context), void *context);
    int (*event_open)(tandem_cuda_event *event);
    void (*event_close)(tandem_cuda_event event);
    int (*event_record)(tandem_cuda_event event, tandem_cuda_stream stream);
    /* the host waits, in any thread; at once where it was never recorded */
    int (*event_sync)(tandem_cuda_event event);
    int (*elapsed_ns)(int64_t *ns, tandem_cuda_event from, tandem_cuda_event to); /* both have happened */

    /* A capture: what this thread gives to `stream`, and to those that were made to wait for an event
     * recorded there, is not done but put down, with its arguments as they are now; an event that is recorded
     * means a place in the graph then, and only streams of the graph may wait for it. record_outside, in a
     * capture only: it is recorded whenever the graph comes there, for `reach` and elapsed_ns. Meanwhile this
     * thread may not wait, take or give, or the capture is of no use any more. capture_end: all streams must
     * have been joined to the first; the graph is ready to run, or nothing is left of it. graph_run: puts all
     * of it on a stream. CUDA Runtime API 13.0: cudaStreamBeginCapture, cudaThreadExchangeStreamCaptureMode
     * (thread-local), cudaEventRecordWithFlags (cudaEventRecordExternal), cudaStreamEndCapture,
     * cudaGraphInstantiate, cudaGraphLaunch; CUDA C++ Programming Guide, "Creating a Graph Using Stream
     * Capture". */
    int (*capture_begin)(tandem_cuda_stream stream);
    /* *waits: whether `reach` after a launch waits for the graph to come to record_outside, as it does for
     * `record`, and elapsed_ns knows when it came there; no documentation says so, so it is tried: a graph is
     * held up in front of the event. Not in a capture. */
    int (*probe_external_events)(int *does_wait, tandem_cuda_stream stream);
    int (*capture_end)(tandem_cuda_graph *graph, tandem_cuda_stream stream);
    int (*event_record_external)(tandem_cuda_event event, tandem_cuda_stream stream);
    int (*graph_launch)(tandem_cuda_graph graph, tandem_cuda_stream stream);
    void (*graph_destroy)(tandem_cuda_graph graph);

    int (*product_open)(cuda_work **work, cuda_libraries *libraries, const cuda_product_spec *spec);
    int (*convolution_open)(cuda_work **work, cuda_libraries *libraries, const cuda_convolution_spec *spec);
    void (*work_close)(cuda_work *work);
    /* Algorithms that the library holds for good, the best guess first, at least one; each gives the same
     * bits every time. */
    int (*work_candidates)(cuda_algorithm candidate[CUDA_CANDIDATES], int *n, const cuda_work *work);
    /* Whether the work can be done so, and with what workspace: an algorithm that was read from a file may be
     * anything. */
    int (*work_check)(cuda_algorithm *algorithm, const cuda_work *work);
    /* workspace: 256-byte aligned. */
    int (*work_run)(const cuda_work *work, const cuda_algorithm *algorithm, const cuda_operands *operands,
                    void *workspace, tandem_cuda_stream stream);
} cuda_vendor;

extern const cuda_vendor tandem_cuda_vendor; /* the real one: runtime.c, cublaslt.c, cudnn.c */

#ifdef __cplusplus
}
#endif
#endif
