/* ranks.c: a run has one process per rank. The first process starts them and waits. Each rank runs the same
 * command with RANK, WORLD_SIZE and TANDEM_STORE set; another launcher may set them instead. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dirent.h>

#include "cli/cli.h"
#include "cli/process.h"

static char **own_arguments;

void cli_save_arguments(int argc, char **argv)
{
    own_arguments = calloc((size_t)argc + 1, sizeof *own_arguments);
    if (own_arguments) memcpy(own_arguments, argv, (size_t)argc * sizeof *own_arguments);
}

/* --- Being a rank --------------------------------------------------------------------------------------- */

static int read_environment_number(const char *variable, long *number)
{
    const char *text = getenv(variable);
    if (!text) return 0;
    char *end = NULL;
    errno = 0;
    *number = strtol(text, &end, 10);
    return errno || end == text || *end ? -1 : 1;
}

int cli_rank_from_environment(cli_rank *rank, tandem_error *error)
{
    long number = 0, size = 0, local = 0;
    const int has_rank = read_environment_number("RANK", &number),
              has_size = read_environment_number("WORLD_SIZE", &size);
    if (!has_rank && !has_size) return 0;
    const char *store = getenv("TANDEM_STORE");
    if (has_rank < 0 || has_size < 0 || !has_rank || !has_size || size < 1 || size > 4096 || number < 0 ||
        number >= size) {
        (void)tandem_error_set(
            error, TANDEM_USAGE,
            "invalid RANK='%s' or WORLD_SIZE='%s': a run of N ranks has WORLD_SIZE=N and RANK from 0 to N-1",
            getenv("RANK") ? getenv("RANK") : "", getenv("WORLD_SIZE") ? getenv("WORLD_SIZE") : "");
        return -1;
    }
    if (size > 1 && (!store || !*store)) {
        (void)tandem_error_set(error, TANDEM_USAGE,
                               "TANDEM_STORE is not set. Give all ranks the same empty directory");
        return -1;
    }
    if (read_environment_number("LOCAL_RANK", &local) != 1) local = number;
    *rank = (cli_rank){.rank = (int)number,
                       .n_rank = (int)size,
                       .store = store,
                       .local = local >= 0 ? (int)(local % CPU_SETSIZE) : 0};
    return 1;
}

/* Of a core that `n_own` ranks of this run have, too. */
static void note_shared_core(const cli_options *options, int rank, const cli_core *core, int n_own)
{
    if (core->cpu < 0)
        cli_note(options, "rank %d runs on any core: the system does not tell which it may use", rank);
    else if (core->lock < 0)
        cli_note(options, "rank %d runs on core %d without a lock: whether others do, too, is not known",
                 rank, core->cpu);
    else if (core->n_other > n_own)
        cli_note(
            options,
            "warning: rank %d shares core %d with another run: all that it may use are taken; measured times "
            "are unreliable",
            rank, core->cpu);
    else if (core->beside >= 0)
        cli_note(options,
                 "rank %d runs on core %d and another on core %d: both are threads of one physical core",
                 rank, core->cpu, core->beside);
}

int cli_rank_core(const cli_rank *self, const cli_options *options)
{
    static int is_noted;
    const cli_core *const own = cli_core_own(self->local);
    if (!is_noted) note_shared_core(options, self->rank, own, 0);
    is_noted = 1;
    return own->cpu;
}

/* --- Starting ranks ------------------------------------------------------------------------------------- */

static void set_environment_number(const char *variable, int number)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", number);
    (void)setenv(variable, text, 1);
}

/* In the child. Only rank 0 writes to stdout. */
static void exec_rank(int rank, int n_rank, const char *store, const cli_core *core)
{
    set_environment_number("RANK", rank);
    set_environment_number("WORLD_SIZE", n_rank);
    (void)setenv("TANDEM_STORE", store, 1);
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    const int out = rank == 0 ? cli_result_descriptor() : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (out >= 0) (void)dup2(out, STDOUT_FILENO);
    cli_core_bequeath(core);
    (void)execv("/proc/self/exe", own_arguments);
    _exit(tandem_status_exit_code(TANDEM_IO));
}

static int rank_exit_code(int state, int rank)
{
    if (WIFEXITED(state)) return WEXITSTATUS(state);
    if (rank == 0 && WTERMSIG(state) == SIGPIPE)
        cli_end_by(SIGPIPE); /* its output is ours */
    else if (!cli_is_ending())
        fprintf(stderr, "tandem: rank %d was killed by signal %d (%s)\n", rank, WTERMSIG(state),
                cli_signal_name(WTERMSIG(state)));
    return tandem_status_exit_code(TANDEM_RANK_FAILED);
}

/* Returns the exit code of the rank that failed first. Code 6, another rank failed, counts only if there is
 * no other. */
static int wait_for_ranks(void)
{
    const int peer = tandem_status_exit_code(TANDEM_RANK_FAILED);
    int result = 0, state = 0;
    for (int index; (index = cli_child_wait(&state)) > 0;) {
        const int code = rank_exit_code(state, index - 1);
        if (code != 0 && (result == 0 || (result == peer && code != peer && WIFEXITED(state)))) result = code;
    }
    return result;
}

static void remove_directory(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    (void)closedir(directory);
    (void)rmdir(path);
}

static void take_cores(cli_core *core, int n_rank, const cli_options *options)
{
    cli_cores here;
    cli_cores_read(&here);
    if (here.n > 0 && here.n < n_rank)
        cli_note(options, "warning: %d ranks on %d cores; measured times are unreliable", n_rank, here.n);
    for (int r = 0; r < n_rank; r++) {
        int n_own = 0, is_beside_own = 0;
        cli_core_take(&core[r], &here, r);
        for (int k = 0; k < r; k++) {
            n_own += core[k].cpu == core[r].cpu;
            is_beside_own = is_beside_own || core[k].cpu == core[r].beside;
        }
        if (is_beside_own) core[r].beside = -1;
        note_shared_core(options, r, &core[r], n_own);
    }
}

/* 0, or the exit code of a failure. */
static int start_ranks(const cli_core *core, int n_rank, const char *store)
{
    for (int r = 0; r < n_rank && !cli_is_ending(); r++) {
        const int child = cli_child_fork();
        if (child == 0) exec_rank(r, n_rank, store, &core[r]);
        if (child > 0) continue;
        const int code = cli_fail_with(TANDEM_NO_MEMORY, "cannot start rank %d: %s", r, strerror(errno));
        cli_children_terminate();
        return code;
    }
    return 0;
}

/* Between cli_children_begin and _end: a signal leaves nothing behind. */
static int run_ranks(cli_core *core, int n_rank, const cli_options *options)
{
    char store[] = ".tandem-run-XXXXXX";
    if (!mkdtemp(store))
        return cli_fail_with(TANDEM_IO,
                             "cannot create a directory for the ranks in the working directory: %s",
                             strerror(errno));
    take_cores(core, n_rank, options);
    const int code = start_ranks(core, n_rank, store);
    for (int r = 0; r < n_rank; r++) cli_core_release(&core[r]); /* the ranks have them */
    const int result = wait_for_ranks();
    remove_directory(store);
    return code ? code : result;
}

int cli_ranks_start(int n_rank, const cli_options *options)
{
    cli_core *core = calloc((size_t)n_rank, sizeof *core);
    if (!core) return cli_fail_with(TANDEM_NO_MEMORY, "no memory for %d ranks", n_rank);
    cli_children_begin();
    const int code = run_ranks(core, n_rank, options);
    free(core);
    cli_children_end();
    return code;
}

/* --- Running a command of our own ----------------------------------------------------------------------- */

static void exec_self(const cli_options *options, const char *const *argument, int out)
{
    const char *all[64] = {"tandem", "--json"};
    size_t n = 2;
    if (options->quiet) all[n++] = "-q";
    for (; *argument && n + 1 < sizeof all / sizeof *all; argument++) all[n++] = *argument;
    (void)dup2(out, STDOUT_FILENO);
    (void)execv("/proc/self/exe", (char *const *)(uintptr_t)all);
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
    if (!cli_is_ending())
        fprintf(stderr, "tandem: `tandem %s` was killed by signal %d (%s)\n", command, WTERMSIG(state),
                cli_signal_name(WTERMSIG(state)));
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
    cli_children_begin();
    const int child = cli_child_fork();
    if (child == 0) exec_self(options, argument, ends[1]);
    if (child < 0) (void)cli_fail_with(TANDEM_IO, "cannot run a command: %s", strerror(errno));
    (void)close(ends[1]);
    json_error_t where = {0};
    json_t *object = read_json(ends[0], &where);
    if (child > 0 && cli_child_wait(&state) > 0) *exit_code = self_exit_code(state, argument[0]);
    cli_children_end();
    if (*exit_code == 0 && !object)
        *exit_code =
            cli_fail_with(TANDEM_BUG, "`tandem %s` printed no JSON object: %s", argument[0], where.text);
    return object;
}
