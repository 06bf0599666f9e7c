/* runtime.c: memory, streams and events from cudart, and the table of all that comes from NVIDIA's libraries.
 * */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/libraries.h"

/* --- Cards ---------------------------------------------------------------------------------------------- */

static int count(int *n_card) { return cuda_from_cudart(cudaGetDeviceCount(n_card)); }

static int look(cuda_card *card, int index)
{
    struct cudaDeviceProp properties;
    cuda_card seen = {0};
    cudaError_t failed = cudaGetDeviceProperties(&properties, index);
    if (failed == cudaSuccess) failed = cudaDriverGetVersion(&seen.driver);
    if (failed == cudaSuccess) failed = cudaRuntimeGetVersion(&seen.runtime);
    if (failed != cudaSuccess) return cuda_from_cudart(failed);
    (void)snprintf(seen.name, sizeof seen.name, "%.127s", properties.name);
    seen.major = properties.major;
    seen.minor = properties.minor;
    seen.memory_bytes = properties.totalGlobalMem;
    seen.cache_bytes = (uint64_t)properties.l2CacheSize;
    *card = seen;
    return 0;
}

static int free_bytes(uint64_t *bytes)
{
    size_t free_now = 0, total = 0;
    const cudaError_t failed = cudaMemGetInfo(&free_now, &total);
    if (failed == cudaSuccess) *bytes = free_now;
    return cuda_from_cudart(failed);
}

static const char *text(int error)
{
    if (error >= CUDA_FROM_CUDNN) return cudnnGetErrorString((cudnnStatus_t)(error - CUDA_FROM_CUDNN));
    if (error >= CUDA_FROM_CUBLASLT)
        return cublasLtGetStatusString((cublasStatus_t)(error - CUDA_FROM_CUBLASLT));
    return cudaGetErrorString((cudaError_t)error);
}

static int lacks(int error)
{
    if (error >= CUDA_FROM_CUDNN)
        return CUDNN_STATUS_CATEGORY(error - CUDA_FROM_CUDNN) == CUDNN_STATUS_NOT_SUPPORTED;
    return error == CUDA_FROM_CUBLASLT + CUBLAS_STATUS_NOT_SUPPORTED ||
           error == CUDA_FROM_CUBLASLT + CUBLAS_STATUS_ARCH_MISMATCH;
}

static int versions(char *written, size_t size)
{
    int runtime = 0;
    const cudaError_t failed = cudaRuntimeGetVersion(&runtime);
    const size_t lt = cublasLtGetVersion(), dnn = cudnnGetVersion();
    (void)snprintf(written, size, "CUDA %d.%d, cuBLASLt %zu, cuDNN %zu", runtime / 1000, runtime % 1000 / 10,
                   lt, dnn);
    return cuda_from_cudart(failed);
}

/* --- Memory --------------------------------------------------------------------------------------------- */

static int take(void **memory, uint64_t bytes, int pinned)
{
    return cuda_from_cudart(pinned ? cudaMallocHost(memory, bytes) : cudaMalloc(memory, bytes));
}

static void give(void *memory, int pinned)
{
    (void)cuda_from_cudart(pinned ? cudaFreeHost(memory) : cudaFree(memory));
}

/* For the one card of this process: with addresses that are the same on the host and on the card, that is
 * what no flags mean. */
static int lock(void *memory, uint64_t bytes)
{
    return cuda_from_cudart(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
}

/* That it waits by itself is written nowhere. */
static void unlock(void *memory)
{
    (void)cuda_from_cudart(cudaDeviceSynchronize());
    (void)cuda_from_cudart(cudaHostUnregister(memory));
}

static int clear(void *memory, uint64_t bytes, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaMemsetAsync(memory, 0, bytes, stream));
}

static int copy(void *to, const void *from, uint64_t bytes, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

/* --- Streams and events --------------------------------------------------------------------------------- */

static int stream_open(tandem_cuda_stream *stream)
{
    return cuda_from_cudart(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}
static void stream_close(tandem_cuda_stream stream) { (void)cudaStreamDestroy(stream); }
static int wait_all(tandem_cuda_stream stream) { return cuda_from_cudart(cudaStreamSynchronize(stream)); }
static int wait_for(tandem_cuda_stream stream, tandem_cuda_event event)
{
    return cuda_from_cudart(cudaStreamWaitEvent(stream, event, 0));
}
static int call_host(tandem_cuda_stream stream, void (*function)(void *context), void *context)
{
    return cuda_from_cudart(cudaLaunchHostFunc(stream, function, context));
}
/* Who waits for one sleeps: the thread that computes may be on the same core. */
static int event_open(tandem_cuda_event *event)
{
    return cuda_from_cudart(cudaEventCreateWithFlags(event, cudaEventBlockingSync));
}
static void event_close(tandem_cuda_event event) { (void)cudaEventDestroy(event); }
static int record(tandem_cuda_event event, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaEventRecord(event, stream));
}
static int reach(tandem_cuda_event event) { return cuda_from_cudart(cudaEventSynchronize(event)); }
static int elapsed_ns(int64_t *ns, tandem_cuda_event from, tandem_cuda_event to)
{
    float ms = 0; /* half a microsecond is what it resolves */
    const cudaError_t failed = cudaEventElapsedTime(&ms, from, to);
    if (failed == cudaSuccess) *ns = (int64_t)((double)ms * 1e6);
    return cuda_from_cudart(failed);
}

/* --- Graphs --------------------------------------------------------------------------------------------- */

/* Thread-local: what a library might do besides launches fails and is seen, and the thread that reduces may
 * wait meanwhile. */
static int capture_begin(tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static int capture_end(tandem_cuda_graph *graph, tandem_cuda_stream stream)
{
    cudaGraph_t captured = NULL;
    cudaError_t failed = cudaStreamEndCapture(stream, &captured);
    if (failed == cudaSuccess) failed = cudaGraphInstantiate(graph, captured, 0);
    if (captured) (void)cudaGraphDestroy(captured);
    return cuda_from_cudart(failed);
}

static int record_outside(tandem_cuda_event event, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
}
static int graph_run(tandem_cuda_graph graph, tandem_cuda_stream stream)
{
    return cuda_from_cudart(cudaGraphLaunch(graph, stream));
}
static void graph_close(tandem_cuda_graph graph) { (void)cudaGraphExecDestroy(graph); }

static void hold_up(void *gate)
{
    while (!atomic_load((atomic_int *)gate)) (void)sched_yield();
}

/* event[0] is recorded before the graph, event[1] before it and in it. */
static cudaError_t try_held_up(int *waits, tandem_cuda_graph *graph, const tandem_cuda_event event[2],
                               tandem_cuda_stream stream)
{
    atomic_int gate = 0;
    cudaGraph_t captured = NULL;
    float between_ms = -1;
    cudaError_t failed = cudaEventRecord(event[0], stream);
    if (failed == cudaSuccess) failed = cudaEventRecord(event[1], stream);
    if (failed == cudaSuccess) failed = cudaStreamSynchronize(stream);
    if (failed == cudaSuccess) failed = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (failed != cudaSuccess) return failed;
    failed = cudaLaunchHostFunc(stream, hold_up, &gate);
    if (failed == cudaSuccess) failed = cudaEventRecordWithFlags(event[1], stream, cudaEventRecordExternal);
    const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
    if (failed == cudaSuccess) failed = ended;
    if (failed == cudaSuccess) failed = cudaGraphInstantiate(graph, captured, 0);
    if (captured) (void)cudaGraphDestroy(captured);
    if (failed != cudaSuccess) return failed;
    failed = cudaGraphLaunch(*graph, stream);
    const cudaError_t state = cudaEventQuery(event[1]);
    atomic_store(&gate, 1);
    const cudaError_t reached = cudaStreamSynchronize(stream); /* the gate is needed until then */
    if (failed != cudaSuccess) return failed;
    if (reached != cudaSuccess) return reached;
    const cudaError_t timed = cudaEventElapsedTime(&between_ms, event[0], event[1]);
    *waits = state == cudaErrorNotReady && timed == cudaSuccess && between_ms >= 0;
    return cudaSuccess;
}

static int outside_waits(int *waits, tandem_cuda_stream stream)
{
    tandem_cuda_event event[2] = {NULL, NULL};
    tandem_cuda_graph graph = NULL;
    cudaError_t failed = cudaEventCreateWithFlags(&event[0], cudaEventBlockingSync);
    if (failed == cudaSuccess) failed = cudaEventCreateWithFlags(&event[1], cudaEventBlockingSync);
    if (failed == cudaSuccess) failed = try_held_up(waits, &graph, event, stream);
    if (graph) (void)cudaGraphExecDestroy(graph);
    for (int k = 0; k < 2; k++)
        if (event[k]) (void)cudaEventDestroy(event[k]);
    (void)cudaGetLastError(); /* that the event was not ready is no error of the next launch */
    return cuda_from_cudart(failed);
}

/* --- The libraries' handles ----------------------------------------------------------------------------- */

static void close_libraries(cuda_libraries *libraries)
{
    if (libraries->dnn) (void)cudnnDestroy(libraries->dnn);
    if (libraries->lt) (void)cublasLtDestroy(libraries->lt);
    free(libraries);
}

static int use(int index) { return cuda_from_cudart(cudaSetDevice(index)); }

static int open_libraries(cuda_libraries **out, int index)
{
    cuda_libraries *libraries = calloc(1, sizeof *libraries);
    if (!libraries) return (int)cudaErrorMemoryAllocation;
    int failed = use(index);
    if (!failed) failed = cuda_from_cublaslt(cublasLtCreate(&libraries->lt));
    if (!failed) failed = cuda_from_cudnn(cudnnCreate(&libraries->dnn));
    if (failed) {
        close_libraries(libraries);
        return failed;
    }
    *out = libraries;
    return 0;
}

/* --- Work ----------------------------------------------------------------------------------------------- */

static void work_close(cuda_work *work) { work->close(work); }
static int work_candidates(cuda_algorithm candidate[CUDA_CANDIDATES], int *n, const cuda_work *work)
{
    return work->candidates(candidate, n, work);
}
static int work_check(cuda_algorithm *algorithm, const cuda_work *work)
{
    return work->check(algorithm, work);
}
static int work_run(const cuda_work *work, const cuda_algorithm *algorithm, const cuda_operands *operands,
                    void *workspace, tandem_cuda_stream stream)
{
    return work->run(work, algorithm, operands, workspace, stream);
}

const cuda_vendor tandem_cuda_vendor = {.gpu_count = count,
                                        .describe = look,
                                        .free_bytes = free_bytes,
                                        .error_text = text,
                                        .is_unsupported = lacks,
                                        .versions = versions,
                                        .read_clocks = cuda_clocks,
                                        .open = open_libraries,
                                        .set_device = use,
                                        .close = close_libraries,
                                        .alloc = take,
                                        .free = give,
                                        .lock = lock,
                                        .unlock = unlock,
                                        .clear = clear,
                                        .copy = copy,
                                        .stream_open = stream_open,
                                        .stream_close = stream_close,
                                        .stream_sync = wait_all,
                                        .stream_wait_event = wait_for,
                                        .call_host = call_host,
                                        .event_open = event_open,
                                        .event_close = event_close,
                                        .event_record = record,
                                        .event_sync = reach,
                                        .elapsed_ns = elapsed_ns,
                                        .capture_begin = capture_begin,
                                        .probe_external_events = outside_waits,
                                        .capture_end = capture_end,
                                        .event_record_external = record_outside,
                                        .graph_launch = graph_run,
                                        .graph_destroy = graph_close,
                                        .product_open = cuda_product_open,
                                        .convolution_open = cuda_convolution_open,
                                        .work_close = work_close,
                                        .work_candidates = work_candidates,
                                        .work_check = work_check,
                                        .work_run = work_run};
