#include "backend/comm/segment.h"

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

/* Where rank 0 has the memory. */
typedef struct ticket {
    char machine[TANDEM_BOOT_ID_BYTES];
    uint64_t device, inode; /* of the open file */
    int32_t process, file;  /* process 0: rank 0 has none */
} ticket;

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

static uint64_t parts_bytes(const tandem_segment *segment)
{
    return (uint64_t)segment->n_rank * segment->stride_bytes;
}

/* --- The file ------------------------------------------------------------------------------------------- */

static tandem_status refuse(const char *what, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_IO, "shared memory: cannot %s: %s", what, strerror(errno));
}

/* Memory is taken here and now: where a page were missing later, the process would end by SIGBUS. */
static tandem_status allocate(const tandem_segment *segment, uint64_t begin, uint64_t bytes,
                              tandem_error *error)
{
    int failed = 0;
    do failed = bytes ? fallocate(segment->file, 0, (off_t)begin, (off_t)bytes) : 0;
    while (failed && errno == EINTR);
    if (failed && (errno == ENOSPC || errno == ENOMEM))
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no %llu bytes of shared memory left",
                                (unsigned long long)bytes);
    return failed ? refuse("allocate it", error) : TANDEM_OK;
}

/* Who makes a file longer than a limit gets a signal that ends the process, and memory counts as a file.
 * Under any limit none is shared, so that ranks which share some have room for all. */
static bool are_files_limited(void)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur == RLIM_INFINITY) return false;
    errno = EFBIG;
    return true;
}

static tandem_status make(ticket *told, tandem_segment *segment, tandem_error *error)
{
    struct stat is;
    if (are_files_limited()) return refuse("make it", error);
    segment->file = memfd_create("tandem", MFD_CLOEXEC);
    if (segment->file < 0 || ftruncate(segment->file, (off_t)segment->mapped_bytes) != 0 ||
        fstat(segment->file, &is) != 0)
        return refuse("make it", error);
    told->device = is.st_dev;
    told->inode = is.st_ino;
    told->process = getpid();
    told->file = segment->file;
    return allocate(segment, parts_bytes(segment), segment->common_bytes, error);
}

static bool is_it(const struct stat *is, const ticket *told)
{
    return is->st_dev == told->device && is->st_ino == told->inode;
}

/* Looked at before it is opened: where process ids mean other processes, it may be anything. */
static tandem_status find(tandem_segment *segment, const ticket *told, tandem_error *error)
{
    char path[48], machine[TANDEM_BOOT_ID_BYTES];
    struct stat is;
    tandem_boot_id(machine);
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)told->process, (int)told->file);
    if (told->process == 0) return TANDEM_IO; /* for a reason that is not this rank's */
    errno = EXDEV;
    if (memcmp(machine, told->machine, sizeof machine) != 0 || stat(path, &is) != 0 || !is_it(&is, told))
        return refuse("reach that of rank 0", error);
    segment->file = open(path, O_RDWR | O_CLOEXEC);
    if (segment->file < 0 || fstat(segment->file, &is) != 0 || !is_it(&is, told))
        return refuse("open that of rank 0", error);
    return TANDEM_OK;
}

/* --- The mapping ---------------------------------------------------------------------------------------- */

/* At a multiple of huge pages, else none of it could be one. */
static tandem_status map(tandem_segment *segment, tandem_error *error)
{
    const size_t bytes = segment->mapped_bytes, room = bytes + HUGE_PAGE_BYTES;
    void *reserved = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return refuse("map it", error);
    const size_t before = (HUGE_PAGE_BYTES - (uintptr_t)reserved % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    char *place = (char *)reserved + before;
    const int failed =
        mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment->file, 0) == MAP_FAILED;
    const tandem_status status = failed ? refuse("map it", error) : TANDEM_OK;
    if (before) (void)munmap(reserved, before);
    (void)munmap(place + bytes, HUGE_PAGE_BYTES - before);
    if (failed) (void)munmap(place, bytes);
    if (failed) return status;
    segment->memory = place;
    segment->common = place + parts_bytes(segment);
    return TANDEM_OK;
}

/* This rank's part, in huge pages where the system has them (with transparent ones switched off for shared
 * memory, it gives them if asked to collapse small ones). */
static tandem_status take_part(const tandem_segment *segment, tandem_error *error)
{
    const uint64_t begin = (uint64_t)segment->rank * segment->stride_bytes;
    const tandem_status status = allocate(segment, begin, segment->bytes, error);
    if (status != TANDEM_OK) return status;
    const uint64_t huge_bytes = segment->bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (huge_bytes) (void)madvise(segment->memory, segment->mapped_bytes, MADV_HUGEPAGE);
    if (huge_bytes) (void)madvise(segment->memory + begin, huge_bytes, MADV_COLLAPSE);
    memset(segment->memory + begin, 0, segment->bytes);
    return TANDEM_OK;
}

/* Whole pages, which are this rank's alone. */
static tandem_status lock_part(tandem_segment *segment, const tandem_comm_lock *locking, tandem_error *error)
{
    char *part = segment->memory + (uint64_t)segment->rank * segment->stride_bytes;
    if (!locking->lock || segment->bytes == 0) return TANDEM_OK;
    if (locking->lock(locking->device, part, round_up(segment->bytes, PAGE_BYTES), error) != TANDEM_OK)
        return TANDEM_IO;
    segment->locking = *locking;
    return TANDEM_OK;
}

/* The others' parts are there by now: the first use of each of their pages would cost a fault. */
static void look_up_all(const tandem_segment *segment)
{
    const volatile char *memory = segment->memory;
    for (uint64_t at = 0; at < segment->mapped_bytes; at += PAGE_BYTES)
        if (at >= parts_bytes(segment) || at % segment->stride_bytes < segment->bytes) (void)memory[at];
}

/* --- All together --------------------------------------------------------------------------------------- */

static tandem_status enter(tandem_segment *segment, const ticket *told, const tandem_comm_lock *locking,
                           tandem_error *error)
{
    tandem_status status = segment->rank == 0 ? TANDEM_OK : find(segment, told, error);
    if (status == TANDEM_OK) status = map(segment, error);
    if (status == TANDEM_OK) status = take_part(segment, error);
    return status == TANDEM_OK ? lock_part(segment, locking, error) : status;
}

/* The worst of all ranks' results, the same on every rank: TANDEM_NO_MEMORY, then TANDEM_IO. */
static tandem_status agree(tandem_comm *comm, uint64_t bytes, tandem_status own, uint32_t tag,
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

static tandem_segment describe(const tandem_segment_options *options)
{
    const uint64_t bytes = options->bytes,
                   page_bytes = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
    tandem_segment s = {.rank = options->rank, .n_rank = options->n_rank, .bytes = bytes, .file = -1};
    s.stride_bytes = round_up(bytes, page_bytes);
    s.common_bytes = round_up(options->common_bytes, PAGE_BYTES);
    s.mapped_bytes = parts_bytes(&s) + s.common_bytes;
    return s;
}

tandem_status tandem_segment_open(tandem_segment *out, tandem_comm *comm,
                                  const tandem_segment_options *options, tandem_error *error)
{
    tandem_segment segment = describe(options);
    ticket told = {.process = 0};
    tandem_error own = {TANDEM_OK, -1, ""};
    tandem_status status = options->refuses ? TANDEM_IO : TANDEM_OK;
    if (segment.rank == 0) tandem_boot_id(told.machine);
    if (segment.rank == 0 && status == TANDEM_OK) status = make(&told, &segment, &own);
    const tandem_status heard = tandem_comm_broadcast(comm, &told, sizeof told, 0, options->tag, &own);
    if (heard == TANDEM_OK && status == TANDEM_OK) status = enter(&segment, &told, &options->locking, &own);
    status = heard == TANDEM_OK ? agree(comm, segment.bytes, status, options->tag, &own) : heard;
    if (status != TANDEM_OK) {
        tandem_segment_close(&segment);
        if (error) *error = own;
        return status;
    }
    look_up_all(&segment);
    (void)close(segment.file);
    segment.file = -1;
    *out = segment;
    return TANDEM_OK;
}

void tandem_segment_close(tandem_segment *segment)
{
    if (segment->locking.lock)
        segment->locking.unlock(segment->locking.device, tandem_segment_part(segment, segment->rank));
    if (segment->memory) (void)munmap(segment->memory, segment->mapped_bytes);
    if (segment->file >= 0) (void)close(segment->file);
    segment->memory = segment->common = NULL;
    segment->file = -1;
}
