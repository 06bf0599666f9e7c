/* algorithm_cache.h: which algorithm of its library a piece of work takes.
 *
 * Work that was chosen for before, in this opening of the device or in one whose choices were handed over, is
 * done in the same way: with the same bits, and the same bytes of workspace. Other work is done as the
 * library guesses best, or, where tries are asked for, as was fastest of what it names, each candidate
 * several times over operands that are not in the card's cache. */
#ifndef TANDEM_BACKEND_CUDA_ALGORITHM_CACHE_H
#define TANDEM_BACKEND_CUDA_ALGORITHM_CACHE_H

#include "backend/cuda/vendor.h"
#include "tandem/device.h"

enum { CUDA_WORK_TEXT = 160 };
typedef struct cuda_algorithm_cache cuda_algorithm_cache;

/* `card` and `versions` are part of what a choice is for. */
tandem_status cuda_algorithm_cache_open(cuda_algorithm_cache **cache, const cuda_gpu *gpu,
                                        const char *versions, tandem_error *error);
void cuda_algorithm_cache_close(cuda_algorithm_cache *cache);
/* Takes over what is for this card and these versions and not known yet, of texts that may be anything. */
tandem_status cuda_algorithm_cache_load(cuda_algorithm_cache *cache, const tandem_algorithm *choice, int n,
                                        int autotune, tandem_error *error);
/* What was tried since; valid until more is. */
const tandem_algorithm *cuda_algorithm_cache_tuned(const cuda_algorithm_cache *cache, int *n);

/* A piece of work as a choice sees it. */
typedef struct cuda_work_key {
    const cuda_work *work;
    char text[CUDA_WORK_TEXT];          /* equal for equal work */
    uint64_t a_bytes, b_bytes, c_bytes; /* of its operands */
} cuda_work_key;
/* 0, or the error of a library; memory of the card that cannot be had for tries is none: then the library's
 * guess is taken. */
int cuda_choose_algorithm(cuda_algorithm *algorithm, cuda_algorithm_cache *cache, const cuda_vendor *vendor,
                          tandem_cuda_stream stream, const cuda_work_key *work);

/* The texts. */
void cuda_product_print(char text[CUDA_WORK_TEXT], const cuda_product_spec *spec);
void cuda_convolution_print(char text[CUDA_WORK_TEXT], const cuda_convolution_spec *spec);
uint64_t cuda_type_bytes(cuda_type type);

#endif
