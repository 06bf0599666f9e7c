/* libraries.h: what the files share that call NVIDIA's libraries: their handles, and one range of error numbers for all. */
#ifndef TANDEM_BACKEND_CUDA_LIBRARIES_H
#define TANDEM_BACKEND_CUDA_LIBRARIES_H

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <stdlib.h>

#include "backend/cuda/vendor.h"

struct cuda_libraries {
    cublasLtHandle_t lt;
    cudnnHandle_t dnn;
};

/* Errors of cuBLASLt and cuDNN behind those of cudart, which end below 1000. */
enum { CUDA_FROM_CUBLASLT = 10000, CUDA_FROM_CUDNN = 20000 };
static inline int cuda_from_cublaslt(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? 0 : CUDA_FROM_CUBLASLT + (int)status;
}
static inline int cuda_from_cudnn(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? 0 : CUDA_FROM_CUDNN + (int)status;
}

/* cublaslt.c and cudnn.c: as the members of cuda_vendor that they become. */
int cuda_product_open(cuda_product **product, uint64_t *workspace_bytes, cuda_libraries *libraries,
                      const cuda_product_spec *spec);
void cuda_product_close(cuda_product *product);
int cuda_product_run(const cuda_product *product, const void *a, const void *b, void *c, void *workspace,
                     tandem_cuda_stream stream);
int cuda_convolution_open(cuda_convolution **convolution, uint64_t *workspace_bytes,
                          cuda_libraries *libraries, const cuda_convolution_spec *spec);
void cuda_convolution_close(cuda_convolution *convolution);
int cuda_convolution_run(const cuda_convolution *convolution, void *x, void *w, void *y, void *workspace,
                         tandem_cuda_stream stream);

#endif
