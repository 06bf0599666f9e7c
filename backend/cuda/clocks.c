/* clocks.c: the current clocks of a GPU, from NVML, the library of the driver. It is loaded at run time;
 * without it the clocks are unknown. Names, types and numbers are those of NVIDIA's NVML API Reference Guide,
 * "Device Queries". */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "backend/cuda/libraries.h"

typedef struct nvml_device *nvml_handle;
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, BUS_ID_TEXT = 32 };

typedef struct nvml {
    void *library;
    int (*open)(void);
    int (*close)(void);
    int (*find)(const char *bus_id, nvml_handle *device);
    int (*clock)(nvml_handle device, int clock, unsigned *mhz);
} nvml;

/* Copies a function pointer from an object pointer, because C has no such conversion. */
static int find_function(void *function, size_t size, void *library, const char *name)
{
    void *const found = dlsym(library, name);
    memcpy(function, &found, size);
    return found != NULL;
}

static int open_nvml(nvml *n)
{
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library) return 0;
    const int has_all =
        find_function(&n->open, sizeof n->open, n->library, "nvmlInit_v2") &&
        find_function(&n->close, sizeof n->close, n->library, "nvmlShutdown") &&
        find_function(&n->find, sizeof n->find, n->library, "nvmlDeviceGetHandleByPciBusId_v2") &&
        find_function(&n->clock, sizeof n->clock, n->library, "nvmlDeviceGetClockInfo");
    if (has_all && n->open() == 0) return 1;
    (void)dlclose(n->library);
    return 0;
}

/* By the bus ID, since NVML and cudart may number GPUs differently. */
int vendor_read_clocks(int *compute_mhz, int *memory_mhz, int index)
{
    char bus_id[BUS_ID_TEXT];
    unsigned compute = 0, memory = 0;
    nvml_handle device = NULL;
    nvml n = {0};
    const int failed = cuda_from_cudart(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index));
    if (failed) return failed;
    if (!open_nvml(&n)) return (int)cudaErrorNotSupported;
    const int is_known = n.find(bus_id, &device) == 0 && n.clock(device, NVML_CLOCK_SM, &compute) == 0 &&
                         n.clock(device, NVML_CLOCK_MEMORY, &memory) == 0;
    (void)n.close();
    (void)dlclose(n.library);
    if (!is_known) return (int)cudaErrorNotSupported;
    *compute_mhz = (int)compute;
    *memory_mhz = (int)memory;
    return 0;
}
