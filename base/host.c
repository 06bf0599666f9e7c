/* host.c: the machine's name, its CPU and how many it has, from Linux. */
#include "base/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

/* "model name : …" of /proc/cpuinfo; "" without it. */
static void read_cpu(char *cpu, size_t size)
{
    char line[256];
    cpu[0] = '\0';
    FILE *const stream = fopen("/proc/cpuinfo", "re");
    while (stream && fgets(line, sizeof line, stream))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            const char *const name = strchr(line, ':') + 1;
            (void)snprintf(cpu, size, "%.*s", (int)strcspn(name + (*name == ' '), "\n"),
                           name + (*name == ' '));
            break;
        }
    if (stream) (void)fclose(stream);
}

void tandem_host_read(tandem_host *host)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    (void)snprintf(host->name_hash, sizeof host->name_hash, "%016" PRIx64,
                   tandem_hash_text(TANDEM_HASH_START, name));
    read_cpu(host->cpu, sizeof host->cpu);
    host->n_cpu = (int)sysconf(_SC_NPROCESSORS_CONF);
}
