/* backend_library.c: opens libtandem_backend.so for commands that run kernels. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend_library.h"

#include "tandem/cluster.h"

static const char library_name[] = "libtandem_backend.so";

/* The library's path: the folder of this program, `suffix`, the library's name. */
static void path_by_program(char *path, size_t size, const char *suffix)
{
    char program[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash) *slash = '\0';
    (void)snprintf(path, size, "%s%s/%s", program, suffix, library_name);
}

static void *open_backend_library(void)
{
    const char *given = getenv("TANDEM_BACKEND");
    if (given && *given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    char path[PATH_MAX + 64];
    static const char *const suffix[] = {"", "/../lib", NULL};
    for (int k = 0; suffix[k]; k++) {
        path_by_program(path, sizeof path, suffix[k]);
        if (access(path, F_OK) == 0) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
}

const tandem_backend_api *runtime_backend(tandem_error *error)
{
    static const tandem_backend_api *api;
    if (api) return api;
    void *library = open_backend_library();
    if (!library) {
        (void)tandem_error_set(
            error, TANDEM_MISSING,
            "cannot open %s, which runs the kernels: %s. Install it beside the program, or set "
            "TANDEM_BACKEND to its path",
            library_name, dlerror());
        return NULL;
    }
    const tandem_backend_api *(*get)(int) = NULL;
    *(void **)(void *)&get =
        dlsym(library, "tandem_backend_get"); /* POSIX: a function's address fits a void * */
    api = get ? get(TANDEM_BACKEND_VERSION) : NULL;
    if (!api)
        (void)tandem_error_set(error, TANDEM_MISSING,
                               "%s has another version than this program (%d). Rebuild both", library_name,
                               TANDEM_BACKEND_VERSION);
    return api;
}

tandem_status runtime_device_require(const char *device, tandem_error *error)
{
    char text[256];
    const tandem_status status = tandem_device_require(device, error);
    if (status != TANDEM_OK) return status;
    const tandem_backend_api *backend = runtime_backend(error);
    return backend ? backend->device_describe(text, sizeof text, device, error) : TANDEM_MISSING;
}
