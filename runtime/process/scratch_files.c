/* scratch_files.c: temporary files of a command in the working directory; children.c removes them if a signal
 * ends it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/process/process.h"

enum { MAX_FILES = 16, NAME_BYTES = SCRATCH_STORE + 8 };
static char scratch_path[MAX_FILES][NAME_BYTES]; /* "" = free */

void scratch_files_unlink(void)
{
    for (int k = 0; k < MAX_FILES; k++)
        if (scratch_path[k][0]) (void)unlink(scratch_path[k]);
}

void scratch_files_forget(void) { memset(scratch_path, 0, sizeof scratch_path); }

void scratch_file_add(const char *path)
{
    for (int k = 0; k < MAX_FILES; k++)
        if (!scratch_path[k][0]) {
            (void)snprintf(scratch_path[k], NAME_BYTES, "%s", path);
            return;
        }
}

void scratch_file_remove(const char *path)
{
    (void)unlink(path);
    for (int k = 0; k < MAX_FILES; k++)
        if (strcmp(scratch_path[k], path) == 0) scratch_path[k][0] = '\0';
}

int scratch_file_make(char *name, int n_suffix)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int made = mkstemps(name, n_suffix);
    if (made >= 0) scratch_file_add(name);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made;
}

tandem_status scratch_json_make(char path[SCRATCH_JSON], tandem_error *error)
{
    char name[SCRATCH_JSON] = ".tandem-scratch-XXXXXX.json";
    const int made = scratch_file_make(name, (int)strlen(".json"));
    if (made < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot create a file in the working directory: %s",
                                strerror(errno));
    (void)close(made);
    memcpy(path, name, sizeof name);
    return TANDEM_OK;
}

static const char *const suffix[] = {"", "-wal", "-shm", "-journal"};
enum { N_SUFFIX = sizeof suffix / sizeof *suffix };

tandem_status scratch_store_make(char path[SCRATCH_STORE], tandem_error *error)
{
    char name[SCRATCH_STORE] = ".tandem-store-XXXXXX", file[NAME_BYTES];
    const int made = scratch_file_make(name, 0);
    if (made < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot create a store in the working directory: %s",
                                strerror(errno));
    (void)close(made); /* an empty file is an empty store */
    for (int k = 1; k < N_SUFFIX; k++) {
        (void)snprintf(file, sizeof file, "%s%s", name, suffix[k]);
        scratch_file_add(file);
    }
    memcpy(path, name, sizeof name);
    return TANDEM_OK;
}

void scratch_store_remove(const char *path)
{
    char file[NAME_BYTES];
    for (int k = 0; k < N_SUFFIX; k++) {
        (void)snprintf(file, sizeof file, "%s%s", path, suffix[k]);
        scratch_file_remove(file);
    }
}
