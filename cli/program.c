/* program.c: which program runs, and what follows from it. */
#include "cli/program.h"

#include <stdio.h>
#include <string.h>

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
