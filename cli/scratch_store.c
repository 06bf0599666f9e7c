/* scratch_store.c: a store that a command makes for itself, in the working directory, and removes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

tandem_status cli_scratch_store_make(char path[CLI_SCRATCH_STORE], tandem_error *error)
{
    char name[CLI_SCRATCH_STORE] = ".tandem-store-XXXXXX";
    const int file = mkstemp(name);
    if (file < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot make a store in the working directory: %s",
                                strerror(errno));
    (void)close(file); /* an empty file is an empty store */
    memcpy(path, name, sizeof name);
    return TANDEM_OK;
}

void cli_scratch_store_remove(const char *path)
{
    static const char *const suffix[] = {"", "-wal", "-shm"};
    char file[CLI_SCRATCH_STORE + 8];
    for (int k = 0; k < 3; k++) {
        (void)snprintf(file, sizeof file, "%s%s", path, suffix[k]);
        (void)unlink(file);
    }
}
