/* cudnn.c: convolutions, channels last, with one type for all tensors and sums in f32. Algorithms whose
 * result depends on the order of threads are excluded. */
#include <cudnn.h>
#include <stdio.h>

#include "backend/cuda/libraries.h"

_Static_assert(CUDNN_BAD_PARAM == CUDA_FROM_CUDNN + (int)CUDNN_STATUS_BAD_PARAM &&
                   CUDNN_NOT_SUPPORTED == CUDA_FROM_CUDNN + (int)CUDNN_STATUS_NOT_SUPPORTED,
               "the errors of vendor.h are those of the library");

static int cuda_from_cudnn(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_SUCCESS) return 0;
    (void)cudaGetLastError();
    return CUDA_FROM_CUDNN + (int)status;
}

int open_cudnn(cuda_libraries *libraries) { return cuda_from_cudnn(cudnnCreate(&libraries->dnn)); }

void close_cudnn(cuda_libraries *libraries)
{
    if (libraries->dnn) (void)cudnnDestroy(libraries->dnn);
}

const char *cudnn_error_text(int error)
{
    return cudnnGetErrorString((cudnnStatus_t)(error - CUDA_FROM_CUDNN));
}

void print_cudnn_version(char *text, size_t size)
{
    (void)snprintf(text, size, ", cuDNN %zu", cudnnGetVersion());
}

/* An algorithm's words: its number in the pass's enumeration, and its math type (cudnnMathType_t). */
enum { ALGORITHM, MATH };
/* Transforms of whole batches need gigabytes of workspace, which activations use better. They are excluded
 * where another algorithm exists. */
static const size_t max_workspace = (size_t)256 << 20;

typedef struct dnn_convolution {
    cuda_work work; /* first */
    cuda_convolution_pass pass;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t window;
    cudnnMathType_t math;
} dnn_convolution;

static void close_dnn_convolution(cuda_work *work)
{
    dnn_convolution *c = (dnn_convolution *)work;
    if (c->window) (void)cudnnDestroyConvolutionDescriptor(c->window);
    if (c->w) (void)cudnnDestroyFilterDescriptor(c->w);
    if (c->y) (void)cudnnDestroyTensorDescriptor(c->y);
    if (c->x) (void)cudnnDestroyTensorDescriptor(c->x);
    free(c);
}

static cudnnDataType_t dnn_type(cuda_type type)
{
    return type == CUDA_TYPE_BF16  ? CUDNN_DATA_BFLOAT16
           : type == CUDA_TYPE_F16 ? CUDNN_DATA_HALF
                                   : CUDNN_DATA_FLOAT;
}

/* The default turns f32 operands into tf32 on GPUs that have it. */
static cudnnMathType_t dnn_math(const cuda_convolution_spec *s)
{
    if (s->type == CUDA_TYPE_F32) return s->tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
    return CUDNN_TENSOR_OP_MATH;
}

static cudnnStatus_t describe_dnn_convolution(dnn_convolution *c, const cuda_convolution_spec *s)
{
    const cudnnDataType_t type = dnn_type(s->type);
    cudnnStatus_t status = cudnnCreateTensorDescriptor(&c->x);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnCreateTensorDescriptor(&c->y);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnCreateFilterDescriptor(&c->w);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnCreateConvolutionDescriptor(&c->window);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            cudnnSetTensor4dDescriptor(c->x, CUDNN_TENSOR_NHWC, type, s->batch, s->c_in, s->in_h, s->in_w);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            cudnnSetTensor4dDescriptor(c->y, CUDNN_TENSOR_NHWC, type, s->batch, s->c_out, s->out_h, s->out_w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetFilter4dDescriptor(c->w, type, CUDNN_TENSOR_NHWC, s->c_out, s->c_in, s->kernel_h,
                                            s->kernel_w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetConvolution2dDescriptor(c->window, s->pad, s->pad, s->stride, s->stride, 1, 1,
                                                 CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnSetConvolutionMathType(c->window, c->math);
    return status;
}

/* cuDNN has one function and one result type per pass, with the same members. For plain f32 the math type is
 * set again, because a result may name the default. */
#define DEFINE_CANDIDATES(pass, result, ask, from, with, to)                                                 \
    static cudnnStatus_t dnn_candidates_##pass(cuda_algorithm candidate[CUDA_CANDIDATES], int *n,            \
                                               const dnn_convolution *c, cudnnHandle_t dnn)                  \
    {                                                                                                        \
        result found[CUDA_CANDIDATES];                                                                       \
        int n_found = 0;                                                                                     \
        const cudnnStatus_t status = ask(dnn, from, with, c->window, to, CUDA_CANDIDATES, &n_found, found);  \
        for (int k = 0; status == CUDNN_STATUS_SUCCESS && k < n_found; k++)                                  \
            if (found[k].status == CUDNN_STATUS_SUCCESS && found[k].determinism == CUDNN_DETERMINISTIC)      \
                candidate[(*n)++] = (cuda_algorithm){                                                        \
                    {[ALGORITHM] = (uint64_t)found[k].algo,                                                  \
                     [MATH] = (uint64_t)(c->math == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : found[k].mathType)},   \
                    found[k].memory};                                                                        \
        return status;                                                                                       \
    }
DEFINE_CANDIDATES(forward, cudnnConvolutionFwdAlgoPerf_t, cudnnGetConvolutionForwardAlgorithm_v7, c->x, c->w,
                  c->y)
DEFINE_CANDIDATES(dgrad, cudnnConvolutionBwdDataAlgoPerf_t, cudnnGetConvolutionBackwardDataAlgorithm_v7, c->w,
                  c->y, c->x)
DEFINE_CANDIDATES(wgrad, cudnnConvolutionBwdFilterAlgoPerf_t, cudnnGetConvolutionBackwardFilterAlgorithm_v7,
                  c->x, c->y, c->w)

/* The algorithms within the limit, else the smallest one. */
static int keep_within_limit(cuda_algorithm candidate[CUDA_CANDIDATES], int n)
{
    int n_within = 0, smallest = 0;
    for (int i = 1; i < n; i++)
        if (candidate[i].workspace_bytes < candidate[smallest].workspace_bytes) smallest = i;
    const cuda_algorithm smallest_workspace = candidate[smallest];
    for (int i = 0; i < n; i++)
        if (candidate[i].workspace_bytes <= max_workspace) candidate[n_within++] = candidate[i];
    if (n_within > 0) return n_within;
    candidate[0] = smallest_workspace;
    return 1;
}

static int dnn_candidates(cuda_algorithm candidate[CUDA_CANDIDATES], int *n, const cuda_work *work)
{
    const dnn_convolution *c = (const dnn_convolution *)work;
    const cudnnHandle_t dnn = work->libraries->dnn;
    int n_good = 0;
    cudnnStatus_t status = cudnnSetConvolutionMathType(c->window, c->math);
    if (status == CUDNN_STATUS_SUCCESS)
        status = c->pass == CUDA_CONVOLUTION         ? dnn_candidates_forward(candidate, &n_good, c, dnn)
                 : c->pass == CUDA_CONVOLUTION_DGRAD ? dnn_candidates_dgrad(candidate, &n_good, c, dnn)
                                                     : dnn_candidates_wgrad(candidate, &n_good, c, dnn);
    if (status == CUDNN_STATUS_SUCCESS && n_good == 0) status = CUDNN_STATUS_NOT_SUPPORTED;
    if (status == CUDNN_STATUS_SUCCESS) *n = keep_within_limit(candidate, n_good);
    return cuda_from_cudnn(status);
}

static int dnn_check(cuda_algorithm *algorithm, const cuda_work *work)
{
    const dnn_convolution *c = (const dnn_convolution *)work;
    const cudnnHandle_t dnn = work->libraries->dnn;
    const int named = (int)algorithm->word[ALGORITHM];
    const cudnnMathType_t math = (cudnnMathType_t)algorithm->word[MATH];
    size_t bytes = 0;
    if (c->math == CUDNN_FMA_MATH && math != CUDNN_FMA_MATH)
        return cuda_from_cudnn(CUDNN_STATUS_NOT_SUPPORTED);
    cudnnStatus_t status = cudnnSetConvolutionMathType(c->window, math);
    if (status == CUDNN_STATUS_SUCCESS && c->pass == CUDA_CONVOLUTION)
        status = cudnnGetConvolutionForwardWorkspaceSize(dnn, c->x, c->w, c->window, c->y,
                                                         (cudnnConvolutionFwdAlgo_t)named, &bytes);
    else if (status == CUDNN_STATUS_SUCCESS && c->pass == CUDA_CONVOLUTION_DGRAD)
        status = cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, c->w, c->y, c->window, c->x,
                                                              (cudnnConvolutionBwdDataAlgo_t)named, &bytes);
    else if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnGetConvolutionBackwardFilterWorkspaceSize(
            dnn, c->x, c->y, c->window, c->w, (cudnnConvolutionBwdFilterAlgo_t)named, &bytes);
    if (status == CUDNN_STATUS_SUCCESS) algorithm->workspace_bytes = bytes;
    return cuda_from_cudnn(status);
}

static int dnn_run(const cuda_work *work, const cuda_algorithm *algorithm, const cuda_operands *o,
                   void *workspace, tandem_cuda_stream stream)
{
    const dnn_convolution *c = (const dnn_convolution *)work;
    const float one = 1, zero = 0;
    const cudnnHandle_t dnn = work->libraries->dnn;
    const int named = (int)algorithm->word[ALGORITHM];
    const size_t bytes = algorithm->workspace_bytes;
    cudnnStatus_t status = cudnnSetStream(dnn, stream);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetConvolutionMathType(c->window, (cudnnMathType_t)algorithm->word[MATH]);
    if (status != CUDNN_STATUS_SUCCESS) return cuda_from_cudnn(status);
    if (c->pass == CUDA_CONVOLUTION)
        status =
            cudnnConvolutionForward(dnn, &one, c->x, o->a, c->w, o->b, c->window,
                                    (cudnnConvolutionFwdAlgo_t)named, workspace, bytes, &zero, c->y, o->c);
    else if (c->pass == CUDA_CONVOLUTION_DGRAD)
        status = cudnnConvolutionBackwardData(dnn, &one, c->w, o->b, c->y, o->a, c->window,
                                              (cudnnConvolutionBwdDataAlgo_t)named, workspace, bytes, &zero,
                                              c->x, o->c);
    else
        status = cudnnConvolutionBackwardFilter(dnn, &one, c->x, o->a, c->y, o->b, c->window,
                                                (cudnnConvolutionBwdFilterAlgo_t)named, workspace, bytes,
                                                &zero, c->w, o->c);
    return cuda_from_cudnn(status);
}

int vendor_convolution_open(cuda_work **out, cuda_libraries *libraries, const cuda_convolution_spec *spec)
{
    dnn_convolution *c = calloc(1, sizeof *c);
    if (!c) return (int)cudaErrorMemoryAllocation;
    c->work = (cuda_work){libraries, close_dnn_convolution, dnn_candidates, dnn_check, dnn_run};
    c->pass = spec->pass;
    c->math = dnn_math(spec);
    const cudnnStatus_t status = describe_dnn_convolution(c, spec);
    if (status != CUDNN_STATUS_SUCCESS) {
        close_dnn_convolution(&c->work);
        return cuda_from_cudnn(status);
    }
    *out = &c->work;
    return 0;
}
