/* file.c: reads whole files; writes files that replace the old ones only when complete. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static tandem_status fail_file(tandem_error *error, const char *path, const char *verb, int code)
{
    return tandem_error_set(error, code == ENOMEM ? TANDEM_NO_MEMORY : TANDEM_IO, "'%.200s' cannot be %s: %s",
                            path, verb, strerror(code));
}

int64_t tandem_file_hole_bytes(int descriptor)
{
    enum { MAX_PART = 4096 };
    const off_t end = lseek(descriptor, 0, SEEK_END);
    off_t at = 0;
    int64_t holes = 0;
    for (int i = 0; i < MAX_PART && at >= 0 && at < end; i++) {
        const off_t hole = lseek(descriptor, at, SEEK_HOLE);
        if (hole < 0 || hole >= end) break;
        at = lseek(descriptor, hole, SEEK_DATA);
        holes += (at < 0 || at > end ? end : at) - hole; /* no data after it */
    }
    (void)lseek(descriptor, 0, SEEK_SET);
    return holes;
}

tandem_status tandem_file_read(char **bytes, size_t *n, const char *path, size_t max_bytes,
                               tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    char *all = NULL;
    size_t used = 0, capacity = 0;
    FILE *const stream = fopen(path, "rbe");
    if (!stream) return fail_file(error, path, "read", errno);
    for (;;) {
        if (used == capacity) {
            capacity = capacity ? 2 * capacity : 16 << 10;
            /* one byte more shows that there are too many */
            if (capacity > max_bytes) capacity = max_bytes + 1;
            char *const more = realloc(all, capacity);
            if (!more) {
                status = tandem_no_memory(error, "to read '%.200s'", path);
                goto out;
            }
            all = more;
        }
        errno = 0;
        const size_t got = fread(all + used, 1, capacity - used, stream);
        used += got;
        if (used > max_bytes) {
            status = tandem_error_set(error, TANDEM_MALFORMED,
                                      "'%.200s' is larger than the %zu bytes that such a file may have; is "
                                      "it the one you mean?",
                                      path, max_bytes);
            goto out;
        }
        if (got == 0) break;
    }
    if (ferror(stream)) {
        status = fail_file(error, path, "read", errno);
        goto out;
    }
    *bytes = all;
    *n = used;
    all = NULL;
out:
    free(all);
    (void)fclose(stream);
    return status;
}

/* --- Writing -------------------------------------------------------------------------------------------- */

/* An unpredictable name beside a file. Names with this prefix belong to tandem. */
static char *make_partial_name(const char *beside)
{
    char *name = NULL;
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number)
        /* early at boot; O_EXCL still detects a used name */
        number = (uint64_t)getpid() << 32 ^ (uint64_t)clock();
    const int n = asprintf(&name, ".tandem-%.100s-%016" PRIx64, beside, number);
    return n < 0 ? NULL : name;
}

/* Gives a new file the mode of the old one, and its owner as far as that is allowed. 0, or errno. */
static int copy_owner_and_mode(int file, const struct stat *old)
{
    struct stat found;
    mode_t mode = old->st_mode & 0777;
    if (fstat(file, &found) != 0) return errno;
    if ((found.st_uid != old->st_uid || found.st_gid != old->st_gid) &&
        fchown(file, old->st_uid, old->st_gid) != 0 && fchown(file, (uid_t)-1, old->st_gid) != 0)
        mode = (mode & 0707) | (mode & 07) << 3; /* the rights of one group are not those of another */
    return (found.st_mode & 0777) == mode || fchmod(file, mode) == 0 ? 0 : errno;
}

/* Opens the new content of a file, without a name where the file system can: then nothing is left of it
 * however this process ends. −1: errno says why. */
static int create_partial(tandem_file *file)
{
    const struct stat *const old = file->at.exists ? &file->at.seen : NULL;
    const mode_t mode = old ? old->st_mode & 0666 : 0666; /* never more open than the old one */
    int made = openat(file->at.folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    file->is_unnamed = made >= 0;
    if (made < 0)
        made =
            openat(file->at.folder, file->partial, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    const int code = made >= 0 && old ? copy_owner_and_mode(made, old) : 0;
    if (code == 0) return made;
    (void)close(made);
    if (!file->is_unnamed) (void)unlinkat(file->at.folder, file->partial, 0);
    errno = code;
    return -1;
}

/* Special files are written directly, and so are files without a name, to which /dev/stdout may lead. */
static bool can_be_replaced(const tandem_path *place)
{
    return !place->exists || (!place->is_proc && S_ISREG(place->seen.st_mode));
}

static void forget_file(tandem_file *file)
{
    tandem_path_close(&file->at);
    free(file->partial);
    free(file->path);
    *file = (tandem_file){0};
}

static tandem_status open_stream(tandem_file *file, tandem_error *error)
{
    int opened = -1;
    tandem_status status = tandem_path_check_target(&file->at, file->path, false, error);
    if (status != TANDEM_OK) return status;
    const bool is_replaced = can_be_replaced(&file->at);
    errno = ENOMEM;
    if (is_replaced && (file->partial = make_partial_name(file->at.name))) opened = create_partial(file);
    if (!is_replaced) opened = tandem_path_open_at(&file->at, O_TRUNC);
    if (opened >= 0) file->stream = fdopen(opened, "wb");
    if (file->stream) return TANDEM_OK;
    status = fail_file(error, file->path, "written", errno);
    if (opened >= 0) (void)close(opened);
    if (opened >= 0 && file->partial && !file->is_unnamed) (void)unlinkat(file->at.folder, file->partial, 0);
    return status;
}

tandem_status tandem_file_open(tandem_file *file, const char *path, tandem_error *error)
{
    if (strcmp(path, "-") == 0) {
        *file = (tandem_file){.stream = stdout};
        return TANDEM_OK;
    }
    tandem_file opened = {.path = strdup(path)};
    if (!opened.path) return fail_file(error, path, "written", ENOMEM);
    tandem_status status = tandem_path_follow(&opened.at, path, error);
    if (status == TANDEM_OK) status = open_stream(&opened, error);
    if (status == TANDEM_OK)
        *file = opened;
    else
        forget_file(&opened);
    return status;
}

/* Gives an unnamed file its name. 0, or errno. */
static int link_partial(tandem_file *file)
{
    char opened[32];
    (void)snprintf(opened, sizeof opened, "/proc/self/fd/%d", fileno(file->stream));
    if (linkat(AT_FDCWD, opened, file->at.folder, file->partial, AT_SYMLINK_FOLLOW) != 0) return errno;
    file->is_unnamed = false;
    return 0;
}

/* Moves the complete file to its path, and flushes the folder: otherwise a crash of the machine may undo the
 * rename. Ignores folders that cannot be read, and file systems that cannot flush them (EINVAL). 0, or
 * errno. */
static int move_into_place(const tandem_file *file)
{
    const int folder = file->at.folder;
    int code = renameat(folder, file->partial, folder, file->at.name) != 0 ? errno : 0;
    const int directory = code ? -1 : openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0 && fsync(directory) != 0 && errno != EINVAL) code = errno;
    if (directory >= 0) (void)close(directory);
    return code;
}

/* 0, or errno. */
static int flush_written(tandem_file *file)
{
    if (ferror(file->stream))
        return errno ? errno : EIO; /* of the failed write, if the caller came here at once */
    return fflush(file->stream) != 0 || (file->partial && fsync(fileno(file->stream)) != 0) ? errno : 0;
}

/* Closes the stream, and gives its file the name. `code`: of what was before. 0, or errno of the first that
 * failed. */
static int close_and_place(tandem_file *file, int code)
{
    if (code == 0 && file->partial && file->is_unnamed) code = link_partial(file);
    if (file->stream != stdout && fclose(file->stream) != 0 && code == 0) code = errno;
    file->stream = NULL;
    return code == 0 && file->partial ? move_into_place(file) : code;
}

tandem_status tandem_file_finish(tandem_file *file, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    sigset_t all, before;
    int code = flush_written(file);
    /* from the name that is made up to the rename, a signal that ends the process would leave that name */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    code = close_and_place(file, code);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        status = fail_file(error, file->path ? file->path : "the standard output", "written", code);
    } else {
        free(file->partial); /* it exists no more: nothing to remove */
        file->partial = NULL;
    }
    tandem_file_discard(file);
    return status;
}

void tandem_file_discard(tandem_file *file)
{
    if (file->stream && file->stream != stdout) (void)fclose(file->stream);
    if (file->partial && !file->is_unnamed) (void)unlinkat(file->at.folder, file->partial, 0);
    forget_file(file);
}
