/* device_memory.h: the memory of a rank's device, as the host sees it. Devices without their own memory
 * (`alloc` is NULL: the CPU) use the host's: a view is then the memory itself, and nothing is copied. */
#pragma once

#include "backend/device/worker.h"

static inline int tandem_worker_has_device_memory(const tandem_worker *worker)
{
    return worker->backend->alloc != NULL;
}

/* Cleared, and aligned to at least 64 bytes. Staging memory: page-locked host memory, for copies that run
 * concurrently with kernels. TANDEM_NO_MEMORY. */
typedef enum tandem_memory_location { TANDEM_DEVICE_MEMORY, TANDEM_STAGING_MEMORY } tandem_memory_location;
tandem_status tandem_worker_alloc(void **memory, tandem_worker *worker, tandem_memory_location location,
                                  uint64_t bytes, tandem_error *error);
/* NULL is fine */
void tandem_worker_free(tandem_worker *worker, tandem_memory_location location, void *memory);

/* All ranks, with the same bytes: host memory for an all-reduce, which the device can copy from and to. It is
 * shared with the other ranks where they share memory (tandem_comm_alloc_shared), else staging memory.
 * tandem_worker_free_shared: of this rank alone; NULL is fine. */
tandem_status tandem_worker_alloc_shared(void **memory, tandem_worker *worker, uint64_t bytes,
                                         tandem_error *error);
void tandem_worker_free_shared(tandem_worker *worker, void *memory);

/* Device memory as the host may read and write it: the memory itself, or a host copy; copy_in: with its
 * contents. Waits for the device. */
tandem_status tandem_worker_view(void **view, tandem_worker *worker, const void *memory, uint64_t bytes,
                                 int copy_in, tandem_error *error);
/* Ends a view; copy_back: what the host wrote to it goes to `memory`. */
tandem_status tandem_worker_end_view(tandem_worker *worker, void *view, void *memory, uint64_t bytes,
                                     int copy_back, tandem_error *error);

/* Copies within device memory, or from staging memory, after all work that was queued before. */
tandem_status tandem_worker_copy_async(tandem_worker *worker, void *to, const void *from, uint64_t bytes,
                                       tandem_error *error);
