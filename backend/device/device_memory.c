/* device_memory.c: allocates, views and copies memory of a rank's device. */
#include "backend/device/device_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_PAGE_BYTES = 2 << 20 };

tandem_status tandem_worker_alloc(void **memory, tandem_worker *worker, tandem_memory_location location,
                                  uint64_t bytes, tandem_error *error)
{
    if (tandem_worker_has_device_memory(worker))
        return worker->backend->alloc(worker->device, memory, bytes, location == TANDEM_STAGING_MEMORY,
                                      error);
    void *taken = NULL;
    const int is_large = bytes >= HUGE_PAGE_BYTES;
    if (posix_memalign(&taken, is_large ? HUGE_PAGE_BYTES : ALIGNMENT, bytes ? bytes : ALIGNMENT) != 0)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no %llu bytes of memory left",
                                (unsigned long long)bytes);
    /* Walks over tensors that jump from row to row otherwise spend up to a tenth of a step on address
     * translation. */
    if (is_large) (void)madvise(taken, bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    memset(taken, 0, bytes); /* this touches every page, so the first step has no page faults */
    *memory = taken;
    return TANDEM_OK;
}

void tandem_worker_free(tandem_worker *worker, tandem_memory_location location, void *memory)
{
    if (tandem_worker_has_device_memory(worker))
        worker->backend->free(worker->device, memory, location == TANDEM_STAGING_MEMORY);
    else
        free(memory);
}

tandem_status tandem_worker_alloc_shared(void **memory, tandem_worker *worker, uint64_t bytes,
                                         tandem_error *error)
{
    void *taken = NULL;
    const tandem_status status =
        worker->comm ? tandem_comm_alloc_shared(worker->comm, &taken, bytes, TAG_WORKER, error) : TANDEM_OK;
    if (status == TANDEM_OK && !taken)
        return tandem_worker_alloc(memory, worker, TANDEM_STAGING_MEMORY, bytes, error);
    if (status == TANDEM_OK) *memory = taken;
    return status;
}

void tandem_worker_free_shared(tandem_worker *worker, void *memory)
{
    if (!memory || (worker->comm && tandem_comm_free_shared(worker->comm, memory))) return;
    tandem_worker_free(worker, TANDEM_STAGING_MEMORY, memory);
}

tandem_status tandem_worker_view(void **view, tandem_worker *worker, const void *memory, uint64_t bytes,
                                 int copy_in, tandem_error *error)
{
    if (!tandem_worker_has_device_memory(worker)) {
        *view = (void *)(uintptr_t)memory; /* writers declare it in end_view */
        return TANDEM_OK;
    }
    void *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        return tandem_no_memory(error, "for a copy of %llu bytes of the device", (unsigned long long)bytes);
    const tandem_status status =
        copy_in ? worker->backend->copy(worker->device, copy, memory, bytes, error) : TANDEM_OK;
    if (status == TANDEM_OK)
        *view = copy;
    else
        free(copy);
    return status;
}

tandem_status tandem_worker_end_view(tandem_worker *worker, void *view, void *memory, uint64_t bytes,
                                     int copy_back, tandem_error *error)
{
    if (!tandem_worker_has_device_memory(worker)) return TANDEM_OK;
    const tandem_status status =
        copy_back && view ? worker->backend->copy(worker->device, memory, view, bytes, error) : TANDEM_OK;
    free(view);
    return status;
}

tandem_status tandem_worker_copy_async(tandem_worker *worker, void *to, const void *from, uint64_t bytes,
                                       tandem_error *error)
{
    if (tandem_worker_has_device_memory(worker))
        return worker->backend->copy_async(worker->device, TANDEM_DEVICE_STREAM_COMPUTE, to, from, bytes,
                                           error);
    memcpy(to, from, bytes);
    return TANDEM_OK;
}
