/* run_self.c: runs a command of this program and reads what it printed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/program.h"

static void exec_self(const cli_options *options, const char *const *argument, int out)
{
    const char *all[64] = {"tandem", "--json"};
    char path[CLI_PATH];
    size_t n = 2;
    cli_tandem_path(path);
    if (options->quiet) all[n++] = "-q";
    for (; *argument && n + 1 < sizeof all / sizeof *all; argument++) all[n++] = *argument;
    (void)dup2(out, STDOUT_FILENO);
    (void)execv(path, (char *const *)(uintptr_t)all);
    _exit(tandem_status_exit_code(TANDEM_IO));
}

/* All of it: a child that still writes would be ended by SIGPIPE. */
static json_t *read_json(int from, json_error_t *where)
{
    char rest[4096];
    FILE *out = fdopen(from, "r");
    if (!out) {
        (void)close(from);
        return NULL;
    }
    json_t *object = json_loadf(out, 0, where);
    while (fread(rest, 1, sizeof rest, out) > 0) continue;
    (void)fclose(out);
    return object;
}

/* The exit code of a command of ours that ended so. */
static int self_exit_code(int state, const char *command)
{
    if (WIFEXITED(state)) return WEXITSTATUS(state);
    if (!children_are_ending())
        fprintf(stderr, "tandem: `tandem %s` was killed by signal %d (%s)\n", command, WTERMSIG(state),
                signal_name(WTERMSIG(state)));
    return tandem_status_exit_code(TANDEM_RANK_FAILED);
}

json_t *cli_run_self(const cli_options *options, const char *const *argument, int *exit_code)
{
    int ends[2], state = 0;
    *exit_code = tandem_status_exit_code(TANDEM_IO);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)cli_fail_with(TANDEM_IO, "cannot run a command: %s", strerror(errno));
        return NULL;
    }
    children_begin();
    const int child = child_fork();
    if (child == 0) exec_self(options, argument, ends[1]);
    if (child < 0) (void)cli_fail_with(TANDEM_IO, "cannot run a command: %s", strerror(errno));
    (void)close(ends[1]);
    json_error_t where = {0};
    json_t *object = read_json(ends[0], &where);
    if (child > 0 && child_wait(&state) > 0) *exit_code = self_exit_code(state, argument[0]);
    children_end();
    if (*exit_code == 0 && !object)
        *exit_code =
            cli_fail_with(TANDEM_BUG, "`tandem %s` printed no JSON object: %s", argument[0], where.text);
    return object;
}
