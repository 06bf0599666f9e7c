/* no_cudnn.c: stands for cudnn.c in libtandem_cuda_kernels.so, which multiplies matrices and has no
 * convolutions, so that its users need no cuDNN. */
#include "backend/cuda/libraries.h"

int vendor_convolution_open(cuda_work **work, cuda_libraries *libraries, const cuda_convolution_spec *spec)
{
    (void)work, (void)libraries, (void)spec;
    return CUDNN_NOT_SUPPORTED;
}

int open_cudnn(cuda_libraries *libraries)
{
    (void)libraries;
    return 0;
}

void close_cudnn(cuda_libraries *libraries) { (void)libraries; }

const char *cudnn_error_text(int error)
{
    (void)error;
    return "this library has no convolutions";
}

void print_cudnn_version(char *text, size_t size) { text[0] = '\0', (void)size; }
