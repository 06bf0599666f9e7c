/* children.c: signals that end a command, and the children that it starts. What the command has made ends
 * with it: scratch files, children, and what a caller removes after its children. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/listener.h"
#include "tandem/runtime.h"
#include "runtime/process/process.h"

enum { MAX_CHILDREN = 4096 }; /* as many as there may be ranks */
static const char parent_variable[] = "TANDEM_PARENT";

static volatile pid_t child[MAX_CHILDREN];          /* 0 = it has ended */
static volatile sig_atomic_t n_child, has_children; /* has_children: so many runs have some */
/* of the two above, where several threads of a program start runs; no handler takes it */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t end_signal; /* that was noted; 0 = none */
static void (*before_words)(void);       /* clears the line on which this process says what ends it */
static int is_silent;                    /* a tandem started this one, and says what there is to say */

/* --- Names ---------------------------------------------------------------------------------------------- */

const char *signal_name(int number)
{
    static char text[16];
    const char *const name = sigabbrev_np(number);
    if (name)
        (void)snprintf(text, sizeof text, "SIG%s", name);
    else
        (void)snprintf(text, sizeof text, "signal %d", number);
    return text;
}

/* Those that end a process unless it says otherwise. Not those of a defect: these are seen as they are. */
static int is_end_signal(int number)
{
    static const int others[] = {SIGKILL,  SIGSTOP, SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,
                                 SIGWINCH, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP, SIGABRT, SIGSYS};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (number == others[k]) return 0;
    return 1;
}

/* --- Ending: all of it may run in a handler ------------------------------------------------------------- */

static void write_text(const char *text) { (void)!write(STDERR_FILENO, text, strlen(text)); }

/* Without stdio: the signal may have come in the middle of it. */
static void say_what_ends(int number)
{
    const char *const name = sigabbrev_np(number);
    char digits[3] = {(char)('0' + number / 10 % 10), (char)('0' + number % 10), '\0'};
    if (before_words) before_words();
    write_text("tandem: ended by ");
    write_text(name ? "SIG" : "signal ");
    write_text(name ? name : digits);
    write_text("\n");
}

static _Noreturn void end_now(int number)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t one;
    scratch_files_unlink();
    /* a reader that has seen enough, as head has, is no news */
    if (!is_silent && number != SIGPIPE) say_what_ends(number);
    (void)sigaction(number, &plain, NULL);
    (void)raise(number);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, number);
    (void)pthread_sigmask(SIG_UNBLOCK, &one, NULL); /* it ends this process here */
    _exit(128 + number);
}

/* A child that was stopped sees the signal when it goes on. */
static void kill_children(int number)
{
    for (int k = 0; k < n_child; k++)
        if (child[k] > 0) {
            (void)kill(child[k], number);
            (void)kill(child[k], SIGCONT);
        }
}

/* A second signal is from a user who will not wait. */
void children_end_by(int number)
{
    if (!has_children) end_now(number);
    const int is_second = end_signal != 0;
    if (!is_second) end_signal = number;
    kill_children(is_second ? SIGKILL : SIGTERM);
}

static void on_end_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    const int before = errno;
    /* a write beyond the limit of files' sizes: it fails, and says so */
    if (number == SIGXFSZ && info->si_pid == getpid()) return;
    children_end_by(number);
    errno = before;
}

/* One call for most of some 40 signals, as each start of the program makes them. */
static void catch_signal(int number, int even_if_ignored)
{
    struct sigaction before, ours = {.sa_sigaction = on_end_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    (void)sigfillset(&ours.sa_mask);
    if (sigaction(number, &ours, &before) != 0) return; /* the C library's own */
    const int is_ignored = before.sa_handler == SIG_IGN;
    if (before.sa_handler != SIG_DFL && !(is_ignored && even_if_ignored))
        (void)sigaction(number, &before, NULL);
}

void signals_begin(void (*clear_line)(void))
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    const char *const parent = getenv(parent_variable);
    before_words = clear_line;
    is_silent = parent && strtol(parent, NULL, 10) == getppid();
    (void)unsetenv(parent_variable);
    (void)sigaction(SIGCHLD, &plain, NULL); /* else the system reports nothing of children */
    for (int number = 1; number <= SIGRTMAX; number++)
        if (is_end_signal(number))
            catch_signal(number, number == SIGINT || number == SIGQUIT || number == SIGTERM);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* --- Children ------------------------------------------------------------------------------------------- */

void children_begin(void)
{
    (void)pthread_mutex_lock(&registry);
    if (!has_children) {
        core_forget(); /* they need it; this process waits */
        n_child = 0;
    }
    has_children = has_children + 1;
    (void)pthread_mutex_unlock(&registry);
}

int children_are_ending(void) { return end_signal != 0; }

void children_terminate(void) { kill_children(SIGTERM); }

static void become_child(pid_t parent)
{
    char text[24];
    n_child = has_children = end_signal = 0;
    is_silent = 1;
    scratch_files_forget();
    (void)snprintf(text, sizeof text, "%d", (int)parent);
    (void)setenv(parent_variable, text, 1);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* it does not outlive the command that started it */
    if (getppid() != parent) _exit(tandem_status_exit_code(TANDEM_RANK_FAILED));
}

/* In a slot of a child that has ended, or a new one. More children than slots end by themselves with this
 * process (PR_SET_PDEATHSIG). */
void child_add(pid_t pid)
{
    int k = 0;
    (void)pthread_mutex_lock(&registry);
    while (k < n_child && child[k] != 0) k++;
    if (k < MAX_CHILDREN) child[k] = pid;
    if (k == n_child && k < MAX_CHILDREN) n_child = k + 1;
    (void)pthread_mutex_unlock(&registry);
    if (end_signal) (void)kill(pid, SIGTERM); /* noted on another thread */
}

void child_remove(pid_t pid)
{
    (void)pthread_mutex_lock(&registry);
    for (int k = 0; k < n_child; k++)
        if (child[k] == pid) child[k] = 0;
    (void)pthread_mutex_unlock(&registry);
}

void child_follow_parent(void)
{
    const char *const parent = getenv(parent_variable);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (parent && strtol(parent, NULL, 10) != getppid()) _exit(tandem_status_exit_code(TANDEM_RANK_FAILED));
}

/* Signals wait until the child is known here, and until it is a child there. */
int child_fork(void)
{
    const pid_t parent = getpid();
    sigset_t all, before;
    if (n_child >= MAX_CHILDREN) {
        errno = EAGAIN;
        return -1;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t pid = fork();
    const int failed = errno;
    if (pid == 0) become_child(parent);
    if (pid > 0) {
        child[n_child] = pid;
        n_child = n_child + 1;
        if (end_signal) (void)kill(pid, SIGTERM); /* noted on another thread */
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return pid > 0 ? n_child : pid == 0 ? 0 : -1;
}

int child_wait(int *state)
{
    for (;;) {
        siginfo_t ended = {.si_pid = 0};
        int index = 0;
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) != 0) {
            if (errno == EINTR) continue;
            return 0;
        }
        for (int k = 0; k < n_child; k++)
            if (child[k] == ended.si_pid) {
                child[k] = 0; /* before its number may become that of another process */
                index = k + 1;
            }
        (void)waitpid(ended.si_pid, state, 0);
        if (index) return index;
    }
}

void children_end(void)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_mutex_lock(&registry);
    has_children = has_children - 1;
    if (!has_children) n_child = 0;
    const int number = has_children ? 0 : end_signal;
    (void)pthread_mutex_unlock(&registry);
    if (number) end_now(number);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}
