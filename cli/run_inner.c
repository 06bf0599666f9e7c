/* run_inner.c: a command that runs another one, and takes its result. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { MAX_WORD = 62 };

json_t *cli_run_inner(const cli_command *command, const cli_options *options, const char *const *argument,
                      int *exit_code)
{
    /* the parser of options may change the order of words, and what it keeps of them lives as long */
    char *word[MAX_WORD + 2] = {(char *)(uintptr_t)command->name};
    int n = 1;
    json_t *result = NULL;
    cli_options *const inner = malloc(sizeof *inner);
    *exit_code = tandem_status_exit_code(TANDEM_NO_MEMORY);
    if (!inner) return NULL;
    for (; argument[n - 1] && n < MAX_WORD; n++) word[n] = (char *)(uintptr_t)argument[n - 1];
    cli_options_parse(inner, command, n, word);
    inner->json = 1;
    inner->quiet = options->quiet;
    json_t **const before = cli_capture(&result);
    *exit_code = command->run(inner);
    (void)cli_capture(before);
    free(inner);
    return result;
}
