/* gpu.h: the card that tests of the CUDA backend run on. Programs in build/card/ link NVIDIA's libraries and
 * run on a real one (on_card.c, make test-cuda); elsewhere tandem_cuda_vendor is what replaces it
 * (stand_in.c). */
#ifndef TANDEM_TESTS_CUDA_CARD_H
#define TANDEM_TESTS_CUDA_CARD_H

#include <stddef.h>

extern const int gpu_is_real;

/* Whether there is no card to test on; then says SKIP and why. */
int skip_without_gpu(void);
/* Memory that both host and card reach, 256-byte aligned, filled with 0xA5; NULL where there is none. */
void *gpu_alloc_shared(size_t bytes);
void gpu_free_shared(void *memory);
/* Waits for all that the card was given. CUDA_LAUNCH_BLOCKING makes launches wait, and no memset. */
void gpu_sync(void);
/* What was opened or taken and not given back; 0 on a card, which does not count. */
int gpu_open_handles(void);
/* Kernels, work of libraries and memsets that it was given so far; −1 on a card, which does not count. */
int gpu_launches(void);
/* Of the kernel that ran last; −1 on a card, which does not report it. */
int gpu_blocks(void);
/* 1: from now on its library knows no way for a convolution; 0: it does again. Whether that works. */
int gpu_has_no_convolutions(int none);

#endif
