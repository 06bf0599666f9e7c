/* cudnn.c: convolutions, channels last, of one type throughout with sums in f32. The algorithm is the first that cuDNN's heuristic
 * names whose result does not depend on the order of threads. */
#include "backend/cuda/libraries.h"

enum { MOST_ALGORITHMS = 8 };

struct cuda_convolution {
    cuda_libraries *libraries;
    cuda_convolution_pass pass;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t window;
    int algorithm; /* of the pass's own enumeration */
    size_t workspace_bytes;
};

void cuda_convolution_close(cuda_convolution *c)
{
    if (c->window) (void)cudnnDestroyConvolutionDescriptor(c->window);
    if (c->w) (void)cudnnDestroyFilterDescriptor(c->w);
    if (c->y) (void)cudnnDestroyTensorDescriptor(c->y);
    if (c->x) (void)cudnnDestroyTensorDescriptor(c->x);
    free(c);
}

static cudnnStatus_t describe(cuda_convolution *c, const cuda_convolution_spec *s)
{
    const cudnnDataType_t type = s->type == CUDA_TYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    cudnnStatus_t status = cudnnCreateTensorDescriptor(&c->x);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnCreateTensorDescriptor(&c->y);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnCreateFilterDescriptor(&c->w);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnCreateConvolutionDescriptor(&c->window);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetTensor4dDescriptor(c->x, CUDNN_TENSOR_NHWC, type, s->batch, s->c_in, s->in_h, s->in_w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetTensor4dDescriptor(c->y, CUDNN_TENSOR_NHWC, type, s->batch, s->c_out, s->out_h, s->out_w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetFilter4dDescriptor(c->w, type, CUDNN_TENSOR_NHWC, s->c_out, s->c_in, s->kernel_h, s->kernel_w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetConvolution2dDescriptor(c->window, s->pad, s->pad, s->stride, s->stride, 1, 1,
                                                 CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetConvolutionMathType(c->window,
                                             type == CUDNN_DATA_FLOAT ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH);
    return status;
}

/* The three passes' results have types of their own with the same members. */
#define CHOOSE(c, found, n)                                                                                  \
    for (int k = 0; k < (n); k++)                                                                            \
        if ((found)[k].status == CUDNN_STATUS_SUCCESS && (found)[k].determinism == CUDNN_DETERMINISTIC) {    \
            (c)->algorithm = (int)(found)[k].algo;                                                           \
            (c)->workspace_bytes = (found)[k].memory;                                                        \
            return CUDNN_STATUS_SUCCESS;                                                                     \
        }

static cudnnStatus_t choose(cuda_convolution *c)
{
    int n = 0;
    const cudnnHandle_t dnn = c->libraries->dnn;
    cudnnStatus_t status;
    if (c->pass == CUDA_CONVOLUTION) {
        cudnnConvolutionFwdAlgoPerf_t found[MOST_ALGORITHMS];
        status = cudnnGetConvolutionForwardAlgorithm_v7(dnn, c->x, c->w, c->window, c->y, MOST_ALGORITHMS, &n, found);
        if (status == CUDNN_STATUS_SUCCESS) CHOOSE(c, found, n)
    } else if (c->pass == CUDA_CONVOLUTION_DGRAD) {
        cudnnConvolutionBwdDataAlgoPerf_t found[MOST_ALGORITHMS];
        status = cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, c->w, c->y, c->window, c->x,
                                                             MOST_ALGORITHMS, &n, found);
        if (status == CUDNN_STATUS_SUCCESS) CHOOSE(c, found, n)
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t found[MOST_ALGORITHMS];
        status = cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, c->x, c->y, c->window, c->w,
                                                               MOST_ALGORITHMS, &n, found);
        if (status == CUDNN_STATUS_SUCCESS) CHOOSE(c, found, n)
    }
    return status == CUDNN_STATUS_SUCCESS ? CUDNN_STATUS_NOT_SUPPORTED : status;
}

int cuda_convolution_open(cuda_convolution **out, uint64_t *workspace_bytes, cuda_libraries *libraries,
                          const cuda_convolution_spec *spec)
{
    cuda_convolution *convolution = calloc(1, sizeof *convolution);
    if (!convolution) return (int)cudaErrorMemoryAllocation;
    convolution->libraries = libraries;
    convolution->pass = spec->pass;
    cudnnStatus_t status = describe(convolution, spec);
    if (status == CUDNN_STATUS_SUCCESS) status = choose(convolution);
    if (status != CUDNN_STATUS_SUCCESS) {
        cuda_convolution_close(convolution);
        return cuda_from_cudnn(status);
    }
    *out = convolution;
    *workspace_bytes = convolution->workspace_bytes;
    return 0;
}

int cuda_convolution_run(const cuda_convolution *c, void *x, void *w, void *y, void *workspace, tandem_cuda_stream stream)
{
    const float one = 1, zero = 0;
    const cudnnHandle_t dnn = c->libraries->dnn;
    cudnnStatus_t status = cudnnSetStream(dnn, stream);
    if (status != CUDNN_STATUS_SUCCESS) return cuda_from_cudnn(status);
    if (c->pass == CUDA_CONVOLUTION)
        status = cudnnConvolutionForward(dnn, &one, c->x, x, c->w, w, c->window,
                                         (cudnnConvolutionFwdAlgo_t)c->algorithm, workspace,
                                         c->workspace_bytes, &zero, c->y, y);
    else if (c->pass == CUDA_CONVOLUTION_DGRAD)
        status = cudnnConvolutionBackwardData(dnn, &one, c->w, w, c->y, y, c->window,
                                              (cudnnConvolutionBwdDataAlgo_t)c->algorithm, workspace,
                                              c->workspace_bytes, &zero, c->x, x);
    else
        status = cudnnConvolutionBackwardFilter(dnn, &one, c->x, x, c->y, y, c->window,
                                                (cudnnConvolutionBwdFilterAlgo_t)c->algorithm, workspace,
                                                c->workspace_bytes, &zero, c->w, w);
    return cuda_from_cudnn(status);
}
