/* gpu.c: finds the GPU of a name, opens its libraries, and says what failed there. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/operator.h"

/* cudaErrorInsufficientDriver, cudaErrorDevicesUnavailable, cudaErrorNoDevice */
enum { NO_DRIVER = 35, UNAVAILABLE = 46, NO_GPU = 100 };
enum { MIN_MAJOR = 7, MIN_MINOR = 5 }; /* sm_75: the oldest that CUDA 13 knows */

tandem_status cuda_failure(const cuda_device *cuda, const char *what, int failed, tandem_error *error)
{
    if (failed == CUDA_OUT_OF_MEMORY)
        return tandem_error_set(error, TANDEM_NO_MEMORY,
                                "device '%s' ran out of memory when it was to %s; other processes may have "
                                "some (nvidia-smi), or a smaller --batch fits",
                                cuda->name, what);
    if (failed == UNAVAILABLE)
        return tandem_error_set(
            error, TANDEM_NO_DEVICE,
            "device '%s' takes no more processes: it is in exclusive mode and has one, or "
            "is prohibited; give it one rank, or allow several with `nvidia-smi -i %s -c "
            "DEFAULT`",
            cuda->name, cuda->name + strlen("cuda:"));
    return tandem_error_set(error, TANDEM_NO_DEVICE, "device '%s' failed to %s: %s (error %d)", cuda->name,
                            what, cuda->vendor->error_text(failed), failed);
}

tandem_status find_cuda_gpu(cuda_gpu *gpu, int *index, const cuda_device *cuda, tandem_error *error)
{
    char *end = NULL;
    const char *const digits = cuda->name + strlen("cuda:");
    const long number = strtol(digits, &end, 10);
    int n = 0;
    if (*digits < '0' || *digits > '9' || *end || number > INT_MAX)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME, "unknown device '%s'; allowed: cuda:0, cuda:1, …",
                                cuda->name);
    int failed = cuda->vendor->gpu_count(&n);
    if (failed == NO_GPU) failed = n = 0;
    if (failed == NO_DRIVER)
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "device '%s' has no driver: NVIDIA's driver is missing, or older than the "
                                "CUDA that tandem was built with",
                                cuda->name);
    if (failed) return cuda_failure(cuda, "count GPUs", failed, error);
    if (number >= n)
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "device '%s' does not exist: this machine has %d GPU%s", cuda->name, n,
                                n == 1 ? "" : "s");
    const int failed_describe = cuda->vendor->describe(gpu, (int)number);
    if (failed_describe) return cuda_failure(cuda, "describe itself", failed_describe, error);
    if (gpu->major * 10 + gpu->minor < MIN_MAJOR * 10 + MIN_MINOR)
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "device '%s' is a %s of compute capability %d.%d; kernels are for %d.%d and "
                                "later",
                                cuda->name, gpu->name, gpu->major, gpu->minor, MIN_MAJOR, MIN_MINOR);
    if (gpu->driver / 1000 < gpu->runtime / 1000) /* any driver of the same major version works */
        return tandem_error_set(
            error, TANDEM_NO_DEVICE,
            "the driver of device '%s' is for CUDA %d.%d, older than the %d.%d that "
            "tandem was built with; install a newer driver, or build with an older CUDA Toolkit",
            cuda->name, gpu->driver / 1000, gpu->driver % 1000 / 10, gpu->runtime / 1000,
            gpu->runtime % 1000 / 10);
    *index = (int)number;
    return TANDEM_OK;
}

tandem_status open_cuda_libraries(cuda_device *cuda, tandem_error *error)
{
    char versions[CUDA_VERSIONS_TEXT];
    tandem_status status = find_cuda_gpu(&cuda->gpu, &cuda->index, cuda, error);
    if (status != TANDEM_OK) return status;
    if (cuda->vendor->versions(versions, sizeof versions)) versions[0] = '\0';
    status = cuda_algorithm_cache_open(&cuda->algorithm_cache, &cuda->gpu, versions, error);
    if (status != TANDEM_OK) return status;
    int failed = cuda->vendor->open(&cuda->libraries, cuda->index);
    if (!failed) failed = cuda->vendor->stream_open(&cuda->stream);
    return failed ? cuda_failure(cuda, "open", failed, error) : TANDEM_OK;
}

void close_cuda_libraries(cuda_device *cuda)
{
    cuda_algorithm_cache_close(cuda->algorithm_cache);
    if (cuda->stream) cuda->vendor->stream_close(cuda->stream);
    if (cuda->libraries) cuda->vendor->close(cuda->libraries);
}
