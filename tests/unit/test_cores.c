/* folder: runtime */
/* Which core a process takes (runtime/process/process.h), on machines that the tests describe, beside
 * others who have taken some. The locks are real; a network namespace keeps those of the machine's other
 * runs apart. */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/process/process.h"
#include "tests/support/tandem_test.h"

static int has_own_names;

static void require_own_names(void)
{
    if (has_own_names) return;
    print_message("SKIP: locks of cores: this machine has no network namespaces for us\n");
    skip();
}

/* Cores 0 to n − 1, of which core c is a thread of the same physical core as c % n_physical. */
static void describe(usable_cores *cores, int n, int n_physical)
{
    cpu_set_t usable;
    CPU_ZERO(&usable);
    for (int c = 0; c < CPU_SETSIZE; c++) cores->sibling[c] = c < n ? c % n_physical : c;
    for (int c = 0; c < n; c++) CPU_SET((size_t)c, &usable);
    cores_order(cores, &usable);
}

static void takes_one_thread_of_each_core_first(void **state)
{
    static const int pairs[] = {0, 2, 4, 1, 3, 5};
    usable_cores cores;
    cpu_set_t usable;
    describe(&cores, 4, 2);
    assert_int_equal(cores.n, 4);
    for (int k = 0; k < 4; k++) assert_int_equal(cores.order[k], k);
    /* neighbours in number are threads of one core, as on many virtual machines */
    for (int c = 0; c < CPU_SETSIZE; c++) cores.sibling[c] = c / 2 * 2;
    CPU_ZERO(&usable);
    for (size_t c = 0; c < N_OF(pairs); c++) CPU_SET(c, &usable);
    cores_order(&cores, &usable);
    assert_int_equal(cores.n, N_OF(pairs));
    for (size_t k = 0; k < N_OF(pairs); k++) assert_int_equal(cores.order[k], pairs[k]);
    CPU_CLR(0, &usable); /* a set without core 0 */
    cores_order(&cores, &usable);
    assert_int_equal(cores.n, 5);
    assert_int_equal(cores.order[0], 1);
    assert_int_equal(cores.order[3], 3);
}

static void shares_only_where_all_are_taken(void **state)
{
    require_own_names();
    enum { N = 3 };
    usable_cores cores;
    taken_core core[2 * N], again;
    describe(&cores, N, N);
    for (int k = 0; k < 2 * N; k++) {
        core_take(&core[k], &cores, 0);
        assert_int_equal(core[k].cpu, k % N);
        assert_int_equal(core[k].n_other, k / N);
        assert_int_equal(core[k].beside, -1);
        assert_true(core[k].lock >= 0);
    }
    /* the first who had core 1 ends: the second is still there, and is counted */
    core_release(&core[1]);
    core_take(&again, &cores, 0);
    assert_int_equal(again.cpu, 1);
    assert_int_equal(again.n_other, 1);
    core_release(&again);
    core_release(&core[1 + N]);
    core_take(&again, &cores, 2);
    assert_int_equal(again.cpu, 1);
    assert_int_equal(again.n_other, 0);
    core_release(&again);
    for (int k = 0; k < 2 * N; k++) core_release(&core[k]);
}

static void begins_with_the_one_that_is_wished(void **state)
{
    require_own_names();
    usable_cores cores;
    taken_core core[3];
    describe(&cores, 4, 4);
    core_take(&core[0], &cores, 2);
    assert_int_equal(core[0].cpu, 2);
    core_take(&core[1], &cores, 2);
    assert_int_equal(core[1].cpu, 3);
    core_take(&core[2], &cores, 3 + 4);
    assert_int_equal(core[2].cpu, 0);
    for (int k = 0; k < 3; k++) core_release(&core[k]);
}

/* Cores 0 to 3, of which 0 and 2, and 1 and 3, are threads of one physical core. */
static void takes_a_free_physical_core_before_a_neighbour(void **state)
{
    require_own_names();
    usable_cores cores, few;
    taken_core core[4];
    cpu_set_t usable;
    describe(&cores, 4, 2);
    core_take(&core[0], &cores, 2);
    assert_int_equal(core[0].cpu, 2);
    core_take(&core[1], &cores, 0); /* core 0 is free, but core 2 beside it is not */
    assert_int_equal(core[1].cpu, 1);
    assert_int_equal(core[1].beside, -1);
    core_take(&core[2], &cores, 0);
    assert_int_equal(core[2].cpu, 0);
    assert_int_equal(core[2].n_other, 0);
    assert_int_equal(core[2].beside, 2);
    few = cores; /* a neighbour outside of what is usable counts, too */
    CPU_ZERO(&usable);
    CPU_SET(3, &usable);
    cores_order(&few, &usable);
    core_take(&core[3], &few, 0);
    assert_int_equal(core[3].cpu, 3);
    assert_int_equal(core[3].beside, 1);
    for (int k = 0; k < 4; k++) core_release(&core[k]);
}

/* A child that takes a core, says so, and waits. */
static pid_t start_holder(const usable_cores *cores)
{
    int ends[2];
    char one = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        taken_core core;
        core_take(&core, cores, 0);
        one = (char)core.cpu;
        (void)write(ends[1], &one, 1);
        for (;;) pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &one, 1), 1);
    assert_int_equal(one, 0);
    close(ends[0]);
    return pid;
}

static void is_free_when_its_holder_is_killed(void **state)
{
    require_own_names();
    usable_cores cores;
    taken_core core;
    describe(&cores, 2, 2);
    const pid_t pid = start_holder(&cores);
    core_take(&core, &cores, 0);
    assert_int_equal(core.cpu, 1);
    core_release(&core);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    core_take(&core, &cores, 0);
    assert_int_equal(core.cpu, 0);
    core_release(&core);
}

/* Many at once: no core is taken by two while another is free. */
static void many_at_once_take_one_each(void **state)
{
    require_own_names();
    enum { N = 24 };
    usable_cores cores;
    int ends[2], taken[N] = {0};
    pid_t pid[N];
    char cpu[N];
    describe(&cores, N, N);
    assert_int_equal(pipe(ends), 0);
    for (int k = 0; k < N; k++)
        if ((pid[k] = fork()) == 0) {
            taken_core core;
            core_take(&core, &cores, 0);
            const char own = (char)core.cpu;
            (void)write(ends[1], &own, 1);
            for (;;) pause();
        }
    for (int k = 0; k < N; k++) {
        assert_int_equal(read(ends[0], &cpu[k], 1), 1);
        assert_in_range(cpu[k], 0, N - 1);
        taken[(int)cpu[k]]++;
    }
    for (int k = 0; k < N; k++) {
        kill(pid[k], SIGKILL);
        waitpid(pid[k], NULL, 0);
    }
    close(ends[0]);
    close(ends[1]);
    for (int k = 0; k < N; k++) assert_int_equal(taken[k], 1);
}

/* A place without core numbers, and one without any lock left. */
static void goes_on_without_a_lock(void **state)
{
    require_own_names();
    enum { MANY = 16 };
    usable_cores cores;
    taken_core core, many[MANY];
    describe(&cores, 0, 1);
    core_take(&core, &cores, 3);
    assert_int_equal(core.cpu, -1);
    assert_int_equal(core.lock, -1);
    describe(&cores, 1, 1);
    for (int k = 0; k < MANY; k++) core_take(&many[k], &cores, 0);
    assert_int_equal(many[MANY - 1].n_other, MANY - 1);
    core_take(&core, &cores, 0);
    assert_int_equal(core.cpu, 0);
    assert_int_equal(core.lock, -1);
    for (int k = 0; k < MANY; k++) core_release(&many[k]);
}

int main(void)
{
    has_own_names = unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_one_thread_of_each_core_first),
        cmocka_unit_test(shares_only_where_all_are_taken),
        cmocka_unit_test(begins_with_the_one_that_is_wished),
        cmocka_unit_test(takes_a_free_physical_core_before_a_neighbour),
        cmocka_unit_test(is_free_when_its_holder_is_killed),
        cmocka_unit_test(many_at_once_take_one_each),
        cmocka_unit_test(goes_on_without_a_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
