/* folder: runtime */
/* Which core a process takes (runtime/process/process.h), on machines that the tests describe, beside
 * others who have taken some. The locks are real; a network namespace keeps those of the machine's other
 * runs apart. */
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
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
    for (int c = 0; c < CPU_SETSIZE; c++) cores->node[c] = 0;
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

/* --- Several cores -------------------------------------------------------------------------------------- */

static void assert_cores(const taken_core *core, const int *cpu, int n)
{
    for (int k = 0; k < n; k++) {
        assert_int_equal(core[k].cpu, cpu[k]);
        assert_true(core[k].lock >= 0);
    }
}

static void release_all(taken_core *core, int n)
{
    for (int k = 0; k < n; k++) core_release(&core[k]);
}

/* Cores 0 to 3 are of node 0, 4 to 7 of node 1. */
static void takes_cores_of_one_node(void **state)
{
    require_own_names();
    usable_cores cores;
    taken_core other, first[3], second[3], third[2];
    describe(&cores, 8, 8);
    for (int c = 4; c < 8; c++) cores.node[c] = 1;
    core_take(&other, &cores, 1);
    cores_take(first, 3, &cores, 0);
    assert_cores(first, (const int[]){0, 2, 3}, 3);
    cores_take(second, 3, &cores, 3);
    assert_cores(second, (const int[]){4, 5, 6}, 3);
    cores_take(third, 2, &cores, 7); /* no node has two: the last one, and one that is shared */
    assert_cores(third, (const int[]){7, 0}, 2);
    assert_int_equal(third[0].n_other, 0);
    assert_int_equal(third[1].n_other, 1);
    release_all(first, 3);
    release_all(third, 2);
    taken_core all[4];
    cores_take(all, 4, &cores, 0); /* node 0 has three, node 1 has one: of both */
    assert_cores(all, (const int[]){0, 2, 3, 7}, 4);
    for (int k = 0; k < 4; k++) assert_int_equal(all[k].n_other, 0);
    release_all(all, 4);
    release_all(second, 3);
    core_release(&other);
}

/* Cores c and c + 4 are threads of one physical core; a node of whole physical cores comes before another. */
static void takes_whole_physical_cores_first(void **state)
{
    require_own_names();
    usable_cores cores;
    taken_core first[2], second[2], third[4];
    describe(&cores, 8, 4);
    for (int c = 0; c < 8; c++) cores.node[c] = c % 4 / 2; /* node 0: 0, 1, 4, 5 */
    cores_take(first, 2, &cores, 0);
    assert_cores(first, (const int[]){0, 1}, 2);
    cores_take(second, 2, &cores, 2);
    assert_cores(second, (const int[]){2, 3}, 2);
    assert_int_equal(second[1].beside, -1);
    cores_take(third, 2, &cores, 4);
    assert_cores(third, (const int[]){4, 5}, 2);
    assert_int_equal(third[0].beside, 0);
    release_all(first, 2);
    release_all(second, 2);
    release_all(third, 2);
}

static void a_child_gets_the_cores_of_its_parent(void **state)
{
    require_own_names();
    usable_cores cores;
    taken_core core[3];
    char text[4 * CORES_NAME], few[8];
    describe(&cores, 6, 6);
    cores_take(core, 3, &cores, 2);
    assert_cores(core, (const int[]){0, 1, 2}, 3);
    cores_name(core, 3, text, sizeof text);
    assert_memory_equal(text, "TANDEM_CORE=0 ", 14);
    cores_name(core, 3, few, sizeof few); /* cut */
    assert_int_equal(strlen(few), sizeof few - 1);
    assert_int_equal(setenv("TANDEM_CORE", text + strlen("TANDEM_CORE="), 1), 0);
    const taken_core *const own = cores_own(3, 5);
    assert_non_null(own);
    assert_cores(own, (const int[]){0, 1, 2}, 3);
    assert_null(getenv("TANDEM_CORE"));
    assert_ptr_equal(cores_own(2, 0), own); /* it has them already */
    core_forget();
}

/* --- Quotas --------------------------------------------------------------------------------------------- */

static void write_below(const char *root, const char *path, const char *text)
{
    char name[256];
    for (const char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
        snprintf(name, sizeof name, "%s%.*s", root, (int)(end - path), path);
        (void)mkdir(name, 0700);
    }
    snprintf(name, sizeof name, "%s%s", root, path);
    FILE *file = fopen(name, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void finds_the_least_quota(void **state)
{
    char root[] = "/tmp/tandem-quota-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    assert_int_equal(cores_quota(root), 0);
    write_below(root, "/proc/self/cgroup", "0::/jobs/one\n");
    write_below(root, "/sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
    assert_int_equal(cores_quota(root), 0);
    write_below(root, "/sys/fs/cgroup/jobs/cpu.max", "450000 100000\n");
    assert_int_equal(cores_quota(root), 4);
    write_below(root, "/sys/fs/cgroup/jobs/one/cpu.max", "50000 100000\n"); /* half a core */
    assert_int_equal(cores_quota(root), 1);
    write_below(root, "/proc/self/cgroup", "3:memory:/x\n2:cpu,cpuacct:/group\n1:name=systemd:/\nno group\n");
    assert_int_equal(cores_quota(root), 0);
    write_below(root, "/sys/fs/cgroup/cpu,cpuacct/group/cpu.cfs_quota_us", "300000\n");
    write_below(root, "/sys/fs/cgroup/cpu,cpuacct/group/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_quota(root), 3);
    write_below(root, "/sys/fs/cgroup/cpu,cpuacct/group/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(cores_quota(root), 0);
    snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): a path of ours */
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
        cmocka_unit_test(takes_cores_of_one_node),
        cmocka_unit_test(takes_whole_physical_cores_first),
        cmocka_unit_test(a_child_gets_the_cores_of_its_parent),
        cmocka_unit_test(finds_the_least_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
