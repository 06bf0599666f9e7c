/* cuda_library.c: opens libtandem_cuda.so for ranks on a GPU; no other code needs NVIDIA's libraries. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/device/worker.h"

static const char library_name[] = "libtandem_cuda.so";

/* The path of libtandem_cuda.so in the folder of the library, or program, that contains this code. */
static void path_in_own_folder(char *path, size_t size)
{
    Dl_info own = {0};
    const char *file = dladdr(library_name, &own) && own.dli_fname ? own.dli_fname : "";
    const char *slash = strrchr(file, '/');
    (void)snprintf(path, size, "%.*s%s", slash ? (int)(slash - file) + 1 : 0, file, library_name);
}

static void *open_cuda_library(void)
{
    const char *given = getenv("TANDEM_CUDA");
    if (given && *given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    char path[PATH_MAX];
    path_in_own_folder(path, sizeof path);
    return dlopen(strchr(path, '/') && access(path, F_OK) == 0 ? path : library_name, RTLD_NOW | RTLD_LOCAL);
}

tandem_status tandem_cuda_backend_load(const tandem_device_backend **backend, tandem_error *error)
{
    void *library = open_cuda_library(); /* never closed, because its device may be in use */
    if (!library)
        return tandem_error_set(
            error, TANDEM_NO_DEVICE,
            "devices cuda:… need %s, which does not open: %.400s; build it where nvcc is (`make`), install "
            "it in the folder of libtandem_backend.so, or give its path in TANDEM_CUDA",
            library_name, dlerror());
    const tandem_device_backend *(*get)(int) = NULL;
    *(void **)(void *)&get =
        dlsym(library, "tandem_cuda_get"); /* POSIX: a void * holds a function's address */
    const tandem_device_backend *table = get ? get(TANDEM_BACKEND_VERSION) : NULL;
    if (!table)
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "%s is of another version than this program (%d); rebuild both", library_name,
                                TANDEM_BACKEND_VERSION);
    *backend = table;
    return TANDEM_OK;
}
