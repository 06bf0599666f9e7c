/* disturbance.c: reads what the system counts of delays, stolen time, quotas and clock rates. */
#include "base/disturbance.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* --- A thread's delay ----------------------------------------------------------------------------------- */

void tandem_delay_open(tandem_delay_probe *probe)
{
    probe->file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

void tandem_delay_close(tandem_delay_probe *probe)
{
    if (probe->file >= 0) (void)close(probe->file);
    probe->file = -1;
}

static int64_t cpu_time_ns(clockid_t clock)
{
    struct timespec time = {0};
    (void)clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The file has three numbers: time on a core, time waiting for one, and turns. */
int64_t tandem_delay_read(const tandem_delay_probe *probe)
{
    char text[96], *end = NULL;
    const ssize_t n = probe->file < 0 ? -1 : pread(probe->file, text, sizeof text - 1, 0);
    if (n <= 0) return INT64_MIN;
    text[n] = '\0';
    const char *const second = strchr(text, ' ');
    if (!second) return INT64_MIN;
    const long long waited_ns = strtoll(second, &end, 10);
    if (end == second + 1 || waited_ns < 0) return INT64_MIN;
    return waited_ns - (cpu_time_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_time_ns(CLOCK_THREAD_CPUTIME_ID));
}

int64_t tandem_delay_since(int64_t before, int64_t now)
{
    if (before == INT64_MIN || now == INT64_MIN) return -1;
    return now > before ? now - before : 0;
}

/* --- The machine ---------------------------------------------------------------------------------------- */

int64_t tandem_count_since(int64_t before, int64_t now)
{
    if (before < 0 || now < 0) return -1;
    return now > before ? now - before : 0;
}

static FILE *open_below(const char *root, const char *path)
{
    char name[4608];
    const int n = snprintf(name, sizeof name, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof name ? fopen(name, "re") : NULL;
}

/* The first line of /proc/stat: user nice system idle iowait irq softirq steal, in ticks. */
static void read_steal(tandem_machine_counts *counts, const char *root)
{
    long long ticks[8] = {0};
    const long per_s = sysconf(_SC_CLK_TCK);
    FILE *stream = open_below(root, "/proc/stat");
    if (!stream) return;
    if (per_s > 0 && fscanf(stream, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &ticks[0], &ticks[1],
                            &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]) == 8) {
        const int64_t tick_ns = 1000000000 / per_s;
        counts->steal_ns = ticks[7] * tick_ns;
        counts->busy_ns = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) * tick_ns;
    }
    (void)fclose(stream);
}

/* "throttled_time" in ns (version 1) or "throttled_usec" of a group's cpu.stat; −1 without either. */
static int64_t read_throttled(const char *root, const char *group)
{
    char path[4352], line[128];
    int64_t ns = -1;
    const int n = snprintf(path, sizeof path, "%s/cpu.stat", group);
    FILE *stream = n > 0 && (size_t)n < sizeof path ? open_below(root, path) : NULL;
    while (stream && fgets(line, sizeof line, stream)) {
        long long value = 0;
        if (sscanf(line, "throttled_time %lld", &value) == 1) ns = value;
        if (sscanf(line, "throttled_usec %lld", &value) == 1) ns = 1000 * value;
    }
    if (stream) (void)fclose(stream);
    return ns;
}

/* The group and all above it, below one of the places where the controller is mounted. */
static void add_throttled(tandem_machine_counts *counts, const char *root, const char *mount,
                          const char *group)
{
    char path[4224];
    const int n = snprintf(path, sizeof path, "/sys/fs/cgroup%s%s", mount, group);
    if (n <= 0 || (size_t)n >= sizeof path) return;
    const size_t top = strlen("/sys/fs/cgroup") + strlen(mount);
    for (char *end = path + n; end; end = strrchr(path + top, '/')) {
        *end = '\0';
        const int64_t ns = read_throttled(root, path);
        if (ns < 0) continue;
        counts->throttled_ns = (counts->throttled_ns < 0 ? 0 : counts->throttled_ns) + ns;
    }
}

/* Lines "1:cpu,cpuacct:/group" (version 1) and "0::/group" (version 2). */
static void read_throttles(tandem_machine_counts *counts, const char *root)
{
    static const char *const mounts[] = {"/cpu", "/cpu,cpuacct", "/unified", ""};
    char line[4096];
    FILE *stream = open_below(root, "/proc/self/cgroup");
    while (stream && fgets(line, sizeof line, stream)) {
        char *const controllers = strchr(line, ':'),
                    *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (strcmp(group, "/") == 0) *group = '\0';
        const int is_second = controllers[1] == '\0';
        if (!is_second && strcmp(controllers + 1, "cpu") != 0 && strncmp(controllers + 1, "cpu,", 4) != 0)
            continue;
        for (int k = is_second ? 2 : 0; k < (is_second ? 4 : 2); k++)
            add_throttled(counts, root, mounts[k], group);
    }
    if (stream) (void)fclose(stream);
}

static void read_frequency(tandem_machine_counts *counts, const char *root)
{
    char path[128];
    long khz = 0;
    const int cpu = sched_getcpu();
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
                   cpu < 0 ? 0 : cpu);
    FILE *stream = open_below(root, path);
    if (stream && fscanf(stream, "%ld", &khz) == 1 && khz > 0 && khz < 1000000000)
        counts->mhz = (int)(khz / 1000);
    if (stream) (void)fclose(stream);
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor",
                   cpu < 0 ? 0 : cpu);
    stream = open_below(root, path);
    if (stream && fscanf(stream, "%23s", counts->governor) != 1) counts->governor[0] = '\0';
    if (stream) (void)fclose(stream);
}

void tandem_machine_counts_read(tandem_machine_counts *counts, const char *root)
{
    struct rusage usage;
    *counts =
        (tandem_machine_counts){.steal_ns = -1, .busy_ns = -1, .throttled_ns = -1, .n_switch = -1, .mhz = -1};
    read_steal(counts, root);
    read_throttles(counts, root);
    read_frequency(counts, root);
    if (getrusage(RUSAGE_SELF, &usage) == 0) counts->n_switch = usage.ru_nivcsw;
}
