/* cudart.c: the part of libcudart that nvcc's host objects call, so that they launch their own kernels' PTX.
 * Every launch runs at once. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/library/device.h"

typedef struct extent {
    unsigned x, y, z;
} extent;
enum { SUCCESS, INVALID_VALUE, INVALID_CONFIGURATION = 9, MAX_STUBS = 1024 };

/* --- Which kernel a host function launches ------------------------------------------------------------- */

static struct {
    const void *host;
    const char *name;
} stub[MAX_STUBS];
static int n_stub;

void **__cudaRegisterFatBinary(void *binary);
void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    handle = binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                            void *tid, void *bid, void *block, void *grid, int *warp_size);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                            void *tid, void *bid, void *block, void *grid, int *warp_size)
{
    (void)handle, (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp_size;
    if (n_stub == MAX_STUBS) abort();
    stub[n_stub].host = host;
    stub[n_stub++].name = name;
}

/* --- Launches ------------------------------------------------------------------------------------------- */

static ptx_machine *gpu;
static int last_error;
static struct {
    extent grid, block;
    size_t shared;
    void *stream;
} pushed;

unsigned __cudaPushCallConfiguration(extent grid, extent block, size_t shared, void *stream);
unsigned __cudaPushCallConfiguration(extent grid, extent block, size_t shared, void *stream)
{
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared = shared;
    pushed.stream = stream;
    return SUCCESS;
}

int __cudaPopCallConfiguration(extent *grid, extent *block, size_t *shared, void *stream);
int __cudaPopCallConfiguration(extent *grid, extent *block, size_t *shared, void *stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    memcpy(stream, &pushed.stream, sizeof pushed.stream);
    return SUCCESS;
}

int __cudaGetKernel(const void **kernel, const void *host);
int __cudaGetKernel(const void **kernel, const void *host)
{
    *kernel = host;
    return SUCCESS;
}

static int kernel_of_stub(const void *host)
{
    for (int k = 0; k < n_stub; k++)
        if (stub[k].host == host) return ptx_find(gpu, stub[k].name);
    return -1;
}

int __cudaLaunchKernel(const void *host, extent grid, extent block, void **argument, size_t shared,
                       void *stream);
int __cudaLaunchKernel(const void *host, extent grid, extent block, void **argument, size_t shared,
                       void *stream)
{
    (void)stream;
    const int kernel = kernel_of_stub(host);
    const int is_valid = kernel >= 0 && grid.x >= 1 && grid.x <= INT32_MAX && grid.y == 1 && grid.z == 1 &&
                         block.x >= 1 && block.x <= 1024 && block.y == 1 && block.z == 1 && shared == 0;
    if (is_valid)
        ptx_launch(gpu, kernel, grid.x, block.x, argument);
    else
        last_error = INVALID_CONFIGURATION;
    return is_valid ? SUCCESS : INVALID_CONFIGURATION;
}

int cudaGetLastError(void);
int cudaGetLastError(void)
{
    const int error = last_error;
    last_error = SUCCESS;
    return error;
}

const char *cudaGetErrorString(int error);
const char *cudaGetErrorString(int error) { return error ? "an error" : "no error"; }

int cudaMemsetAsync(void *at, int value, size_t n, void *stream);
int cudaMemsetAsync(void *at, int value, size_t n, void *stream)
{
    (void)stream;
    memset(at, value, n);
    ptx_mark_written(gpu, at, n);
    return SUCCESS;
}

/* --- The device ----------------------------------------------------------------------------------------- */

static char *text_of(const char *path)
{
    FILE *const file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    if (!file || getdelim(&text, &size, '\0', file) < 0) abort();
    fclose(file);
    return text;
}

const char *device_open(const char *folder, const ptx_options *options)
{
    char pattern[4096];
    glob_t found;
    const char *error = NULL;
    snprintf(pattern, sizeof pattern, "%s/*.ptx", folder);
    ptx_close(gpu);
    gpu = ptx_open(options);
    if (!gpu || glob(pattern, 0, NULL, &found)) return "no PTX is here";
    for (size_t k = 0; k < found.gl_pathc && !error; k++) {
        char *const text = text_of(found.gl_pathv[k]);
        error = ptx_load(gpu, strrchr(found.gl_pathv[k], '/') + 1, text);
        free(text);
    }
    globfree(&found);
    return error;
}

ptx_machine *device_machine(void) { return gpu; }

void *device_alloc(size_t bytes, int is_written)
{
    const size_t whole = (bytes + 511) / 256 * 256;
    void *const at = aligned_alloc(256, whole);
    if (!at) abort();
    memset(at, 0x5A, whole);
    ptx_add_memory(gpu, at, bytes, is_written);
    return at;
}

void device_free(void *at)
{
    ptx_remove_memory(gpu, at);
    free(at);
}
