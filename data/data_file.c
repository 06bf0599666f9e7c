/* data_file.c: reads a file, gzipped or not, up to a limit; or maps it. */
#include "data/data_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/gzip_limit.h"

static const int64_t MAX_HOLES = INT64_C(64) << 20; /* bytes; they take memory as others do */

static tandem_status data_file_error(tandem_error *error, const char *verb, const char *path, int cause)
{
    if (cause == ENOMEM) return tandem_no_memory(error, "to read %s", path);
    return tandem_error_set(error, TANDEM_IO, "Cannot %s %s: %s.", verb, path, strerror(cause));
}

/* O_NONBLOCK: a FIFO without a writer must be refused, not waited for. */
static tandem_status open_regular_file(int *descriptor, const char *path, tandem_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return data_file_error(error, "open", path, errno);
    struct stat file_stat;
    if (fstat(fd, &file_stat) != 0) {
        const int cause = errno;
        close(fd);
        return data_file_error(error, "examine", path, cause);
    }
    if (!S_ISREG(file_stat.st_mode)) {
        close(fd);
        return tandem_error_set(error, TANDEM_MALFORMED, "%s is no regular file.", path);
    }
    const int64_t holes = tandem_file_hole_bytes(fd);
    if (holes > MAX_HOLES) {
        close(fd);
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has %lld bytes, of which %lld were never written; allowed are at most %lld. "
            "Fetch the file again.",
            path, (long long)file_stat.st_size, (long long)holes, (long long)MAX_HOLES);
    }
    *descriptor = fd;
    return TANDEM_OK;
}

/* Makes room after `n` bytes, up to one byte beyond the limit, whose presence shows that the file is too
 * large. */
static tandem_status grow_buffer(uint8_t **bytes, size_t *room, size_t n, size_t limit, const char *path,
                                 tandem_error *error)
{
    if (n < *room) return TANDEM_OK;
    if (n > limit)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s is too large: it has more than %zu bytes, which is the limit.", path,
                                limit);
    size_t more = *room ? *room * 2 : (size_t)1 << 16;
    if (more > limit) more = limit + 1;
    uint8_t *const grown = realloc(*bytes, more);
    if (!grown) return tandem_no_memory(error, "for %zu bytes of %s", more, path);
    *bytes = grown;
    *room = more;
    return TANDEM_OK;
}

static const char *text_after_colon(const char *message)
{
    const char *const colon = strstr(message, ": ");
    return colon ? colon + 2 : message;
}

static tandem_status read_gzip_stream(tandem_data_file *file, gzFile stream, const char *path, size_t limit,
                                      tandem_error *error)
{
    size_t room = 0;
    for (;;) {
        const tandem_status status = grow_buffer(&file->bytes, &room, file->n, limit, path, error);
        if (status != TANDEM_OK) return status;
        /* between two checks of how far it has unpacked */
        const size_t left = room - file->n, chunk = (size_t)1 << 20;
        const int got = gzread(stream, file->bytes + file->n, (unsigned)(left < chunk ? left : chunk));
        if (got > 0) file->n += (size_t)got;
        if (!gzdirect(stream) && tandem_gzip_exceeds_limit(file->n, (uint64_t)gzoffset(stream)))
            return tandem_error_set(error, TANDEM_MALFORMED, "%s: " TANDEM_GZIP_LIMIT_TEXT ".", path);
        int cause = Z_OK;
        const char *const message = gzerror(stream, &cause); /* "<fd:3>: incorrect data check" */
        if (cause == Z_ERRNO) return data_file_error(error, "read", path, errno);
        if (cause == Z_MEM_ERROR) return tandem_no_memory(error, "to unpack %s", path);
        if (cause != Z_OK && cause != Z_BUF_ERROR)
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "The gzip stream of %s is damaged (%s): fetch the file again.", path,
                                    text_after_colon(message));
        file->cut_short = cause == Z_BUF_ERROR;
        if (got <= 0 || file->cut_short) return TANDEM_OK;
    }
}

tandem_status tandem_data_file_read(tandem_data_file *file, const char *path, size_t limit,
                                    tandem_error *error)
{
    tandem_data_file result = {0};
    gzFile stream = NULL;
    int fd = -1;
    tandem_status status = open_regular_file(&fd, path, error);
    if (status != TANDEM_OK) goto out;
    stream = gzdopen(fd, "rb");
    if (!stream) {
        status = tandem_no_memory(error, "to read %s", path);
        goto out;
    }
    fd = -1; /* the stream owns it now */
    status = read_gzip_stream(&result, stream, path, limit, error);
    if (status != TANDEM_OK) goto out;
    uint8_t *const fitting = realloc(result.bytes, result.n ? result.n : 1);
    if (fitting) result.bytes = fitting;
    *file = result;
    result.bytes = NULL;
out:
    if (stream) (void)gzclose_r(stream); /* the last read has reported its errors */
    if (fd >= 0) close(fd);
    free(result.bytes);
    return status;
}

tandem_status tandem_data_file_read_whole(tandem_data_file *file, const char *path, size_t limit,
                                          tandem_error *error)
{
    tandem_data_file result = {0};
    tandem_status status = tandem_data_file_read(&result, path, limit, error);
    if (status == TANDEM_OK && result.cut_short) {
        status = tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s is cut short: its gzip stream breaks off after %zu bytes. Fetch it again.", path, result.n);
        free(result.bytes);
    } else if (status == TANDEM_OK) {
        *file = result;
    }
    return status;
}

/* The descriptor may be closed after it: the pages stay mapped. */
static tandem_status map_descriptor(tandem_mapped_file *file, int fd, const char *path, tandem_error *error)
{
    struct stat about;
    if (fstat(fd, &about) != 0) return data_file_error(error, "examine", path, errno);
    tandem_mapped_file result = {.n = (size_t)about.st_size};
    if (result.n) {
        void *const at = mmap(NULL, result.n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED) return data_file_error(error, "map", path, errno);
        result.bytes = at;
    }
    *file = result;
    return TANDEM_OK;
}

tandem_status tandem_mapped_file_open(tandem_mapped_file *file, const char *path, tandem_error *error)
{
    int fd = -1;
    tandem_status status = open_regular_file(&fd, path, error);
    if (status == TANDEM_OK) status = map_descriptor(file, fd, path, error);
    if (fd >= 0) close(fd);
    return status;
}

void tandem_mapped_file_close(tandem_mapped_file *file)
{
    if (file->bytes) (void)munmap((void *)(uintptr_t)file->bytes, file->n);
    *file = (tandem_mapped_file){0};
}
