/* folder: base */
/* cpu_tiles.h: what the probe says of instructions that return and that trap, and that the host program sees
 * neither a signal nor a child. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu_tiles.h"
#include "tests/support/tandem_test.h"

static volatile sig_atomic_t n_child_signal, n_illegal_signal;
static void count_child_signal(int number) { n_child_signal += number == SIGCHLD; }
static void count_illegal_signal(int number) { n_illegal_signal += number == SIGILL; }

static void return_at_once(void) {}
static void run_no_instruction(void) { __builtin_trap(); }
static void leave_with_an_error(void) { _exit(3); }

static void test_probe_tells_what_traps(void **state)
{
    assert_int_equal(tandem_cpu_tiles_probe(return_at_once), 1);
    assert_int_equal(tandem_cpu_tiles_probe(run_no_instruction), 0);
    assert_int_equal(tandem_cpu_tiles_probe(leave_with_an_error), 0);
}

static void test_host_program_sees_nothing(void **state)
{
    void (*const child)(int) = signal(SIGCHLD, count_child_signal);
    void (*const illegal)(int) = signal(SIGILL, count_illegal_signal);
    assert_int_equal(tandem_cpu_tiles_probe(run_no_instruction), 0);
    assert_int_equal(tandem_cpu_tiles_probe(return_at_once), 1);
    assert_int_equal(n_child_signal, 0);
    assert_int_equal(n_illegal_signal, 0);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    (void)signal(SIGCHLD, child);
    (void)signal(SIGILL, illegal);
}

#if defined(__x86_64__)

/* As a sandbox would: arch_prctl fails in this process from here on. 1: done. */
static int forbid_arch_prctl(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = sizeof rules / sizeof *rules, .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Runs before the others, because the answer stays. */
static void test_refusal_is_no_crash(void **state)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(!forbid_arch_prctl() ? 9 : (int)tandem_cpu_tiles());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 9) {
        print_message("SKIP: this process may not make itself a sandbox\n");
        skip();
    }
    assert_in_range(WEXITSTATUS(status), TANDEM_TILES_ABSENT, TANDEM_TILES_REFUSED);
    if (tandem_cpu_tiles() == TANDEM_TILES_USABLE)
        assert_int_equal(WEXITSTATUS(status), TANDEM_TILES_REFUSED);
}

#endif

static void test_answer_stays(void **state)
{
    const tandem_cpu_tiles_state first = tandem_cpu_tiles();
    assert_int_equal(tandem_cpu_tiles(), first);
    assert_in_range(first, TANDEM_TILES_ABSENT, TANDEM_TILES_USABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
        cmocka_unit_test(test_refusal_is_no_crash),
#endif
        cmocka_unit_test(test_probe_tells_what_traps),
        cmocka_unit_test(test_host_program_sees_nothing),
        cmocka_unit_test(test_answer_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
