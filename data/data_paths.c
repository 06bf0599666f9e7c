/* data_paths.c: finds the files that --data names. */
#include "data/data_paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tandem/advanced/data.h"

/* 0, or why there is no such path: an errno. */
static int look_up_path(tandem_data_path *path, const char *directory, const char *source)
{
    struct stat about;
    const int n = snprintf(path->path, sizeof path->path, "%s%s%s", directory, *directory ? "/" : "", source);
    if (n < 0 || (size_t)n >= sizeof path->path) return ENAMETOOLONG;
    if (stat(path->path, &about) != 0) return errno;
    path->is_directory = S_ISDIR(about.st_mode);
    return 0;
}

/* As given, or below $TANDEM_DATA. */
static int look_up_source(tandem_data_path *path, const char *source)
{
    const char *const base = getenv("TANDEM_DATA");
    const int cause = look_up_path(path, "", source);
    if (cause == 0 || !base || !base[0] || source[0] == '/') return cause;
    return look_up_path(path, base, source) == 0 ? 0 : cause;
}

static tandem_status refuse_source(tandem_data_path *path, const char *source, int cause, tandem_error *error)
{
    if (cause == ENAMETOOLONG)
        return tandem_error_set(error, TANDEM_USAGE,
                                "The path of the data set has %zu bytes, at most %zu are allowed.",
                                strlen(source), sizeof path->path - 1);
    if (cause == ENOENT && !strchr(source, '/'))
        /* no data set has this name either; the error names the nearest */
        return tandem_data_find(path->path, sizeof path->path, source, error);
    return tandem_error_set(error, TANDEM_IO, "Cannot open the data set %.300s: %s.", source,
                            strerror(cause));
}

static tandem_status find_listed(tandem_data_path *path, const char *source, size_t n, tandem_error *error)
{
    char part[PATH_MAX];
    if (n >= sizeof part) return refuse_source(path, source, ENAMETOOLONG, error);
    memcpy(part, source, n);
    part[n] = '\0';
    const int cause = look_up_source(path, part);
    return cause == 0 ? TANDEM_OK : refuse_source(path, part, cause, error);
}

tandem_status tandem_data_paths_find(tandem_data_paths *paths, const char *source, tandem_error *error)
{
    const int cause = look_up_source(&paths->at[0], source);
    paths->n = 1;
    if (cause == 0) return TANDEM_OK;
    if (!strchr(source, ',')) return refuse_source(&paths->at[0], source, cause, error);
    tandem_status status = TANDEM_OK;
    paths->n = 0;
    for (const char *part = source; part && status == TANDEM_OK;) {
        const size_t n = strcspn(part, ",");
        if (paths->n == TANDEM_DATA_MAX_PATHS)
            return tandem_error_set(error, TANDEM_USAGE, "--data lists more than %d files: %.300s.",
                                    TANDEM_DATA_MAX_PATHS, source);
        status = find_listed(&paths->at[paths->n++], part, n, error);
        part = part[n] ? part + n + 1 : NULL;
    }
    return status;
}

int tandem_data_path_ends(const tandem_data_path *path, const char *end)
{
    const size_t n = strlen(path->path), n_end = strlen(end);
    return n >= n_end && strcmp(path->path + n - n_end, end) == 0;
}
