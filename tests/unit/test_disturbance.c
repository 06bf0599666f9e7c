/* folder: base */
/* A speed sample's memory is memory, its slowdown mixes both pieces; a thread's delay is what it did not
 * run; the machine's counts come from the files of either version of control groups, and are unknown without
 * them. */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/disturbance.h"
#include "base/speed_sample.h"
#include "tests/support/tandem_test.h"

static long resident_pages(void)
{
    long all = 0, resident = 0;
    FILE *stream = fopen("/proc/self/statm", "re");
    assert_non_null(stream);
    assert_int_equal(fscanf(stream, "%ld %ld", &all, &resident), 2);
    assert_int_equal(fclose(stream), 0);
    return resident;
}

/* Pages that were never written are one page of zeros, which lies in the first-level cache. */
static void a_speed_sample_walks_through_memory_of_its_own(void **state)
{
    (void)state;
    tandem_speed_sample_walk walk;
    const long before = resident_pages();
    assert_int_equal(tandem_speed_sample_open(&walk, NULL), TANDEM_OK);
    const long taken = (resident_pages() - before) * sysconf(_SC_PAGESIZE);
    if (taken < (long)(walk.n * sizeof(float)) * 9 / 10) fail_msg("the walk has %ld bytes of memory", taken);
    for (int k = 0; k < 40; k++) {
        const tandem_speed_sample sample = tandem_speed_sample_take(&walk);
        assert_true(sample.compute_ns > 0 && sample.memory_ns > 0);
        assert_true(walk.at < walk.n);
    }
    tandem_speed_sample_close(&walk);
    assert_null(walk.memory);
    tandem_speed_sample_close(&walk);
}

static void a_slowdown_mixes_both_pieces(void **state)
{
    (void)state;
    const tandem_speed_sample steady = {1000, 2000}, now = {1100, 3000}, none = {0, 0};
    assert_float_equal(tandem_speed_sample_slowdown(&now, &steady, 0), 1.1, 1e-12);
    assert_float_equal(tandem_speed_sample_slowdown(&now, &steady, 1), 1.5, 1e-12);
    assert_float_equal(tandem_speed_sample_slowdown(&now, &steady, 0.25), 1.2, 1e-12);
    assert_float_equal(tandem_speed_sample_slowdown(&none, &steady, 0.25), 1, 0);
    assert_float_equal(tandem_speed_sample_slowdown(&now, &none, 0.25), 1, 0);
    assert_float_equal(tandem_speed_sample_slowdown(&now, &steady, NAN), 1, 0);
    assert_float_equal(tandem_speed_sample_slowdown(&now, &steady, 2), 1, 0);
}

static int64_t thread_cpu_ns(void)
{
    struct timespec time;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void a_delay_is_what_another_process_had_of_the_core(void **state)
{
    (void)state;
    cpu_set_t here;
    tandem_delay_probe probe;
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);
    tandem_delay_open(&probe);
    if (probe.file < 0) {
        print_message("SKIP a thread's delay: this system has no /proc/thread-self/schedstat\n");
        skip();
    }
    assert_int_equal(sched_setaffinity(0, sizeof here, &here), 0);
    pid_t hog[2]; /* with two, the delay is not the time that the thread ran */
    for (int k = 0; k < 2; k++) {
        hog[k] = fork();
        assert_true(hog[k] >= 0);
        if (hog[k] == 0)
            for (;;) continue;
    }
    const int64_t begin_ns = tandem_now_ns(), cpu_ns = thread_cpu_ns(), before = tandem_delay_read(&probe);
    while (tandem_now_ns() - begin_ns < 200000000) continue;
    const int64_t delay_ns = tandem_delay_since(before, tandem_delay_read(&probe));
    const double wall = (double)(tandem_now_ns() - begin_ns), cpu = (double)(thread_cpu_ns() - cpu_ns);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(kill(hog[k], SIGKILL), 0);
        assert_int_equal(waitpid(hog[k], NULL, 0), hog[k]);
    }
    tandem_delay_close(&probe);
    if (fabs(wall - cpu - (double)delay_ns) > wall / 8 || (double)delay_ns < wall / 5)
        fail_msg("of %g ms the thread ran %g ms and was delayed %g ms", wall / 1e6, cpu / 1e6,
                 (double)delay_ns / 1e6);
}

static void unknown_delays_stay_unknown(void **state)
{
    (void)state;
    const tandem_delay_probe none = {.file = -1};
    assert_true(tandem_delay_read(&none) == INT64_MIN);
    assert_int_equal(tandem_delay_since(INT64_MIN, 5), -1);
    assert_int_equal(tandem_delay_since(5, INT64_MIN), -1);
    assert_int_equal(tandem_delay_since(5, 9), 4);
    assert_int_equal(tandem_delay_since(9, 5), 0);
    assert_int_equal(tandem_count_since(-1, 5), -1);
    assert_int_equal(tandem_count_since(7, 5), 0);
}

static void write_file(const char *root, const char *path, const char *text)
{
    char name[512];
    (void)snprintf(name, sizeof name, "%s%s", root, path);
    for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(name, 0700);
        *at = '/';
    }
    FILE *stream = fopen(name, "we");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static void remove_tree(const char *root)
{
    char line[512];
    (void)snprintf(line, sizeof line, "rm -rf '%s'", root);
    assert_int_equal(system(line), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a folder that it made */
}

static void a_machine_is_read_from_its_files(void **state)
{
    (void)state;
    char root[] = "/tmp/tandem-machine-XXXXXX";
    tandem_machine_counts counts;
    assert_non_null(mkdtemp(root));
    tandem_machine_counts_read(&counts, root);
    assert_true(counts.steal_ns == -1 && counts.busy_ns == -1 && counts.throttled_ns == -1 &&
                counts.mhz == -1 && counts.governor[0] == '\0');
    const int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    write_file(root, "/proc/stat", "cpu  10 20 30 40 50 60 70 80 0 0\ncpu0 1 2 3\n");
    write_file(root, "/proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a/b\n0::/c\n");
    write_file(root, "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.stat", "nr_throttled 2\nthrottled_time 5000\n");
    write_file(root, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.stat", "throttled_time 300\n");
    write_file(root, "/sys/fs/cgroup/unified/c/cpu.stat", "usage_usec 7\n");
    tandem_machine_counts_read(&counts, root);
    assert_int_equal(counts.steal_ns, 80 * tick_ns);
    assert_int_equal(counts.busy_ns, 190 * tick_ns);
    assert_int_equal(counts.throttled_ns, 5300);
    write_file(root, "/proc/self/cgroup", "0::/d\n");
    write_file(root, "/sys/fs/cgroup/d/cpu.stat", "usage_usec 7\nthrottled_usec 4\n");
    write_file(root, "/proc/stat", "cpu  10 20 cut short");
    tandem_machine_counts_read(&counts, root);
    assert_int_equal(counts.throttled_ns, 4000);
    assert_int_equal(counts.steal_ns, -1);
    remove_tree(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_speed_sample_walks_through_memory_of_its_own),
        cmocka_unit_test(a_slowdown_mixes_both_pieces),
        cmocka_unit_test(a_delay_is_what_another_process_had_of_the_core),
        cmocka_unit_test(unknown_delays_stay_unknown),
        cmocka_unit_test(a_machine_is_read_from_its_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
