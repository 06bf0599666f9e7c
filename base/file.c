#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tandem_status refuse(tandem_error *error, const char *path, const char *verb, int code)
{
    return tandem_error_set(error, TANDEM_IO, "'%.200s' cannot be %s: %s", path, verb, strerror(code));
}

tandem_status tandem_file_read(char **bytes, size_t *n, const char *path, size_t most, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    char *all = NULL;
    size_t used = 0, room = 0;
    FILE *const stream = fopen(path, "rbe");
    if (!stream) return refuse(error, path, "read", errno);
    for (;;) {
        if (used == room) {
            room = room ? 2 * room : 16 << 10;
            if (room > most) room = most + 1; /* one byte more tells that there are too many */
            char *const more = realloc(all, room);
            if (!more) {
                status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", path);
                goto out;
            }
            all = more;
        }
        errno = 0;
        const size_t got = fread(all + used, 1, room - used, stream);
        used += got;
        if (used > most) {
            status = tandem_error_set(error, TANDEM_MALFORMED,
                                      "'%.200s' is larger than the %zu bytes that such a file may have; is it the one you mean?",
                                      path, most);
            goto out;
        }
        if (got == 0) break;
    }
    if (ferror(stream)) {
        status = refuse(error, path, "read", errno);
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

/* Where the path's content really lies: a link stays a link, and what it points to is replaced. */
static char *resolve(const char *path)
{
    struct stat seen;
    if (lstat(path, &seen) == 0 && S_ISLNK(seen.st_mode)) {
        char *const real = realpath(path, NULL);
        if (real || errno == ENOMEM) return real;
    }
    return strdup(path);
}

tandem_status tandem_file_open(tandem_file *file, const char *path, tandem_error *error)
{
    if (strcmp(path, "-") == 0) {
        *file = (tandem_file){.stream = stdout};
        return TANDEM_OK;
    }
    tandem_status status = TANDEM_OK;
    tandem_file made = {.path = resolve(path)};
    struct stat seen;
    const bool direct = stat(path, &seen) == 0 && !S_ISREG(seen.st_mode);
    if (made.path && !direct && asprintf(&made.partial, "%s.tmp", made.path) < 0) made.partial = NULL;
    if (!made.path || (!direct && !made.partial)) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to write '%.200s'", path);
        goto out;
    }
    made.stream = fopen(direct ? made.path : made.partial, "wbe");
    if (!made.stream) {
        status = refuse(error, direct ? made.path : made.partial, "written", errno);
        goto out;
    }
    *file = made;
    return TANDEM_OK;
out:
    free(made.partial);
    free(made.path);
    return status;
}

/* Puts the complete file in its place, and its name there on the medium, too: otherwise a crash of the machine may undo the
 * renaming. A folder that may not be read, and a file system that has nothing of the kind (EINVAL), are left alone.
 * 0, or errno. */
static int move_into_place(const tandem_file *file)
{
    const char *const slash = strrchr(file->path, '/');
    char *const folder = slash ? strndup(file->path, (size_t)(slash - file->path) + 1) : strdup(".");
    if (!folder) return ENOMEM;
    int code = rename(file->partial, file->path) != 0 ? errno : 0;
    const int directory = code ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0 && fsync(directory) != 0 && errno != EINVAL) code = errno;
    if (directory >= 0) (void)close(directory);
    free(folder);
    return code;
}

tandem_status tandem_file_finish(tandem_file *file, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int code = ferror(file->stream) ? errno : 0; /* of the write that failed, where the caller came here at once */
    bool failed = ferror(file->stream) != 0;
    if (!failed && (fflush(file->stream) != 0 || (file->partial && fsync(fileno(file->stream)) != 0))) {
        failed = true;
        code = errno;
    }
    if (file->stream != stdout && fclose(file->stream) != 0 && !failed) {
        failed = true;
        code = errno;
    }
    file->stream = NULL;
    if (!failed && file->partial) {
        code = move_into_place(file);
        failed = code != 0;
    }
    if (failed) {
        status = refuse(error, file->path ? file->path : "the standard output", "written", code ? code : EIO);
    } else {
        free(file->partial); /* it is in its place: nothing for discard to remove */
        file->partial = NULL;
    }
    tandem_file_discard(file);
    return status;
}

void tandem_file_discard(tandem_file *file)
{
    if (file->stream && file->stream != stdout) (void)fclose(file->stream);
    if (file->partial) (void)unlink(file->partial);
    free(file->partial);
    free(file->path);
    *file = (tandem_file){0};
}
