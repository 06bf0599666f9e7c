/* libraries.h: what the callers of NVIDIA's libraries share: the handles, and one range of error numbers for
 * all libraries. */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdlib.h>

#include "backend/cuda/vendor.h"

struct cuda_libraries {
    cublasLtHandle_t lt;
    struct cudnnContext *dnn; /* cudnnHandle_t */
};

/* An error of cudart also stays in cudaGetLastError, where the next launch would find it: these functions
 * clear it. The other libraries call cudart, and a launch of theirs that fails leaves its error there too. */
static inline int cuda_from_cudart(cudaError_t status)
{
    if (status != cudaSuccess) (void)cudaGetLastError();
    return (int)status;
}
static inline int cuda_from_cublaslt(cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    (void)cudaGetLastError();
    return CUDA_FROM_CUBLASLT + (int)status;
}

/* A piece of work of one library; the work types of cublaslt.c and cudnn.c begin with it. */
struct cuda_work {
    cuda_libraries *libraries;
    void (*close)(cuda_work *work);
    int (*candidates)(cuda_algorithm candidate[CUDA_CANDIDATES], int *n, const cuda_work *work);
    int (*check)(cuda_algorithm *algorithm, const cuda_work *work);
    int (*run)(const cuda_work *work, const cuda_algorithm *algorithm, const cuda_operands *operands,
               void *workspace, tandem_cuda_stream stream);
};
int vendor_read_clocks(int *compute_mhz, int *memory_mhz, int index);
int vendor_product_open(cuda_work **work, cuda_libraries *libraries, const cuda_product_spec *spec);

/* cudnn.c. All are NULL in libtandem_cuda_kernels.so, which has no convolutions and needs no cuDNN. */
#define WITH_CUDNN __attribute__((weak))
WITH_CUDNN int vendor_convolution_open(cuda_work **work, cuda_libraries *libraries,
                                       const cuda_convolution_spec *spec);
WITH_CUDNN int open_cudnn(cuda_libraries *libraries);
WITH_CUDNN void close_cudnn(cuda_libraries *libraries);
WITH_CUDNN const char *cudnn_error_text(int error);           /* at least CUDA_FROM_CUDNN */
WITH_CUDNN void print_cudnn_version(char *text, size_t size); /* ", cuDNN 91300" */
#undef WITH_CUDNN
