/* core_quota.c: how many cores a process may use: those of its affinity, and as much of their time as its
 * control groups allow. */
#include "runtime/process/process.h"

#include <stdio.h>
#include <string.h>

enum { PATH = 4352, LINE = 4096 };

/* Whole cores of quota us of each period; a larger number than any if there is no quota. */
static int cores_of_quota(long long quota_us, long long period_us)
{
    if (quota_us <= 0 || period_us <= 0) return CPU_SETSIZE;
    const long long n = quota_us / period_us;
    return n < 1 ? 1 : n < CPU_SETSIZE ? (int)n : CPU_SETSIZE;
}

static int read_quota_numbers(const char *folder, const char *name, const char *format, long long *first,
                              long long *second)
{
    char path[PATH];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    const int n_read = file ? fscanf(file, format, first, second) : 0;
    if (file) (void)fclose(file);
    return n_read;
}

/* Of one group: "cpu.max" of version 2 is "max 100000" or "150000 100000"; version 1 has a file for each. */
static int quota_of_group(const char *folder)
{
    long long quota = 0, period = 0, unused = 0;
    if (read_quota_numbers(folder, "cpu.max", "%lld %lld", &quota, &period) == 2)
        return cores_of_quota(quota, period);
    if (read_quota_numbers(folder, "cpu.cfs_quota_us", "%lld", &quota, &unused) == 1 &&
        read_quota_numbers(folder, "cpu.cfs_period_us", "%lld", &period, &unused) == 1)
        return cores_of_quota(quota, period);
    return CPU_SETSIZE;
}

/* The least of a group and all above it, below one of the places where the controller is mounted. */
static int quota_below(const char *root, const char *mount, const char *group)
{
    char path[PATH];
    int least = CPU_SETSIZE;
    const int n = snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s", root, mount, group);
    if (n <= 0 || (size_t)n >= sizeof path) return least;
    const size_t top = strlen(root) + strlen("/sys/fs/cgroup") + strlen(mount);
    for (;;) {
        const int here = quota_of_group(path);
        least = here < least ? here : least;
        char *const end = strrchr(path + top, '/');
        if (!end) return least;
        *end = '\0';
    }
}

/* Lines "1:cpu,cpuacct:/group" (version 1) and "0::/group" (version 2). */
static int quota_of_line(const char *root, char *line)
{
    static const char *const mounts[] = {"", "/unified", "/cpu", "/cpu,cpuacct"};
    int least = CPU_SETSIZE;
    char *const controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return least;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (strcmp(group, "/") == 0) *group = '\0';
    const int is_second = controllers[1] == '\0';
    if (!is_second && strcmp(controllers + 1, "cpu") != 0 && strncmp(controllers + 1, "cpu,", 4) != 0)
        return least;
    for (int k = is_second ? 0 : 2; k < (is_second ? 2 : 4); k++) {
        const int here = quota_below(root, mounts[k], group);
        least = here < least ? here : least;
    }
    return least;
}

int cores_quota(const char *root)
{
    char path[PATH], line[LINE];
    int least = CPU_SETSIZE;
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *const file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        const int here = quota_of_line(root, line);
        least = here < least ? here : least;
    }
    if (file) (void)fclose(file);
    return least < CPU_SETSIZE ? least : 0;
}

int cores_suffice(int n_core, int *allowed, const char **why)
{
    cpu_set_t usable;
    const int quota = cores_quota("");
    *allowed = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 0;
    *why = "that is all of this machine's, or of the set that it is bound to";
    if (quota && (quota < *allowed || !*allowed)) {
        *allowed = quota;
        *why = "that is the quota of its control group, cpu.max";
    }
    return !*allowed || n_core <= *allowed;
}
