/* folder: plugins */
/* Nothing that a job's options say becomes a path in slurmctld: the check runs where the kernel ends a
 * process that names any path or opens a socket, on names that are files, and on names that would be if they
 * were taken for paths. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/philox.h"
#include "tests/support/draw.h"
#include "tests/support/tandem_test.h"

/* --- A process that may name no path -------------------------------------------------------------------- */

static const int forbidden[] = {
    SYS_open,       SYS_openat,
    SYS_openat2,    SYS_creat,
    SYS_stat,       SYS_lstat,
    SYS_newfstatat, SYS_statx,
    SYS_access,     SYS_faccessat,
    SYS_readlink,   SYS_readlinkat,
    SYS_execve,     SYS_execveat,
    SYS_chdir,      SYS_mkdir,
    SYS_mkdirat,    SYS_unlink,
    SYS_unlinkat,   SYS_rename,
    SYS_renameat,   SYS_renameat2,
    SYS_link,       SYS_linkat,
    SYS_symlink,    SYS_symlinkat,
    SYS_truncate,   SYS_statfs,
    SYS_mknod,      SYS_mknodat,
    SYS_chmod,      SYS_fchmodat,
    SYS_chown,      SYS_fchownat,
    SYS_utimensat,  SYS_socket,
    SYS_connect,    SYS_name_to_handle_at,
};

/* 0 where the kernel does not do it. */
static int forbid_paths(void)
{
    struct sock_filter filter[2 * N_OF(forbidden) + 2];
    size_t n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t k = 0; k < N_OF(forbidden); k++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)forbidden[k], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {(unsigned short)n, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { CANNOT = 77, WRONG = 78 };

/* What a process comes to that runs this without paths: as waitpid says. */
static int run_without_paths(void (*run)(const void *), const void *context)
{
    int status = 0;
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!forbid_paths()) _exit(CANNOT);
        run(context);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0) assert_int_equal(errno, EINTR);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
        (void)printf("SKIP: this kernel has no seccomp filters for us\n");
        skip();
    }
    return status;
}

/* --- Names ---------------------------------------------------------------------------------------------- */

typedef struct place {
    char path[40], file[64], fifo[64];
    tandem_site *site;
} place;

static int open_place_no_path(void **state)
{
    static place p;
    static const char conf[] = "gres gpu:old cpu:sse41\nfeature rome cpu:avx2\n";
    (void)strcpy(p.path, "/tmp/tandem-no-path-XXXXXX");
    if (!mkdtemp(p.path)) return 1;
    (void)snprintf(p.file, sizeof p.file, "%s/mlp.json", p.path);
    (void)snprintf(p.fifo, sizeof p.fifo, "%s/mlp", p.path);
    const int file = open(p.file, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (file < 0 || close(file) != 0 || mkfifo(p.fifo, 0666) != 0) return 1;
    *state = &p;
    return tandem_site_parse(&p.site, conf, strlen(conf), "a site", NULL) != TANDEM_OK;
}

static int close_place_no_path(void **state)
{
    place *p = *state;
    tandem_site_close(p->site);
    return unlink(p->file) != 0 || unlink(p->fifo) != 0 || rmdir(p->path) != 0;
}

static void check_no_path(const place *p, const tandem_submission *submission)
{
    tandem_error error = {0};
    const tandem_status status = tandem_submission_check(
        &(tandem_work_budget){.limit = TANDEM_SUBMISSION_MAX_WORK}, submission, p->site, &error);
    if (status != TANDEM_OK && status != TANDEM_LIMIT_EXCEEDED && !tandem_submission_is_refused(status))
        _exit(WRONG);
}

/* A name in the place of every option. */
static void check_name(const place *p, const char *name)
{
    check_no_path(p, &(tandem_submission){.model = name});
    check_no_path(p, &(tandem_submission){.model = "mlp", .batch = name});
    check_no_path(p, &(tandem_submission){.model = "mlp", .memory = name});
    check_no_path(p, &(tandem_submission){.model = "mlp", .features = name});
    for (int k = 0; k < 4; k++) {
        tandem_submission submission = {.model = "mlp", .memory = "1GiB"};
        submission.resources[k] = name;
        check_no_path(p, &submission);
    }
}

static void check_names(const void *context)
{
    static const char *const forms[] = {
        "%s",     "./%s",          "../../..%s", "@%s",          "file:%s",       "file://%s",
        "<%s",    "|cat %s",       "mlp:%s",     "mlp:width=%s", "mlp:image=@%s", "gpt2_small:data=%s",
        "gpu:%s", "gres:gpu:%s:1", "gpu:old:%s", "vit_tiny,%s",  "mlp %s",        "%s:width=16",
        "cpu_%s", "$(cat %s)",     "~%s",
    };
    static const char *const others[] = {"/dev/zero",
                                         "/dev/stdin",
                                         "/proc/self/environ",
                                         "tandem.db",
                                         "mlp.json",
                                         "plan.json",
                                         "model.onnx",
                                         ".",
                                         "..",
                                         "/",
                                         ""};
    const place *p = context;
    const char *const names[] = {p->file, p->fifo, p->path};
    char text[256];
    for (size_t k = 0; k < N_OF(others); k++) check_name(p, others[k]);
    for (size_t k = 0; k < N_OF(names); k++)
        for (size_t f = 0; f < N_OF(forms); f++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            (void)snprintf(text, sizeof text, forms[f], names[k]);
#pragma GCC diagnostic pop
            check_name(p, text);
        }
}

static void check_drawn(const void *context)
{
    for (uint32_t k = 0; k < 100; k++) {
        uint32_t words[40];
        tandem_drawn d;
        for (uint32_t w = 0; w < N_OF(words); w++)
            words[w] = tandem_philox((uint32_t[4]){k, w, 1, 0}, 15).word[0];
        tandem_draw_submission(&d, (const uint8_t *)words, sizeof words);
        check_no_path(context, &d.submission);
    }
}

static void open_it(const void *context)
{
    tandem_site *site = NULL;
    _exit(tandem_site_open(&site, ((const place *)context)->file, NULL) == TANDEM_OK ? 0 : WRONG);
}

static void a_process_that_names_a_path_ends(void **state)
{
    const int status = run_without_paths(open_it, *state);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

static void no_name_of_a_job_is_a_path(void **state)
{
    const int status = run_without_paths(check_names, *state);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("waitpid says %d", status);
}

static void no_drawn_job_names_a_path(void **state)
{
    const int status = run_without_paths(check_drawn, *state);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("waitpid says %d", status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_names_a_path_ends),
        cmocka_unit_test(no_name_of_a_job_is_a_path),
        cmocka_unit_test(no_drawn_job_names_a_path),
    };
    return cmocka_run_group_tests(tests, open_place_no_path, close_place_no_path);
}
