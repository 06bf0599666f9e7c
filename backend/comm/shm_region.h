/* shm_region.h: memory that the ranks of one machine share. Private to backend/comm.
 *
 * Rank 0 creates anonymous memory (memfd_create), and the other ranks open it through /proc. It has one part
 * per rank, which that rank allocates so that it lies near its core, and common bytes after the parts. It has
 * no name and ends with the last process that maps it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/comm/comm.h"

typedef struct tandem_shm_region {
    int rank, n_rank;
    uint64_t bytes, stride_bytes; /* of a part; from one part to the next */
    char *memory;                 /* the parts */
    char *common;                 /* after the last part, at a multiple of a page */
    size_t common_bytes, mapped_bytes;
    int file;                 /* -1: closed, so that no other process can open it */
    tandem_comm_lock locking; /* of this rank's part; lock NULL: it is not locked */
} tandem_shm_region;

typedef struct tandem_shm_region_options {
    int rank, n_rank;
    uint64_t bytes;      /* of a part; 0 is fine */
    size_t common_bytes; /* > 0 */
    int is_disabled;     /* this rank wants no shared memory, so no rank gets any */
    tandem_comm_lock locking;
    uint32_t tag;
} tandem_shm_region_options;

/* All ranks, with the same sizes: the memory is cleared and resident, and this rank's part is locked.
 * TANDEM_IO on every rank: there is none, because a rank has is_disabled set, cannot lock its part, or cannot
 * reach rank 0's memory (another machine, other process ids, another user); error->text: this rank's reason,
 * or "". TANDEM_NO_MEMORY on every rank; errors of a collective. *region is unchanged on error. */
tandem_status tandem_shm_region_open(tandem_shm_region *region, tandem_comm *comm,
                                     const tandem_shm_region_options *options, tandem_error *error);
/* Other ranks may go on using it. */
void tandem_shm_region_close(tandem_shm_region *region);

static inline float *tandem_shm_region_part(const tandem_shm_region *region, int rank)
{
    return (float *)(void *)(region->memory + (uint64_t)rank * region->stride_bytes);
}
