#include "runtime/own_folder.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void own_folder(char *folder, size_t size)
{
    static const char here = 0; /* an address of this file's code */
    Dl_info self;
    char path[PATH_MAX] = "";
    if (dladdr(&here, &self) && strstr(self.dli_fname, ".so")) {
        (void)snprintf(path, sizeof path, "%s", self.dli_fname);
    } else {
        const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
        path[n > 0 ? n : 0] = '\0';
    }
    char *const slash = strrchr(path, '/');
    if (slash) *slash = '\0';
    (void)snprintf(folder, size, "%s", slash ? path : ".");
}
