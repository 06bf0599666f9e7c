/* ranks.c: a run has one process per rank. The first process starts them and waits. Each rank runs the same
 * command with RANK, WORLD_SIZE and TANDEM_STORE set; another launcher may set them instead. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dirent.h>

#include "cli/cli.h"

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

/* The k-th core that this process may use, modulo their number. */
static int nth_usable_core(int k)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return -1;
    const int n = CPU_COUNT(&set);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE && n > 0; cpu++)
        if (CPU_ISSET((size_t)cpu, &set) && seen++ == k % n) return cpu;
    return -1;
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
    *rank = (cli_rank){
        .rank = (int)number, .n_rank = (int)size, .store = store, .cpu = nth_usable_core((int)local)};
    return 1;
}

/* --- Starting ranks ------------------------------------------------------------------------------------- */

static void set_environment_number(const char *variable, int number)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", number);
    (void)setenv(variable, text, 1);
}

/* In the child. Only rank 0 writes to stdout. */
static void exec_rank(int rank, int n_rank, const char *store)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* no rank outlives the command that started it */
    set_environment_number("RANK", rank);
    set_environment_number("WORLD_SIZE", n_rank);
    (void)setenv("TANDEM_STORE", store, 1);
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    if (rank > 0) {
        const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (nowhere >= 0) (void)dup2(nowhere, STDOUT_FILENO);
    }
    (void)execv("/proc/self/exe", own_arguments);
    _exit(tandem_status_exit_code(TANDEM_IO));
}

/* A signal to this process ends the ranks first, so that the run leaves nothing behind. */
static volatile sig_atomic_t end_signal;
static void note_end_signal(int number) { end_signal = number; }

static void catch_end_signals(struct sigaction before[2])
{
    struct sigaction noted = {.sa_handler = note_end_signal}; /* without SA_RESTART: waitpid returns */
    end_signal = 0;
    (void)sigaction(SIGINT, &noted, &before[0]);
    (void)sigaction(SIGTERM, &noted, &before[1]);
}

static void raise_end_signal(const struct sigaction before[2])
{
    (void)sigaction(SIGINT, &before[0], NULL);
    (void)sigaction(SIGTERM, &before[1], NULL);
    if (end_signal) (void)raise(end_signal);
}

static void terminate_ranks(const pid_t *pid, int n_rank)
{
    for (int r = 0; r < n_rank; r++)
        if (pid[r] > 0) (void)kill(pid[r], SIGTERM);
}

static int rank_exit_code(int state, int rank)
{
    if (WIFEXITED(state)) return WEXITSTATUS(state);
    if (!end_signal) fprintf(stderr, "tandem: rank %d was killed by signal %d\n", rank, WTERMSIG(state));
    return tandem_status_exit_code(TANDEM_RANK_FAILED);
}

/* Returns the exit code of the rank that failed first. Code 6, another rank failed, counts only if there is
 * no other. */
static int wait_for_ranks(pid_t *pid, int n_rank)
{
    const int peer = tandem_status_exit_code(TANDEM_RANK_FAILED);
    int result = 0, left = n_rank;
    while (left > 0) {
        int state = 0;
        if (end_signal) terminate_ranks(pid, n_rank);
        const pid_t ended = waitpid(-1, &state, 0);
        if (ended < 0 && errno == EINTR) continue;
        if (ended < 0) break;
        for (int r = 0; r < n_rank; r++) {
            if (pid[r] != ended) continue;
            pid[r] = -1;
            left--;
            const int code = rank_exit_code(state, r);
            if (code != 0 && (result == 0 || (result == peer && code != peer && WIFEXITED(state))))
                result = code;
        }
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

int cli_ranks_start(int n_rank, const cli_options *options)
{
    char store[] = ".tandem-run-XXXXXX";
    if (!mkdtemp(store))
        return cli_fail_with(TANDEM_IO,
                             "cannot create a directory for the ranks in the working directory: %s",
                             strerror(errno));
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < n_rank)
        cli_note(options, "warning: %d ranks on %d cores; measured times are unreliable", n_rank,
                 CPU_COUNT(&set));
    struct sigaction before[2];
    catch_end_signals(before);
    pid_t *pid = calloc((size_t)n_rank, sizeof *pid);
    int code = 0, started = 0;
    for (; pid && started < n_rank; started++) {
        pid[started] = fork();
        if (pid[started] == 0) exec_rank(started, n_rank, store);
        if (pid[started] < 0) break;
    }
    if (!pid || started < n_rank) {
        code = cli_fail_with(TANDEM_NO_MEMORY, "cannot start rank %d: %s", started, strerror(errno));
        if (pid) terminate_ranks(pid, started);
    }
    const int result = pid ? wait_for_ranks(pid, started) : 0;
    free(pid);
    remove_directory(store);
    raise_end_signal(before);
    return code ? code : result;
}

/* --- Running a command of our own ----------------------------------------------------------------------- */

static void exec_self(const cli_options *options, const char *const *argument, int out)
{
    const char *all[64] = {"tandem", "--json"};
    size_t n = 2;
    if (options->quiet) all[n++] = "-q";
    for (; *argument && n + 1 < sizeof all / sizeof *all; argument++) all[n++] = *argument;
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)dup2(out, STDOUT_FILENO);
    (void)execv("/proc/self/exe", (char *const *)(uintptr_t)all);
    _exit(tandem_status_exit_code(TANDEM_IO));
}

json_t *cli_run_self(const cli_options *options, const char *const *argument, int *exit_code)
{
    int ends[2];
    *exit_code = tandem_status_exit_code(TANDEM_IO);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)cli_fail_with(TANDEM_IO, "cannot run a command: %s", strerror(errno));
        return NULL;
    }
    const pid_t pid = fork();
    if (pid == 0) exec_self(options, argument, ends[1]);
    (void)close(ends[1]);
    json_t *object = NULL;
    FILE *out = fdopen(ends[0], "r");
    json_error_t where = {0};
    if (out) object = json_loadf(out, 0, &where);
    if (out) (void)fclose(out);
    int state = 0;
    while (pid > 0 && waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
    *exit_code =
        pid > 0 && WIFEXITED(state) ? WEXITSTATUS(state) : tandem_status_exit_code(TANDEM_RANK_FAILED);
    if (*exit_code == 0 && !object)
        *exit_code =
            cli_fail_with(TANDEM_BUG, "`tandem %s` printed no JSON object: %s", argument[0], where.text);
    return object;
}
