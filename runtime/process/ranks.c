/* ranks.c: starts the ranks of a run and waits for them. Each is a process of the helper program tandem-rank:
 * a device sets up its libraries once per process, and a program that calls this library keeps its own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/device_cores.h"
#include "runtime/backend_library.h"
#include "runtime/listener.h"
#include "runtime/own_folder.h"
#include "runtime/process/process.h"
#include "runtime/process/ranks.h"

/* One rank, as its parent sees it. */
typedef struct started_rank {
    pid_t pid;          /* 0 = it has ended */
    int from;           /* the pipe that it writes messages to; −1 = closed */
    int state;          /* how it ended (waitpid) */
    int has_answered;   /* its verb is done */
    int was_signalled;  /* ended from here */
    tandem_error error; /* that it reported; status TANDEM_OK: none */
    int n_core;
    taken_core *core; /* [n_core], of run->core */
} started_rank;

typedef struct started_run {
    const tandem_listener *listener;
    int n_rank;
    started_rank *rank;
    int n_core, most_core; /* of all ranks, of one rank */
    taken_core *core;      /* [n_core], rank by rank */
    int request;           /* a file of memory with the request */
    char helper[PATH_MAX];
    char folder[24]; /* "" = there is none */
    packet *answer;  /* of rank 0 */
    int is_cancelled, was_terminated;
    int64_t end_ms; /* when ranks that go on after a failure are ended; 0 = nothing has failed */
} started_run;

/* --- The helper program --------------------------------------------------------------------------------- */

static const char helper_name[] = "tandem-rank";

static tandem_status find_helper(char path[PATH_MAX], tandem_error *error)
{
    static const char *const beside[] = {"", "/../libexec/tandem", "/../../libexec/tandem"};
    const char *given = getenv("TANDEM_RANK_PROGRAM");
    char folder[PATH_MAX];
    if (given && *given) {
        (void)snprintf(path, PATH_MAX, "%s", given);
        return TANDEM_OK;
    }
    own_folder(folder, sizeof folder);
    for (size_t k = 0; k < sizeof beside / sizeof *beside; k++) {
        const int n = snprintf(path, PATH_MAX, "%s%s/%s", folder, beside[k], helper_name);
        if (n > 0 && n < PATH_MAX && access(path, X_OK) == 0) return TANDEM_OK;
    }
    return tandem_error_set(
        error, TANDEM_MISSING,
        "cannot find %s, which runs a rank. Install it beside '%s' or in ../libexec/tandem, "
        "or set TANDEM_RANK_PROGRAM to its path",
        helper_name, folder);
}

/* --- Cores and folder ----------------------------------------------------------------------------------- */

void ranks_remove_folder(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    (void)closedir(directory);
    (void)rmdir(path);
}

/* Of a core: how many ranks before r have it; and it lies beside none of theirs that this run knows of. */
static int count_own(const started_run *run, int r, taken_core *core)
{
    int n_own = 0, is_beside_own = 0;
    for (const taken_core *other = run->core; other < run->rank[r].core; other++) {
        n_own += other->cpu == core->cpu;
        is_beside_own = is_beside_own || other->cpu == core->beside;
    }
    if (is_beside_own) core->beside = -1;
    return n_own;
}

/* A rank of a class has the cores of its device. */
static tandem_status make_core_lists(started_run *run, const tandem_cluster *cluster, tandem_error *error)
{
    int64_t n_core = 0;
    for (int r = 0; r < run->n_rank; r++) {
        const int n = tandem_device_cores(cluster->classes[tandem_cluster_class_of(cluster, r)].device.name);
        run->rank[r].n_core = n;
        run->most_core = n > run->most_core ? n : run->most_core;
        n_core += n;
    }
    run->core = n_core > 0 && n_core <= INT_MAX ? calloc((size_t)n_core, sizeof *run->core) : NULL;
    if (!run->core) return tandem_no_memory(error, "for the cores of %d ranks", run->n_rank);
    run->n_core = (int)n_core;
    for (int k = 0; k < run->n_core; k++) run->core[k] = (taken_core){.cpu = -1, .lock = -1, .beside = -1};
    for (int r = 0, first = 0; r < run->n_rank; first += run->rank[r++].n_core)
        run->rank[r].core = &run->core[first];
    return TANDEM_OK;
}

static void take_cores(started_run *run)
{
    usable_cores here;
    const tandem_listener *listener = run->listener;
    cores_read(&here);
    if (run->most_core == 1 && here.n > 0 && here.n < run->n_rank)
        runtime_note(listener, "warning: %d ranks on %d cores; measured times are unreliable", run->n_rank,
                     here.n);
    for (int r = 0; r < run->n_rank; r++) {
        const started_rank *const rank = &run->rank[r];
        cores_take(rank->core, rank->n_core, &here, (int)(rank->core - run->core));
        if (rank->n_core > 1) rank_note_own_siblings(listener, r, rank->core, rank->n_core);
        for (int k = 0; k < rank->n_core; k++) {
            const int n_own = count_own(run, r, &rank->core[k]);
            rank_note_shared_core(listener, r, &rank->core[k], n_own);
        }
    }
}

static void release_cores(started_run *run)
{
    for (int k = 0; k < run->n_core; k++) core_release(&run->core[k]);
}

/* --- Starting ------------------------------------------------------------------------------------------- */

enum { N_VARIABLE = 9 };
/* The environment of a rank: ours, but for these. */
typedef struct rank_environment {
    char text[N_VARIABLE][PATH_MAX + 128 + CORES_NAME * TANDEM_MAX_CORE];
    char **all; /* ends with NULL */
} rank_environment;

static int is_replaced(const rank_environment *of, const char *variable)
{
    for (int k = 0; k < N_VARIABLE; k++) {
        const size_t n = strcspn(of->text[k], "=") + 1;
        if (n > 1 && strncmp(of->text[k], variable, n) == 0) return 1;
    }
    return 0;
}

/* 0: no memory. */
static int make_environment(rank_environment *of, const started_run *run, int r, int to)
{
    size_t n = 0, n_all = 0;
    (void)snprintf(of->text[0], sizeof of->text[0], "RANK=%d", r);
    (void)snprintf(of->text[1], sizeof of->text[1], "WORLD_SIZE=%d", run->n_rank);
    (void)snprintf(of->text[2], sizeof of->text[2], "TANDEM_STORE=%s", run->folder);
    (void)snprintf(of->text[3], sizeof of->text[3], "OMP_NUM_THREADS=1");
    (void)snprintf(of->text[4], sizeof of->text[4], "TANDEM_RANK_FILES=%d %d", run->request, to);
    (void)snprintf(of->text[5], sizeof of->text[5], "TANDEM_PARENT=%d", (int)getpid());
    (void)snprintf(of->text[6], sizeof of->text[6], "LOCAL_RANK=%d", r);
    cores_name(run->rank[r].core, run->rank[r].n_core, of->text[7], sizeof of->text[7]);
    if (*runtime_backend_path())
        (void)snprintf(of->text[8], sizeof of->text[8], "TANDEM_BACKEND=%s", runtime_backend_path());
    while (environ && environ[n]) n++;
    of->all = malloc((n + N_VARIABLE + 1) * sizeof *of->all);
    if (!of->all) return 0;
    for (size_t k = 0; k < n; k++)
        if (!is_replaced(of, environ[k])) of->all[n_all++] = environ[k];
    for (int k = 0; k < N_VARIABLE; k++)
        if (of->text[k][0]) of->all[n_all++] = of->text[k];
    of->all[n_all] = NULL;
    return 1;
}

/* The descriptors that a rank keeps: others are closed by its exec. */
static int keep_descriptors(posix_spawn_file_actions_t *actions, const started_run *run, int r, int to)
{
    const int kept[] = {run->request, to};
    const started_rank *const rank = &run->rank[r];
    int failed = posix_spawn_file_actions_adddup2(actions, STDERR_FILENO, STDOUT_FILENO);
    for (int k = 0; k < 2 + rank->n_core && !failed; k++) {
        const int file = k < 2 ? kept[k] : rank->core[k - 2].lock;
        if (file >= 0) failed = posix_spawn_file_actions_adddup2(actions, file, file);
    }
    return failed;
}

/* Signals wait until the child is known. 0, or errno. */
static int spawn_helper(started_run *run, int r, int to, const char *verb, char **environment)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all, before;
    char *const argument[] = {run->helper, (char *)(uintptr_t)verb, NULL};
    (void)sigfillset(&all);
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed) return failed;
    failed = posix_spawnattr_init(&attributes);
    if (!failed) {
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        failed = posix_spawnattr_setsigmask(&attributes, &before);
        if (!failed) failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        if (!failed) failed = keep_descriptors(&actions, run, r, to);
        if (!failed)
            failed =
                posix_spawn(&run->rank[r].pid, run->helper, &actions, &attributes, argument, environment);
        if (failed)
            run->rank[r].pid = 0;
        else
            child_add(run->rank[r].pid);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* A program may have closed its standard files: a rank gets none of ours in their place. */
static int above_standard_files(int file)
{
    if (file < 0 || file > STDERR_FILENO) return file;
    const int above = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    (void)close(file);
    return above;
}

static tandem_status start_rank(started_run *run, int r, const char *verb, tandem_error *error)
{
    int ends[2] = {-1, -1};
    rank_environment *environment = calloc(1, sizeof *environment);
    int failed = environment ? 0 : ENOMEM;
    if (!failed && pipe2(ends, O_CLOEXEC) != 0) failed = errno;
    for (int k = 0; k < 2 && !failed; k++)
        if ((ends[k] = above_standard_files(ends[k])) < 0) failed = errno;
    if (!failed && !make_environment(environment, run, r, ends[1])) failed = ENOMEM;
    if (!failed) failed = spawn_helper(run, r, ends[1], verb, environment->all);
    if (environment) free(environment->all);
    free(environment);
    if (ends[1] >= 0) (void)close(ends[1]);
    if (!failed) {
        run->rank[r].from = ends[0];
        return TANDEM_OK;
    }
    if (ends[0] >= 0) (void)close(ends[0]);
    return tandem_error_set(error, failed == ENOENT ? TANDEM_MISSING : TANDEM_NO_MEMORY,
                            "cannot start rank %d as '%s': %s", r, run->helper, strerror(failed));
}

static void signal_ranks(started_run *run, int signal)
{
    for (int r = 0; r < run->n_rank; r++)
        if (run->rank[r].pid > 0) {
            run->rank[r].was_signalled = 1;
            (void)kill(run->rank[r].pid, signal);
            (void)kill(run->rank[r].pid, SIGCONT);
        }
}

static void terminate_ranks(started_run *run) { signal_ranks(run, SIGTERM); }

static tandem_status start_ranks(started_run *run, const char *verb, tandem_error *error)
{
    for (int r = 0; r < run->n_rank && !children_are_ending(); r++) {
        const tandem_status status = start_rank(run, r, verb, error);
        if (status != TANDEM_OK) {
            terminate_ranks(run);
            return status;
        }
    }
    return TANDEM_OK;
}

/* --- Waiting -------------------------------------------------------------------------------------------- */

static void take_message(started_run *run, int r, const message *head, void *bytes)
{
    started_rank *rank = &run->rank[r];
    const tandem_listener *listener = run->listener;
    if (head->kind == MESSAGE_PROGRESS && listener->progress)
        listener->progress(listener->context, head->left_ns, bytes);
    if (head->kind == MESSAGE_NOTE && listener->note) listener->note(listener->context, bytes);
    if (head->kind == MESSAGE_ERROR) {
        rank->error = (tandem_error){.status = head->status, .rank = head->rank};
        (void)snprintf(rank->error.text, sizeof rank->error.text, "%s", (const char *)bytes);
    }
    if (head->kind == MESSAGE_ANSWER) rank->has_answered = 1;
    if (head->kind == MESSAGE_ANSWER && r == 0) {
        *run->answer = (packet){.bytes = bytes, .n = (size_t)head->bytes, .is_reading = 1};
        return;
    }
    free(bytes);
}

/* A rank that closes its pipe has ended, or is about to. */
static void reap_rank(started_rank *rank)
{
    (void)close(rank->from);
    rank->from = -1;
    while (waitpid(rank->pid, &rank->state, 0) < 0)
        if (errno != EINTR) { /* a program that ignores SIGCHLD does not learn how children end */
            rank->state = 0;
            break;
        }
    child_remove(rank->pid);
    rank->pid = 0;
}

static void read_rank(started_run *run, int r)
{
    message head;
    void *bytes = NULL;
    const int got = message_read(run->rank[r].from, &head, &bytes);
    if (got > 0) {
        take_message(run, r, &head, bytes);
        return;
    }
    if (got < 0) {
        (void)tandem_no_memory(&run->rank[r].error, "for what rank %d reports", r);
        terminate_ranks(run);
    }
    reap_rank(&run->rank[r]);
}

static int has_failed_rank(const started_run *run)
{
    for (int r = 0; r < run->n_rank; r++)
        if (run->rank[r].error.status != TANDEM_OK || (run->rank[r].from < 0 && !run->rank[r].has_answered))
            return 1;
    return 0;
}

/* After a rank has failed the others end by themselves, but for one that is stopped or hangs. Returns how
 * long to wait for them, in ms; −1: for ever. */
static int end_late_ranks(started_run *run)
{
    enum { GRACE_MS = 5000, LAST_MS = 3000 };
    const int64_t now_ms = tandem_now_ns() / 1000000;
    if (!has_failed_rank(run)) return -1;
    if (run->end_ms == 0) run->end_ms = now_ms + GRACE_MS;
    if (now_ms >= run->end_ms) {
        signal_ranks(run, run->was_terminated ? SIGKILL : SIGTERM);
        run->was_terminated = 1;
        run->end_ms = now_ms + LAST_MS;
    }
    return (int)(run->end_ms - now_ms);
}

static void wait_for_ranks(started_run *run, struct pollfd *ready)
{
    for (;;) {
        int n_open = 0;
        for (int r = 0; r < run->n_rank; r++) {
            ready[r] = (struct pollfd){.fd = run->rank[r].from, .events = POLLIN};
            n_open += run->rank[r].from >= 0;
        }
        if (n_open == 0) return;
        const int can_cancel = run->listener->cancel > 0 && !run->is_cancelled;
        ready[run->n_rank] = (struct pollfd){.fd = can_cancel ? run->listener->cancel : -1, .events = POLLIN};
        if (poll(ready, (nfds_t)run->n_rank + 1, end_late_ranks(run)) <= 0) continue;
        if (can_cancel && ready[run->n_rank].revents) {
            run->is_cancelled = 1;
            terminate_ranks(run);
        }
        for (int r = 0; r < run->n_rank; r++)
            if (ready[r].revents) read_rank(run, r);
    }
}

/* --- What came of it ------------------------------------------------------------------------------------ */

/* Of a rank that has failed; it may have been killed before it could report. */
static tandem_status error_of_rank(const started_rank *rank, int r, tandem_error *error)
{
    if (rank->error.status != TANDEM_OK) {
        if (error) *error = rank->error;
        return rank->error.status;
    }
    if (WIFSIGNALED(rank->state))
        return tandem_error_set(error, TANDEM_RANK_FAILED, "rank %d was killed by signal %d (%s)", r,
                                WTERMSIG(rank->state), signal_name(WTERMSIG(rank->state)));
    return tandem_error_set(error, TANDEM_RANK_FAILED, "rank %d ended with exit code %d and no answer", r,
                            WEXITSTATUS(rank->state));
}

/* How much an error says of why the run has ended: that another rank has failed is known only where nothing
 * else is, but for a rank that was ended here. */
static int weight_of(const started_rank *rank)
{
    if (rank->has_answered) return 0;
    if (rank->error.status == TANDEM_OK) return rank->was_signalled ? 1 : 3; /* killed */
    return rank->error.status == TANDEM_RANK_FAILED ? 2 : 4;
}

static tandem_status judge_ranks(const started_run *run, tandem_error *error)
{
    int worst = 0;
    if (run->is_cancelled) return tandem_error_set(error, TANDEM_CANCELLED, "the request was cancelled");
    for (int r = 1; r < run->n_rank; r++)
        if (weight_of(&run->rank[r]) > weight_of(&run->rank[worst])) worst = r;
    return weight_of(&run->rank[worst]) > 0 ? error_of_rank(&run->rank[worst], worst, error) : TANDEM_OK;
}

/* --- Whole ---------------------------------------------------------------------------------------------- */

static tandem_status put_request(started_run *run, const rank_verb *verb, void *request, tandem_error *error)
{
    packet p = {0};
    int has_progress = run->listener->progress != NULL;
    packet_value(&p, &has_progress, sizeof has_progress);
    verb->pack_request(&p, request);
    run->request = p.has_failed ? -1 : above_standard_files(memfd_create("tandem-request", MFD_CLOEXEC));
    const int is_written = run->request >= 0 && write(run->request, p.bytes, p.n) == (ssize_t)p.n;
    packet_free(&p);
    return is_written ? TANDEM_OK : tandem_no_memory(error, "for the request of the ranks");
}

static tandem_status open_started_run(started_run *run, const rank_verb *verb, void *request,
                                      const tandem_cluster *cluster, tandem_error *error)
{
    char folder[] = ".tandem-run-XXXXXX";
    for (int r = 0; r < run->n_rank; r++) run->rank[r] = (started_rank){.from = -1};
    tandem_status status = make_core_lists(run, cluster, error);
    if (status == TANDEM_OK)
        status = rank_cores_require(run->n_rank, run->n_core, run->most_core, run->listener, error);
    if (status == TANDEM_OK) status = find_helper(run->helper, error);
    if (status == TANDEM_OK) status = put_request(run, verb, request, error);
    if (status != TANDEM_OK) return status;
    if (!mkdtemp(folder))
        return tandem_error_set(error, TANDEM_IO,
                                "cannot create a directory for the ranks in the working directory: %s",
                                strerror(errno));
    (void)snprintf(run->folder, sizeof run->folder, "%s", folder);
    take_cores(run);
    return TANDEM_OK;
}

static void close_started_run(started_run *run)
{
    release_cores(run);
    free(run->core);
    if (run->request >= 0) (void)close(run->request);
    if (run->folder[0]) ranks_remove_folder(run->folder);
    free(run->rank);
}

tandem_status ranks_run(packet *answer, const rank_verb *verb, void *request, const tandem_cluster *cluster,
                        int n_rank, const tandem_listener *listener, tandem_error *error)
{
    started_run run = {.listener = listener, .n_rank = n_rank, .request = -1, .answer = answer};
    struct pollfd *ready = calloc((size_t)n_rank + 1, sizeof *ready);
    run.rank = calloc((size_t)n_rank, sizeof *run.rank);
    *answer = (packet){0};
    if (!ready || !run.rank) {
        free(ready);
        free(run.rank);
        return tandem_no_memory(error, "for %d ranks", n_rank);
    }
    children_begin();
    tandem_status status = open_started_run(&run, verb, request, cluster, error);
    if (status == TANDEM_OK) {
        status = start_ranks(&run, verb->name, error);
        release_cores(&run); /* the ranks have them */
        wait_for_ranks(&run, ready);
        if (status == TANDEM_OK) status = judge_ranks(&run, error);
    }
    close_started_run(&run);
    free(ready);
    if (status != TANDEM_OK) packet_free(answer);
    children_end();
    return status;
}
