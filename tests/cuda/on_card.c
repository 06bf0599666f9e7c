/* on_card.c: gpu.h with a card. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/operator.h"
#include "tests/cuda/gpu.h"

const int gpu_is_real = 1;

int skip_without_gpu(void)
{
    tandem_error error = {0};
    void *device = NULL;
    const tandem_status status = tandem_cuda_backend.open(&device, "cuda:0", &error);
    if (status == TANDEM_OK) tandem_cuda_backend.close(device);
    if (status != TANDEM_OK) printf("SKIP: %s\nok 1 - on a card # SKIP\n", error.text);
    return status != TANDEM_OK;
}

/* Page-locked: the card reaches it under the same address ("Unified Virtual Address Space" in the CUDA C++
 * Programming Guide), and nobody reads it while the card writes. */
void *gpu_alloc_shared(size_t bytes)
{
    void *memory = NULL;
    if (cudaMallocHost(&memory, bytes) != cudaSuccess) return NULL;
    memset(memory, 0xA5, bytes);
    return memory;
}

void gpu_free_shared(void *memory) { (void)cudaFreeHost(memory); }

void gpu_sync(void) { (void)cudaDeviceSynchronize(); }

int gpu_open_handles(void) { return 0; }

int gpu_launches(void) { return -1; }

int gpu_blocks(void) { return -1; }

int gpu_has_no_convolutions(int none)
{
    (void)none;
    return 0;
}
