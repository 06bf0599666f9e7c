/* runtime.c: memory, streams and events of cudart, and the table of NVIDIA's functions (vendor.def). */
#include <stdio.h>

#include "backend/cuda/libraries.h"

/* --- GPUs ----------------------------------------------------------------------------------------------- */

static int vendor_gpu_count(int *n_gpu) { return cuda_from_cudart(cudaGetDeviceCount(n_gpu)); }

static int vendor_describe(cuda_gpu *gpu, int index)
{
    struct cudaDeviceProp properties;
    cuda_gpu described = {0};
    cudaError_t failed = cudaGetDeviceProperties(&properties, index);
    if (failed == cudaSuccess) failed = cudaDriverGetVersion(&described.driver);
    if (failed == cudaSuccess) failed = cudaRuntimeGetVersion(&described.runtime);
    if (failed != cudaSuccess) return cuda_from_cudart(failed);
    (void)snprintf(described.name, sizeof described.name, "%.127s", properties.name);
    described.major = properties.major;
    described.minor = properties.minor;
    described.memory_bytes = properties.totalGlobalMem;
    described.cache_bytes = (uint64_t)properties.l2CacheSize;
    *gpu = described;
    return 0;
}

static int vendor_free_bytes(uint64_t *bytes)
{
    size_t free_now = 0, total = 0;
    const cudaError_t failed = cudaMemGetInfo(&free_now, &total);
    if (failed == cudaSuccess) *bytes = free_now;
    return cuda_from_cudart(failed);
}

static const char *vendor_error_text(int error)
{
    if (error >= CUDA_FROM_CUDNN && cudnn_error_text) return cudnn_error_text(error);
    if (error >= CUDA_FROM_CUBLASLT)
        return cublasLtGetStatusString((cublasStatus_t)(error - CUDA_FROM_CUBLASLT));
    return cudaGetErrorString((cudaError_t)error);
}

_Static_assert(CUBLASLT_INVALID_VALUE == CUDA_FROM_CUBLASLT + (int)CUBLAS_STATUS_INVALID_VALUE &&
                   CUBLASLT_ARCH_MISMATCH == CUDA_FROM_CUBLASLT + (int)CUBLAS_STATUS_ARCH_MISMATCH &&
                   CUBLASLT_NOT_SUPPORTED == CUDA_FROM_CUBLASLT + (int)CUBLAS_STATUS_NOT_SUPPORTED,
               "the errors of vendor.h are those of the libraries");

static int vendor_versions(char *written, size_t size)
{
    int runtime = 0;
    const cudaError_t failed = cudaRuntimeGetVersion(&runtime);
    char dnn[32] = "";
    if (print_cudnn_version) print_cudnn_version(dnn, sizeof dnn);
    (void)snprintf(written, size, "CUDA %d.%d, cuBLASLt %zu%s", runtime / 1000, runtime % 1000 / 10,
                   cublasLtGetVersion(), dnn);
    return cuda_from_cudart(failed);
}

/* --- Memory --------------------------------------------------------------------------------------------- */

static int vendor_alloc(void **memory, uint64_t bytes, int pinned)
{
    return cuda_from_cudart(pinned ? cudaMallocHost(memory, bytes) : cudaMalloc(memory, bytes));
}

static void vendor_free(void *memory, int pinned)
{
    (void)cuda_from_cudart(pinned ? cudaFreeHost(memory) : cudaFree(memory));
}

/* For the one GPU of this process. Host and GPU share one address space, so no flags are needed. */
static int vendor_lock(void *memory, uint64_t bytes)
{
    return cuda_from_cudart(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
}

/* cudaHostUnregister is not documented to wait, so this waits first. */
static void vendor_unlock(void *memory)
{
    (void)cuda_from_cudart(cudaDeviceSynchronize());
    (void)cuda_from_cudart(cudaHostUnregister(memory));
}

static int vendor_clear(void *memory, uint64_t bytes, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaMemsetAsync(memory, 0, bytes, stream));
}

static int vendor_copy(void *to, const void *from, uint64_t bytes, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

/* --- Streams and events --------------------------------------------------------------------------------- */

static int vendor_stream_open(tandem_cuda_stream *stream)
{
    return cuda_from_cudart(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}
static void vendor_stream_close(tandem_cuda_stream stream) { (void)cudaStreamDestroy(stream); }
static int vendor_stream_sync(tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaStreamSynchronize(stream));
}
static int vendor_stream_wait_event(tandem_cuda_stream stream, tandem_cuda_event event)
{
    return cuda_from_cudart(cudaStreamWaitEvent(stream, event, 0));
}
static int vendor_call_host(tandem_cuda_stream stream, void (*function)(void *context), void *context)
{
    return cuda_from_cudart(cudaLaunchHostFunc(stream, function, context));
}
/* A waiting thread sleeps: the computing thread may be on the same core. */
static int vendor_event_open(tandem_cuda_event *event)
{
    return cuda_from_cudart(cudaEventCreateWithFlags(event, cudaEventBlockingSync));
}
static void vendor_event_close(tandem_cuda_event event) { (void)cudaEventDestroy(event); }
static int vendor_event_record(tandem_cuda_event event, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaEventRecord(event, stream));
}
static int vendor_event_sync(tandem_cuda_event event)
{
    return cuda_from_cudart(cudaEventSynchronize(event));
}
static int vendor_elapsed_ns(int64_t *ns, tandem_cuda_event from, tandem_cuda_event to)
{
    float ms = 0; /* cudaEventElapsedTime resolves 0.5 µs */
    const cudaError_t failed = cudaEventElapsedTime(&ms, from, to);
    if (failed == cudaSuccess) *ns = (int64_t)((double)ms * 1e6);
    return cuda_from_cudart(failed);
}

/* --- Graphs --------------------------------------------------------------------------------------------- */

/* Thread-local: a library call in this thread that may not be captured fails and is reported. The thread that
 * reduces gradients may wait meanwhile. */
static int vendor_capture_begin(tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static int vendor_capture_end(tandem_cuda_graph *graph, tandem_cuda_stream stream)
{
    cudaGraph_t captured = NULL;
    cudaError_t failed = cudaStreamEndCapture(stream, &captured);
    if (failed == cudaSuccess) failed = cudaGraphInstantiate(graph, captured, 0);
    if (captured) (void)cudaGraphDestroy(captured);
    return cuda_from_cudart(failed);
}

/* The legacy stream tells a capture by an error, where a stream that waits for it is captured. */
static int vendor_stream_is_capturing(int *is_capturing, tandem_cuda_stream stream)
{
    enum cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
    const int failed = cuda_from_cudart(cudaStreamIsCapturing(stream, &found)),
              is_implicit = failed == (int)cudaErrorStreamCaptureImplicit;
    *is_capturing = is_implicit || (!failed && found != cudaStreamCaptureStatusNone);
    return is_implicit ? 0 : failed;
}

static int vendor_event_record_external(tandem_cuda_event event, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
}
static int vendor_graph_launch(tandem_cuda_graph graph, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaGraphLaunch(graph, stream));
}
static void vendor_graph_destroy(tandem_cuda_graph graph) { (void)cudaGraphExecDestroy(graph); }

/* --- The libraries' handles ----------------------------------------------------------------------------- */

static void vendor_close(cuda_libraries *libraries)
{
    if (close_cudnn) close_cudnn(libraries);
    if (libraries->lt) (void)cublasLtDestroy(libraries->lt);
    free(libraries);
}

static int vendor_set_device(int index) { return cuda_from_cudart(cudaSetDevice(index)); }

static int vendor_open(cuda_libraries **out, int index)
{
    cuda_libraries *libraries = calloc(1, sizeof *libraries);
    if (!libraries) return (int)cudaErrorMemoryAllocation;
    int failed = vendor_set_device(index);
    if (!failed) failed = cuda_from_cublaslt(cublasLtCreate(&libraries->lt));
    if (!failed && open_cudnn) failed = open_cudnn(libraries);
    if (failed) {
        vendor_close(libraries);
        return failed;
    }
    *out = libraries;
    return 0;
}

/* --- Work ----------------------------------------------------------------------------------------------- */

static void vendor_work_close(cuda_work *work) { work->close(work); }
static int vendor_work_candidates(cuda_algorithm candidate[CUDA_CANDIDATES], int *n, const cuda_work *work)
{
    return work->candidates(candidate, n, work);
}
static int vendor_work_check(cuda_algorithm *algorithm, const cuda_work *work)
{
    return work->check(algorithm, work);
}
static int vendor_work_run(const cuda_work *work, const cuda_algorithm *algorithm,
                           const cuda_operands *operands, void *workspace, tandem_cuda_stream stream)
{
    return work->run(work, algorithm, operands, workspace, stream);
}

const cuda_vendor tandem_cuda_vendor = {
#define VENDOR_CALL(result, name, ...) .name = vendor_##name,
#include "backend/cuda/vendor.def"
};
