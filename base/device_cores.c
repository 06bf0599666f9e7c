/* device_cores.c: the number of cores in the name of a device. */
#include "base/device_cores.h"

#include <stdio.h>
#include <string.h>

/* The colon before the number of cores; NULL: the name has none. */
static const char *find_cores(const char *name)
{
    static const char *const words[] = {"strongest:", "weakest:"};
    if (strncmp(name, "cpu:", 4) == 0) return strchr(name + 4, ':');
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strncmp(name, words[k], strlen(words[k])) == 0) return name + strlen(words[k]) - 1;
    return NULL;
}

int tandem_device_split_cores(char *base, size_t size, const char *name)
{
    const char *const colon = find_cores(name);
    (void)snprintf(base, size, "%.*s", colon ? (int)(colon - name) : (int)strlen(name), name);
    if (!colon) return 1;
    int n = 0;
    for (const char *c = colon + 1; *c; c++) {
        if (*c < '0' || *c > '9') return 0;
        n = n * 10 + (*c - '0');
        if (n == 0 || n > TANDEM_MAX_CORE) return 0;
    }
    return n;
}
