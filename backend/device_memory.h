/* device_memory.h: memory that a rank's device works on, seen from the host.
 *
 * Where the device has none of its own (its `take` is NULL: the CPU), it is the host's: a view of it is the
 * memory itself, nothing is copied, and all of this costs a comparison. */
#ifndef TANDEM_BACKEND_DEVICE_MEMORY_H
#define TANDEM_BACKEND_DEVICE_MEMORY_H

#include "backend/worker.h"

static inline int tandem_worker_is_apart(const tandem_worker *worker)
{
    return worker->backend->take != NULL;
}

/* Cleared, and 64-byte aligned at least. Staging: the host's, where the device copies from and to beside
 * other work. TANDEM_NO_MEMORY. */
typedef enum tandem_memory_place { TANDEM_ON_DEVICE, TANDEM_STAGING } tandem_memory_place;
tandem_status tandem_worker_take(void **memory, tandem_worker *worker, tandem_memory_place place,
                                 uint64_t bytes, tandem_error *error);
void tandem_worker_give(tandem_worker *worker, tandem_memory_place place, void *memory); /* NULL is fine */

/* Of the host, and fit for the device's copies, for what this rank exchanges with all others: where they can
 * reach it too, if they share memory (tandem_comm_take), else staging. All ranks together, with the same
 * bytes; NULL is fine to give. */
tandem_status tandem_worker_take_exchanged(void **memory, tandem_worker *worker, uint64_t bytes,
                                           tandem_error *error);
void tandem_worker_give_exchanged(tandem_worker *worker, void *memory);

/* Memory of the device as the host may read and write it: itself, or a copy; of what is there, where `reads`.
 * Waits for the device. */
tandem_status tandem_worker_view(void **view, tandem_worker *worker, const void *memory, uint64_t bytes,
                                 int reads, tandem_error *error);
/* Ends a view; where `writes`, what was written to it stands in `memory` then. */
tandem_status tandem_worker_end_view(tandem_worker *worker, void *view, void *memory, uint64_t bytes,
                                     int writes, tandem_error *error);

/* From device to device, behind what the device was given before. */
tandem_status tandem_worker_move(tandem_worker *worker, void *to, const void *from, uint64_t bytes,
                                 tandem_error *error);

#endif
