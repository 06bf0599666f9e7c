/* job_plan.c: reads and writes the plan file of a job by open directory, so that no link is followed. */
#include "plugins/slurm/job_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiles/plan/plan_json.h"

static tandem_status refuse_job_plan(tandem_error *error, const char *name, const char *verb, int code)
{
    return tandem_error_set(error, TANDEM_IO, "'%.200s' cannot be %s in the job's working directory: %s",
                            name, verb, strerror(code));
}

/* --- Reading a plan ------------------------------------------------------------------------------------- */

static tandem_status read_job_plan(char **bytes, size_t *n, int file, const char *name, tandem_error *error)
{
    enum { MAX_FILE_BYTES = 64 << 20 };
    struct stat file_stat;
    if (fstat(file, &file_stat) != 0) return refuse_job_plan(error, name, "read", errno);
    if (!S_ISREG(file_stat.st_mode) || file_stat.st_uid != geteuid())
        return tandem_error_set(error, TANDEM_IO,
                                "'%.200s' in the job's working directory is not a file of this user's", name);
    if (file_stat.st_size > MAX_FILE_BYTES)
        return tandem_error_set(error, TANDEM_MALFORMED, "'%.200s' is larger than the %d bytes allowed", name,
                                MAX_FILE_BYTES);
    char *all = malloc((size_t)file_stat.st_size + 1);
    if (!all) return tandem_no_memory(error, "to read '%.200s'", name);
    size_t used = 0;
    for (ssize_t got = 1; got > 0 && used < (size_t)file_stat.st_size; used += (size_t)(got > 0 ? got : 0))
        if ((got = read(file, all + used, (size_t)file_stat.st_size - used)) < 0) {
            const int code = errno;
            free(all);
            return refuse_job_plan(error, name, "read", code);
        }
    *bytes = all;
    *n = used;
    return TANDEM_OK;
}

/* Whether a file is missing, or was written before `since`. */
static bool is_older_than(int directory, const char *name, time_t since)
{
    struct stat file_stat;
    if (fstatat(directory, name, &file_stat, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
    return file_stat.st_mtime < since;
}

tandem_status tandem_job_plan_read(tandem_plan **plan, tandem_graph **graph, int directory, const char *name,
                                   time_t since, tandem_error *error)
{
    char *bytes = NULL;
    size_t n = 0;
    if (is_older_than(directory, name, since)) return TANDEM_OK;
    const int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return refuse_job_plan(error, name, "read", errno);
    tandem_status status = read_job_plan(&bytes, &n, file, name, error);
    if (status == TANDEM_OK) status = tandem_plan_parse(plan, graph, bytes, n, name, error);
    free(bytes);
    (void)close(file);
    return status;
}

/* --- Writing a plan ------------------------------------------------------------------------------------- */

static bool write_job_plan(int file, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        const ssize_t done = write(file, text, left);
        if (done < 0 && errno != EINTR) return false;
        if (done < 0) continue;
        text += done;
        left -= (size_t)done;
    }
    return fsync(file) == 0;
}

tandem_status tandem_job_plan_write(int *exists, int directory, const char *name, const char *text,
                                    time_t since, tandem_error *error)
{
    char partial[256];
    (void)snprintf(partial, sizeof partial, ".%.200s.%ld.tmp", name, (long)getpid());
    (void)unlinkat(directory, partial, 0); /* left by a killed process of the same number */
    const int file = openat(directory, partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) return refuse_job_plan(error, name, "written", errno);
    bool done = write_job_plan(file, text);
    int code = errno;
    if (close(file) != 0 && done) {
        done = false;
        code = errno;
    }
    /* linkat() fails where the file exists: of two steps that plan at the same time, one is first. */
    *exists = 0;
    if (done && linkat(directory, partial, directory, name, 0) != 0) {
        code = errno;
        *exists = code == EEXIST && !is_older_than(directory, name, since);
        done = *exists || (code == EEXIST && renameat(directory, partial, directory, name) == 0);
    }
    (void)unlinkat(directory, partial, 0);
    return done ? TANDEM_OK : refuse_job_plan(error, name, "written", code);
}
