/* program.c: which program runs, and what follows from it. */
#include "cli/program.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const cli_command *const no_command[] = {NULL};
static const cli_program no_program = {.name = "tandem", .begin = "", .end = "", .command = no_command};
static const cli_program *running = &no_program;

const cli_program *cli_program_running(void) { return running; }
void cli_program_begin(const cli_program *program) { running = program; }

cli_call cli_call_of(const cli_command *command)
{
    cli_call call;
    if (!running->begin)
        (void)snprintf(call.text, sizeof call.text, "%s", running->name);
    else
        (void)snprintf(call.text, sizeof call.text, "%s %s", running->name, command->name);
    return call;
}

void cli_tandem_path(char path[CLI_PATH])
{
    static const char self[] = "/proc/self/exe", name[] = "tandem";
    const ssize_t n = readlink(self, path, CLI_PATH - sizeof name);
    if (strcmp(running->name, name) == 0 || n < 0) {
        memcpy(path, self, sizeof self);
        return;
    }
    path[n] = '\0';
    char *const slash = strrchr(path, '/');
    memcpy(slash ? slash + 1 : path, name, sizeof name);
}
