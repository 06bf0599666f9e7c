/* backend_library.c: opens libtandem_backend.so for commands that run kernels. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend_library.h"
#include "runtime/own_folder.h"

#include "tandem/cluster.h"

static const char library_name[] = "libtandem_backend.so";

static char opened_path[PATH_MAX + 64]; /* that ranks are to open, too */

static void *open_at(const char *path)
{
    (void)snprintf(opened_path, sizeof opened_path, "%s", path);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_backend_library(void)
{
    static const char *const beside[] = {"", "/../lib", "/../../lib"};
    const char *given = getenv("TANDEM_BACKEND");
    char folder[PATH_MAX], path[PATH_MAX + 64];
    if (given && *given) return open_at(given);
    own_folder(folder, sizeof folder);
    for (size_t k = 0; k < sizeof beside / sizeof *beside; k++) {
        (void)snprintf(path, sizeof path, "%s%s/%s", folder, beside[k], library_name);
        if (access(path, F_OK) == 0) return open_at(path);
    }
    return open_at(library_name);
}

const char *runtime_backend_path(void) { return opened_path; }

static const tandem_backend_api *open_backend(tandem_error *error)
{
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
    const tandem_backend_api *const api = get ? get(TANDEM_BACKEND_VERSION) : NULL;
    if (!api)
        (void)tandem_error_set(error, TANDEM_MISSING,
                               "%s has another version than this program (%d). Rebuild both", library_name,
                               TANDEM_BACKEND_VERSION);
    return api;
}

const tandem_backend_api *runtime_backend(tandem_error *error)
{
    static pthread_mutex_t is_opening = PTHREAD_MUTEX_INITIALIZER;
    static const tandem_backend_api *api;
    (void)pthread_mutex_lock(&is_opening);
    if (!api) api = open_backend(error);
    const tandem_backend_api *const opened = api;
    (void)pthread_mutex_unlock(&is_opening);
    return opened;
}

tandem_status runtime_device_require(const char *device, tandem_error *error)
{
    char text[256];
    const tandem_status status = tandem_device_require(device, error);
    if (status != TANDEM_OK) return status;
    const tandem_backend_api *backend = runtime_backend(error);
    return backend ? backend->device_describe(text, sizeof text, device, error) : TANDEM_MISSING;
}
