/* cores.c: which cores a process takes, so that runs beside each other do not share one while others idle. A
 * core is taken by binding a socket to an abstract name. That needs no file, and holds for all users of a
 * network namespace. The core is free when the last process that has the socket open ends, however it ends. A
 * name that a stranger takes costs this process a core, not its run. */
#include "runtime/process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_SHARERS = 16, MAX_NODE = 1024 };
static const char core_variable[] = "TANDEM_CORE";

/* --- Physical cores ------------------------------------------------------------------------------------- */

/* The first thread of the physical core of thread `cpu`; itself, if the system does not report it. */
static int read_first_sibling(int cpu)
{
    char path[96];
    int first = cpu;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *list = fopen(path, "re");
    if (!list) return cpu;
    if (fscanf(list, "%d", &first) != 1 || first < 0 || first >= CPU_SETSIZE) first = cpu;
    (void)fclose(list);
    return first;
}

/* The NUMA node of thread `cpu`: the system links its folder from that of the thread. */
static int read_node(int cpu)
{
    char path[64];
    int node = 0;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d", cpu);
    DIR *folder = opendir(path);
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (sscanf(entry->d_name, "node%d", &node) == 1) break;
    (void)closedir(folder);
    return node >= 0 && node < MAX_NODE ? node : 0;
}

void cores_order(usable_cores *cores, const cpu_set_t *usable)
{
    int n_thread[CPU_SETSIZE] = {0}, index[CPU_SETSIZE] = {0};
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET((size_t)c, usable)) index[c] = n_thread[cores->sibling[c]]++;
    cores->n = 0;
    for (int k = 0; cores->n < CPU_COUNT(usable); k++) /* the k-th thread of each physical core */
        for (int c = 0; c < CPU_SETSIZE; c++)
            if (CPU_ISSET((size_t)c, usable) && index[c] == k) cores->order[cores->n++] = c;
}

void cores_read(usable_cores *cores)
{
    cpu_set_t usable;
    const long n = sysconf(_SC_NPROCESSORS_CONF);
    cores->n = 0;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        const int is_there = c < n || CPU_ISSET((size_t)c, &usable);
        cores->sibling[c] = is_there ? read_first_sibling(c) : c;
        cores->node[c] = is_there ? read_node(c) : 0;
    }
    cores_order(cores, &usable);
}

/* --- Locks ---------------------------------------------------------------------------------------------- */

/* A core has a few names, so that processes which have to share one can be counted. */
static socklen_t name_lock(struct sockaddr_un *name, int cpu, int sharer)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "tandem/core/%d/%d", cpu, sharer);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

typedef int use_name(int socket, const struct sockaddr *name, socklen_t bytes); /* bind or connect */

/* A socket that could use the name, or −1: errno says why. */
static int open_with(use_name *use, int cpu, int sharer)
{
    struct sockaddr_un name;
    const socklen_t bytes = name_lock(&name, cpu, sharer);
    const int opened = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (opened < 0 || use(opened, (struct sockaddr *)&name, bytes) == 0) return opened;
    const int failed = errno;
    (void)close(opened);
    errno = failed;
    return -1;
}

static int is_taken(int cpu, int sharer)
{
    const int asked = open_with(connect, cpu, sharer);
    if (asked >= 0) (void)close(asked);
    return asked >= 0;
}

static int count_taken(int cpu, int first_sharer, int end_sharer)
{
    int n = 0;
    for (int k = first_sharer; k < end_sharer; k++) n += is_taken(cpu, k);
    return n;
}

/* The first free name of a core, whose number goes to *sharer. −1: errno says why. */
static int lock_core(int cpu, int *sharer)
{
    for (*sharer = 0; *sharer < MAX_SHARERS; ++*sharer) {
        const int lock = open_with(bind, cpu, *sharer);
        if (lock >= 0) (void)shutdown(lock, SHUT_RD); /* no messages are kept */
        if (lock >= 0 || errno != EADDRINUSE) return lock;
    }
    return -1;
}

/* --- Taking one ----------------------------------------------------------------------------------------- */

/* Another thread of the same physical core that is taken, usable here or not, below core `end`; −1 = none. */
static int find_taken_sibling(const usable_cores *of, int cpu, int end)
{
    for (int c = 0; c < end; c++)
        if (c != cpu && of->sibling[c] == of->sibling[cpu] && count_taken(c, 0, MAX_SHARERS) > 0) return c;
    return -1;
}

/* Takes this core if `n_other` others have it. Of two processes that do so at once, the one with the higher
 * name or core lets go. 1: taken; 0: not; −1: there are no locks here. */
static int take_one(taken_core *core, const usable_cores *of, int cpu, int n_other, int even_beside)
{
    int sharer = 0;
    if (count_taken(cpu, 0, MAX_SHARERS) != n_other) return 0;
    if (!even_beside && find_taken_sibling(of, cpu, CPU_SETSIZE) >= 0) return 0;
    core->lock = lock_core(cpu, &sharer);
    if (core->lock < 0) return errno == EADDRINUSE ? 0 : -1;
    if (count_taken(cpu, 0, sharer) <= n_other && (even_beside || find_taken_sibling(of, cpu, cpu) < 0)) {
        core->cpu = cpu;
        core->n_other = count_taken(cpu, 0, sharer) + count_taken(cpu, sharer + 1, MAX_SHARERS);
        core->beside = find_taken_sibling(of, cpu, CPU_SETSIZE);
        return 1;
    }
    core_release(core);
    return 0;
}

void core_take(taken_core *core, const usable_cores *of, int first)
{
    int found = 0;
    *core = (taken_core){.cpu = -1, .lock = -1, .beside = -1};
    for (int n_other = 0; n_other < MAX_SHARERS; n_other++)
        for (int even_beside = 0; even_beside < 2; even_beside++)
            for (int k = 0; k < of->n && !found; k++)
                found = take_one(core, of, of->order[(first + k) % of->n], n_other, even_beside);
    if (found != 1 && of->n > 0) core->cpu = of->order[first % of->n];
}

void core_release(taken_core *core)
{
    if (core->lock >= 0) (void)close(core->lock);
    *core = (taken_core){.cpu = -1, .lock = -1, .beside = -1};
}

/* --- Taking several ------------------------------------------------------------------------------------- */

/* Those of `of` that are of this node. */
static void cores_of_node(usable_cores *some, const usable_cores *of, int node)
{
    *some = *of;
    some->n = 0;
    for (int k = 0; k < of->n; k++)
        if (of->node[of->order[k]] == node) some->order[some->n++] = of->order[k];
}

/* How many cores of a node are free; physical: of physical cores that are free as a whole. */
static int count_free(const usable_cores *of, int node, int physical)
{
    int n = 0;
    for (int k = 0; k < of->n; k++) {
        const int cpu = of->order[k];
        int is_first = 1; /* of its physical core, among those that are usable */
        if (of->node[cpu] != node || count_taken(cpu, 0, MAX_SHARERS) > 0) continue;
        for (int j = 0; j < k && is_first; j++) is_first = of->sibling[of->order[j]] != of->sibling[cpu];
        n += !physical || (is_first && find_taken_sibling(of, cpu, CPU_SETSIZE) < 0);
    }
    return n;
}

/* A node with n cores that are free; −1: none has so many. */
static int find_free_node(const usable_cores *of, int n)
{
    for (int physical = 1; physical >= 0; physical--)
        for (int k = 0; k < of->n; k++) {
            const int node = of->node[of->order[k]];
            int is_new = 1;
            for (int j = 0; j < k && is_new; j++) is_new = of->node[of->order[j]] != node;
            if (is_new && count_free(of, node, physical) >= n) return node;
        }
    return -1;
}

/* Takes a core out of the list, unless it is the last one: a process shares one with itself at last. */
static void leave_core_out(usable_cores *some, int cpu)
{
    int n = 0;
    if (some->n < 2) return;
    for (int k = 0; k < some->n; k++)
        if (some->order[k] != cpu) some->order[n++] = some->order[k];
    some->n = n;
}

void cores_take(taken_core *core, int n, const usable_cores *of, int first)
{
    if (n == 1) {
        core_take(core, of, first);
        return;
    }
    usable_cores some = *of;
    const int node = find_free_node(of, n);
    int from = node >= 0 ? 0 : first;
    if (node >= 0) cores_of_node(&some, of, node);
    for (int k = 0; k < n; k++) {
        core_take(&core[k], &some, from);
        if (core[k].lock < 0 && node >= 0 && k == 0) { /* what others have is not known: ranks count */
            some = *of;
            from = first;
            core_take(&core[k], &some, from);
        }
        leave_core_out(&some, core[k].cpu);
    }
}

/* --- Of this process ------------------------------------------------------------------------------------ */

void cores_name(const taken_core *core, int n, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int k = 0; k < n && core[k].cpu >= 0 && used < size; k++) {
        const int length = k ? snprintf(text + used, size - used, " %d %d", core[k].cpu, core[k].lock)
                             : snprintf(text, size, "%s=%d %d", core_variable, core[k].cpu, core[k].lock);
        used += length > 0 ? (size_t)length : 0;
    }
}

static taken_core *own;
static int n_own;
static cpu_set_t usable_before;
static int is_chosen;

/* What a parent gave as core k. A variable that is left over from elsewhere names no socket of ours. */
static int inherit_core(taken_core *core, const char *text)
{
    struct sockaddr_un name, is = {.sun_family = AF_UNSPEC};
    socklen_t bytes = sizeof is;
    int cpu = -1, lock = -1;
    if (!text || sscanf(text, "%d %d", &cpu, &lock) != 2 || cpu < 0 || cpu >= CPU_SETSIZE) return 0;
    const int is_locked =
        lock >= 0 && getsockname(lock, (struct sockaddr *)&is, &bytes) == 0 && is.sun_family == AF_UNIX;
    (void)name_lock(&name, cpu, 0);
    const size_t n = strlen(name.sun_path + 1) - 1; /* without the number of the sharer */
    if (lock >= 0 && (!is_locked || strncmp(is.sun_path + 1, name.sun_path + 1, n) != 0)) return 0;
    if (lock >= 0) (void)fcntl(lock, F_SETFD, FD_CLOEXEC);
    *core = (taken_core){.cpu = cpu, .lock = lock, .beside = -1};
    return 1;
}

/* All n of them, or none. */
static int inherit_cores(taken_core *core, int n)
{
    const char *text = getenv(core_variable);
    for (int k = 0; k < n; k++) {
        if (!inherit_core(&core[k], text)) {
            for (int j = 0; j < k; j++) core_release(&core[j]);
            return 0;
        }
        for (int word = 0; word < 2; word++) { /* the next pair */
            text += strcspn(text, " ");
            text += strspn(text, " ");
        }
    }
    return 1;
}

const taken_core *cores_own(int n, int first)
{
    if (is_chosen && n <= n_own) return own;
    core_forget();
    own = malloc((size_t)n * sizeof *own);
    if (!own) return NULL;
    n_own = n;
    if (sched_getaffinity(0, sizeof usable_before, &usable_before) != 0) CPU_ZERO(&usable_before);
    if (!inherit_cores(own, n)) {
        usable_cores here;
        cores_read(&here);
        cores_take(own, n, &here, first);
    }
    (void)unsetenv(core_variable);
    is_chosen = 1;
    return own;
}

void core_forget(void)
{
    if (!is_chosen) return;
    for (int k = 0; k < n_own; k++) core_release(&own[k]);
    free(own);
    own = NULL;
    n_own = 0;
    if (CPU_COUNT(&usable_before) > 0) (void)sched_setaffinity(0, sizeof usable_before, &usable_before);
    is_chosen = 0;
}

void openmp_forget(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES",    "GOMP_CPU_AFFINITY",
                                        "KMP_AFFINITY",  "KMP_HW_SUBSET", "KMP_PLACE_THREADS"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) (void)unsetenv(names[k]);
}
