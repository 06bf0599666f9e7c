/* scratch_files.c: temporary files of a command in the working directory, removed also if a signal ends it.
 * */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

enum { MAX_FILES = 16, NAME_BYTES = CLI_SCRATCH_STORE + 8 };
static char scratch_path[MAX_FILES][NAME_BYTES]; /* "" = free */

static void remove_scratch_files(int number)
{
    for (int k = 0; k < MAX_FILES; k++)
        if (scratch_path[k][0]) (void)unlink(scratch_path[k]);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Leaves ignored signals (nohup) and signals with a handler alone; ranks.c raises its signals again. */
static void catch_removal_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        struct sigaction now;
        if (sigaction(ends[k], NULL, &now) != 0 || now.sa_handler != SIG_DFL) continue;
        now = (struct sigaction){.sa_handler = remove_scratch_files};
        (void)sigaction(ends[k], &now, NULL);
    }
}

void cli_scratch_file_add(const char *path)
{
    catch_removal_signals();
    for (int k = 0; k < MAX_FILES; k++)
        if (!scratch_path[k][0]) {
            (void)snprintf(scratch_path[k], NAME_BYTES, "%s", path);
            return;
        }
}

void cli_scratch_file_remove(const char *path)
{
    (void)unlink(path);
    for (int k = 0; k < MAX_FILES; k++)
        if (strcmp(scratch_path[k], path) == 0) scratch_path[k][0] = '\0';
}

tandem_status cli_scratch_json_make(char path[CLI_SCRATCH_JSON], tandem_error *error)
{
    char name[CLI_SCRATCH_JSON] = ".tandem-scratch-XXXXXX.json";
    const int made = mkstemps(name, (int)strlen(".json"));
    if (made < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot create a file in the working directory: %s",
                                strerror(errno));
    (void)close(made);
    cli_scratch_file_add(name);
    memcpy(path, name, sizeof name);
    return TANDEM_OK;
}

static const char *const suffix[] = {"", "-wal", "-shm", "-journal"};
enum { N_SUFFIX = sizeof suffix / sizeof *suffix };

tandem_status cli_scratch_store_make(char path[CLI_SCRATCH_STORE], tandem_error *error)
{
    char name[CLI_SCRATCH_STORE] = ".tandem-store-XXXXXX", file[NAME_BYTES];
    const int made = mkstemp(name);
    if (made < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot create a store in the working directory: %s",
                                strerror(errno));
    (void)close(made); /* an empty file is an empty store */
    for (int k = 0; k < N_SUFFIX; k++) {
        (void)snprintf(file, sizeof file, "%s%s", name, suffix[k]);
        cli_scratch_file_add(file);
    }
    memcpy(path, name, sizeof name);
    return TANDEM_OK;
}

void cli_scratch_store_remove(const char *path)
{
    char file[NAME_BYTES];
    for (int k = 0; k < N_SUFFIX; k++) {
        (void)snprintf(file, sizeof file, "%s%s", path, suffix[k]);
        cli_scratch_file_remove(file);
    }
}
