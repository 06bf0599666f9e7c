/* shm_region.h: memory that the ranks of one machine share. Private to backend/comm.
 *
 * Anonymous memory (memfd_create) that rank 0 makes and every other rank opens by way of /proc: a part for
 * each rank, taken by that rank so that it lies near its core, and behind the parts some bytes of all. It has
 * no name, and is gone with the last process that maps it, however that ends. */
#ifndef TANDEM_BACKEND_COMM_SEGMENT_H
#define TANDEM_BACKEND_COMM_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "backend/comm/comm.h"

typedef struct tandem_shm_region {
    int rank, n_rank;
    uint64_t bytes, stride_bytes; /* of a part; from one part to the next */
    char *memory;                 /* part behind part */
    char *common;                 /* behind the last part, at a multiple of a page */
    size_t common_bytes, mapped_bytes;
    int file;                 /* -1: nobody can open it any more */
    tandem_comm_lock locking; /* of this rank's part; lock NULL: it is not locked */
} tandem_shm_region;

typedef struct tandem_shm_region_options {
    int rank, n_rank;
    uint64_t bytes;      /* of a part; 0 is fine */
    size_t common_bytes; /* > 0 */
    int is_disabled;     /* this rank wants none, so that there is none */
    tandem_comm_lock locking;
    uint32_t tag;
} tandem_shm_region_options;

/* All ranks of comm together, with the same sizes; all is cleared and in memory, and this rank's part locked.
 * TANDEM_IO on every rank: there is none, since some rank refuses, or cannot lock its part, or cannot reach
 * the memory of rank 0 (it runs on another machine, or has other process ids or another user); error->text:
 * this rank's reason, "" where it has none. TANDEM_NO_MEMORY on every rank; what a collective says. *segment
 * is unchanged on error. */
tandem_status tandem_shm_region_open(tandem_shm_region *region, tandem_comm *comm,
                                     const tandem_shm_region_options *options, tandem_error *error);
/* What others still do with it goes on. */
void tandem_shm_region_close(tandem_shm_region *region);

static inline float *tandem_shm_region_part(const tandem_shm_region *region, int rank)
{
    return (float *)(void *)(region->memory + (uint64_t)rank * region->stride_bytes);
}

#endif
