/* device_memory.h: memory that a rank's device works on, seen from the host.
 *
 * Where the device has none of its own (its `alloc` is NULL: the CPU), it is the host's: a view of it is the
 * memory itself, nothing is copied, and all of this costs a comparison. */
#ifndef TANDEM_BACKEND_DEVICE_MEMORY_H
#define TANDEM_BACKEND_DEVICE_MEMORY_H

#include "backend/device/worker.h"

static inline int tandem_worker_has_device_memory(const tandem_worker *worker)
{
    return worker->backend->alloc != NULL;
}

/* Cleared, and 64-byte aligned at least. Staging: the host's, where the device copies from and to beside
 * other work. TANDEM_NO_MEMORY. */
typedef enum tandem_memory_location { TANDEM_DEVICE_MEMORY, TANDEM_STAGING_MEMORY } tandem_memory_location;
tandem_status tandem_worker_alloc(void **memory, tandem_worker *worker, tandem_memory_location location,
                                  uint64_t bytes, tandem_error *error);
/* NULL is fine */
void tandem_worker_free(tandem_worker *worker, tandem_memory_location location, void *memory);

/* Of the host, and fit for the device's copies, for what this rank exchanges with all others: where they can
 * reach it too, if they share memory (tandem_comm_alloc_shared), else staging. All ranks together, with the
 * same bytes; NULL is fine to give. */
tandem_status tandem_worker_alloc_shared(void **memory, tandem_worker *worker, uint64_t bytes,
                                         tandem_error *error);
void tandem_worker_free_shared(tandem_worker *worker, void *memory);

/* Memory of the device as the host may read and write it: itself, or a copy; of what is there, where `reads`.
 * Waits for the device. */
tandem_status tandem_worker_view(void **view, tandem_worker *worker, const void *memory, uint64_t bytes,
                                 int copy_in, tandem_error *error);
/* Ends a view; where `writes`, what was written to it stands in `memory` then. */
tandem_status tandem_worker_end_view(tandem_worker *worker, void *view, void *memory, uint64_t bytes,
                                     int copy_back, tandem_error *error);

/* From device to device, behind what the device was given before. */
tandem_status tandem_worker_copy_async(tandem_worker *worker, void *to, const void *from, uint64_t bytes,
                                       tandem_error *error);

#endif
