/* device.h: memory of the device that a library of kernels runs on: of the machine that executes PTX
 * (cudart.c), or of the host (at_once.c). */
#pragma once

#include "tests/ptx/ptx.h"

const char *device_open(const char *folder, const ptx_options *options);
ptx_machine *device_machine(void);
void *device_alloc(size_t bytes, int is_written); /* filled with 0x5A, at a multiple of 256 bytes */
void device_free(void *at);
/* Kernels that index with 32 bits up to this many elements, and with 64 beyond (kernels/cuda/layout.cu). */
extern size_t device_narrow_elements;
