/* shm_region.c: creates, maps and locks the memory that the ranks of one machine share. */
#include "backend/comm/shm_region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/boot_id.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum { PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20 };

/* Where rank 0's memory is found. */
typedef struct region_ticket {
    char machine[TANDEM_BOOT_ID_BYTES];
    uint64_t device, inode; /* of the open file */
    int32_t process, file;  /* process 0: rank 0 has no memory */
} region_ticket;

static uint64_t round_up_bytes(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

static uint64_t region_parts_bytes(const tandem_shm_region *region)
{
    return (uint64_t)region->n_rank * region->stride_bytes;
}

/* --- The file ------------------------------------------------------------------------------------------- */

static tandem_status shm_region_error(const char *what, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_IO, "shared memory: cannot %s: %s", what, strerror(errno));
}

/* Allocates pages now: a page that is missing later ends the process by SIGBUS. */
static tandem_status alloc_region_bytes(const tandem_shm_region *region, uint64_t begin, uint64_t bytes,
                                        tandem_error *error)
{
    int failed = 0;
    do failed = bytes ? fallocate(region->file, 0, (off_t)begin, (off_t)bytes) : 0;
    while (failed && errno == EINTR);
    if (failed && (errno == ENOSPC || errno == ENOMEM))
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no %llu bytes of shared memory left",
                                (unsigned long long)bytes);
    return failed ? shm_region_error("allocate it", error) : TANDEM_OK;
}

/* A file that exceeds RLIMIT_FSIZE ends the process by a signal, and this memory counts as a file. With any
 * limit, ranks share no memory. */
static bool are_files_limited(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY) return false;
    errno = EFBIG;
    return true;
}

static tandem_status make_region_file(region_ticket *ticket, tandem_shm_region *region, tandem_error *error)
{
    struct stat is;
    if (are_files_limited()) return shm_region_error("make it", error);
    region->file = memfd_create("tandem", MFD_CLOEXEC);
    if (region->file < 0 || ftruncate(region->file, (off_t)region->mapped_bytes) != 0 ||
        fstat(region->file, &is) != 0)
        return shm_region_error("make it", error);
    ticket->device = is.st_dev;
    ticket->inode = is.st_ino;
    ticket->process = getpid();
    ticket->file = region->file;
    return alloc_region_bytes(region, region_parts_bytes(region), region->common_bytes, error);
}

static bool is_ticket_file(const struct stat *is, const region_ticket *ticket)
{
    return is->st_dev == ticket->device && is->st_ino == ticket->inode;
}

/* Checks the file before it opens it: with other process ids, the path may lead to anything. */
static tandem_status open_region_of_rank_0(tandem_shm_region *region, const region_ticket *ticket,
                                           tandem_error *error)
{
    char path[48], machine[TANDEM_BOOT_ID_BYTES];
    struct stat is;
    tandem_boot_id(machine);
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)ticket->process, (int)ticket->file);
    if (ticket->process == 0) return TANDEM_IO; /* the reason is another rank's */
    errno = EXDEV;
    if (memcmp(machine, ticket->machine, sizeof machine) != 0 || stat(path, &is) != 0 ||
        !is_ticket_file(&is, ticket))
        return shm_region_error("reach that of rank 0", error);
    region->file = open(path, O_RDWR | O_CLOEXEC);
    if (region->file < 0 || fstat(region->file, &is) != 0 || !is_ticket_file(&is, ticket))
        return shm_region_error("open that of rank 0", error);
    return TANDEM_OK;
}

/* --- The mapping ---------------------------------------------------------------------------------------- */

/* Maps it at a multiple of huge pages, without which no page can be huge. */
static tandem_status map_region(tandem_shm_region *region, tandem_error *error)
{
    const size_t bytes = region->mapped_bytes, room = bytes + HUGE_PAGE_BYTES;
    void *reserved = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return shm_region_error("map it", error);
    const size_t before = (HUGE_PAGE_BYTES - (uintptr_t)reserved % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    char *aligned = (char *)reserved + before;
    const int failed =
        mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, region->file, 0) == MAP_FAILED;
    const tandem_status status = failed ? shm_region_error("map it", error) : TANDEM_OK;
    if (before) (void)munmap(reserved, before);
    (void)munmap(aligned + bytes, HUGE_PAGE_BYTES - before);
    if (failed) (void)munmap(aligned, bytes);
    if (failed) return status;
    region->memory = aligned;
    region->common = aligned + region_parts_bytes(region);
    return TANDEM_OK;
}

/* Allocates this rank's part, in huge pages where possible. Where transparent ones are off for shared memory,
 * the system still collapses small pages on request. */
static tandem_status alloc_own_part(const tandem_shm_region *region, tandem_error *error)
{
    const uint64_t begin = (uint64_t)region->rank * region->stride_bytes;
    const tandem_status status = alloc_region_bytes(region, begin, region->bytes, error);
    if (status != TANDEM_OK) return status;
    const uint64_t huge_bytes = region->bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (huge_bytes) (void)madvise(region->memory, region->mapped_bytes, MADV_HUGEPAGE);
    if (huge_bytes) (void)madvise(region->memory + begin, huge_bytes, MADV_COLLAPSE);
    memset(region->memory + begin, 0, region->bytes);
    return TANDEM_OK;
}

/* Whole pages, which belong to this rank alone. */
static tandem_status lock_own_part(tandem_shm_region *region, const tandem_comm_lock *locking,
                                   tandem_error *error)
{
    char *part = region->memory + (uint64_t)region->rank * region->stride_bytes;
    if (!locking->lock || region->bytes == 0) return TANDEM_OK;
    if (locking->lock(locking->device, part, round_up_bytes(region->bytes, PAGE_BYTES), error) != TANDEM_OK)
        return TANDEM_IO;
    region->locking = *locking;
    return TANDEM_OK;
}

/* Touches all pages, which the other ranks have allocated, so that their first use causes no page fault. */
static void touch_all_pages(const tandem_shm_region *region)
{
    const volatile char *memory = region->memory;
    for (uint64_t at = 0; at < region->mapped_bytes; at += PAGE_BYTES)
        if (at >= region_parts_bytes(region) || at % region->stride_bytes < region->bytes) (void)memory[at];
}

/* --- All together --------------------------------------------------------------------------------------- */

static tandem_status enter_region(tandem_shm_region *region, const region_ticket *ticket,
                                  const tandem_comm_lock *locking, tandem_error *error)
{
    tandem_status status = region->rank == 0 ? TANDEM_OK : open_region_of_rank_0(region, ticket, error);
    if (status == TANDEM_OK) status = map_region(region, error);
    if (status == TANDEM_OK) status = alloc_own_part(region, error);
    return status == TANDEM_OK ? lock_own_part(region, locking, error) : status;
}

/* The worst result of all ranks, the same on every rank: TANDEM_NO_MEMORY, then TANDEM_IO. */
static tandem_status agree_on_region(tandem_comm *comm, uint64_t bytes, tandem_status own, uint32_t tag,
                                     tandem_error *error)
{
    float without[2] = {own == TANDEM_NO_MEMORY, own != TANDEM_OK};
    const tandem_status status = tandem_comm_sum_f32(comm, without, 2, tag, error);
    if (status != TANDEM_OK) return status;
    if (without[0] > 0 && own != TANDEM_NO_MEMORY)
        (void)tandem_error_set(error, TANDEM_NO_MEMORY, "another rank has no memory for %llu bytes to share",
                               (unsigned long long)bytes);
    return without[0] > 0 ? TANDEM_NO_MEMORY : without[1] > 0 ? TANDEM_IO : own;
}

static tandem_shm_region plan_region(const tandem_shm_region_options *options)
{
    const uint64_t bytes = options->bytes,
                   page_bytes = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
    tandem_shm_region s = {.rank = options->rank, .n_rank = options->n_rank, .bytes = bytes, .file = -1};
    s.stride_bytes = round_up_bytes(bytes, page_bytes);
    s.common_bytes = round_up_bytes(options->common_bytes, PAGE_BYTES);
    s.mapped_bytes = region_parts_bytes(&s) + s.common_bytes;
    return s;
}

tandem_status tandem_shm_region_open(tandem_shm_region *out, tandem_comm *comm,
                                     const tandem_shm_region_options *options, tandem_error *error)
{
    tandem_shm_region region = plan_region(options);
    region_ticket ticket = {.process = 0};
    tandem_error own = {TANDEM_OK, -1, ""};
    tandem_status status = options->is_disabled ? TANDEM_IO : TANDEM_OK;
    if (region.rank == 0) tandem_boot_id(ticket.machine);
    if (region.rank == 0 && status == TANDEM_OK) status = make_region_file(&ticket, &region, &own);
    const tandem_status heard = tandem_comm_broadcast(comm, &ticket, sizeof ticket, 0, options->tag, &own);
    if (heard == TANDEM_OK && status == TANDEM_OK)
        status = enter_region(&region, &ticket, &options->locking, &own);
    status = heard == TANDEM_OK ? agree_on_region(comm, region.bytes, status, options->tag, &own) : heard;
    if (status != TANDEM_OK) {
        tandem_shm_region_close(&region);
        if (error) *error = own;
        return status;
    }
    touch_all_pages(&region);
    (void)close(region.file);
    region.file = -1;
    *out = region;
    return TANDEM_OK;
}

void tandem_shm_region_close(tandem_shm_region *region)
{
    if (region->locking.lock)
        region->locking.unlock(region->locking.device, tandem_shm_region_part(region, region->rank));
    if (region->memory) (void)munmap(region->memory, region->mapped_bytes);
    if (region->file >= 0) (void)close(region->file);
    region->memory = region->common = NULL;
    region->file = -1;
}
