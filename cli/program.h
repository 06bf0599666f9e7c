/* program.h: a program of commands: how it begins, its help, and which command runs. `tandem` is one; others
 * of ours, which are not installed, have commands of their own and the same options, output and ranks. */
#pragma once

#include "cli/cli.h"

/* An option of one program alone, beside those of options.def. */
typedef struct cli_own_option {
    const char *name, *value, *help; /* value: NULL = a flag */
    int group;                       /* of --help */
    int *flag;                       /* becomes 1; NULL = text */
    const char **text;
} cli_own_option;

typedef struct cli_program {
    const char *name;  /* "tandem" */
    const char *begin; /* of --help, before the list of commands; NULL = a program of one command, whose name
                        * is not typed */
    const char *end;   /* after the list */
    const cli_command *const *command; /* NULL-terminated */
    const cli_own_option *own;         /* at most CLI_MAX_OWN_OPTION, then one without a name; NULL = none */
} cli_program;

/* Runs the program: returns its exit code (program_run.c). */
int cli_program_run(const cli_program *program, int argc, char **argv);
/* The program that runs; until one has begun, as in a test, "tandem" without commands. */
const cli_program *cli_program_running(void);
void cli_program_begin(const cli_program *program);

/* What a user types for a command: "tandem train", "tandem-study". */
typedef struct cli_call {
    char text[64];
} cli_call;
cli_call cli_call_of(const cli_command *command);
