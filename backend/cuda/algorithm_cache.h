/* algorithm_cache.h: which algorithm of its library a product or convolution uses.
 *
 * Work that is in the cache uses the cached algorithm: same bits, same workspace. Other work uses the
 * library's first candidate that runs: it is tried once, over scratch memory. With autotune, each candidate
 * runs several times over operands outside the GPU's cache, and the fastest is used. Without trials it is the
 * first that the library's check lets pass: no memory is taken, and the GPU is not waited for. */
#pragma once

#include "backend/cuda/vendor.h"
#include "tandem/device.h"

enum { CUDA_WORK_TEXT = 160 };
typedef struct cuda_algorithm_cache cuda_algorithm_cache;

/* The GPU and the versions are part of a cache key. */
tandem_status cuda_algorithm_cache_open(cuda_algorithm_cache **cache, const cuda_gpu *gpu,
                                        const char *versions, tandem_error *error);
void cuda_algorithm_cache_close(cuda_algorithm_cache *cache);
/* Adds the entries for this GPU and these versions that the cache lacks. The texts may be invalid. */
tandem_status cuda_algorithm_cache_load(cuda_algorithm_cache *cache, const tandem_algorithm *choice, int n,
                                        int autotune, tandem_error *error);
void cuda_algorithm_cache_set_trials(cuda_algorithm_cache *cache, int are_made); /* 1 at the opening */
/* The algorithms tuned since the opening; valid until the next tuning. */
const tandem_algorithm *cuda_algorithm_cache_tuned(const cuda_algorithm_cache *cache, int *n);

/* unplanned_bytes of device_backend.h. */
uint64_t cuda_algorithm_cache_unplanned(cuda_algorithm_cache *cache, uint64_t seen);

/* The key of a piece of work. */
typedef struct cuda_work_key {
    const cuda_work *work;
    char text[CUDA_WORK_TEXT];          /* equal for equal work */
    uint64_t a_bytes, b_bytes, c_bytes; /* of its operands */
    int has_max_workspace;              /* 1: no candidate needs a larger workspace than max_workspace */
    uint64_t max_workspace;
} cuda_work_key;
/* 0, or the error of a library. Without GPU memory for the trial, the library's first candidate is used
 * untried; that is no error. */
int cuda_choose_algorithm(cuda_algorithm *algorithm, cuda_algorithm_cache *cache, const cuda_vendor *vendor,
                          tandem_cuda_stream stream, const cuda_work_key *work);

/* Texts of keys. */
void cuda_product_print(char text[CUDA_WORK_TEXT], const cuda_product_spec *spec);
void cuda_convolution_print(char text[CUDA_WORK_TEXT], const cuda_convolution_spec *spec);
uint64_t cuda_type_bytes(cuda_type type);
